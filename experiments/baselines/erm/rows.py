"""From records and labels to what the theorems ask for: rows of length at most 1, one vote of weight 1 for each person."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pate.arrays import FloatArray, IntArray
from pate.errors import DataError, ParameterError
from pate.experiments.baselines.erm.solving import People
from pate.validation import positive

_INSIDE = 1 - 2.0**-40  # so that rounding leaves no row longer than 1


@dataclass(frozen=True)
class Bound:
    """How a record becomes a row: cut to length ``norm``, divided by it, and 1 appended for the intercept; all over its length.

    norm: declared, never learned. A longer record is scaled down to it, by itself, whatever other records there are; the same
    is done to a record to be classified. With refuse=True a longer record is an error, which tells that there is one: for data
    whose preparation guarantees the bound. The intercept is a weight like the others: it counts in the length and is
    regularised.
    """

    norm: float = 1.0
    intercept: bool = True
    refuse: bool = False

    def __post_init__(self) -> None:
        positive(self.norm, "data_norm")

    @property
    def _shrink(self) -> float:
        return math.sqrt(1 + self.intercept)

    def columns(self, width: int) -> int:
        return width + self.intercept

    def rows(self, x: NDArray[Any]) -> FloatArray:
        """float64[record, column] of records [record, ...]."""
        flat = np.asarray(x, dtype=np.float64).reshape(len(x), -1)
        with np.errstate(over="ignore"):
            lengths = np.linalg.norm(flat, axis=1)
        if self.refuse and (lengths > self.norm * (1 + 1e-9)).any():
            raise DataError(
                f"Every record must be at most data_norm = {self.norm:g} long; found a longer one. Declare a larger norm, "
                "or let records be cut."
            )
        scale = np.minimum(1.0, self.norm / np.maximum(lengths, 1e-300)) / self.norm
        rows: FloatArray = flat * scale[:, None]
        if self.intercept:
            rows = np.concatenate([rows, np.ones((len(rows), 1))], axis=1)
        rows *= _INSIDE / self._shrink
        return rows

    def coefficients(self, weights: FloatArray) -> tuple[FloatArray, float]:
        """float64[feature] and the intercept, for records no longer than the bound."""
        factor = _INSIDE / self._shrink
        if not self.intercept:
            return weights * factor / self.norm, 0.0
        return weights[:-1] * factor / self.norm, float(weights[-1] * factor)


def people_of(rows: FloatArray, ones: NDArray[np.bool_], units: ArrayLike | None = None) -> People:
    """rows: float64[record, column]. ones: bool[record], whether of class 1. units: [record], whose record it is."""
    signs = np.where(ones, 1.0, -1.0)
    if units is None:
        return People(rows, signs, np.ones(len(rows)), len(rows))
    owners = persons(units, len(rows))
    sizes = np.bincount(owners)
    # A person's weights must not exceed 1 in all by rounding either.
    return People(rows, signs, _INSIDE / sizes[owners], len(sizes))


def persons(units: ArrayLike, n_records: int) -> IntArray:
    """int64[record]: the persons numbered from 0."""
    _, owners = np.unique(np.asarray(units), return_inverse=True)
    if owners.shape != (n_records,):
        raise ParameterError(f"units must name one person for each of the {n_records} records, got shape {owners.shape}.")
    return np.asarray(owners, dtype=np.int64)
