"""The exact data-dependent cost of a noisy maximum: all neighbours, both directions.

Papernot et al. 2018 (arXiv:1802.08908), Theorem 6, bounds the divergence between a histogram and its neighbours through
q, the probability that another class than the top one wins. But the output is only a class: its distribution is a
one-dimensional integral, and the divergence can be computed for every neighbour n - e_a + e_b. Same notion, smaller
number, and the reverse direction, which Theorem 6 does not bound, comes with it.

All costs here are private: they depend on the votes. Every value carries a margin for numeric error
(:func:`pate.privacy.outcomes.numeric_margin`) and is infinite where it could not be computed: take the minimum with the
data-independent bound.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from pate.arrays import FloatArray
from pate.privacy.curve import check_orders
from pate.privacy.exact.engine import distinct_costs, outcome_log_probs
from pate.privacy.exact.mechanism import NoisyMax, ThresholdTest, behind_test, check_counts, threshold_log_probs
from pate.privacy.exact.per_teacher import per_teacher_rdp
from pate.privacy.exact.rows import distinct_rows, sorted_rows

__all__ = [
    "ExactRdp",
    "NoisyMax",
    "ThresholdTest",
    "behind_test",
    "gaussian_max_log_probs",
    "gaussian_max_rdp",
    "laplace_max_log_probs",
    "laplace_max_rdp",
    "noisy_max_log_probs",
    "noisy_max_rdp",
    "per_teacher_rdp",
    "threshold_log_probs",
]


class ExactRdp(NamedTuple):
    """float64[query, order] each: max over neighbours n' of D(M(n)||M(n')), and of D(M(n')||M(n))."""

    forward: FloatArray
    reverse: FloatArray

    @property
    def worst(self) -> FloatArray:
        """float64[query, order]: the larger of both directions, which is what a query costs."""
        larger: FloatArray = np.maximum(self.forward, self.reverse)
        return larger


def noisy_max_rdp(mechanism: NoisyMax, counts: ArrayLike, orders: ArrayLike) -> ExactRdp:
    """Exact cost of each query, counts: int64[query, class]. A Confident query is charged jointly, answered or not.

    >>> cost = noisy_max_rdp(NoisyMax("gaussian", 40.0), [[200, 40, 10]], [2.0])
    >>> print(f"{cost.forward[0, 0]:.4g}")
    3e-05
    """
    rows, inverse = distinct_rows(sorted_rows(check_counts(counts)))
    cost = distinct_costs(mechanism, rows, check_orders(orders))
    return ExactRdp(cost[0, :, 0][inverse], cost[1, :, 0][inverse])


def noisy_max_log_probs(mechanism: NoisyMax, counts: ArrayLike) -> FloatArray:
    """float64[query, outcome]: log-probability of each class, then of abstention if there is a threshold test."""
    return outcome_log_probs(mechanism, check_counts(counts))


def gaussian_max_log_probs(counts: ArrayLike, sigma: float) -> FloatArray:
    """float64[query, class]: log-probability that each class has the largest count + N(0, sigma²)."""
    return noisy_max_log_probs(NoisyMax("gaussian", sigma), counts)


def laplace_max_log_probs(counts: ArrayLike, gamma: float) -> FloatArray:
    """float64[query, class]: log-probability that each class has the largest count + Laplace(1/gamma)."""
    return noisy_max_log_probs(NoisyMax("laplace", gamma), counts)


def gaussian_max_rdp(counts: ArrayLike, sigma: float, orders: ArrayLike, confident: ThresholdTest | None = None) -> ExactRdp:
    """Exact cost of GNMax, or with ``confident`` of Confident-GNMax, per query and order."""
    return noisy_max_rdp(NoisyMax("gaussian", sigma, confident), counts, orders)


def laplace_max_rdp(counts: ArrayLike, gamma: float, orders: ArrayLike, confident: ThresholdTest | None = None) -> ExactRdp:
    """Exact cost of LNMax, or of LNMax behind a threshold test, per query and order."""
    return noisy_max_rdp(NoisyMax("laplace", gamma, confident), counts, orders)
