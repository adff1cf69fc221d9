"""The excess ``sum_i p_i^a q_i^(1-a) - 1`` of a Rényi divergence: its terms, their curvature, and the p of noisy votes.

Shared by the certified suprema (:mod:`pate.privacy.certify`) and the joint bound (:mod:`pate.privacy.independent`);
the section numbers are those of ``docs/data-independent-bound.md``.
"""

from __future__ import annotations

import numpy as np
from scipy.special import log_ndtr, ndtr

from pate.arrays import FloatArray

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(48)
_REACH = 8.8  # exp(-_REACH**2 / 2) = 2e-17, what is cut off on either side of the mode


def winner_log_probs(points: FloatArray) -> FloatArray:
    """log t: float64[point, 2] -> float64[point, 3] for "a wins", "b wins", "another class wins"."""
    u, v = points[:, 0], points[:, 1]
    return np.stack([_log_first_wins(u, v), _log_first_wins(v, u), log_ndtr(-u) + log_ndtr(-v)], axis=1)


def side_log_probs(points: FloatArray) -> FloatArray:
    """float64[point, 1] -> float64[point, 2]: log chances that u + N(0, 1) is above and below 0."""
    return np.concatenate([log_ndtr(points), log_ndtr(-points)], axis=1)


def relative_excess(a: float, ratio: FloatArray) -> FloatArray:
    """g(l) / (a(a-1)l^2/2), with g(l) = expm1(a l) - a expm1(l) >= 0; equal to 1 at l = 0. Same shape as ``ratio``."""
    x = a * ratio
    # Power series of g; |a l| < 1e-2 leaves a relative error below 1e-13, where the direct form cancels.
    sums = np.cumsum(np.power(a, np.arange(6.0)))  # 1, 1 + a, 1 + a + a^2, ...
    series = np.polyval([sums[5] / 2520, sums[4] / 360, sums[3] / 60, sums[2] / 12, sums[1] / 3, 1.0], ratio)
    small = np.abs(x) < 1e-2
    safe = np.where(small, 1e-2, ratio)
    # The same g, written so that an order next to 1 loses no digits.
    direct = (np.exp(safe) * np.expm1((a - 1) * safe) - (a - 1) * np.expm1(safe)) / (a * (a - 1) / 2 * safe**2)
    result: FloatArray = np.where(small, series, direct)
    return result


def excess_terms(a: float, log_q: FloatArray, ratio: FloatArray) -> FloatArray:
    """q_i g(l_i) for l = log p - log q: their sum over outcomes is the excess, without cancellation (docs, section 3)."""
    far = a * ratio > 30  # there q may underflow while q e^(a l) does not
    near = np.where(far, 0.0, ratio)
    terms: FloatArray = np.exp(log_q) * (a * (a - 1) / 2) * near**2 * relative_excess(a, near)
    if far.any():
        in_logs = np.exp(log_q + a * ratio) - a * np.exp(log_q + ratio) + (a - 1) * np.exp(log_q)
        terms = np.where(far, in_logs, terms)
    return terms


def curvature(a: float, lowest: FloatArray, highest: FloatArray, shift: float) -> FloatArray:
    """K such that q g(l) has no second derivative below -q K, when l stays in [lowest, highest] (docs, section 5).

    K = g + 2 |shift| |g'| + |shift|^2 (g'^2/g - g''). g is largest at an end; |g'| at an end or at l = -log(a)/(a-1);
    the last bracket is a(a-1) e^((a+1)l) g(-l)/g(l), which increases with l.
    """
    half = a * (a - 1) / 2
    at_low, at_high = relative_excess(a, lowest), relative_excess(a, highest)
    g = half * np.maximum(lowest**2 * at_low, highest**2 * at_high)
    turning = np.clip(-np.log(a) / (a - 1), lowest, highest)
    slope = a * np.max([np.abs(np.exp(a * end) - np.exp(end)) for end in (lowest, highest, turning)], axis=0)
    bracket = 2 * half * np.exp((a + 1) * highest) * relative_excess(a, -highest) / at_high
    result: FloatArray = g + 2 * shift * slope + shift**2 * bracket
    return result


def _log_first_wins(u: FloatArray, v: FloatArray) -> FloatArray:
    """log of the integral over x > 0 of phi(x - u) Phi(x - v), float64[point]: Gauss-Legendre around the mode.

    The integrand falls at least as fast as a unit Gaussian from its mode, which lies near the point used here.
    """
    gap = (v - u) / 2
    mode = np.maximum(u + (gap + np.sqrt(gap**2 + 1)) / 2, 0.0)
    start = np.maximum(mode - _REACH, 0.0)
    half = (mode + _REACH - start) / 2
    total = np.zeros_like(u)
    for node, weight in zip(_NODES, _WEIGHTS, strict=True):
        x = start + half * (1 + node)
        total += weight * np.exp(-((x - u) ** 2) / 2) * ndtr(x - v)
    result: FloatArray = np.log(total * half) - np.log(2 * np.pi) / 2
    return result
