"""A model of the teachers' vote share, fitted with the noise that the mechanism is known to add."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import softmax

from pate.arrays import FloatArray
from pate.errors import StudentError
from pate.release import Release
from pate.student.answers import Answers
from pate.student.base import Student
from pate.student.channel import Channel, plain_log_likelihood
from pate.student.diary import Diary
from pate.student.tabular.scaling import Scaling
from pate.validation import positive, whole

_FILE = "vote_share.npz"
_STEPS = 500

LogLikelihood = Callable[[FloatArray], tuple[FloatArray, FloatArray]]
"""shares float64[query, class] -> log-likelihood float64[query] and its derivative float64[query, class]."""


@dataclass(eq=False, repr=False, kw_only=True)
class VoteShare(Student):
    """A logistic model of the vote share, by maximum likelihood under the mechanism's known noise; for tables, in a second.

    The share of teachers that vote for each class is softmax(x W + b). An answer is not a draw from it but the winner after
    noise, P(label | share) of :class:`~pate.student.channel.Channel`: with two classes Phi(K (2s - 1) / (sqrt(2) sigma)). So an
    answer that noise may have turned over weighs little, and an abstention says that the teachers were divided. Where noisy
    counts were published, they are what is fitted.

    Where the mechanism does not say the channel (one that is not built in; partial votes), and with ``noise_aware=False``, this
    is ridge logistic regression on the labels; the stage in the record's history says which it was.

    ridge: half of it times the sum of squared weights is added to the loss; records are standardised on the public ones.
    components: learn on this many principal components of the public records; None: on all columns.
    noise_aware: whether to use the channel.
    """

    name: ClassVar[str] = "vote-share"

    ridge: float = 1.0
    components: int | None = None
    noise_aware: bool = True
    seed: int = 0

    def __post_init__(self) -> None:
        positive(self.ridge, f"{self.title} ridge")
        if self.components is not None:
            whole(self.components, f"{self.title} components", 1)

    def _fit(self, x: NDArray[Any], answers: Answers, diary: Diary) -> None:
        self._scaling = Scaling.of(x, self.components)
        channels = [Channel.of(release) if self.noise_aware else None for release in answers.releases]
        parts = [
            (self._scaling(x[rows]), _likelihood(release, channel))
            for (release, rows), channel in zip(answers, channels, strict=True)
        ]
        stages = {"labels as they are" if channel is None else "labels under their noise" for channel in channels}
        with diary.stage(" and ".join(sorted(stages)), 1) as step:
            self._weights, self._bias, loss, steps = fit_shares(parts, answers.n_classes, self.ridge)
            step(loss=loss, steps=steps)

    def _probabilities(self, x: NDArray[Any]) -> NDArray[np.floating]:
        shares: FloatArray = softmax(self._scaling(x) @ self._weights + self._bias, axis=1)
        return shares

    def _save(self, folder: Path) -> None:
        arrays = {"weights": self._weights, "bias": self._bias, **self._scaling.arrays()}
        np.savez(folder / _FILE, **arrays)  # type: ignore[arg-type]  # the stubs take them for allow_pickle

    def _load(self, folder: Path) -> None:
        with np.load(folder / _FILE, allow_pickle=False) as file:
            arrays = {key: file[key] for key in file.files}
        self._weights, self._bias = arrays.pop("weights"), arrays.pop("bias")
        self._scaling = Scaling(**arrays)


def _likelihood(release: Release, channel: Channel | None) -> LogLikelihood:
    if channel is None:
        return partial(plain_log_likelihood, labels=release.lessons)
    return partial(channel.log_likelihood, labels=release.labels, histogram=release.histogram)


def fit_shares(
    parts: Sequence[tuple[FloatArray, LogLikelihood]], n_classes: int, ridge: float
) -> tuple[FloatArray, FloatArray, float, int]:
    """Weights float64[column, class] and bias float64[class] of the largest penalised likelihood; the loss; steps taken.

    parts: for each release, the records asked, float64[query, column], and the log-likelihood of their shares. The bias is not
    penalised. From weights 0; L-BFGS.
    """
    width = parts[0][0].shape[1]

    def loss_and_gradient(flat: FloatArray) -> tuple[float, FloatArray]:
        weights = flat.reshape(width + 1, n_classes)
        loss, slope = ridge / 2 * float((weights[:-1] ** 2).sum()), np.zeros_like(weights)
        slope[:-1] = ridge * weights[:-1]
        for records, likelihood in parts:
            shares = softmax(records @ weights[:-1] + weights[-1], axis=1)
            value, by_share = likelihood(shares)
            by_logit = shares * (by_share - (shares * by_share).sum(axis=1, keepdims=True))
            loss -= float(value.sum())
            slope[:-1] -= records.T @ by_logit
            slope[-1] -= by_logit.sum(axis=0)
        return loss, slope.ravel()

    start = np.zeros((width + 1) * n_classes)
    found = minimize(loss_and_gradient, start, jac=True, method="L-BFGS-B", options={"maxiter": _STEPS, "maxfun": 2 * _STEPS})
    if not np.isfinite(found.fun):
        raise StudentError(f"The vote-share model could not be fitted: its loss is {found.fun}. Raise ridge.")
    weights = found.x.reshape(width + 1, n_classes)
    return weights[:-1], weights[-1], float(found.fun), int(found.nit)
