"""The published smooth sensitivity of GNMax, one query and one distance at a time, as the paper's algorithms read.

The plain loop that the vectorised one is timed and tested against. PATE 2018 (arXiv:1802.08908), Algorithms 3 to 5.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import ndtr, ndtri_exp

from pate.arrays import FloatArray, IntArray
from pate.experiments.bench.published_loop import proposition7_log_q
from pate.privacy.smooth import gnmax_logq0, gnmax_logq1


def gnmax_local_sensitivity_loop(counts: IntArray, sigma: float, order: float) -> FloatArray:
    """float64[query, distance]: bounds on the local sensitivity within each distance."""
    return np.stack([_one(row, sigma, order) for row in counts])


def _one(row: IntArray, sigma: float, order: float) -> FloatArray:
    votes = sorted((int(each) for each in row), reverse=True)
    n, k = sum(votes), len(votes)
    logq0, logq1 = gnmax_logq0(sigma, order), gnmax_logq1(sigma, order, k)
    found = np.full(n, _local(logq1, sigma, order, k, logq0, logq1))
    logq = proposition7_log_q(np.array(votes), sigma)
    apart = logq > logq0
    for distance in range(n):
        if logq1 <= logq <= logq0:
            if not distance:
                return found
            found[distance] = _local(logq, sigma, order, k, logq0, logq1)
            break
        found[distance] = _local(logq, sigma, order, k, logq0, logq1)
        if (apart and (logq <= logq0 or votes[1] == 0)) or (not apart and logq >= logq1):
            break
        step = 1 if apart else -1
        votes[0] += step
        votes[1] -= step
        votes.sort(reverse=True)
        logq = proposition7_log_q(np.array(votes), sigma)
    return found


def _local(logq: float, sigma: float, order: float, k: int, logq0: float, logq1: float) -> float:
    """Algorithm 3."""
    if logq1 <= logq <= logq0:
        logq = logq1
    middle = _figure(logq, sigma, order, logq0)
    up, down = (_figure(_moved(logq, sigma, k, way), sigma, order, logq0) for way in (1, -1))
    return max(up - middle, middle - down)


def _moved(logq: float, sigma: float, k: int, way: int) -> float:
    z = float(ndtri_exp(logq - math.log(k - 1))) + way * math.sqrt(2) / sigma
    return min(0.0, math.log(k - 1) + math.log(float(ndtr(z))))


def _figure(logq: float, sigma: float, order: float, logq0: float) -> float:
    """Theorem 6 at the orders of Proposition 10 below q0, Proposition 8 above."""
    if logq >= logq0:
        return order / sigma**2
    mu2 = sigma * math.sqrt(-logq)
    epsilon1, epsilon2 = (mu2 + 1) / sigma**2, mu2 / sigma**2
    log1q = math.log1p(-math.exp(logq))
    log_a = log1q - math.log1p(-math.exp((logq + epsilon2) * (1 - 1 / mu2)))
    log_b = epsilon1 - logq / mu2
    return float(np.logaddexp(log1q + (order - 1) * log_a, logq + (order - 1) * log_b)) / (order - 1)
