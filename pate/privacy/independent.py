"""Data-independent costs of noisy votes: valid for every histogram, so they may be published and budgets stand on them.

The bounds are suprema of Rényi divergences, certified in :mod:`pate.privacy.certify` for Gaussian noise and in
:mod:`pate.privacy.certify_laplace` for Laplace noise; the proof is in ``docs/data-independent-bound.md``. All costs are
float64[order], and none is ever below the supremum.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import log_ndtr, ndtr

from pate.arrays import FloatArray
from pate.errors import ParameterError
from pate.privacy.certify import FLOAT_MARGIN, TABLE_PATH, certify_noisy_max, certify_one_count, check_sigma
from pate.privacy.certify_laplace import SMALLEST_SHIFT, certify_laplace_max, certify_laplace_one_count, check_gamma
from pate.privacy.curve import check_orders
from pate.privacy.excess import curvature, excess_terms
from pate.privacy.mechanisms import pure_dp_rdp

_LARGEST_SIGMA = 1e6  # above it, differences of log-probabilities would lose the digits that FLOAT_MARGIN covers
_WINDOW = 11.0  # Phi(-11) = 2e-28: outside of it the tail caps are as good as the exact maximum
_MOST_COUNTS = 4096  # as many counts are visited one by one; more are covered by a grid with a second-order slack


def noisy_max_bound(sigma: float, orders: ArrayLike) -> FloatArray:
    """Cost of one noisy maximum with Gaussian noise ``sigma``, when one vote moves from a class to another.

    About 0.64 a/sigma^2 while a/sigma is below 1, and never above a/sigma^2. Holds for any number of classes and both
    directions. Between the table's entries the bound is interpolated along chords of convex functions, which lie above.

    >>> bool(noisy_max_bound(40, [8.0])[0] < 0.642 * 8 / 40**2)
    True
    """
    grid, sigma = check_orders(orders), check_sigma(sigma)
    cap = grid / sigma**2  # Gaussian mechanism, L2 sensitivity sqrt 2: Mironov 2017 (arXiv:1702.07476), Proposition 7
    table = _table()
    if not table.sigmas[-1] <= sigma <= _LARGEST_SIGMA:
        return cap
    # (a-1)S is convex in a and 0 at a = 1 (docs, section 2); above the last order only the cap is known.
    knots, at_knots = np.append(1.0, table.orders), np.append(0.0, (table.orders - 1) * _at_table_orders(sigma))
    chord: FloatArray = np.interp(grid, knots, at_knots, right=np.inf) / (grid - 1)
    bound: FloatArray = np.minimum(chord, cap)
    return bound


def one_count_bound(sigma: float, orders: ArrayLike) -> FloatArray:
    """Cost of one noisy maximum, or of one noisy threshold test, when a single count changes by one.

    About 0.32 a/sigma^2 while a/sigma is below 1, and never above a/(2 sigma^2).

    >>> bool(one_count_bound(40, [8.0])[0] < 0.319 * 8 / 40**2)
    True
    """
    grid, sigma = check_orders(orders), check_sigma(sigma)
    if sigma > _LARGEST_SIGMA:
        return grid / (2 * sigma**2)  # Gaussian mechanism, sensitivity 1: Mironov 2017, Proposition 7
    return _one_count(sigma, grid.tobytes()).copy()


def laplace_max_bound(gamma: float, orders: ArrayLike) -> FloatArray:
    """Cost of one noisy maximum with Laplace noise of scale 1/gamma, when one vote moves from a class to another.

    About a gamma^2 / 2 while a gamma is below 1/2, a quarter of what 2 gamma-DP alone would give, and never above that.
    Holds for any number of classes and both directions; two classes attain it at such orders.

    >>> bool(laplace_max_bound(0.05, [4.0])[0] < 0.499 * 4 * 0.05**2)
    True
    """
    grid, gamma = check_orders(orders), check_gamma(gamma)
    # A moved vote shifts two counts by one, so the released class is 2 gamma-DP (PATE 2017, arXiv:1610.05755, section 3.1).
    return _laplace_or_cap("max", gamma, grid, pure_dp_rdp(2 * gamma, grid))


def laplace_one_count_bound(gamma: float, orders: ArrayLike) -> FloatArray:
    """Cost of one noisy maximum with Laplace noise of scale 1/gamma, when a single count changes by one.

    About 0.2 a gamma^2 while a gamma is below 1/2, and never above the cost of any gamma-DP mechanism. Unlike
    :func:`one_count_bound` it is for a noisy maximum only: a known threshold does not blur the count as another class does.

    >>> bool(laplace_one_count_bound(0.05, [4.0])[0] < 0.204 * 4 * 0.05**2)
    True
    """
    grid, gamma = check_orders(orders), check_gamma(gamma)
    # Its class gains, all others lose, each by at most e^gamma (report noisy max is monotone: Dwork and Roth 2014,
    # Claim 3.9).
    return _laplace_or_cap("one count", gamma, grid, pure_dp_rdp(gamma, grid))


def confident_bound(
    threshold: float,
    sigma1: float,
    argmax_rdp: ArrayLike,
    n_teachers: int,
    n_classes: int,
    orders: ArrayLike,
    partial: bool = False,
) -> FloatArray:
    """Joint cost of one Confident query: is the largest count plus noise above the threshold, and if so, which class.

    ``argmax_rdp``: float64[order], cost of the argmax alone. The maximum runs over the largest count M, from
    ceil(n_teachers/n_classes) (or 0, when ``partial``: a teacher may stay silent) to n_teachers, and over M' in
    {M-1, M, M+1}, of log( N(M)^a N(M')^(1-a) + A(M)^a A(M')^(1-a) e^((a-1) argmax_rdp) ) / (a-1), where
    A(M) = 1 - N(M) = Phi((M - threshold)/sigma1). Never above one_count_bound(sigma1) + argmax_rdp.
    """
    grid, sigma1 = check_orders(orders), check_sigma(sigma1)
    inner = np.asarray(argmax_rdp, dtype=np.float64)
    if inner.shape != grid.shape or not (inner >= 0).all():
        raise ParameterError(
            f"argmax_rdp must hold one cost of at least 0 per order: got shape {inner.shape} for {grid.size} orders; "
            "compute it on the same orders."
        )
    if not np.isfinite(threshold):
        raise ParameterError(f"threshold must be a finite number of votes, got {threshold}.")
    if n_teachers < 1 or n_classes < 1:
        raise ParameterError(f"n_teachers and n_classes must be at least 1, got {n_teachers} and {n_classes}.")
    in_sequence = one_count_bound(sigma1, grid) + inner  # Mironov 2017, Proposition 1
    if sigma1 > _LARGEST_SIGMA:
        return in_sequence
    fewest = 0 if partial else -(-int(n_teachers) // int(n_classes))
    joint = _confident(float(threshold), sigma1, fewest, int(n_teachers), inner.tobytes(), grid.tobytes())
    return np.minimum(joint, in_sequence)


class _Table(NamedTuple):
    sigmas: FloatArray  # float64[node], decreasing
    orders: FloatArray  # float64[order]
    costs: FloatArray  # float64[node, order]


@lru_cache(maxsize=1)
def _table() -> _Table:
    with np.load(TABLE_PATH) as stored:
        sigmas, orders, millionths = (stored[name] for name in ("sigmas", "orders", "millionths"))
    return _Table(sigmas, orders, millionths * 1e-6 * orders / sigmas[:, None] ** 2)


@lru_cache(maxsize=1024)
def _at_table_orders(sigma: float) -> FloatArray:
    """S at the table's orders: a chord in 1/sigma, in which S is convex (docs, section 2); certified anew beyond the table."""
    table = _table()
    if sigma > table.sigmas[0]:
        return certify_noisy_max(sigma, table.orders).upper
    place = np.interp(1 / sigma, 1 / table.sigmas, np.arange(table.sigmas.size))
    low = min(int(place), table.sigmas.size - 2)
    # A rounding error of the weight is covered by FLOAT_MARGIN, which every entry holds.
    row: FloatArray = table.costs[low] + (place - low) * (table.costs[low + 1] - table.costs[low])
    return row


@lru_cache(maxsize=256)
def _one_count(sigma: float, orders: bytes) -> FloatArray:
    return certify_one_count(sigma, np.frombuffer(orders)).upper


def _laplace_or_cap(change: Literal["max", "one count"], gamma: float, orders: FloatArray, cap: FloatArray) -> FloatArray:
    """The certified supremum where it was searched for, and ``cap`` where that is smaller: float64[order]."""
    searched = max(gamma, SMALLEST_SHIFT)
    # Convex in gamma and 0 at 0 (docs, section 2), so below the smallest searched gamma the chord from 0 lies above.
    bound: FloatArray = np.fmin(_laplace(change, searched, orders.tobytes()) * (gamma / searched), cap)
    return bound


@lru_cache(maxsize=256)
def _laplace(change: Literal["max", "one count"], gamma: float, orders: bytes) -> FloatArray:
    certify = certify_laplace_max if change == "max" else certify_laplace_one_count
    return certify(gamma, np.frombuffer(orders)).upper


@lru_cache(maxsize=256)
def _confident(threshold: float, sigma1: float, fewest: int, most: int, argmax_rdp: bytes, orders: bytes) -> FloatArray:
    """The joint bound with numeric errors on the safe side, float64[order]."""
    inner, grid = np.frombuffer(argmax_rdp), np.frombuffer(orders)
    d = 1 / sigma1
    reach = (_WINDOW + (grid[-1] - 1) * d) * sigma1
    first = max(fewest, int(np.ceil(threshold - reach)))
    last = min(most, int(np.floor(threshold + reach)))
    every_count = last - first < _MOST_COUNTS
    counts = np.arange(first, last + 1, dtype=np.float64) if every_count else np.linspace(first, last, _MOST_COUNTS)
    margins = (counts - threshold) / sigma1
    step = 0.0 if every_count else float(margins[1] - margins[0])
    log_moment = np.array(
        [_unmoved(a, cost, (most - threshold) / sigma1) for a, cost in zip(grid, inner, strict=True)],
    )
    if margins.size:
        moved = [[_moved(a, cost, margins, shift, step) for shift in (-d, d)] for a, cost in zip(grid, inner, strict=True)]
        log_moment = np.maximum(log_moment, np.max(moved, axis=1))
    # Counts outside the window: the divergence of one outcome is at most that of the Gaussians restricted to it (Hölder),
    # e^(a(a-1)d^2/2) times the tail after a tilt of (a-1)d; the other outcome is nearly certain (docs, section 7).
    log_gauss, tilt, gain = grid * (grid - 1) * d**2 / 2, (grid - 1) * d, (grid - 1) * inner
    if fewest < first:
        edge = (min(first - 1, most) - threshold) / sigma1
        below = np.logaddexp(-(grid - 1) * log_ndtr(-edge - d), log_gauss + log_ndtr(edge + tilt) + gain)
        log_moment = np.maximum(log_moment, below)
    if last < most:
        edge = (max(last + 1, fewest) - threshold) / sigma1
        above = np.logaddexp(-(grid - 1) * log_ndtr(edge - d) + gain, log_gauss + log_ndtr(-edge + tilt))
        log_moment = np.maximum(log_moment, above)
    result: FloatArray = log_moment / (grid - 1) * (1 + FLOAT_MARGIN)
    return result


def _unmoved(a: float, argmax_rdp: float, margin: float) -> float:
    """log( N + A e^((a-1) argmax_rdp) ): the largest count is the same in both; largest where an answer is likeliest."""
    gain = (a - 1) * argmax_rdp
    if gain < 1:
        return float(np.log1p(ndtr(margin) * np.expm1(gain)))
    return float(np.logaddexp(log_ndtr(-margin), log_ndtr(margin) + gain))


def _moved(a: float, argmax_rdp: float, margins: FloatArray, shift: float, step: float) -> float:
    """log of the largest joint moment over ``margins`` (float64[count], (M - threshold)/sigma1) when M' = M + shift sigma1.

    ``step`` above 0 says that the margins are a grid which stands for everything in between: then a second-order slack
    is added, from the same derivative bounds as in :mod:`pate.privacy.certify` (docs, section 7).
    """
    log_p = np.stack([log_ndtr(-margins), log_ndtr(margins)], axis=1)
    log_q = np.stack([log_ndtr(-margins - shift), log_ndtr(margins + shift)], axis=1)
    powers = a * log_p - (a - 1) * log_q
    gain = (a - 1) * argmax_rdp
    bend = (1 + 2 * a * abs(shift)) * step**2 / 8
    largest = float(np.logaddexp(powers[:, 0], powers[:, 1] + gain).max()) + bend
    if not largest < 1:
        return largest
    # A small moment is summed as an excess over 1, without cancellation.
    ratio = log_p - log_q
    # What the answer adds, e^power (e^gain - 1): the gain alone may overflow where the power takes it down again.
    answer = np.exp(powers[:, 1]) * np.expm1(gain) if gain < 1 else np.exp(powers[:, 1] + gain) - np.exp(powers[:, 1])
    excess = excess_terms(a, log_q, ratio).sum(1) + answer
    if not step:
        return float(np.log1p(excess.max()))
    stray = abs(shift) * step / 2
    lowest, highest = np.minimum(ratio[1:], ratio[:-1]) - stray, np.maximum(ratio[1:], ratio[:-1]) + stray
    q_most = np.exp(np.maximum(log_q[1:], log_q[:-1]))
    sag = (q_most * curvature(a, lowest, highest, abs(shift))).sum(1) * step**2 / 8
    sag += bend * np.exp(bend) * np.maximum(answer[1:], answer[:-1])
    return float(np.log1p((np.maximum(excess[1:], excess[:-1]) + sag).max()))
