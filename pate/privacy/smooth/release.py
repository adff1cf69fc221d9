"""Publishing a figure that depends on private data, with Gaussian noise in proportion to its smooth sensitivity (GNSS).

Two numbers are drawn, for a figure f and its smooth sensitivity S (at beta, see :mod:`pate.privacy.smooth.table`):

    F = f + sigma S Z1,    L = log S + tau Z2,    Z1, Z2 from N(0, 1), independent, tau = sigma_scale beta.

L says how far F may be off; log S moves by at most beta between neighbours, so L is a plain Gaussian mechanism. From the two
follows a bound that holds with stated confidence (:func:`bound_factor`): f <= F + c sigma e^L but for a small probability.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import log_ndtr, ndtr

from pate.arrays import FloatArray
from pate.errors import ParameterError
from pate.privacy.curve import check_orders
from pate.privacy.mechanisms import gaussian_rdp
from pate.validation import positive

_ROUNDING = 64 * float(np.finfo(np.float64).eps)
_QUADRATURE = np.linspace(-14.0, 14.0, 1121)


def largest_order(beta: float) -> float:
    """GNSS has a finite cost at orders below 1 / (1 - e^(-2 beta)) only."""
    positive(beta, "beta")
    return -1 / math.expm1(-2 * beta)


def largest_beta(order: float) -> float:
    """The inverse of :func:`largest_order`: GNSS has a finite cost at ``order`` for every beta below this."""
    check_orders([order])
    return -math.log1p(-1 / order) / 2


def gnss_rdp(beta: float, sigma: float, orders: ArrayLike) -> FloatArray:
    """What F costs: the exact worst case over all values and smooth sensitivities that neighbours may have. float64[order].

    Neighbours release N(f, s^2) and N(f', s'^2), s = sigma S, with |f - f'| <= min(S, S') and |log(S'/S)| <= beta (the local
    sensitivity is symmetric, and S is nowhere below it). With t = log(S'/S) and w(t) = a e^(2t) + 1 - a, the divergence of two
    Gaussians (Gil, Alajaji and Linder 2013, Table II) is at most

        V(t) + a min(1, e^(2t)) / (2 sigma^2 w(t)),    V(t) = t + (2t - log w(t)) / (2 (a-1)),

    infinite where w <= 0. V' = 1 - 1/w, so V falls up to t = 0 and rises after; and -V'(-t) >= V'(t) for t > 0, since
    1/w(-t) - 1 = a x / (1 - a x) and 1 - 1/w(t) = a x / (1 + (a-1) x) with x = 1 - e^(-2t), so V(-t) >= V(t). The other term is
    a / (2 sigma^2 (a - (a-1) e^(-2t))) for t < 0, which falls in t, and at most a / (2 sigma^2) for t > 0. So the supremum is
    attained at t = -beta. Both directions are covered: exchanging them is t -> -t.

    Papernot et al. 2018 (arXiv:1802.08908), Theorem 23, :func:`gnss_rdp_2018`, gives about 2 beta a/(a-1) + a/sigma^2 where
    this gives about a beta^2 + a / (2 sigma^2).

    >>> bool(gnss_rdp(0.01, 20.0, [8.0])[0] < gnss_rdp_2018(0.01, 20.0, [8.0])[0] / 2)
    True
    """
    grid = check_orders(orders)
    positive(sigma, "sigma")
    w = 1 + grid * math.expm1(-2 * beta)  # a e^(-2 beta) + 1 - a
    finite = (w > 0) & (grid < largest_order(beta))
    held = np.where(finite, w, 1.0)
    # V is of second order in beta; its parts are of first. The margin covers what their difference loses.
    spread = -beta + (-2 * beta - np.log(held)) / (2 * (grid - 1))
    spread = np.maximum(spread, 0.0) + _ROUNDING * (beta + (2 * beta + np.abs(np.log(held))) / (2 * (grid - 1)) + 1 / held)
    shift = grid * math.exp(-2 * beta) / (2 * sigma**2 * held)
    # w itself is a difference: relative error about eps a / w.
    result: FloatArray = np.where(finite, spread + shift * (1 + _ROUNDING * grid / held), np.inf)
    return result


def gnss_rdp_2018(beta: float, sigma: float, orders: ArrayLike) -> FloatArray:
    """As published: arXiv:1802.08908, Theorem 23, for 1 < a < 1/(2 beta); infinite beyond. float64[order].

    a e^(2 beta) / sigma^2 + (beta a - log(1 - 2 a beta) / 2) / (a - 1). For comparison: :func:`gnss_rdp` is exact.
    """
    grid = check_orders(orders)
    positive(beta, "beta")
    positive(sigma, "sigma")
    inside = 2 * grid * beta < 1
    held = np.where(inside, grid, 1.5)
    with np.errstate(divide="ignore", invalid="ignore"):
        spread = (beta * held - np.log1p(-2 * held * beta) / 2) / (held - 1)
    result: FloatArray = np.where(inside, grid * math.exp(2 * beta) / sigma**2 + spread, np.inf)
    return result


def release_rdp(beta: float, sigma: float, sigma_scale: float, orders: ArrayLike) -> FloatArray:
    """What F and L cost together. float64[order]. Mironov 2017 (arXiv:1702.07476), Propositions 1 and 7."""
    result: FloatArray = gnss_rdp(beta, sigma, orders) + gaussian_rdp(1.0, sigma_scale, orders)
    return result


def bound_factor(tau: float, failure: float) -> float:
    """The c with which f <= F + c sigma e^L fails with probability at most ``failure``, rounded up.

    f > F + c sigma e^L is -Z1 > c e^(tau Z2). The two noises are averaged over together, which is far less than the sum of a
    quantile of each: Pr = E[Phi(-c e^(tau Z2))], by the trapezoid rule, whose error here is below 1e-15 of Pr.

    >>> round(bound_factor(0.0, 1e-6), 3), round(bound_factor(0.2, 1e-6), 3)
    (4.753, 6.655)
    """
    if not 0 < failure < 0.5:
        raise ParameterError(f"The probability that a sanitised figure is too low must lie in (0, 0.5), got {failure}.")
    if not (tau >= 0 and math.isfinite(tau)):
        raise ParameterError(f"tau must be finite and not negative, got {tau}.")
    low, high = 0.0, 1.0
    while _failure(high, tau) > failure:
        low, high = high, 2 * high
        if high > 1e12:
            raise ParameterError(f"tau = {tau:g} leaves no useful bound at failure probability {failure:g}; use less noise.")
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (low, middle) if _failure(middle, tau) <= failure else (middle, high)
    return high * (1 + 1e-9)


def _failure(c: float, tau: float) -> float:
    step = _QUADRATURE[1] - _QUADRATURE[0]
    weight = np.exp(-(_QUADRATURE**2) / 2) * step / math.sqrt(2 * math.pi)
    tail = ndtr(-c * np.exp(tau * _QUADRATURE))
    # What lies beyond the grid fails at most always.
    return float(weight @ tail) * (1 + 1e-9) + 2 * math.exp(float(log_ndtr(_QUADRATURE[0])))
