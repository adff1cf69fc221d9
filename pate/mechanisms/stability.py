"""Answers as they are, where a noisy test says that no small change of the data would change them (M_stab).

Thakurta & Smith 2013 (COLT); Bassily, Thakkar, Thakurta 2018 (arXiv:1803.05101), Algorithm 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import log_ndtr

from pate.arrays import BoolArray, FloatArray, IntArray
from pate.errors import ParameterError
from pate.mechanisms.above_threshold import Law, check_law, draw
from pate.mechanisms.counts import Neighbours
from pate.mechanisms.whole_numbers import whole_numbers
from pate.noise import Noise
from pate.privacy.curve import DEFAULT_ORDERS, RdpCurve, check_orders
from pate.privacy.independent import one_count_bound
from pate.privacy.mechanisms import laplace_rdp
from pate.sampling import check_scale
from pate.validation import positive

_ROUND_UP = 1 + 1e-12


@dataclass(frozen=True)
class StabilityTest:
    """distance + noise >= threshold, with the least whole threshold that an answer at distance 0 passes with at most ``delta``.

    The distance to instability of an answer f(D): how many records must change before one more change can alter it. If two
    neighbours have different answers, both have distance 0.

    scale: of Laplace noise, or the standard deviation of Gaussian noise, in records. The cost of an answer behind the test,
    with slack P(noise >= threshold) <= delta: neighbours D, D' either

    - have one answer f. Then the outcome, f or nothing, is a function of the noisy distance, which changes by at most one; or
    - have different ones. Then both laws are "nothing" with probability 1 - slack and something else with slack.

    With Laplace noise of scale 1/epsilon the threshold is log(1/(2 delta))/epsilon, and this the paper's (epsilon, delta)-DP.

    >>> test = StabilityTest(scale=10, delta=1e-6, law="laplace")
    >>> test.threshold, round((9 * test.cost()).epsilon(1e-4).epsilon, 2)
    (132, 0.86)
    """

    scale: float
    delta: float
    law: Law = "gaussian"

    def __post_init__(self) -> None:
        check_law(self.law, "The stability test's law")
        positive(self.scale, "The stability test's scale, of the noise in records,")
        check_scale(self.scale, "The stability test's scale")
        if not 0 < self.delta < 0.5:
            raise ParameterError(
                "The stability test's delta, the chance to answer what one record may change, must lie in (0, 0.5), "
                f"got {self.delta}."
            )

    @property
    def threshold(self) -> int:
        """The least whole number with slack at most delta."""
        return least_threshold(self._tail, self.delta)

    @property
    def slack(self) -> float:
        """P(noise >= threshold), rounded up."""
        return self._tail(self.threshold)

    def _tail(self, threshold: float) -> float:
        # A tail too small for a float is not 0.
        return max(math.exp(float(log_tail(self.law, self.scale, threshold))) * _ROUND_UP, math.ulp(0.0))

    def log_pass(self, distances: IntArray) -> tuple[FloatArray, FloatArray]:
        """log-probabilities, float64[query], of passing and of failing at each distance."""
        missing = self.threshold - np.asarray(distances, dtype=np.float64)
        return log_tail(self.law, self.scale, missing), log_tail(self.law, self.scale, -missing)

    def passes(self, distances: IntArray, noise: Noise) -> BoolArray:
        """bool[query]: whether each of int64[query] passes."""
        rule = "A stability test takes distances, whole numbers [query] that are not negative"
        given = whole_numbers(distances, rule)
        if given.size and given.min() < 0:
            raise ParameterError(f"{rule}, got a negative one.")
        return draw(noise, self.law, self.scale, given.size).at_least(given, self.threshold)

    def cost(self, orders: ArrayLike = DEFAULT_ORDERS) -> RdpCurve:
        """What one answer behind the test costs, passed or not."""
        grid = check_orders(orders)
        if self.law == "gaussian":
            return RdpCurve(grid, one_count_bound(self.scale, grid), self.slack)
        return RdpCurve(grid, laplace_rdp(1, self.scale, grid), self.slack)


def log_tail(law: Law, scale: float, at: ArrayLike) -> FloatArray:
    """log P(noise >= at), same shape. Noise is symmetric and has no atoms, so at -at it is log P(noise < at)."""
    u = np.asarray(at, dtype=np.float64) / scale
    if law == "gaussian":
        tail: FloatArray = log_ndtr(-u)
        return tail
    far = math.log(0.5) - np.abs(u)
    result: FloatArray = np.where(u >= 0, far, np.log1p(-np.exp(far)))
    return result


def least_threshold(tail: Callable[[int], float], delta: float) -> int:
    """The least whole number, at least 1, at which a tail that falls is at most ``delta``."""
    low, high = 0, 1
    while tail(high) > delta:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if tail(middle) > delta else (low, middle)
    return high


def plurality_distance(counts: IntArray, neighbours: Neighbours = "replace") -> IntArray:
    """int64[query]: the distance to instability of "the one class with the most votes, or none where it is not alone".

    counts: int64[query, class], at least two classes. With a lead of g over the second, g/2 moved votes, rounded up, take the
    class from being alone at the top, or g votes added or removed; one less leaves it where the next change can.

    >>> plurality_distance(np.array([[9, 1], [6, 5], [6, 4], [7, 4], [5, 5]]))
    array([3, 0, 0, 1, 0])
    """
    two = np.sort(np.asarray(counts), axis=1)[:, -2:].astype(np.int64)
    lead = two[:, 1] - two[:, 0]
    distance: IntArray = np.maximum((lead + 1) // 2 if neighbours == "replace" else lead, 1) - 1
    return distance
