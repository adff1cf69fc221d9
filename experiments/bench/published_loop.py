"""The 2018 bound of GNMax, one query at a time: the plain loop that the exact accountant is timed against.

It is written to be read, query by query as the paper has it, and serves as the oracle in tests of vectorised code.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import log_ndtr, logsumexp

from pate.arrays import FloatArray, IntArray


def gnmax_bound_loop(counts: IntArray, sigma: float, orders: FloatArray) -> FloatArray:
    """float64[query, order]: PATE 2018 (arXiv:1802.08908), Theorem 6 with the q of Proposition 7. Forward direction only."""
    return np.stack([theorem6(proposition7_log_q(row, sigma), sigma, orders) for row in counts])


def proposition7_log_q(row: IntArray, sigma: float) -> float:
    """log q, q >= Pr[the top class does not win] <= Σ_{i≠top} Φ(-(n_top - n_i) / (sigma √2)), and never above 1 - 1/k."""
    top = int(np.argmax(row))
    gaps = row[top] - np.delete(row, top)
    union = float(logsumexp(log_ndtr(-gaps / (sigma * math.sqrt(2)))))
    return min(union, math.log1p(-1 / row.size))


def theorem6(log_q: float, sigma: float, orders: FloatArray) -> FloatArray:
    """float64[order]: the bound of one query, with the higher orders of Proposition 10, or a/sigma² (Proposition 8)."""
    variance = sigma * sigma
    independent = orders / variance
    if not -math.inf < log_q < 0:
        return independent if log_q == 0 else np.zeros_like(orders)
    mu2 = sigma * math.sqrt(-log_q)
    mu1 = mu2 + 1
    epsilon1, epsilon2 = mu1 / variance, mu2 / variance
    if mu2 <= 1 or -log_q <= epsilon2:
        return independent
    # q <= e^{(mu2-1) epsilon2} / (mu1/(mu1-1) · mu2/(mu2-1))^mu2
    if log_q > (mu2 - 1) * epsilon2 - mu2 * (math.log(mu1 / (mu1 - 1)) + math.log(mu2 / (mu2 - 1))):
        return independent
    log_1mq = math.log1p(-math.exp(log_q))
    # A = (1-q) / (1 - (q e^{epsilon2})^((mu2-1)/mu2)), B = e^{epsilon1} / q^(1/(mu1-1))
    log_a = log_1mq - math.log(-math.expm1((log_q + epsilon2) * (mu2 - 1) / mu2))
    log_b = epsilon1 - log_q / (mu1 - 1)
    s = orders - 1
    bound = np.logaddexp(log_1mq + s * log_a, log_q + s * log_b) / s
    return np.where(orders < mu1, np.minimum(bound, independent), independent)
