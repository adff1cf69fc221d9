"""Ridge regression on the labels, in closed form."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from pate.arrays import FloatArray, IntArray
from pate.errors import TeacherError
from pate.teachers.batched.aligned import double_zeros
from pate.teachers.batched.models import ArrayModel, ArrayTeachers, finished
from pate.teachers.batched.schedule import records_of
from pate.teachers.batched.voting import linear_votes
from pate.teachers.family import Part
from pate.validation import positive


class RidgeTeachers(ArrayTeachers):
    """Ridge regression of one-hot labels: nothing to tune but a penalty, and strong on good features.

    ``penalty`` is in units of the mean squared distance of the teacher's own records from their mean; the intercept is free.
    """

    def __init__(self, penalty: float = 0.1) -> None:
        positive(penalty, "penalty")
        self.penalty = penalty

    def fit(self, part: Part, n_classes: int) -> ArrayModel:
        with np.errstate(over="ignore", invalid="ignore"):  # numbers that are not finite are told of once, at the end
            records = records_of(part, n_classes)
            x = double_zeros(*records.x.shape)
            np.copyto(x, records.x)
            targets = double_zeros(n_classes, len(x))
            targets[records.y, np.arange(len(x))] = 1
            try:
                weights, bias = ridge(x, targets, self.penalty)
            except LinAlgError:
                raise TeacherError(
                    f"Teacher {part.teacher}: its equations have no solution in double precision. Raise penalty, or look for "
                    "NaN and very large values in its records."
                ) from None
            model = {"weights": weights.astype(np.float32, order="C"), "bias": bias.astype(np.float32)}
            return finished(model, records.y, part.teacher)

    def predict_batch(self, models: Sequence[ArrayModel], x: NDArray[Any], n_classes: int) -> IntArray:
        return linear_votes(models, x)


def ridge(x: FloatArray, targets: FloatArray, penalty: float) -> tuple[FloatArray, FloatArray]:
    """float64[target, feature] and the intercepts float64[target], from x: [record, feature] and targets: [target, record].

    Overwrites both. Solves in as many unknowns as there are records or features, whichever is fewer.
    """
    middle, levels = x.mean(axis=0), targets.mean(axis=1)
    np.subtract(x, middle, out=x)
    np.subtract(targets, levels[:, None], out=targets)
    n_records, n_features = x.shape
    if n_records < n_features:
        products = double_zeros(n_records, n_records)
        np.dot(x, x.T, out=products)
        weights = np.dot(_solve(products, targets, penalty / n_records), x)
    else:
        products, sums = double_zeros(n_features, n_features), double_zeros(len(targets), n_features)
        np.dot(x.T, x, out=products)
        np.dot(targets, x, out=sums)
        weights = _solve(products, sums, penalty / n_records)
    return weights, levels - np.dot(weights, middle)


def _solve(products: FloatArray, sides: FloatArray, share: float) -> FloatArray:
    """The solutions s, float64[side, unknown], of (products + share · trace(products)) s = side. Overwrites both."""
    spread = float(np.trace(products))
    products.flat[:: len(products) + 1] += share * spread if spread > 0 else 1.0  # equal records: any penalty gives 0
    # Symmetric, so the transpose is the same matrix in the order in which LAPACK works in place.
    factor = cho_factor(products.T, lower=True, overwrite_a=True, check_finite=False)
    solved: FloatArray = cho_solve(factor, sides.T, overwrite_b=True, check_finite=False).T
    return solved
