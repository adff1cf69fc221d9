"""Lots and noise: the two random draws that the guarantee stands on. Both come from one noise source."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pate.arrays import FloatArray, IntArray
from pate.errors import ParameterError
from pate.noise import Noise
from pate.sampling import lattice_bits


class PoissonLots:
    """Every unit enters a lot with probability ``rate``, independently of all others and of all other lots.

    The bound counts on it: a loader that shuffles gives lots of one size, for which no such proof is known, and is no lot here.
    units: [record], for users with several records: of a user who is drawn, one record enters, drawn at random. So a
    user, too, adds one vector of bounded length.
    """

    def __init__(self, n_records: int, rate: float, units: ArrayLike | None = None) -> None:
        self.rate = rate
        # A probability is rounded down to a multiple of 2**-64: sampling less than stated costs less.
        self._most = np.uint64(min(math.floor(rate * 2.0**64), 2**64 - 1))
        self._always = rate == 1
        if units is None:
            self.n_units = n_records
            self._first: IntArray | None = None
        else:
            names, places = np.unique(np.asarray(units), return_inverse=True)
            if places.shape != (n_records,):
                raise ParameterError(f"units must name one unit for each of the {n_records} records, got shape {places.shape}.")
            self._records = np.argsort(places, kind="stable")
            self._sizes = np.bincount(places)
            self._first = np.cumsum(self._sizes) - self._sizes
            self.n_units = len(names)

    def draw(self, noise: Noise) -> IntArray:
        """int64[example]: the records of the next lot; none of them may be."""
        drawn = np.flatnonzero(noise.words(self.n_units) < self._most) if not self._always else np.arange(self.n_units)
        if self._first is None or not drawn.size:
            return drawn
        chosen = (noise.words(drawn.size) * 2.0**-64 * self._sizes[drawn]).astype(np.int64)
        found: IntArray = self._records[self._first[drawn] + np.minimum(chosen, self._sizes[drawn] - 1)]
        return found


def noised(total: NDArray[np.float32], sigma: float, bound: float, noise: Noise) -> FloatArray:
    """total + N(0, (sigma * bound)^2) for a sum of vectors of length at most ``bound``, float64[size].

    The sum is rounded to a lattice of at most 2^-20 bounds, and the exact noise, rounded down to the same lattice, is added in
    whole numbers: a rounding of the continuous mechanism's output, without the holes of floating-point noise (Mironov 2012).
    Rounding the sum may move two neighbouring sums apart by one step in every number, so the noise is larger by that much.
    """
    step = 2.0 ** -lattice_bits(sigma * 2)
    wider = sigma * (1 + step * math.sqrt(max(total.size, 1)))
    draw = noise.gaussian(wider, total.shape)
    steps = np.rint(total.astype(np.float64) / (bound * draw.step)).astype(np.int64)
    noisy: FloatArray = np.asarray((steps + draw.lattice) * (draw.step * bound), dtype=np.float64)
    return noisy
