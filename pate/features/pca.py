"""Principal components of public data."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from pate.arrays import FloatArray
from pate.errors import ParameterError
from pate.features.base import Features, Float32Array, Progress
from pate.features.exact import columns_on_grid, exact_product
from pate.public import PublicData
from pate.validation import whole

_LEAST_DEVIATION = 1e-6  # of the largest: below it a direction is rounding, not data


class PCA(Features):
    """The first principal components of public data, each divided by (standard deviation) ** whiten.

    components: how many; whiten: 0 keeps the data's own scale, 1 gives every component variance 1, 0.5 ("half-whitened")
    lies between. Records of any shape are flattened. A component's largest loading is positive.
    """

    name: ClassVar[str] = "pca"
    block_rows: ClassVar[int] = 64
    mean_: FloatArray
    map_: FloatArray

    def __init__(self, components: int, whiten: float = 0.0) -> None:
        whole(components, "PCA components", 1)
        if not 0 <= whiten <= 1:
            raise ParameterError(f"PCA whiten must lie in 0..1, got {whiten!r}.")
        self.components = components
        self.whiten = whiten

    @property
    def needs_fit(self) -> bool:
        return True

    def _fit(self, public: PublicData, progress: Progress | None) -> None:
        x = public.x.reshape(len(public), -1).astype(np.float64)
        if self.components > min(len(x) - 1, x.shape[1]):
            raise ParameterError(
                f"PCA components must be at most {min(len(x) - 1, x.shape[1])} (records - 1, and features) for "
                f"{public!r}, got {self.components}."
            )
        self.mean_ = x.mean(axis=0)
        directions, deviations = principal_axes(x - self.mean_, self.components)
        if deviations[-1] <= _LEAST_DEVIATION * deviations[0]:
            rank = int((deviations > _LEAST_DEVIATION * deviations[0]).sum())
            raise ParameterError(f"{public!r} has only {rank} directions of variance, PCA components is {self.components}.")
        self.map_ = columns_on_grid(directions / deviations**self.whiten)

    def _transform_block(self, x: Float32Array) -> FloatArray:
        flat = x.reshape(len(x), -1)
        if flat.shape[1] != self.mean_.size:
            raise ParameterError(f"PCA was fitted on records of {self.mean_.size} numbers, got {flat.shape[1]}.")
        return exact_product(flat - self.mean_, self.map_)


def principal_axes(centred: FloatArray, components: int) -> tuple[FloatArray, FloatArray]:
    """Directions float64[feature, component] and standard deviations float64[component], largest first.

    From the eigenvalues of the smaller of the two Gram matrices; the largest loading of each direction is positive.
    """
    from scipy import linalg  # slow to import, and needed for fitting only

    records, features = centred.shape
    wide = records < features
    gram = centred @ centred.T if wide else centred.T @ centred
    last = len(gram) - 1
    values, vectors = linalg.eigh(gram, subset_by_index=(last - components + 1, last))
    values, vectors = np.maximum(values[::-1], 0.0), vectors[:, ::-1]
    directions = centred.T @ vectors if wide else vectors
    directions = directions / np.maximum(np.linalg.norm(directions, axis=0), np.finfo(np.float64).tiny)
    largest = np.take_along_axis(directions, np.abs(directions).argmax(axis=0)[None], axis=0)
    return directions * np.where(largest < 0, -1.0, 1.0), np.sqrt(values / max(records - 1, 1))
