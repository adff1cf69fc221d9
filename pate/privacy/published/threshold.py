"""The threshold step of Confident-GNMax as published: Papernot et al. 2018 (arXiv:1802.08908), Algorithm 1.

The public outcome is one bit: is the largest count plus Gaussian noise sigma1 at least the threshold?
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import log_ndtr

from pate.arrays import FloatArray
from pate.errors import ParameterError
from pate.privacy.logs import log1mexp
from pate.privacy.mechanisms import gaussian_rdp
from pate.privacy.published.gnmax import gnmax_rdp
from pate.privacy.published.inputs import check_counts, check_log_probabilities
from pate.validation import positive

_LOG_SMALLEST = math.log(np.finfo(np.float64).tiny)
"""log of the smallest float with full precision: below it, 1 - Pr[answered] is not known well."""


def threshold_log_answered(counts: ArrayLike, threshold: float, sigma1: float) -> FloatArray:
    """log Pr[largest count + N(0, sigma1^2) >= threshold]. counts: [query, class] -> float64[query]."""
    positive(sigma1, "sigma1")
    if not math.isfinite(threshold):
        raise ParameterError(f"threshold must be a finite number of votes, got {threshold}.")
    largest = check_counts(counts).max(axis=1)
    result: FloatArray = log_ndtr((largest - threshold) / sigma1)
    return result


def threshold_rdp_independent(sigma1: float, orders: ArrayLike) -> FloatArray:
    """Data-independent RDP of the threshold step: a / (2 sigma1^2). float64[order].

    A vote that moves changes the largest count by at most 1: the Gaussian mechanism with sensitivity 1.
    """
    return gaussian_rdp(1.0, sigma1, orders)


def threshold_rdp(log_answered: ArrayLike, sigma1: float, orders: ArrayLike) -> FloatArray:
    """Data-dependent RDP of the threshold step, one direction. log_answered: [query] -> float64[query, order].

    arXiv:1802.08908, Theorem 6 with q the probability of the rarer bit, never above the data-independent cost.
    """
    answered = check_log_probabilities("log_answered", log_answered)
    # Where Pr[abstain] underflows, charge the smallest float rather than nothing: the cost is not zero.
    logq = np.minimum(answered, np.maximum(log1mexp(answered), _LOG_SMALLEST))
    # Theorem 6 for a mechanism of cost a / (2 sigma1^2): GNMax has that cost at sigma = sqrt(2) sigma1.
    return gnmax_rdp(logq, math.sqrt(2) * sigma1, orders)
