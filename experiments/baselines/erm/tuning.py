"""A private choice of the regularisation: Algorithm 3 of Chaudhuri, Monteleoni, Sarwate 2011."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pate.arrays import FloatArray, IntArray
from pate.digests import keyed_place
from pate.errors import ParameterError
from pate.experiments.baselines.erm.estimators import PrivateLinearClassifier, PrivateLogisticRegression, forget
from pate.experiments.baselines.erm.mechanisms import GaussianPerturbation, Perturbation
from pate.experiments.baselines.erm.paying import charge
from pate.experiments.baselines.erm.rows import people_of, persons
from pate.experiments.baselines.erm.solving import check_count
from pate.extras import require
from pate.ledger import Ledger
from pate.mechanisms.exponential import ExponentialMechanism
from pate.noise import Noise
from pate.privacy.curve import RdpCurve
from pate.validation import positive

base: Any = require("sklearn.base", "train")
validation: Any = require("sklearn.utils.validation", "train")

CANDIDATES = (1e-4, 1e-3, 1e-2, 1e-1)
_FINE = 1 << 20  # a person's share of wrong records is counted in such parts


class PrivateTuning(base.ClassifierMixin, base.BaseEstimator):  # type: ignore[misc]
    """m candidates: the data in m + 1 disjoint parts, a model on each of m, and the exponential mechanism on their errors on
    the last.

    Algorithm 3, Theorem 10: as every person is in one part alone, the whole costs no more than one model or the choice,
    whichever costs more. Each model learns from 1/(m + 1) of the data: where that hurts more than a wrong candidate, take the
    rule.

    estimator: its own regularisation is not used. choice_epsilon: of the exponential mechanism, pure; that of the estimator
    unless given, as in the paper (with Gaussian noise one that costs no more). salt: of the keyed hash that says in which part
    a person is; public.

    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(0, 2, 6000)
    >>> x = rng.normal(size=(6000, 3)) + 2 * y[:, None]
    >>> learner = PrivateTuning(PrivateLogisticRegression(data_norm=4.0), (0.001, 0.01)).fit(x, y)
    >>> bool(learner.score(x, y) > 0.85), learner.regularisation_ in (0.001, 0.01)
    (True, True)
    """

    def __init__(
        self,
        estimator: PrivateLinearClassifier | None = None,
        candidates: Sequence[float] = CANDIDATES,
        choice_epsilon: float | None = None,
        salt: str = "pate.erm",
    ) -> None:
        self.estimator = estimator
        self.candidates = candidates
        self.choice_epsilon = choice_epsilon
        self.salt = salt

    def fit(
        self,
        X: Any,
        y: Any,
        *,
        units: ArrayLike | None = None,
        ids: ArrayLike | None = None,
        noise: Noise | None = None,
        ledger: Ledger | None = None,
        key: str = "erm",
    ) -> Self:
        """As that of the estimator. ids: [record], that of the person, which stays for good; the place in X unless given, which
        covers replacement, and not that a record more or less moves all behind it. Who is replaced under another id may move
        to another part: that is two changes, one less and one more."""
        forget(self)
        x, labels = validation.validate_data(self, X, y, dtype=np.float64)
        model = base.clone(PrivateLogisticRegression() if self.estimator is None else self.estimator)
        strengths = self._strengths()
        ones, rows = model.labels(labels), model.bound.rows(x)
        source = model.source if noise is None else noise
        owners = np.arange(len(x)) if units is None else persons(units, len(x))
        records = model.declared(int(owners.max()) + 1)
        mechanism = model.mechanism(ledger)
        self.choice_epsilon_ = own_epsilon(mechanism) if self.choice_epsilon is None else self.choice_epsilon
        positive(self.choice_epsilon_, "choice_epsilon")
        parts = len(strengths) + 1
        task = model.task(mechanism, max(1, records // parts), x.shape[1], users=units is not None)
        names = ids if ids is not None else np.arange(len(x)) if units is None else units
        part = parts_of(names, owners, self.salt, parts)
        own = [part == place for place in range(parts)]
        learners = [people_of(rows[each], ones[each], None if units is None else owners[each]) for each in own[:-1]]
        for people in learners:
            check_count(task, people)
        self.mechanism_, self.task_, self.mode_ = mechanism, task, source.mode
        if ledger is not None:
            charge(ledger, self.curve, self.memo(), key, source.mode)
        found = [
            mechanism.release(replace(task, regularisation=strength), people, source)
            for strength, people in zip(strengths, learners, strict=True)
        ]
        held = own[-1]
        scores = [right_persons((rows[held] @ weights > 0) != ones[held], owners[held]) for weights in found]
        self.choice_ = choice_of(self.choice_epsilon_).choose(np.array(scores, dtype=np.int64), source)
        self.regularisation_ = strengths[self.choice_]
        self.task_ = replace(task, regularisation=self.regularisation_)
        self.best_ = model.with_weights(found[self.choice_], x.shape[1])
        self.classes_ = model.classes_
        return self

    @property
    def curve(self) -> RdpCurve:
        """RDP of the whole: a person is in one part alone, so the larger of both costs at every order."""
        choice = choice_of(self.choice_epsilon_).cost()
        return RdpCurve.of(np.maximum(self.mechanism_.curve.values, choice.values))

    def epsilon_at(self, delta: float) -> float:
        """The smallest epsilon at delta of the whole."""
        return float(max(self.mechanism_.epsilon(delta), self.choice_epsilon_))

    def memo(self) -> dict[str, Any]:
        """Public facts: for the ledger."""
        facts = {
            "mechanism": f"erm {self.mechanism_.name}, tuned",
            "candidates": self._strengths(),
            "choice_epsilon": self.choice_epsilon_,
        }
        return {**facts, **self.mechanism_.facts(self.task_), "records": self.task_.records, "columns": self.task_.columns}

    def decision_function(self, X: Any) -> FloatArray:
        """float64[record]: above 0 for the second class."""
        validation.check_is_fitted(self, "best_")
        found: FloatArray = self.best_.decision_function(X)
        return found

    def predict(self, X: Any) -> NDArray[Any]:
        """[record]: the class of each."""
        validation.check_is_fitted(self, "best_")
        found: NDArray[Any] = self.best_.predict(X)
        return found

    def predict_proba(self, X: Any) -> FloatArray:
        """float64[record, 2]: see the estimator."""
        validation.check_is_fitted(self, "best_")
        found: FloatArray = self.best_.predict_proba(X)
        return found

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags

    def _strengths(self) -> list[float]:
        if len(self.candidates) < 2:
            raise ParameterError(
                f"candidates must be two or more, got {len(self.candidates)}. With one there is nothing to choose."
            )
        for each in self.candidates:
            positive(each, "A candidate")
        return [float(each) for each in self.candidates]


def parts_of(ids: ArrayLike, owners: IntArray, salt: str, parts: int) -> IntArray:
    """int64[record]: the part of each. A person must be in one alone: else the whole costs the sum over several."""
    part = keyed_place(np.asarray(ids), salt, parts)
    if part.shape != owners.shape:
        raise ParameterError(f"ids must name the person of each of the {len(owners)} records, got {len(part)} ids.")
    _, first = np.unique(owners, return_index=True)
    if (part != part[first][owners]).any():
        raise ParameterError(
            "ids must be those of the persons in units, the same for all records of one: else a person is in several parts, "
            "and the cost is more than one model's. Leave ids out, or give the person's."
        )
    return part


def own_epsilon(mechanism: Perturbation) -> float:
    """An epsilon of the choice that costs no more than the mechanism at any order: of Gaussian noise of m sensitivities 2/m.

    The exponential mechanism costs at most order * epsilon^2 / 8, the noise order / (2 m^2).
    """
    return 2 / mechanism.noise_multiplier if isinstance(mechanism, GaussianPerturbation) else mechanism.epsilon(0.5)


def choice_of(epsilon: float) -> ExponentialMechanism:
    """By the scores of :func:`right_persons`: probability proportional to exp(-epsilon/2 * persons classified wrong)."""
    return ExponentialMechanism(epsilon, sensitivity=_FINE)


def right_persons(wrong: NDArray[np.bool_], owners: IntArray) -> int:
    """Less the more persons are classified wrong, each by the share of own records: one replaced moves it by at most _FINE.

    >>> right_persons(np.array([True, False, True]), np.array([0, 0, 1])) / _FINE
    -1.5
    """
    _, places, sizes = np.unique(owners, return_inverse=True, return_counts=True)
    of_person = np.bincount(places, weights=wrong, minlength=len(sizes)).astype(np.int64)
    return -int((of_person * _FINE // np.maximum(sizes, 1)).sum())
