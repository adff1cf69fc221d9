"""Public records of a table as numbers of one size, and fewer of them where wished."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from pate.arrays import FloatArray
from pate.errors import StudentError


@dataclass(frozen=True, eq=False)
class Scaling:
    """Columns less their public mean, over their public deviation; then, if wished, rotated to principal components.

    mean, deviation: float64[column]; rotation: float64[column, component].
    """

    mean: FloatArray
    deviation: FloatArray
    rotation: FloatArray | None = None

    @classmethod
    def of(cls, x: NDArray[Any], components: int | None = None) -> Self:
        """From public records [record, ...]. A column that does not vary becomes 0."""
        flat = _flat(x)
        mean, deviation = flat.mean(axis=0), flat.std(axis=0)
        # What a sum over n equal numbers leaves by rounding is no deviation.
        deviation[deviation <= 1e-12 * np.abs(mean)] = np.inf
        if components is None:
            return cls(mean, deviation)
        if components > flat.shape[1]:
            raise StudentError(f"components must be at most the {flat.shape[1]} columns of the records, got {components}.")
        standard = (flat - mean) / deviation
        _, vectors = np.linalg.eigh(standard.T @ standard)  # by rising variance
        return cls(mean, deviation, np.ascontiguousarray(vectors[:, ::-1][:, :components]))

    def __call__(self, x: NDArray[Any]) -> FloatArray:
        """float64[record, column or component] for x [record, ...]."""
        standard: FloatArray = (_flat(x) - self.mean) / self.deviation
        return standard if self.rotation is None else standard @ self.rotation

    def arrays(self) -> dict[str, FloatArray]:
        """What :meth:`of` found, to be kept in a file."""
        found = {"mean": self.mean, "deviation": self.deviation}
        return found if self.rotation is None else {**found, "rotation": self.rotation}


def _flat(x: NDArray[Any]) -> FloatArray:
    return np.asarray(x, dtype=np.float64).reshape(len(x), -1)
