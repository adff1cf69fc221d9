"""Exact Gaussian and Laplace noise: real numbers whose bits are revealed only as far as a decision needs them.

Floating-point samplers have holes that depend on what the noise is added to (Mironov 2012, doi:10.1145/2382196.2382264).
Here a draw is a *real* number sign * scale * (k + x), with a whole part k and a fraction x of which 64 bits are known at
first. Rejection follows Karney 2016 (arXiv:1303.6257): propose k, propose a uniform x, accept with the ratio of densities.
Every yes/no is decided in double precision only where the answer is beyond doubt; otherwise (once in about 2**39 draws)
more bits are drawn and the question is settled in exact arithmetic. So the distribution is the exact one:

- ``Draw.lattice`` is floor(draw / step). Votes lie on the same lattice, so ``votes + lattice`` is a rounding of the exact
  noisy count: post-processing of the continuous mechanism, which costs nothing.
- ``Draw.at_least`` and ``Draw.argmax`` give the decision of the continuous mechanism itself: a threshold on the lattice is
  decided by the floor, and a tie of floors by revealing more bits.

Hence the accountant needs no error term for the lattice. Trusted: that numpy's exp and products are right to 2**-40, far
coarser than the few units in the last place they are off by.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from decimal import ROUND_FLOOR, Context, Decimal, localcontext
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pate.arrays import BoolArray, FloatArray, IntArray
from pate.errors import ParameterError

Words = NDArray[np.uint64]
DrawWords = Callable[[int], Words]
"""A source of randomness: n -> uint64[n], uniform and independent."""

_WORD = 64
_DOUBT = 2.0**-40
_FINEST = 20
_LARGEST_SCALE = 2.0**30
_LARGEST_COUNT = 1 << 40  # with the 20 bits after the point of the finest lattice these are 60, of the 63 that an int64 has
_BLOCK = 1 << 18  # draws at a time: keeps the proposals in the cache and their memory bounded


@dataclass(frozen=True)
class Law:
    """A symmetric law with density proportional to exp(-energy(|z|)), written for z = k + x with 0 <= x < 1.

    energy(k, x) = whole(k) + rest(k, x): k is proposed with weight exp(-whole(k)), x accepted with exp(-rest(k, x)).
    ``rest`` increases in x, and takes numpy arrays or exact numbers alike.
    """

    name: str
    whole: Callable[[int], Fraction]
    rest: Callable[[Any, Any], Any]


GAUSSIAN = Law("gaussian", lambda k: Fraction(k * k, 2), lambda k, x: x * (2 * k + x) / 2)
LAPLACE = Law("laplace", Fraction, lambda k, x: x)


class Draw:
    """Noise for an array of votes, with the sign, whole part and first 64 bits of every draw kept for later questions."""

    def __init__(self, law: Law, scale: float, shape: tuple[int, ...], words: DrawWords) -> None:
        check_scale(scale, f"The scale of {law.name} noise")
        self._law = law
        self._words = words
        self.scale = float(scale)
        self.shape = shape
        self.step_bits = lattice_bits(scale)
        size = math.prod(shape)
        self._longer: dict[int, tuple[int, int]] = {}
        self._negative, self._whole, self._fraction = self._sample(size)
        self.lattice: IntArray = self._floors().reshape(shape)

    @property
    def step(self) -> float:
        """The distance of two lattice points in votes, a power of two."""
        return math.ldexp(1.0, -self.step_bits)

    @property
    def values(self) -> FloatArray:
        """float64, the noise rounded down to the lattice. Exact: adding whole votes to it rounds nothing."""
        return np.asarray(self.lattice * self.step, dtype=np.float64)

    def at_least(self, counts: IntArray, threshold: float) -> BoolArray:
        """bool: whether count + noise >= threshold, as the continuous mechanism decides it."""
        cut = threshold * 2.0**self.step_bits
        if cut != round(cut):
            raise ParameterError(
                f"threshold must be a whole multiple of {self.step:g} votes, got {threshold}; use a whole number."
            )
        result: BoolArray = self._on_lattice(_whole_counts(counts)) >= int(cut)
        return result

    def argmax(self, counts: IntArray) -> IntArray:
        """int64[query]: the class with the largest noisy count, as the continuous mechanism decides it."""
        given = _whole_counts(counts)
        noisy = self._on_lattice(given)
        best: IntArray = noisy.argmax(axis=1)
        top = np.take_along_axis(noisy, best[:, None], axis=1)
        tied = noisy == top
        for row in np.flatnonzero(tied.sum(axis=1) > 1):
            best[row] = self._settle_tie(int(row), given[row], np.flatnonzero(tied[row]))
        return best

    def _on_lattice(self, counts: IntArray) -> IntArray:
        """int64: count + noise in steps of the lattice."""
        return (counts << self.step_bits) + self.lattice

    def _settle_tie(self, row: int, counts: IntArray, candidates: IntArray) -> int:
        index = {int(c): row * self.shape[1] + int(c) for c in candidates}
        while True:
            brackets = {c: self._bracket(i, int(counts[c])) for c, i in index.items()}
            leader = max(brackets, key=lambda c: brackets[c][0])
            if all(high <= brackets[leader][0] for c, (_, high) in brackets.items() if c != leader):
                return leader
            for i in index.values():
                self._reveal(i)

    def _bracket(self, index: int, count: int) -> tuple[Fraction, Fraction]:
        """The exact interval in which count + noise lies, given the bits known so far."""
        bits, length = self._longer.get(index, (int(self._fraction[index]), _WORD))
        whole, scale = int(self._whole[index]), Fraction(self.scale)
        low, high = (scale * (whole + Fraction(part, 1 << length)) for part in (bits, bits + 1))
        return (count - high, count - low) if self._negative[index] else (count + low, count + high)

    def _reveal(self, index: int) -> None:
        bits, length = self._longer.get(index, (int(self._fraction[index]), _WORD))
        self._longer[index] = _extend(bits, length, self._words)

    def _sample(self, size: int) -> tuple[BoolArray, IntArray, Words]:
        negative = np.empty(size, dtype=np.bool_)
        whole = np.empty(size, dtype=np.int64)
        fraction = np.empty(size, dtype=np.uint64)
        for start in range(0, size, _BLOCK):
            pending = np.arange(start, min(start + _BLOCK, size))
            while pending.size:
                words = self._words(3 * pending.size).reshape(3, -1)
                k = self._whole_parts(words[0] >> np.uint64(1))
                accepted = self._accept(k, words[1], words[2], pending)
                keep = pending[accepted]
                negative[keep] = (words[0][accepted] & np.uint64(1)).astype(np.bool_)
                whole[keep] = k[accepted]
                fraction[keep] = words[1][accepted]
                pending = pending[~accepted]
        return negative, whole, fraction

    def _whole_parts(self, uniform: Words) -> IntArray:
        floors = _cumulative_floors(self._law)
        place = np.searchsorted(floors, uniform, side="left")
        in_doubt = floors[np.minimum(place, floors.size - 1)] == uniform
        k = place.astype(np.int64)
        for i in np.flatnonzero(in_doubt):
            k[i] = exact_whole_part(self._law, int(uniform[i]), 63, self._words)
        return k

    def _accept(self, k: IntArray, fraction: Words, uniform: Words, pending: IntArray) -> BoolArray:
        chance = np.exp(-self._law.rest(k, fraction * 2.0**-_WORD))
        difference = chance - uniform * 2.0**-_WORD
        accepted: BoolArray = difference > 0
        for i in np.flatnonzero(np.abs(difference) < _DOUBT):
            accepted[i], longer = exact_accept(self._law, int(k[i]), int(fraction[i]), int(uniform[i]), self._words)
            if accepted[i]:
                # Bits that took part in a decision are no longer free: keep them.
                self._longer[int(pending[i])] = longer
        return accepted

    def _floors(self) -> IntArray:
        size = self.scale * 2.0**self.step_bits
        magnitude = size * (self._whole + self._fraction * 2.0**-_WORD)
        below = np.floor(magnitude)
        # 2**-47 relative is far more than the rounding of two products and a sum, and than the 2**-64 not yet known.
        doubt = magnitude * 2.0**-47 + size * 2.0**-60
        lattice = np.where(self._negative, -below - 1, below).astype(np.int64)
        unsure = (magnitude - below < doubt) | (below + 1 - magnitude < doubt)
        for i in np.flatnonzero(unsure):
            lattice[i] = self._exact_floor(int(i))
        return lattice

    def _exact_floor(self, index: int) -> int:
        while True:
            low, high = (side * (1 << self.step_bits) for side in self._bracket(index, 0))
            # The interval is open at its far end, so a whole number there belongs to the cell below.
            if math.floor(low) == math.ceil(high) - 1:
                return math.floor(low)
            self._reveal(index)


def lattice_bits(scale: float) -> int:
    """Noise of this scale is rounded down to multiples of 2**-bits votes."""
    return max(0, min(_FINEST, 30 - math.ceil(math.log2(scale))))


def check_scale(scale: float, what: str) -> None:
    """Raise unless noise of this scale, in votes, can be drawn. Aggregators ask at once: later, a budget would be spent."""
    if not (math.isfinite(scale) and 0 < scale <= _LARGEST_SCALE):
        raise ParameterError(f"{what} must lie in (0, 2**30] votes, got {scale}.")


def _whole_counts(counts: ArrayLike) -> IntArray:
    """int64, checked. On the lattice a count of a narrower type would run over, and one of uint64 be rounded."""
    given = np.asarray(counts)
    if given.size and given.dtype.kind not in "iu":
        raise ParameterError(f"Noise falls on whole counts, got {given.dtype}.")
    if given.size and max(-int(given.min()), int(given.max())) > _LARGEST_COUNT:
        raise ParameterError("Noise falls on counts of at most 2**40 in size, got a larger one.")  # which one is private
    return given.astype(np.int64, copy=False)


def _extend(bits: int, length: int, words: DrawWords) -> tuple[int, int]:
    return (bits << _WORD) | int(words(1)[0]), length + _WORD


@cache
def _cumulative_floors(law: Law) -> Words:
    """uint64[k]: floor(2**63 * P(K <= k)) up to the first that cannot be told from 2**63."""
    floors: list[int] = []
    with localcontext(Context(prec=80)):
        total = _weight_sum(law)
        reached = Decimal(0)
        while not floors or floors[-1] < 2**63 - 1:
            reached += _weight(law, len(floors))
            floors.append(int((reached / total * 2**63).to_integral_value(ROUND_FLOOR)))
    return np.array(floors, dtype=np.uint64)


def _weight(law: Law, k: int) -> Decimal:
    energy = law.whole(k)
    return (-Decimal(energy.numerator) / Decimal(energy.denominator)).exp()


def _weight_sum(law: Law) -> Decimal:
    """Sum of all weights to a few units of the current decimal precision."""
    total, k = Decimal(0), 0
    while True:
        weight = _weight(law, k)
        if total + weight == total:
            return total
        total, k = total + weight, k + 1


def exact_whole_part(law: Law, uniform: int, length: int, words: DrawWords) -> int:
    """The whole part that a uniform number starting with ``uniform`` / 2**length picks, whatever precision that takes."""
    while True:
        uniform, length = _extend(uniform, length, words)
        # A decimal digit for every three bits is more than enough (log10 2 = 0.30); the rest covers the additions' rounding.
        with localcontext(Context(prec=length // 3 + 20)):
            low, high = (Decimal(part) / Decimal(1 << length) for part in (uniform, uniform + 1))
            slack = Decimal(10) ** -(length // 3 + 10)
            total, reached, k = _weight_sum(law), Decimal(0), 0
            while True:
                below, reached = reached, reached + _weight(law, k)
                if high <= reached / total - slack:
                    if k == 0 or low >= below / total + slack:
                        return k
                    break
                if reached + _weight(law, k + 1) == reached:
                    break
                k += 1


def exact_accept(law: Law, k: int, fraction: int, uniform: int, words: DrawWords) -> tuple[bool, tuple[int, int]]:
    """Whether uniform < exp(-rest(k, fraction)), revealing bits of both until it is certain; and the fraction's bits."""
    known_fraction, known_uniform = (fraction, _WORD), (uniform, _WORD)
    while True:
        known_fraction = _extend(*known_fraction, words)
        known_uniform = _extend(*known_uniform, words)
        length = known_fraction[1]
        with localcontext(Context(prec=length // 3 + 20)):
            slack = Decimal(10) ** -(length // 3 + 10)
            ends = []
            for part in (known_fraction[0] + 1, known_fraction[0]):
                energy: Fraction = law.rest(Fraction(k), Fraction(part, 1 << length))
                ends.append((-Decimal(energy.numerator) / Decimal(energy.denominator)).exp())
            low, high = (Decimal(known_uniform[0] + i) / Decimal(1 << length) for i in (0, 1))
            if high <= ends[0] - slack:
                return True, known_fraction
            if low >= ends[1] + slack:
                return False, known_fraction
