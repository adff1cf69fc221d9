"""Confident-GNMax as published: a threshold step, then GNMax if it passed (Papernot et al. 2018, arXiv:1802.08908).

All three costs sum the two steps. The joint cost, which is smaller, is the exact accountant's.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from pate.arrays import FloatArray
from pate.privacy.published.gnmax import gnmax_logq, gnmax_rdp, proposition8
from pate.privacy.published.threshold import threshold_log_answered, threshold_rdp, threshold_rdp_independent


def confident_worst_rdp(counts: ArrayLike, threshold: float, sigma1: float, sigma2: float, orders: ArrayLike) -> FloatArray:
    """Data-dependent cost with both steps charged on every query. counts: [query, class] -> float64[query, order].

    The RDP of an adaptive composition is at most the sum (Mironov 2017, arXiv:1702.07476, Proposition 1), whatever the
    first step's outcome. One direction only, as Theorem 6.
    """
    log_answered = threshold_log_answered(counts, threshold, sigma1)
    first = threshold_rdp(log_answered, sigma1, orders)
    return first + gnmax_rdp(gnmax_logq(counts, sigma2), sigma2, orders)


def confident_independent_rdp(sigma1: float, sigma2: float, orders: ArrayLike) -> FloatArray:
    """Data-independent cost with both steps charged: a / (2 sigma1^2) + a / sigma2^2. float64[order]."""
    return threshold_rdp_independent(sigma1, orders) + proposition8(sigma2, orders)


def confident_expected_rdp(counts: ArrayLike, threshold: float, sigma1: float, sigma2: float, orders: ArrayLike) -> FloatArray:
    """NOT AN UPPER BOUND. The expected cost that the PATE 2018 scripts report. counts: [query, class] -> float64[query, order].

    threshold step + Pr[answered] * GNMax step. A Rényi divergence is no expectation: a rare answer can give a lot away.
    Votes (30, 28, 2), threshold 60, sigma1 = 15, sigma2 = 3, order 32: this function says 0.149, the true divergence of the
    public outcome (label or abstention) is 2.008. Here for comparison with published figures only; never charge it.
    """
    log_answered = threshold_log_answered(counts, threshold, sigma1)
    first = threshold_rdp(log_answered, sigma1, orders)
    second = gnmax_rdp(gnmax_logq(counts, sigma2), sigma2, orders)
    return first + np.exp(log_answered)[:, None] * second
