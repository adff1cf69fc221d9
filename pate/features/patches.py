"""Patches like those of a dictionary that k-means found in public pictures (Coates, Lee and Ng 2011)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from pate.arrays import FloatArray
from pate.errors import ParameterError
from pate.features.base import Features, Float32Array, Progress
from pate.features.exact import columns_on_grid, exact_product
from pate.features.images import as_images, checked_shape
from pate.features.kmeans import kmeans
from pate.public import PublicData
from pate.validation import whole

_GRID = 2.0**20
"""Distances are rounded to 1/_GRID. They stay below 2**17 (see ``whitening_floor``), so sums of up to 2**16 are exact."""

_MOST_TERMS = 2**16


class Patches(Features):
    """How near each place of a picture is to each of ``centroids`` typical patches, added up over pool x pool regions.

    Pictures [height, width] or flat ones with a ``shape``, pixels in 0..1 (put ``Scale(0, 255)`` before). Patches of
    size x size pixels, ``stride`` apart, are brought to mean 0 and variance 1 (``contrast_floor`` is added to the variance),
    whitened (``whitening_floor`` is added to each direction's variance), and described by max(0, mean distance to all
    centroids - distance to this one). pool² * centroids features; a PCA behind it makes them handy.

    Fitting takes ``samples`` random patches of the public pictures, without the flat ones, and ``rounds`` of k-means.
    """

    name: ClassVar[str] = "patches"
    block_rows: ClassVar[int] = 8  # what they make fits the processor's cache
    mean_: FloatArray
    map_: FloatArray

    def __init__(
        self,
        centroids: int = 300,
        size: int = 6,
        stride: int = 2,
        pool: int = 4,
        *,
        samples: int = 100_000,
        rounds: int = 15,
        contrast_floor: float = 0.01,
        whitening_floor: float = 0.1,
        seed: int = 0,
        shape: Sequence[int] | None = None,
    ) -> None:
        for value, what, least in (
            (centroids, "centroids", 2),
            (size, "size", 2),
            (stride, "stride", 1),
            (pool, "pool", 1),
            (samples, "samples", 2),
            (rounds, "rounds", 1),
            (seed, "seed", 0),
        ):
            whole(value, f"Patches {what}", least)
        if size > 64 or centroids > _MOST_TERMS:
            limits = f"size must be at most 64 and centroids at most {_MOST_TERMS}"
            raise ParameterError(f"Patches {limits}, got {size} and {centroids}.")
        if not (contrast_floor > 0 and whitening_floor >= 1e-6):
            raise ParameterError(
                "Patches contrast_floor must be above 0 and whitening_floor at least 1e-6, "
                f"got {contrast_floor!r} and {whitening_floor!r}."
            )
        self.centroids = centroids
        self.size = size
        self.stride = stride
        self.pool = pool
        self.samples = samples
        self.rounds = rounds
        self.contrast_floor = contrast_floor
        self.whitening_floor = whitening_floor
        self.seed = seed
        self.shape = checked_shape(shape, "Patches shape")

    @property
    def needs_fit(self) -> bool:
        return True

    def _fit(self, public: PublicData, progress: Progress | None) -> None:
        from scipy import linalg  # slow to import, and needed for fitting only

        windows = self._windows(as_images(public.x, self.shape, "Patches"), 1)
        random = np.random.default_rng(self.seed)
        places = (random.integers(side, size=self.samples) for side in windows.shape[:3])
        patches = windows[tuple(places)].reshape(self.samples, -1).astype(np.float64)
        patches = contrast_normalised(patches, self.contrast_floor)
        patches = patches[(patches * patches).mean(axis=1) > 0.1]
        if len(patches) < self.centroids:
            raise ParameterError(
                f"Patches found {len(patches)} patches with contrast in {public!r}, fewer than {self.centroids} centroids. "
                "Raise samples, or check that pixels lie in 0..1."
            )
        self.mean_ = patches.mean(axis=0)
        centred = patches - self.mean_
        variances, axes = linalg.eigh(centred.T @ centred / len(centred))
        whitening = (axes / np.sqrt(np.maximum(variances, 0.0) + self.whitening_floor)) @ axes.T
        centres = kmeans(centred @ whitening, self.centroids, self.rounds, random)
        # |w - c|² = |w|² + (|c|² - 2 w·c) for the whitened patch w. One product of (patch, 1) gives w and all the brackets.
        brackets = np.vstack([-2.0 * whitening @ centres.T, (centres * centres).sum(axis=1)])
        self.map_ = columns_on_grid(np.hstack([np.vstack([whitening, np.zeros(len(whitening))]), brackets * _GRID**2]))

    def _transform_block(self, x: Float32Array) -> NDArray[Any]:
        windows = self._windows(as_images(x, self.shape, "Patches"), self.stride)
        rows, down, right = windows.shape[:3]
        if min(down, right) < self.pool:
            raise ParameterError(f"Patches: {down} x {right} patches cannot be pooled into {self.pool} x {self.pool} regions.")
        if down * right > _MOST_TERMS:
            raise ParameterError(f"Patches sums over at most {_MOST_TERMS} places exactly, got {down * right}. Raise stride.")
        patches = contrast_normalised(windows.reshape(rows, down * right, -1).astype(np.float64), self.contrast_floor)
        with_one = np.concatenate([patches - self.mean_, np.ones((*patches.shape[:2], 1))], axis=-1)
        product = exact_product(with_one, self.map_)
        whitened, distances = product[..., : self.mean_.size], product[..., self.mean_.size :]
        distances += (in_order(whitened * whitened) * _GRID**2)[..., None]
        np.maximum(distances, 0.0, out=distances)
        np.sqrt(distances, out=distances)
        np.rint(distances, out=distances)  # whole multiples of 1 / _GRID from here: sums are exact in any order
        mean = np.rint(distances.sum(axis=-1, keepdims=True) / self.centroids)
        near = np.maximum(mean - distances, 0.0, out=distances).reshape(rows, down, right, -1)
        cuts = [[side * part // self.pool for part in range(self.pool + 1)] for side in (down, right)]
        regions = [near[:, a:b, c:d].sum(axis=(1, 2)) for a, b in pairwise(cuts[0]) for c, d in pairwise(cuts[1])]
        places: float = down * right / self.pool**2
        return np.concatenate(regions, axis=1) / (_GRID * places)

    def _windows(self, images: NDArray[Any], stride: int) -> NDArray[Any]:
        """[record, row, column, size, size]"""
        if min(images.shape[1:]) < self.size:
            raise ParameterError(f"Patches of size {self.size} do not fit in pictures of {images.shape[1:]}.")
        windows = sliding_window_view(images, (self.size, self.size), axis=(1, 2))
        strided: NDArray[Any] = windows[:, ::stride, ::stride]
        return strided


def contrast_normalised(patches: FloatArray, floor: float) -> FloatArray:
    """Patches [..., pixel] less their mean, divided by sqrt(variance + floor)."""
    pixels = patches.shape[-1]
    centred = patches - (in_order(patches) / pixels)[..., None]
    deviation = np.sqrt(in_order(centred * centred) / pixels + floor)
    normalised: FloatArray = centred / deviation[..., None]
    return normalised


def in_order(x: FloatArray) -> FloatArray:
    """The sum along the last axis, added from the first to the last, so that it rounds the same everywhere."""
    total = x[..., 0].copy()
    for index in range(1, x.shape[-1]):
        total += x[..., index]
    return total
