"""The sparse vector technique: which of many queries lie above a threshold, at a cost that grows with those above only.

Lyu, Su, Li 2017 (arXiv:1603.01699), Algorithm 1, of which Dwork & Roth 2014, Algorithms 1 and 2, are special cases. It is the
most often mis-implemented mechanism of the field: tests/testing/broken_svt.py has the known mistakes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from pate.arrays import BoolArray, FloatArray, IntArray
from pate.errors import ParameterError
from pate.mechanisms.crossings import log_crossing_moments
from pate.mechanisms.whole_numbers import whole_numbers
from pate.noise import Noise
from pate.privacy.curve import DEFAULT_ORDERS, RdpCurve, check_orders
from pate.privacy.mechanisms import gaussian_rdp, laplace_epsilon, laplace_rdp, pure_dp_rdp
from pate.sampling import Draw, check_scale
from pate.validation import positive, whole

Law = Literal["laplace", "gaussian"]


def check_law(law: object, what: str) -> None:
    """Raise unless it is the name of a law of noise."""
    if law not in ("laplace", "gaussian"):
        raise ParameterError(f"{what} must be 'laplace' or 'gaussian', got {law!r}.")


def draw(noise: Noise, law: Law, scale: float, size: int) -> Draw:
    """Noise of this law; the scale of Gaussian noise is its standard deviation."""
    return noise.gaussian(scale, (size,)) if law == "gaussian" else noise.laplace(scale, (size,))


@dataclass(frozen=True)
class Crossings:
    """What is published. above: bool[query], False for all after the last one; asked: how many came to be compared."""

    above: BoolArray
    asked: int


@dataclass(frozen=True)
class AboveThreshold:
    """Compares value + noise with threshold + noise, query by query, and halts after ``tops`` that lie above.

    threshold: a whole number. threshold_scale, query_scale: of Laplace noise, or the standard deviations of Gaussian noise.
    sensitivity: by how much a value may change between neighbours. monotonic: between neighbours all values move the same
    way, as counts do when a record is added. refresh: draw the threshold's noise anew after each top; else it is drawn once.

    The proof. Let z be the threshold's noise, A(z) the probability that a query lies below, B(z) = 1 - A(z), primes for the
    neighbour. Between neighbours take z to z + sensitivity: then A'(z + sensitivity) >= A(z), and B' is at least the tail of
    the query's noise 2 sensitivity further out (1 where all move the same way; and where they all fall, z can stay).
    So for the sequence up to the first top, of likelihoods P and Q, and every order a (convexity of x^a y^(1-a)),

        sum P^a Q^(1-a) <= integral p(z)^a p(z + sensitivity)^(1-a) sum_k A..A B^a B'^(1-a) dz.

    - Laplace: B <= e^(2 sensitivity/query_scale) B', and the A..A B sum to 1. A pure bound the same way, without a.
    - Gaussian: the sum over k is at most V_n of :mod:`pate.mechanisms.crossings`, whatever the queries. To take the Rényi costs
      of threshold and queries apart is the idea of Zhu & Wang 2020 ("Improving Sparse Vector Technique with Rényi Differential
      Privacy", NeurIPS), whose bound holds the expected number of queries; V_n takes its place.

    Given z the sequences after each top multiply, so that tops cost as often as there are, and z once unless it is drawn anew.

    >>> svt = AboveThreshold(threshold=10, threshold_scale=20, query_scale=40)
    >>> svt.epsilon
    0.1
    """

    threshold: int
    threshold_scale: float
    query_scale: float
    tops: int = 1
    law: Law = "laplace"
    sensitivity: int = 1
    monotonic: bool = False
    refresh: bool = False

    def __post_init__(self) -> None:
        check_law(self.law, "AboveThreshold law")
        for name, scale in (("threshold_scale", self.threshold_scale), ("query_scale", self.query_scale)):
            positive(scale, f"AboveThreshold {name}")
            check_scale(scale, f"AboveThreshold {name}")
        if not math.isfinite(self.threshold) or self.threshold != int(self.threshold):
            # The lattices of the noise hold every whole number, so that comparing on them is a rounding of real noise.
            raise ParameterError(f"AboveThreshold threshold must be a whole number, got {self.threshold!r}.")
        whole(self.tops, "AboveThreshold tops", 1)
        whole(self.sensitivity, "AboveThreshold sensitivity", 1)

    def release(self, values: IntArray, noise: Noise) -> Crossings:
        """Compare int64[query] in order. All noise is drawn first, so that time does not tell how many were compared.

        >>> from pate import SimulatedNoise
        >>> svt = AboveThreshold(threshold=100, threshold_scale=2, query_scale=2, tops=2)
        >>> svt.release(np.array([0, 500, 0, 500, 500]), SimulatedNoise(0))
        Crossings(above=array([False,  True, False,  True, False]), asked=4)
        """
        given = whole_numbers(values, "AboveThreshold compares whole numbers [query]")
        # Floats hold both sides without rounding (pate.sampling.Draw.values), so this compares lattice points exactly.
        noisy = given + draw(noise, self.law, self.query_scale, given.size).values
        cuts = self.threshold + draw(noise, self.law, self.threshold_scale, self.tops if self.refresh else 1).values
        above = np.zeros(given.size, dtype=np.bool_)
        start = 0
        for top in range(self.tops):
            crossing = np.flatnonzero(noisy[start:] >= cuts[top if self.refresh else 0])
            if not crossing.size:
                return Crossings(above, given.size)
            start += int(crossing[0]) + 1
            above[start - 1] = True
        return Crossings(above, start)

    @property
    def moved(self) -> int:
        """By how much a value may move against the threshold."""
        return self.sensitivity if self.monotonic else 2 * self.sensitivity

    @property
    def epsilon(self) -> float:
        """Pure epsilon, for Laplace noise, whatever the number of queries: Lyu, Su, Li 2017, Theorems 2 and 4."""
        if self.law != "laplace":
            raise ParameterError("Gaussian noise has no pure epsilon; see AboveThreshold.cost, or take law='laplace'.")
        threshold, top = laplace_epsilon(self.sensitivity, self.threshold_scale), laplace_epsilon(self.moved, self.query_scale)
        return self.tops * (threshold + top) if self.refresh else threshold + self.tops * top

    def cost(self, n_queries: int, orders: ArrayLike = DEFAULT_ORDERS) -> RdpCurve:
        """What comparing at most ``n_queries`` costs. Those below are free with Laplace noise, and nearly so with Gaussian.

        >>> svt = AboveThreshold(100, threshold_scale=40, query_scale=80, law="gaussian")
        >>> few, many = (svt.cost(n).epsilon(1e-6).epsilon for n in (10, 10_000))
        >>> round(few, 2), round(many, 2)
        (0.15, 0.2)
        """
        grid = check_orders(orders)
        whole(n_queries, "AboveThreshold n_queries", 0)
        if n_queries == 0:
            return RdpCurve.zero(grid)
        tops = min(self.tops, n_queries)
        if self.law == "gaussian":
            threshold = gaussian_rdp(self.sensitivity, self.threshold_scale, grid)
            top = log_crossing_moments(self.moved / self.query_scale, n_queries, grid) / (grid - 1)
        else:
            threshold = laplace_rdp(self.sensitivity, self.threshold_scale, grid)
            top = np.full(grid.size, laplace_epsilon(self.moved, self.query_scale))
        if not self.refresh:
            return RdpCurve(grid, self._at_most_pure(threshold + tops * top, tops, grid))
        return tops * RdpCurve(grid, self._at_most_pure(threshold + top, 1, grid))

    def _at_most_pure(self, rdp: FloatArray, tops: int, orders: FloatArray) -> FloatArray:
        if self.law == "gaussian":
            return rdp
        epsilon = laplace_epsilon(self.sensitivity, self.threshold_scale)
        epsilon += tops * laplace_epsilon(self.moved, self.query_scale)
        result: FloatArray = np.minimum(rdp, pure_dp_rdp(epsilon, orders))
        return result
