"""What the winner of a noisy maximum gives away at most, given how likely any other class is to win. Both directions.

Let P and Q be the laws of the released class on two neighbouring histograms, t a class, and q >= P(not t). Both laws come
from noisy counts, whose laws are N(0, 1) and N(shift, 1) along the line between the two histograms. With r = dQ/dP, D_a(P||Q)
and D_a(Q||P) are log(1 + E_P[psi_p(r)]) / (a - 1) for psi_p(r) = r^p - 1 - p (r - 1), with p = 1 - a and p = a; psi_p is convex
and 0 at r = 1.

**Claim.** E_P[psi_p(r)] <= T1(q) + T2(q), where over all sets E of noisy counts with P(E) = q

    T1 = sup of the integral of psi_p(r) dP over E,    T2 = sup of (1 - q) psi_p((1 - Q(E)) / (1 - q)).

*Proof.* Tell more than the class: the noisy counts themselves where t does not win, and, so that the set of what is told has
probability exactly q, also on some more. By data processing (van Erven and Harremoës 2014, arXiv:1206.2459, Theorem 9) no
divergence falls. What is told contributes at most T1, the rest, one outcome, at most T2. ∎ Since E may be larger than needed,
any upper bound on P(not t) will do for q.

T1 is the least of the lines k q + E_P[(psi_p(r) - k)_+] over k >= 0 (Lagrange; each line alone is an upper bound), so a grid of
such lines is safe whatever its spacing. Q(E) lies between Phi(z - shift) and Phi(z + shift) with Phi(z) = q (Neyman and
Pearson), and psi_p is convex, so T2 is attained at an end. There are no conditions, where Theorem 6 of PATE 2018
(arXiv:1802.08908) has four; and it bounds one direction only. At q = 1 all is told: the Gaussian mechanism.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr, ndtri

from pate.arrays import FloatArray
from pate.errors import ParameterError
from pate.privacy.logs import expm1_minus
from pate.validation import positive

_LINES = 1500
_DEEPEST = 8.5  # standard deviations: a q below Phi(-8.5) = 1e-17 is charged as that
_FAR = 60.0
_BISECTIONS = 60
_ROUNDING = 64 * float(np.finfo(np.float64).eps)


def gaussian_tail_excess(q: ArrayLike, sigma: float, order: float) -> FloatArray:
    """e^((a-1) D) - 1 of GNMax where another class than the top one wins with probability at most q. Same shape as q.

    D is the larger direction, for a vote that moves; see the module. Infinite where it overflows.

    >>> print(f"{np.log1p(gaussian_tail_excess(0.01, 40.0, 8.0)) / 7:.2g}")  # a / sigma^2 would be 0.005
    0.00049
    """
    positive(sigma, "sigma")
    probability = _check(q, order)
    shift = math.sqrt(2) / sigma  # two counts change by one each
    worst = np.maximum(*(_one_direction(probability, shift, power) for power in (1 - order, order)))
    result: FloatArray = np.where(np.isnan(worst), np.inf, worst)
    return result


def laplace_tail_excess(q: ArrayLike, gamma: float, order: float) -> FloatArray:
    """As :func:`gaussian_tail_excess`, for LNMax: all that is used of it is that a moved vote is 2 gamma-DP.

    So r lies in [e^-2gamma, e^2gamma], and Q(E) between q e^-2gamma and q e^2gamma.
    """
    positive(gamma, "gamma")
    probability = np.maximum(_check(q, order), float(ndtr(-_DEEPEST)))
    epsilon = 2 * gamma
    worst = np.zeros_like(probability)
    with np.errstate(over="ignore", invalid="ignore"):
        for power in (1 - order, order):
            ends = np.array([-epsilon, epsilon])
            told = probability * psi(ends, power).max()
            masses = [np.minimum(probability * math.exp(end), 1.0) for end in ends]
            rest = [
                (1 - probability) * psi(np.clip(_log_ratio(probability, mass), -epsilon, epsilon), power) for mass in masses
            ]
            worst = np.maximum(worst, (told + np.maximum(*rest)) * (1 + _ROUNDING))
    result: FloatArray = np.where(np.isnan(worst), np.inf, worst)
    return result


def psi(log_ratio: FloatArray, power: float) -> FloatArray:
    """r^p - 1 - p (r - 1) at log r: not negative, and with its digits near r = 1."""
    result: FloatArray = expm1_minus(power * log_ratio) - power * expm1_minus(log_ratio)
    return result


class _Lines(NamedTuple):
    """T1(q) <= slope q + offset for each; ``touch`` is the q at which a line touches T1, falling."""

    touch: FloatArray
    slope: FloatArray
    offset: FloatArray


def _one_direction(q: FloatArray, shift: float, power: float) -> FloatArray:
    least = float(ndtr(-_DEEPEST))
    held = np.clip(q, least, 1.0)
    lines = _lines(shift, power)
    place = np.searchsorted(-lines.touch, -held)  # the lines that touch just above and just below q
    told = np.full(held.shape, np.inf)
    for index in (place - 1, place):
        chosen = np.clip(index, 0, lines.touch.size - 1)
        told = np.fmin(told, lines.slope[chosen] * held + lines.offset[chosen])
    z = ndtri(held)
    with np.errstate(over="ignore", invalid="ignore"):
        rest = [(1 - held) * psi(_log_ratio(held, ndtr(z + end)), power) for end in (-shift, shift)]
        # At q = 1 nothing is left untold, and no more can be told than all.
        total = np.fmin(told + np.where(held < 1, np.maximum(*rest), 0.0), np.expm1(power * (power - 1) * shift**2 / 2))
    result: FloatArray = total * (1 + _ROUNDING)
    return result


def _log_ratio(q: FloatArray, mass: FloatArray) -> FloatArray:
    """log((1 - mass) / (1 - q))."""
    with np.errstate(divide="ignore", invalid="ignore"):
        result: FloatArray = np.log1p((q - mass) / (1 - q))
    return result


@lru_cache(maxsize=256)
def _lines(shift: float, power: float) -> _Lines:
    """Lines at sets {psi >= k}: both tails, x <= -lower and x >= upper, on whose borders psi is the same.

    Inside is where a line's (psi - k)_+ is integrated, so a set that is a little wrong makes the integral smaller by the square
    of the error: below 1e-30 here, which the margin covers.
    """
    nearer = np.linspace(0.0, _DEEPEST, _LINES)
    with np.errstate(over="ignore", invalid="ignore"):
        slope = np.maximum(_at(-nearer, shift, power), _at(nearer, shift, power))
        lower, upper = _border(slope, nearer, shift, power, -1), _border(slope, nearer, shift, power, 1)
        # The last line is that of everything, where psi >= 0: both borders where r = 1.
        slope[0], lower[0], upper[0] = 0.0, -shift / 2, shift / 2
        gain = math.exp(min(power * (power - 1) * shift**2 / 2, 700.0))
        mass, other = _tails(lower, upper, 0.0), _tails(lower, upper, shift)
        tilted = gain * _tails(lower, upper, power * shift)
        offset = tilted - mass - power * (other - mass) - slope * mass
        offset += _ROUNDING * (tilted + mass * (1 + slope) + abs(power) * (other + mass))
    unusable = ~(np.isfinite(slope) & np.isfinite(offset)) | (power * (power - 1) * shift**2 / 2 > 700)
    offset[unusable] = np.inf
    slope[unusable] = 0.0
    return _Lines(mass, slope, np.maximum(offset, 0.0))


def _tails(lower: FloatArray, upper: FloatArray, mean: float) -> FloatArray:
    """Pr[x <= -lower or x >= upper] for x from N(mean, 1)."""
    result: FloatArray = ndtr(-lower - mean) + ndtr(mean - upper)
    return result


def _at(x: FloatArray, shift: float, power: float) -> FloatArray:
    return psi(shift * x - shift**2 / 2, power)


def _border(level: FloatArray, nearer: FloatArray, shift: float, power: float, side: int) -> FloatArray:
    """How far out psi reaches the level on a side, at least ``nearer``; far beyond all mass where it never does.

    An error here only moves a border, on which no line depends to first order.
    """
    low, high = nearer.copy(), nearer + _FAR
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        below = ~(_at(side * middle, shift, power) >= level)
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return high


def _check(q: ArrayLike, order: float) -> FloatArray:
    probability = np.asarray(q, dtype=np.float64)
    if not ((probability >= 0) & (probability <= 1)).all():
        raise ParameterError("q must hold probabilities between 0 and 1; found another value.")
    if not (order > 1 and math.isfinite(order)):
        raise ParameterError(f"A Rényi order must be finite and greater than 1, got {order}.")
    return probability
