"""Choosing one of many by score: the exponential mechanism, and report-noisy-max with exponential noise. Exact."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from pate.arrays import FloatArray, IntArray
from pate.errors import ParameterError
from pate.mechanisms.coins import Coins, fractions_below_best
from pate.mechanisms.whole_numbers import whole_numbers
from pate.noise import Noise
from pate.privacy.curve import DEFAULT_ORDERS, RdpCurve, check_orders
from pate.privacy.logs import log1mexp
from pate.privacy.mechanisms import pure_dp_rdp
from pate.validation import positive, whole


@dataclass(frozen=True)
class _Choice(ABC):
    """Common to both: pure epsilon-DP for scores that change by at most ``sensitivity`` between neighbours.

    monotonic: between neighbours all scores move the same way, as counts do when a record is added or removed. Then the same
    epsilon allows twice the contrast.

    How many bits a choice takes, and so how long, depends on the scores: whoever is told the choice must not see the clock.
    """

    epsilon: float
    sensitivity: int = 1
    monotonic: bool = False

    def __post_init__(self) -> None:
        positive(self.epsilon, f"{type(self).__name__} epsilon")
        whole(self.sensitivity, f"{type(self).__name__} sensitivity", 1)

    @property
    def rate(self) -> float:
        """One point of score below the best is kept with probability e^-rate. Rounded down, on the safe side."""
        rate = self.epsilon / (self.sensitivity if self.monotonic else 2 * self.sensitivity)
        return float(np.nextafter(rate, 0.0))

    def choose(self, scores: IntArray, noise: Noise) -> int:
        """The index of one of the whole-number scores, int64[choice]."""
        return self._choose(self._checked(scores), Coins(noise))

    @abstractmethod
    def _choose(self, scores: IntArray, coins: Coins) -> int: ...

    def log_probs(self, scores: IntArray) -> FloatArray:
        """float64[choice]: log-probability of every choice."""
        given = self._checked(scores)
        return self._log_probs(self.rate * (given - given.max()).astype(np.float64))

    @abstractmethod
    def _log_probs(self, log_w: FloatArray) -> FloatArray:
        """From the log-probability with which each choice is kept, 0 for the best."""

    def _checked(self, scores: IntArray) -> IntArray:
        rule = f"{type(self).__name__} chooses by a non-empty list of whole numbers"
        given = whole_numbers(scores, rule, most_bits=61)  # they are compared exactly, and differences stay in range
        if not given.size:
            raise ParameterError(f"{rule}, got none.")
        return given

    def cost(self, orders: ArrayLike = DEFAULT_ORDERS) -> RdpCurve:
        """What one choice costs."""
        grid = check_orders(orders)
        return RdpCurve(grid, pure_dp_rdp(self.epsilon, grid))


@dataclass(frozen=True)
class ExponentialMechanism(_Choice):
    """Chooses with probability proportional to e^(rate * score): McSherry & Talwar 2007.

    Its privacy loss spans a range of epsilon, not 2 epsilon as a pure mechanism's may, so it is epsilon^2/8-zCDP, by
    Hoeffding's lemma: Cesar & Rogers 2021 (arXiv:2004.07223); Rogers & Steinke 2021, "A Better Privacy Analysis of the
    Exponential Mechanism" (differentialprivacy.org). That is a quarter of what epsilon-DP alone gives.

    >>> from pate import SimulatedNoise
    >>> ExponentialMechanism(epsilon=2.0).choose(np.array([3, 50, 4]), SimulatedNoise(0))
    1
    """

    def _choose(self, scores: IntArray, coins: Coins) -> int:
        # Propose uniformly, accept with e^-x: exact for any scores, and the best is always accepted.
        below = fractions_below_best(scores, self.rate)
        while True:
            index = coins.below(len(below))
            if coins.exp_minus(below[index]):
                return index

    def _log_probs(self, log_w: FloatArray) -> FloatArray:
        result: FloatArray = log_w - np.log(np.exp(log_w).sum())
        return result

    def cost(self, orders: ArrayLike = DEFAULT_ORDERS) -> RdpCurve:
        """min(a epsilon^2 / 8, that of any epsilon-DP mechanism)."""
        grid = check_orders(orders)
        return RdpCurve(grid, np.minimum(grid * self.epsilon**2 / 8, pure_dp_rdp(self.epsilon, grid)))


@dataclass(frozen=True)
class PermuteAndFlip(_Choice):
    """Report-noisy-max with exponential noise, drawn as permute-and-flip, which is the same law.

    McKenna & Sheldon 2020 (arXiv:2010.12603): epsilon-DP, and never a worse choice than the exponential mechanism's at the same
    epsilon. Ding, Kifer, Saghaian, Steinke, Wang, Xiao, Zhang 2021 (arXiv:2105.07260): the same as exponential noise of scale
    1/rate on every score. Its loss may span 2 epsilon, so that its cost is that of any pure mechanism.

    >>> from pate import SimulatedNoise
    >>> PermuteAndFlip(epsilon=2.0).choose(np.array([3, 50, 4]), SimulatedNoise(0))
    1
    """

    def _choose(self, scores: IntArray, coins: Coins) -> int:
        below = fractions_below_best(scores, self.rate)
        # The best is accepted when its turn comes, so the loop ends.
        return next(index for index in coins.shuffled(len(below)) if coins.exp_minus(below[index]))

    def _log_probs(self, log_w: FloatArray) -> FloatArray:
        """By the integral over the exponential noise: p_r = w_r * integral of prod_(i != r) (1 - w_i v) dv over [0, 1]."""
        # A polynomial of degree len(scores) - 1 in v: Gauss-Legendre is exact, up to rounding.
        nodes, weights = np.polynomial.legendre.leggauss(max(2, len(log_w) // 2 + 1))
        v = (nodes + 1) / 2
        log_terms = log1mexp(log_w[:, None] + np.log(v))
        product = log_terms.sum(axis=0) - log_terms
        peak = product.max(axis=1)
        result: FloatArray = log_w + peak + np.log((np.exp(product - peak[:, None]) * weights / 2).sum(axis=1))
        return result
