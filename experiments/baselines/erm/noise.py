"""Noise vectors of floating-point weights, without floating-point noise: exact real vectors, known as far as a lattice asks.

Weights are rounded to a lattice and the noise is rounded *down* to it, so their sum is a rounding of (rounded weights + exact
real noise): post-processing of the continuous mechanism, without the holes of floating-point samplers (Mironov 2012). What
rounding the weights may move is part of the sensitivity, see :func:`pate.experiments.baselines.erm.mechanisms.widened`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from pate.arrays import FloatArray, IntArray
from pate.noise import Noise
from pate.sampling import GAUSSIAN, LAPLACE, Draw
from pate.validation import positive

COARSEST = 2.0**-29
"""The lattice's step is at most this times the scale of the noise."""

_BITS = 10  # a scale is drawn as a number up to 2**10 votes, on a lattice of 2**-20
_UNIT = 2.0**-53


@dataclass(frozen=True, eq=False)
class LatticeNoise:
    """steps: int64[column]: the exact noise over ``step``, rounded down. step: a power of two."""

    steps: IntArray
    step: float

    @property
    def values(self) -> FloatArray:
        """float64[column]: the rounded noise itself."""
        return np.asarray(self.steps * self.step, dtype=np.float64)

    def added_to(self, weights: FloatArray) -> FloatArray:
        """float64[column]: the weights, rounded to the lattice, and the noise."""
        # Whole numbers of any size: where noise is very small, weights are far more than 2^63 steps from 0.
        pairs = zip(weights.tolist(), self.steps.tolist(), strict=True)
        places = [round(weight / self.step) + steps for weight, steps in pairs]
        return np.array([place * self.step for place in places], dtype=np.float64)


def gaussian_vector(sigma: float, size: int, noise: Noise) -> LatticeNoise:
    """Independent Gaussian numbers of standard deviation ``sigma``, exact."""
    positive(sigma, "sigma")
    unit = _unit(sigma)
    draw = noise.gaussian(sigma / unit, (size,))
    return LatticeNoise(draw.lattice, draw.step * unit)


def length_vector(scale: float, size: int, noise: Noise) -> LatticeNoise:
    """A vector with density proportional to exp(-|b| / scale), exact.

    Its direction is that of a Gaussian vector, its length the sum of ``size`` exponential numbers: Gamma(size, scale).
    """
    positive(scale, "scale")
    unit = _unit(scale)
    parts = _Parts(Reals(LAPLACE, 1.0, (size,), noise.words), Reals(GAUSSIAN, 1.0, (size,), noise.words))
    step = 2.0**-20
    return LatticeNoise(parts.floors(scale / unit / step), step * unit)


def longest(scale: float, size: int) -> float:
    """A length that such a vector exceeds less than once in 2^100 draws.

    Chernoff: P(Gamma(size) > x) <= 2^size e^(-x/2).
    """
    return scale * 2 * math.log(2) * (size + 100)


def _unit(scale: float) -> float:
    return math.ldexp(1.0, math.ceil(math.log2(scale)) - _BITS)


class Reals(Draw):
    """Exact real numbers, of which more bits can be asked for."""

    def interval(self, index: int) -> tuple[Fraction, Fraction]:
        """In which the size of one of them lies."""
        low, high = self._bracket(index, 0)
        return (low, high) if low >= 0 else (-high, -low)

    def refine(self) -> None:
        for index in range(math.prod(self.shape)):
            self._reveal(index)

    @property
    def nearly(self) -> FloatArray:
        """float64[index]: their sizes, off by a few units in the last place and 2^-64."""
        found: FloatArray = self._whole + self._fraction * 2.0**-64
        return found

    @property
    def negative(self) -> IntArray:
        return self._negative.astype(np.int64)


class _Parts:
    """A length and a direction, and where their product lies on a lattice."""

    def __init__(self, exponentials: Reals, gaussians: Reals) -> None:
        self._exponentials, self._gaussians = exponentials, gaussians

    def floors(self, ratio: float) -> IntArray:
        """int64[column]: floor(ratio * length * direction)."""
        sizes = self._gaussians.nearly
        reach = ratio * self._exponentials.nearly.sum() / np.linalg.norm(sizes)
        size = reach * sizes
        below = np.floor(size)
        # Two sums of as many terms as there are columns, a root, products: a few units each, taken tenfold; and unknown bits.
        doubt = size * _UNIT * 10 * (len(sizes) + 10) + (reach + ratio * len(sizes)) * 2.0**-60
        unsure = (size - below < doubt) | (below + 1 - size < doubt)
        whole = below.astype(np.int64)
        for index in np.flatnonzero(unsure):
            whole[index] = self._exact(int(index), Fraction(ratio))
        found: IntArray = np.where(self._gaussians.negative, -whole - 1, whole)
        return found

    def _exact(self, index: int, ratio: Fraction) -> int:
        """By squares, in exact arithmetic, with as many bits as it takes."""
        while True:
            count = math.prod(self._gaussians.shape)
            lengths = [self._exponentials.interval(i) for i in range(count)]
            squares = [tuple(side**2 for side in self._gaussians.interval(i)) for i in range(count)]
            ends = []
            for low, high in ((0, 1), (1, 0)):
                length, norm = ratio * sum(each[low] for each in lengths), sum(each[high] for each in squares)
                ends.append(math.isqrt(math.floor(length**2 * squares[index][low] / norm)) if norm else -1)
            if ends[0] == ends[1]:
                return ends[0]
            self._exponentials.refine()
            self._gaussians.refine()
