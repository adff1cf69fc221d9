"""A model of records, learnt from how the labels of whole cells of records are shared out."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import softmax

from pate.arrays import FloatArray, IntArray
from pate.errors import StudentError
from pate.features import Features
from pate.features.cache import fit_cached
from pate.public import PublicData
from pate.release import ABSTAIN, Release
from pate.student.answers import Answers
from pate.student.base import Student
from pate.student.diary import Diary
from pate.student.graph.neighbours import nearest
from pate.student.records import FeaturesSpec, Float32Array, float_records, make_features
from pate.validation import json_values, positive

_FEATURES, _ARRAYS = "features.npz", "proportions.npz"
_STEPS = 200
_LEAST = 1e-12


@dataclass(eq=False, repr=False, kw_only=True)
class Proportions(Student):
    """Logistic regression from noisy histograms of partial votes: which labels lie in a cell, not which record has which.

    Where every private record votes its own label on its nearest query, a query's counts are those of the labels in its cell.
    The public records of the cell say what else is known of it: the mean of their class probabilities should be the share of
    each label. So the model softmax(x W + b) is fitted to all cells at once, each count with its noise and the chance of who
    lies in the cell, and tells records apart within one (learning from label proportions: Quadrianto et al. 2009). Small counts
    are no harm, so there may be many cells: what one of them does not tell, the others do.

    How many voted in a cell is not asked: it is the cell's share of the public records, times all noisy counts together.
    Without a histogram, where only winners were released, the label stands for the cell.

    features: what the model is linear in; a name or {"name", "settings"}; fitted on the public records.
    cells: by what records find their nearest query: the features before the voters, of a recipe's [teachers]. None: as
        ``features``.
    ridge: half of it times the sum of squared weights is added to the loss.
    """

    name: ClassVar[str] = "proportions"

    features: FeaturesSpec = "standardise"
    cells: FeaturesSpec | None = None
    ridge: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        positive(self.ridge, f"{self.title} ridge")
        json_values(self.settings(), self.title)

    def _fit(self, x: NDArray[Any], answers: Answers, diary: Diary) -> None:
        records = float_records(x)
        with diary.fitting() as told:
            self._features = fit_cached(make_features(self.features), PublicData(records), progress=told)
            cells = self._features
            if self.cells is not None:
                cells = fit_cached(make_features(self.cells), PublicData(records), progress=told)
        compared = _flat(cells, records)
        parts = [_cells_of(compared, release, rows) for release, rows in answers]
        with diary.stage("proportions", 1) as step:
            self._weights, self._bias, loss, steps = fit_proportions(
                _flat(self._features, records).astype(np.float64), parts, answers.n_classes, self.ridge
            )
            step(loss=loss, steps=steps)

    def _probabilities(self, x: NDArray[Any]) -> FloatArray:
        points = _flat(self._features, float_records(x)).astype(np.float64)
        shares: FloatArray = softmax(points @ self._weights + self._bias, axis=1)
        return shares

    def _save(self, folder: Path) -> None:
        self._features.save(folder / _FEATURES)
        np.savez(folder / _ARRAYS, weights=self._weights, bias=self._bias)

    def _load(self, folder: Path) -> None:
        self._features = Features.load(folder / _FEATURES)
        with np.load(folder / _ARRAYS, allow_pickle=False) as arrays:
            self._weights, self._bias = arrays["weights"], arrays["bias"]


class Cells(NamedTuple):
    """What is known of each cell.

    cell_of: int64[record], the cell of each public record. sizes: float64[cell], how many of them it has.
    counts: float64[cell, class]; voters: float64[cell], how many of them there would be without noise.
    variance: float64[cell], of each count around its expectation; None: counts name one label, whose likelihood is fitted.
    """

    cell_of: IntArray
    sizes: FloatArray
    counts: FloatArray
    voters: FloatArray
    variance: FloatArray | None


def _cells_of(compared: Float32Array, release: Release, rows: IntArray) -> Cells:
    electorate = release.electorate
    if electorate.participation is None:
        raise StudentError(
            "proportions learns from partial votes, where records vote on their nearest query, and here every teacher voted on "
            "every query. Take 'vote-share' for such answers, or let records vote: teachers.model = \"nearest\"."
        )
    cell_of = nearest(compared, compared[rows], 1, own=False)[0][:, 0]
    sizes = np.bincount(cell_of, minlength=len(rows)).astype(np.float64)
    if release.histogram is None or release.mechanism.get("aggregator") != "noisy-histogram":
        answered = release.labels != ABSTAIN
        counts = np.eye(electorate.n_classes)[np.where(answered, release.labels, 0)] * answered[:, None]
        return Cells(cell_of, sizes, counts, answered.astype(np.float64), None)
    counts = np.asarray(release.histogram, dtype=np.float64)
    voters = sizes / sizes.sum() * max(float(counts.sum()), 1.0)
    # The noise; and of who lies in the cell the multinomial's variance, at equal shares.
    drawn = voters * (electorate.n_classes - 1) / electorate.n_classes**2
    return Cells(cell_of, sizes, counts, voters, float(release.mechanism["sigma"]) ** 2 + drawn)


def fit_proportions(
    points: FloatArray, parts: list[Cells], n_classes: int, ridge: float
) -> tuple[FloatArray, FloatArray, float, int]:
    """Weights float64[column, class] and bias float64[class] of the least penalised loss; that loss; steps taken.

    points: float64[record, column]. The bias is not penalised. From weights 0, by L-BFGS.
    """
    width = points.shape[1]

    def loss_and_gradient(flat: FloatArray) -> tuple[float, FloatArray]:
        weights = flat.reshape(width + 1, n_classes)
        shares = softmax(points @ weights[:-1] + weights[-1], axis=1)
        loss, by_share = ridge / 2 * float((weights[:-1] ** 2).sum()), np.zeros_like(shares)
        for cells in parts:
            value, slope = cell_loss(cells, shares)
            loss += value
            by_share += slope
        by_logit = shares * (by_share - (shares * by_share).sum(axis=1, keepdims=True))
        gradient = np.concatenate([points.T @ by_logit + ridge * weights[:-1], by_logit.sum(axis=0, keepdims=True)])
        return loss, gradient.ravel()

    start = np.zeros((width + 1) * n_classes)
    found = minimize(loss_and_gradient, start, jac=True, method="L-BFGS-B", options={"maxiter": _STEPS, "maxfun": 2 * _STEPS})
    if not np.isfinite(found.fun):
        raise StudentError(f"proportions could not be fitted: its loss is {found.fun}. Raise ridge.")
    weights = found.x.reshape(width + 1, n_classes)
    return weights[:-1], weights[-1], float(found.fun), int(found.nit)


def cell_loss(cells: Cells, shares: FloatArray) -> tuple[float, FloatArray]:
    """The loss of all cells, given float64[record, class] of every public record, and its derivative by those shares."""
    sums = np.zeros_like(cells.counts)
    np.add.at(sums, cells.cell_of, shares)
    sizes = np.maximum(cells.sizes, 1.0)[:, None]
    means = sums / sizes
    if cells.variance is None:
        log = np.log(np.maximum(means, _LEAST))
        by_mean = -cells.counts / np.maximum(means, _LEAST)
        return -float((cells.counts * log).sum()), (by_mean / sizes)[cells.cell_of]
    miss = cells.counts - cells.voters[:, None] * means
    by_mean = -miss * cells.voters[:, None] / cells.variance[:, None]
    return float((miss**2 / (2 * cells.variance[:, None])).sum()), (by_mean / sizes)[cells.cell_of]


def _flat(features: Features, records: Float32Array) -> Float32Array:
    found: Float32Array = features.transform(records).reshape(len(records), -1)
    return found
