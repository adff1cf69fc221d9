"""GNMax as published: Papernot et al. 2018, "Scalable Private Learning with PATE" (arXiv:1802.08908).

The label with the largest count after Gaussian noise of standard deviation sigma on every count. Theorem 6 bounds one
direction only, D(M(D) || M(D')); the reverse can exceed it (docs/accounting.md, rule 2). For comparison with the papers;
the exact accountant is the default.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import log_ndtr, logsumexp

from pate.arrays import BoolArray, FloatArray
from pate.privacy.curve import check_orders
from pate.privacy.logs import log1mexp
from pate.privacy.mechanisms import gaussian_rdp
from pate.privacy.published.inputs import check_counts, check_log_probabilities, gaps_to_winner
from pate.validation import positive

_CHUNK_CELLS = 2_000_000
"""Temporaries of ``gnmax_rdp`` hold about this many numbers, however many queries there are."""


def gnmax_logq(counts: ArrayLike, sigma: float) -> FloatArray:
    """log of an upper bound on Pr[noisy winner is not the winner]. counts: [query, class] -> float64[query].

    arXiv:1802.08908, Proposition 7: a union bound over the other classes, each of which wins over the winner with
    probability Phi(-gap / (sigma sqrt 2)). Never above log(1 - 1/k): the winner is at least as likely as any other class.
    """
    positive(sigma, "sigma")
    gaps = gaps_to_winner(check_counts(counts))
    n_classes = gaps.shape[1]
    union = logsumexp(log_ndtr(-gaps / (math.sqrt(2) * sigma)), axis=1)
    result: FloatArray = np.minimum(union, math.log1p(-1 / n_classes))
    return result


def proposition8(sigma: float, orders: ArrayLike) -> FloatArray:
    """Data-independent RDP of one GNMax query: a / sigma^2. float64[order].

    arXiv:1802.08908, Proposition 8: the Gaussian mechanism with L2 sensitivity sqrt 2, post-processed.
    """
    return 2 * gaussian_rdp(1.0, sigma, orders)


def gnmax_rdp(logq: ArrayLike, sigma: float, orders: ArrayLike) -> FloatArray:
    """Data-dependent RDP of GNMax, one direction. logq: [query] -> float64[query, order].

    arXiv:1802.08908, Theorem 6 at the higher orders mu1, mu2 of Proposition 10, never above Proposition 8. ``logq`` may be
    any upper bound on the log-probability of another outcome; -inf says that the outcome is fixed, which costs nothing.
    """
    logs = check_log_probabilities("logq", logq)
    grid = check_orders(orders)
    cap = proposition8(sigma, grid)
    costs = np.tile(cap, (len(logs), 1))
    costs[np.isneginf(logs)] = 0.0
    usable = np.flatnonzero(_theorem6_applies(logs, sigma))
    step = max(1, _CHUNK_CELLS // grid.size)
    for start in range(0, usable.size, step):
        rows = usable[start : start + step]
        costs[rows] = np.minimum(_theorem6(logs[rows, None], sigma, grid), cap)
    return costs


def _theorem6_applies(logq: FloatArray, sigma: float) -> BoolArray:
    """bool[query]: the conditions of Theorem 6 on q at the orders of Proposition 10, whatever the order asked for."""
    with np.errstate(divide="ignore", invalid="ignore"):
        mu2 = sigma * np.sqrt(-logq)
        mu1 = mu2 + 1
        epsilon2 = mu2 / sigma**2
        # q <= exp((mu2-1) epsilon2) / (mu1/(mu1-1) * mu2/(mu2-1))^mu2, and the base of A must be positive.
        limit = (mu2 - 1) * epsilon2 - mu2 * (np.log1p(1 / (mu1 - 1)) + np.log1p(1 / (mu2 - 1)))
        applies: BoolArray = np.isfinite(logq) & (mu2 > 1) & (logq <= limit) & (-logq > epsilon2)
    return applies


def _theorem6(logq: FloatArray, sigma: float, orders: FloatArray) -> FloatArray:
    """float64[query, order] from logq: [query, 1]; infinite where the order is not below mu1."""
    mu2 = sigma * np.sqrt(-logq)  # Proposition 10
    mu1 = mu2 + 1
    epsilon1, epsilon2 = mu1 / sigma**2, mu2 / sigma**2  # Proposition 8 at mu1, mu2
    log1q = log1mexp(logq)
    # D_a <= log((1-q) A^(a-1) + q B^(a-1)) / (a-1) with
    # A = (1-q) / (1 - (q e^epsilon2)^((mu2-1)/mu2)) and B = e^epsilon1 / q^(1/(mu1-1)).
    log_a = log1q - log1mexp((logq + epsilon2) * (1 - 1 / mu2))
    log_b = epsilon1 - logq / (mu1 - 1)
    moment = np.logaddexp(log1q + (orders - 1) * log_a, logq + (orders - 1) * log_b)
    result: FloatArray = np.where(orders < mu1, np.maximum(moment, 0.0) / (orders - 1), np.inf)
    return result
