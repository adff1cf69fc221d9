"""A model of records, learnt from how the labels of whole cells of records are shared out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import OptimizeResult, minimize
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
from pate.validation import json_values, positive, whole

_FEATURES, _ARRAYS = "features.npz", "proportions.npz"
_FIRST_STEPS, _STEPS = 25, 200
_LEAST = 1e-12
_Loss = Callable[[FloatArray], tuple[float, FloatArray]]  # of float64[record, class] shares: the loss, its derivative by logits


@dataclass(eq=False, repr=False, kw_only=True)
class Proportions(Student):
    """Logistic regression from noisy histograms of partial votes: which labels lie in a cell, not which record has which.

    Where every private record votes its own label on its nearest query, a query's counts are those of the labels in its cell.
    The public records of the cell say what else is known of it: the mean of their class probabilities should be the share of
    each label. So the model softmax(x W + b) is fitted to all cells at once, each count with its noise and the chance of who
    lies in the cell, and tells records apart within one (learning from label proportions: Quadrianto et al. 2009). Small counts
    are no harm, so there may be many cells: what one of them does not tell, the others do. Where a record votes on several
    queries, cells overlap, and each adds what it knows.

    How many voted in a cell is not asked: it is the cell's share of the public records, times all noisy counts together.
    Without a histogram, where only winners were released, the label stands for the cell.

    features: what the model is linear in; a name or {"name", "settings"}; fitted on the public records.
    cells: by what records find their nearest queries: the features before the voters, of a recipe's [teachers]. None: as
        ``features``.
    votes: on how many of its nearest queries a record votes: votes_per_record of a recipe's [teachers].
    ridge: half of it times the sum of squared weights is added to the loss.
    """

    name: ClassVar[str] = "proportions"

    features: FeaturesSpec = "standardise"
    cells: FeaturesSpec | None = None
    votes: int = 1
    ridge: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        whole(self.votes, f"{self.title} votes", 1)
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
        parts = [_cells_of(compared, release, rows, self.votes) for release, rows in answers]
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

    members: float64[cell, record], sparse: 1 where a public record lies in a cell. counts: float64[cell, class];
    voters: float64[cell], how many of them there would be without noise. variance: float64[cell], of each count around its
    expectation; None: counts name one label, whose likelihood is fitted.
    """

    members: sparse.csr_array
    counts: FloatArray
    voters: FloatArray
    variance: FloatArray | None

    @property
    def averaging(self) -> sparse.csr_array:
        """float64[cell, record], sparse: takes what is said of records to its mean over each cell; an empty cell has mean 0."""
        sizes = np.maximum(self.members.sum(axis=1), 1.0)
        return sparse.csr_array(self.members.multiply(1 / sizes[:, None]))


def _cells_of(compared: Float32Array, release: Release, rows: IntArray, votes: int) -> Cells:
    electorate = release.electorate
    if electorate.participation is None:
        raise StudentError(
            "proportions learns from partial votes, where records vote on their nearest query, and here every teacher voted on "
            "every query. Take 'vote-share' for such answers, or let records vote: teachers.model = \"nearest\"."
        )
    if votes > len(rows):
        raise StudentError(f"votes must be at most the number of queries, {len(rows)}, got {votes}.")
    cell_of = nearest(compared, compared[rows], votes, own=False)[0]
    places = (cell_of.ravel(), np.repeat(np.arange(len(compared)), votes))
    members = sparse.csr_array((np.ones(cell_of.size), places), shape=(len(rows), len(compared)))
    if release.histogram is None or release.mechanism.get("aggregator") != "noisy-histogram":
        answered = release.labels != ABSTAIN
        counts = np.eye(electorate.n_classes)[np.where(answered, release.labels, 0)] * answered[:, None]
        return Cells(members, counts, answered.astype(np.float64), None)
    counts = np.asarray(release.histogram, dtype=np.float64)
    sizes: FloatArray = members.sum(axis=1)
    voters = sizes / sizes.sum() * max(float(counts.sum()), 1.0)
    # The noise; and the multinomial's variance, at equal shares, of who lies in the cell: of the voters themselves, and of the
    # public records that stand for them, on whose number it depends.
    drawn = voters * (1 + voters / np.maximum(sizes, 1.0)) * (electorate.n_classes - 1) / electorate.n_classes**2
    return Cells(members, counts, voters, float(release.mechanism["sigma"]) ** 2 + drawn)


def fit_proportions(
    points: FloatArray, parts: list[Cells], n_classes: int, ridge: float
) -> tuple[FloatArray, FloatArray, float, int]:
    """Weights float64[column, class] and bias float64[class] of the least penalised loss; that loss; steps taken.

    points: float64[record, column]. The bias is not penalised. The loss is not convex: from weights 0 the descent may end where
    one class has given way to another (on Fashion-MNIST a third of the draws with 1,500 cells did, seven points below). So it
    starts from the least of a loss that is convex, in which every record bears the labels of its cells. By L-BFGS.
    """
    width = points.shape[1]
    ways = [each.averaging for each in parts]

    def of_cells(shares: FloatArray) -> tuple[float, FloatArray]:
        loss, by_share = 0.0, np.zeros_like(shares)
        for cells, averaging in zip(parts, ways, strict=True):
            value, by_mean = cell_loss(cells, averaging @ shares)
            loss += value
            by_share += averaging.T @ by_mean
        return loss, shares * (by_share - (shares * by_share).sum(axis=1, keepdims=True))

    told = _labels_of_cells(parts, n_classes)

    def of_records(shares: FloatArray) -> tuple[float, FloatArray]:
        return -float((told * np.log(np.maximum(shares, _LEAST))).sum()), shares * told.sum(axis=1, keepdims=True) - told

    def descend(of_shares: _Loss, start: FloatArray, steps: int) -> OptimizeResult:
        def loss_and_gradient(flat: FloatArray) -> tuple[float, FloatArray]:
            weights = flat.reshape(width + 1, n_classes)
            loss, by_logit = of_shares(softmax(points @ weights[:-1] + weights[-1], axis=1))
            gradient = np.concatenate([points.T @ by_logit + ridge * weights[:-1], by_logit.sum(axis=0, keepdims=True)])
            return loss + ridge / 2 * float((weights[:-1] ** 2).sum()), gradient.ravel()

        return minimize(loss_and_gradient, start, jac=True, method="L-BFGS-B", options={"maxiter": steps, "maxfun": 2 * steps})

    start = descend(of_records, np.zeros((width + 1) * n_classes), _FIRST_STEPS)
    found = descend(of_cells, start.x, _STEPS)
    if not np.isfinite(found.fun):
        raise StudentError(f"proportions could not be fitted: its loss is {found.fun}. Raise ridge.")
    weights = found.x.reshape(width + 1, n_classes)
    return weights[:-1], weights[-1], float(found.fun), int(found.nit)


def cell_loss(cells: Cells, means: FloatArray) -> tuple[float, FloatArray]:
    """The loss of all cells, given float64[cell, class], the mean share of each class in them, and its derivative by it."""
    if cells.variance is None:
        log = np.log(np.maximum(means, _LEAST))
        return -float((cells.counts * log).sum()), -cells.counts / np.maximum(means, _LEAST)
    miss = cells.counts - cells.voters[:, None] * means
    by_mean = -miss * (cells.voters / cells.variance)[:, None]
    return float((miss**2 / (2 * cells.variance[:, None])).sum()), by_mean


def _labels_of_cells(parts: list[Cells], n_classes: int) -> FloatArray:
    """float64[record, class]: the shares of labels in the cells of each public record, those of all its cells together."""
    total = np.zeros((parts[0].members.shape[1], n_classes))
    for cells in parts:
        positive_counts = np.maximum(cells.counts, 0.0)
        total += cells.members.T @ (positive_counts / np.maximum(positive_counts.sum(axis=1, keepdims=True), _LEAST))
    shares: FloatArray = total / np.maximum(total.sum(axis=1, keepdims=True), 1.0)
    return shares


def _flat(features: Features, records: Float32Array) -> Float32Array:
    found: Float32Array = features.transform(records).reshape(len(records), -1)
    return found
