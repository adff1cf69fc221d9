"""The elementary mechanisms: what Gaussian noise, Laplace noise and any pure-DP mechanism cost.

Every function is pure. RDP functions return float64[order]; sensitivities are of the neighbouring relation in use, L2 for
Gaussian noise and L1 for Laplace noise. A vote that moves from one class to another has L2 sensitivity sqrt(2) and L1
sensitivity 2.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import log_ndtr

from pate.arrays import FloatArray
from pate.errors import ParameterError
from pate.privacy.curve import check_delta, check_orders
from pate.privacy.logs import expm1_minus, log1mexp
from pate.validation import positive

_ROUNDING = 8 * float(np.finfo(np.float64).eps)
"""Relative error of one evaluation of ``log_ndtr``, with room."""

_SMALLEST = float(np.finfo(np.float64).tiny)


def check_epsilon(epsilon: float) -> float:
    """Return epsilon after checking that it is finite and not negative."""
    if not (epsilon >= 0 and math.isfinite(epsilon)):
        raise ParameterError(f"epsilon must be finite and not negative, got {epsilon}.")
    return float(epsilon)


def sensitivity_ratio(sensitivity: float, noise: float, noise_name: str) -> float:
    """sensitivity / noise after checking that both are finite and above 0."""
    positive(sensitivity, "sensitivity")
    positive(noise, noise_name)
    return sensitivity / noise


def gaussian_rdp(sensitivity: float, sigma: float, orders: ArrayLike) -> FloatArray:
    """Gaussian mechanism: a * sensitivity^2 / (2 sigma^2). Exact. float64[order].

    Mironov 2017 (arXiv:1702.07476), Proposition 7 and Corollary 3.
    """
    grid = check_orders(orders)
    ratio = sensitivity_ratio(sensitivity, sigma, "sigma")
    result: FloatArray = grid * ratio**2 / 2
    return result


def laplace_rdp(sensitivity: float, scale: float, orders: ArrayLike) -> FloatArray:
    """Laplace mechanism of scale b, with e = sensitivity / b. Exact. float64[order].

    Mironov 2017 (arXiv:1702.07476), Proposition 6 and Table II:
    log( a/(2a-1) exp((a-1) e) + (a-1)/(2a-1) exp(-a e) ) / (a-1).
    """
    a = check_orders(orders)
    e = laplace_epsilon(sensitivity, scale)
    # The argument of the log is 1 + (a f((a-1)e) + (a-1) f(-ae)) / (2a-1) with f(x) = e^x - 1 - x: nothing cancels.
    near = np.minimum((a - 1) * e, 1.0)
    excess = (a * expm1_minus(near) + (a - 1) * expm1_minus(-a * e)) / (2 * a - 1)
    far = np.logaddexp(np.log(a / (2 * a - 1)) + (a - 1) * e, np.log((a - 1) / (2 * a - 1)) - a * e)
    result: FloatArray = np.where((a - 1) * e <= 1, np.log1p(excess), far) / (a - 1)
    return result


def laplace_epsilon(sensitivity: float, scale: float) -> float:
    """Pure epsilon of the Laplace mechanism: sensitivity / scale. Dwork, McSherry, Nissim, Smith 2006, Proposition 1."""
    return sensitivity_ratio(sensitivity, scale, "scale")


def pure_dp_rdp(epsilon: float, orders: ArrayLike) -> FloatArray:
    """The largest RDP of any epsilon-DP mechanism, attained by randomised response. float64[order].

    log( (e^{a epsilon} + e^{(1-a) epsilon}) / (1 + e^epsilon) ) / (a-1). Upper bound: Bun & Steinke 2016
    (arXiv:1605.02065), proof of Proposition 3.3 (randomised response dominates every epsilon-DP pair); attained: Mironov
    2017 (arXiv:1702.07476), Proposition 5. Never above min(epsilon, a epsilon^2 / 2), the usual simplification.
    """
    a = check_orders(orders)
    e = check_epsilon(epsilon)
    if e == 0:
        return np.zeros_like(a)
    # E = 1 + (e^{ae} - 1)(1 - e^{-(a-1)e}) / (1 + e^e): the excess over 1 is a product, so nothing cancels.
    log_excess = a * e + log1mexp(-a * e) + log1mexp(-(a - 1) * e) - np.logaddexp(0.0, e)
    result: FloatArray = np.logaddexp(0.0, log_excess) / (a - 1)
    return result


def gaussian_delta(sensitivity: float, sigma: float, epsilon: float) -> float:
    """The smallest delta at which the Gaussian mechanism is (epsilon, delta)-DP, rounded up.

    Balle & Wang 2018 (arXiv:1805.06530), Theorem 8, with D the sensitivity:
    Phi(D/(2 sigma) - epsilon sigma/D) - e^epsilon Phi(-D/(2 sigma) - epsilon sigma/D).
    """
    ratio = sensitivity_ratio(sensitivity, sigma, "sigma")
    e = check_epsilon(epsilon)
    log_first = float(log_ndtr(ratio / 2 - e / ratio))
    log_second = float(log_ndtr(-ratio / 2 - e / ratio)) + e
    # The logs carry a relative error each, and so does the argument of Phi, squared in the exponent: round up by their sum.
    slack = _ROUNDING * (1 + abs(log_first) + abs(log_second) + e + (ratio + e / ratio) ** 2)
    delta = math.exp(log_first) * min(1.0, -math.expm1(min(log_second - log_first, 0.0)) + slack)
    # A delta too small for a float is not 0.
    return max(delta, _SMALLEST)


def gaussian_epsilon(sensitivity: float, sigma: float, delta: float) -> float:
    """The smallest epsilon of the Gaussian mechanism at delta, rounded up. The inverse of :func:`gaussian_delta`."""
    return smallest_epsilon(lambda epsilon: gaussian_delta(sensitivity, sigma, epsilon), delta)


def smallest_epsilon(delta_of: Callable[[float], float], delta: float) -> float:
    """The smallest epsilon with ``delta_of(epsilon) <= delta``, for a non-increasing ``delta_of``.

    Bisection that returns the end at which the inequality was seen to hold, so the result is never too small.
    """
    target = check_delta(delta)
    if delta_of(0.0) <= target:
        return 0.0
    low, high = 0.0, 1.0
    while delta_of(high) > target:
        low, high = high, 2 * high
        if not math.isfinite(high):
            raise ParameterError(f"No finite epsilon reaches delta={delta}; use a larger delta.")
    while (middle := (low + high) / 2) not in (low, high):
        low, high = (low, middle) if delta_of(middle) <= target else (middle, high)
    return high
