"""How good a student is: figures on the test split, and how right its labels were."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from pate.arrays import FloatArray, IntArray
from pate.errors import DataError
from pate.experiments.datasets.base import TestSet
from pate.experiments.results import Consensus, Evaluation
from pate.student.records import float_records
from pate.votes import Votes

_BINS = 20


class Classifier(Protocol):
    """A student or a baseline: says how likely each class is."""

    def predict_proba(self, x: NDArray[np.float32]) -> FloatArray: ...


def evaluate(student: Classifier, test: TestSet, n_classes: int) -> tuple[Evaluation, NDArray[np.float32], IntArray]:
    """The one look at the test split: everything is decided by now. Also gives the records and labels that were opened."""
    given, y = test.open()
    x = float_records(given)
    if y.min() < 0 or y.max() >= n_classes:
        raise DataError(f"Test labels must lie in 0..{n_classes - 1}, found {y.min()} to {y.max()}.")
    return figures(student.predict_proba(x), y, list(test.openings)), x, y


def figures(probabilities: FloatArray, y: IntArray, openings: list[str]) -> Evaluation:
    """probabilities: float64[record, class], what the student says; y: int64[record], the truth."""
    n_classes = probabilities.shape[1]
    said = probabilities.argmax(axis=1)
    confusion = np.zeros((n_classes, n_classes), dtype=np.int64)
    np.add.at(confusion, (y, said), 1)
    sizes = confusion.sum(axis=1)
    accuracy = float((said == y).mean())
    return Evaluation(
        accuracy=accuracy,
        standard_error=float(np.sqrt(accuracy * (1 - accuracy) / len(y))),
        balanced_accuracy=float((confusion.diagonal()[sizes > 0] / sizes[sizes > 0]).mean()),
        auc=area_under_curve(probabilities[:, 1], y) if n_classes == 2 else None,
        majority=float(sizes.max() / len(y)),
        tested=len(y),
        confusion=confusion.tolist(),
        openings=openings,
    )


def area_under_curve(scores: FloatArray, y: IntArray) -> float | None:
    """How often a record of class 1 scores higher than one of class 0; a tie is half. None where a class is missing.

    >>> area_under_curve(np.array([0.1, 0.4, 0.35, 0.8]), np.array([0, 0, 1, 1]))
    0.75
    """
    ones = int((y == 1).sum())
    if not 0 < ones < len(y):
        return None
    # Mann and Whitney 1947, by ranks.
    ranks = rankdata(scores)[y == 1].sum()
    return float((ranks - ones * (ones + 1) / 2) / (ones * (len(y) - ones)))


def consensus(votes: Votes) -> Consensus:
    """How large a share of the votes the winners had. Private."""
    cast = votes.counts.sum(axis=1)
    shares = votes.counts.max(axis=1)[cast > 0] / cast[cast > 0]
    counts, edges = np.histogram(shares, bins=_BINS, range=(0.0, 1.0))
    return Consensus(edges=edges.tolist(), counts=counts.tolist())
