"""What one step of DP-SGD costs: Gaussian noise on a sum over a Poisson sample of the records.

Every record enters a lot with probability ``rate``, independently of all others, and adds a vector of length at most C; the
noise has standard deviation ``sigma`` * C. Neighbours differ in one record, added or removed; :func:`replace_rdp` gives the
cost where it is replaced.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from pate.arrays import FloatArray
from pate.errors import ParameterError
from pate.privacy.curve import check_orders
from pate.privacy.mechanisms import gaussian_rdp
from pate.validation import positive

_EPS = float(np.finfo(np.float64).eps)
_DIGITS = 40.0  # the quadrature's relative error is about exp(-40)
_TAIL = 9.5  # how many standard deviations the quadrature reaches beyond the outermost bump
_MOST_POINTS = 1_000_000
_SPLITS = np.array([1.1, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 4.0])


def check_rate(rate: float) -> float:
    """Return a sampling rate after checking that it is a probability above 0."""
    if not 0 < rate <= 1:
        raise ParameterError(
            f"The sampling rate must lie above 0 and be at most 1, got {rate}; it is the expected lot divided by the number of "
            "records."
        )
    return float(rate)


def subsampled_gaussian_rdp(rate: float, sigma: float, orders: ArrayLike) -> FloatArray:
    """RDP of one step, add/remove neighbours, both directions, rounded up. float64[order], any orders above 1.

    log E_{x ~ N(0, s^2)} [ (1 - q + q e^{(2x-1)/(2 s^2)})^a ] / (a-1): Mironov, Talwar, Zhang 2019 (arXiv:1908.10530),
    Theorem 4, and by their Theorem 5 the other direction is no larger. At whole orders this is the binomial sum of their
    section 3.3. Here it is one integral for all orders. It is analytic within pi s^2 of the real axis, where its modulus is at
    most e^{y^2 / 2 s^2} times its value on the axis, since |1 - q + q e^w| <= 1 - q + q e^{Re w}; so the trapezoid rule of
    step h has relative error at most 2 e^{y^2 / 2 s^2 - 2 pi y / h} for any such y (Trefethen and Weideman 2014, Theorem 5.1).

    >>> subsampled_gaussian_rdp(0.01, 4.0, [2.0, 32.0]).round(9)
    array([6.44900e-06, 1.05264e-04])
    """
    grid = check_orders(orders)
    q, shift = check_rate(rate), 1 / positive_sigma(sigma)
    unsampled = gaussian_rdp(1.0, sigma, grid)
    if q == 1:
        return unsampled
    sampled = np.array([_log_moment(float(order), q, shift) / (order - 1) for order in grid])
    # Mixing both sides with the same law does not increase the divergence, so the unsampled cost is a bound, too.
    result: FloatArray = np.minimum(sampled, unsampled)
    return result


def positive_sigma(sigma: float) -> float:
    """Return a noise multiplier after checking that it is finite and above 0."""
    if sigma == 0:
        raise ParameterError("A noise multiplier of 0 adds no noise: no epsilon holds. Give one above 0, or a target epsilon.")
    positive(sigma, "The noise multiplier")
    return float(sigma)


def replace_rdp(rdp: Callable[[FloatArray], FloatArray], orders: ArrayLike) -> FloatArray:
    """RDP where one record is replaced by another, from the ``rdp(orders)`` of adding or removing one. float64[order].

    Replacing is removing, then adding. For 1/p + 1/p' = 1 the weak triangle inequality says
    D_a(P||Q) <= (a - 1/p)/(a - 1) D_{pa}(P||R) + D_{p'(a - 1/p)}(R||Q): Mironov 2017 (arXiv:1702.07476), Proposition 11 in
    v3, with R the law without the record. The least over a few p; of Gaussian noise p = 2 - 1/a gives the exact cost, 4 times
    that of one record more or less.
    """
    a = check_orders(orders)[:, None]
    p = np.concatenate([2 - 1 / a, np.broadcast_to(_SPLITS, (len(a), _SPLITS.size))], axis=1)
    first, second = p * a, (p * a - 1) / (p - 1)
    wanted, places = np.unique(np.concatenate([first.ravel(), second.ravel()]), return_inverse=True)
    there, back = np.split(rdp(wanted)[places], 2)
    total = (a - 1 / p) / (a - 1) * there.reshape(first.shape) + back.reshape(second.shape)
    result: FloatArray = total.min(axis=1)
    return result


def _log_moment(a: float, q: float, shift: float) -> float:
    """log E[(1 - q + q w)^a] for w = exp(shift u - shift^2/2), u standard normal; never too small. inf where it is too wide."""
    reach = math.pi / shift  # how far from the real axis the integrand is analytic
    step = math.pi * math.sqrt(2 / _DIGITS)
    if 2 * math.pi / step > 0.99 * reach:
        y = 0.99 * reach
        step = 2 * math.pi * y / (_DIGITS + y * y / 2)
    # Left of 0 the moment's factor is at most 1; right of a * shift all falls off faster than a normal density does there.
    count = math.ceil((a * shift + 2 * _TAIL) / step)
    if count > _MOST_POINTS:
        return math.inf
    u = -_TAIL + step * np.arange(count + 1)
    log_density = -u * u / 2 - math.log(math.sqrt(2 * math.pi) / step)
    exponent = shift * u - shift * shift / 2
    log_power = a * np.logaddexp(math.log1p(-q), math.log(q) + exponent)
    log_terms = log_power + log_density
    top = float(log_terms.max())
    log_moment = top + math.log(float(np.exp(log_terms - top).sum()))
    if log_moment > 0.5:
        return log_moment + 16 * _EPS * (1 + float(np.abs(log_power[np.argmax(log_terms)])) + abs(top))
    # Near 1 the excess is summed instead: E[w] = 1, so E[(1+t)^a] - 1 = E[(1+t)^a - 1 - a t] with t = q (w - 1), and no term
    # of that is negative (Bernoulli).
    near = log_power < 30
    t = q * np.expm1(exponent[near])
    power, density = np.expm1(log_power[near]), np.exp(log_density[near])
    excess = float(((power - a * t) * density).sum()) + float(np.exp(log_terms[~near]).sum())
    rounding = 16 * _EPS * float(((np.abs(power) + a * np.abs(t)) * (1 + u[near] ** 2) * density).sum())
    return math.log1p(max(excess, 0.0) + rounding + math.exp(-_DIGITS))
