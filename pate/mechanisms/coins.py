"""Exact random choices from uniform bits: whole numbers below n, and coins that come up with probability e^-x.

No float takes part, so that there is nothing to round: x is a fraction, and a float is one.
"""

from __future__ import annotations

from fractions import Fraction

from pate.arrays import IntArray
from pate.noise import Noise

_WORD = 64
_BLOCK = 64


class Coins:
    """Draws from one noise source, some words at a time.

    >>> from pate import SimulatedNoise
    >>> coins = Coins(SimulatedNoise(0))
    >>> sum(coins.exp_minus(Fraction(1)) for _ in range(1000))
    328
    """

    def __init__(self, noise: Noise) -> None:
        self._noise = noise
        self._words: list[int] = []

    def below(self, n: int) -> int:
        """Uniform in 0, …, n - 1: as many bits as n needs, until they are below n."""
        bits = (n - 1).bit_length()
        while True:
            number = 0
            for _ in range(-(-bits // _WORD)):
                number = number << _WORD | self._word()
            number >>= -bits % _WORD
            if number < n:
                return number

    def chance(self, probability: Fraction) -> bool:
        """True with this probability, a fraction in [0, 1]."""
        return self.below(probability.denominator) < probability.numerator

    def exp_minus(self, x: Fraction) -> bool:
        """True with probability e^-x, x >= 0: Canonne, Kamath, Steinke 2020 (arXiv:2004.00010), Algorithm 1."""
        whole = x.numerator // x.denominator
        return all(self._exp_minus_fraction(Fraction(1)) for _ in range(whole)) and self._exp_minus_fraction(x - whole)

    def shuffled(self, n: int) -> list[int]:
        """A uniform order of 0, …, n - 1: Fisher & Yates."""
        order = list(range(n))
        for last in range(n - 1, 0, -1):
            other = self.below(last + 1)
            order[last], order[other] = order[other], order[last]
        return order

    def _exp_minus_fraction(self, x: Fraction) -> bool:
        # The run of successes with probabilities x, x/2, x/3, … has an even length with probability 1 - x + x^2/2 - …
        k = 1
        while self.chance(x / k):
            k += 1
        return k % 2 == 1

    def _word(self) -> int:
        if not self._words:
            self._words = [int(word) for word in self._noise.words(_BLOCK)]
        return self._words.pop()


def fractions_below_best(scores: IntArray, rate: float) -> list[Fraction]:
    """rate * (best - score) for every score, exactly."""
    best, exact = int(scores.max()), Fraction(rate)
    return [exact * (best - int(score)) for score in scores]
