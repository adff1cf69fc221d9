"""Smooth sensitivity of GNMax as published: Papernot et al. 2018 (arXiv:1802.08908), appendix B.4. For comparison.

The figure is Theorem 6 below a probability q0, the data-independent cost above: a function of q alone. A vote that moves
changes q at most to B_U(q) or B_L(q), so the local sensitivity is bounded by a function of q (Algorithm 3); within d moves q is
steered towards q0 greedily (Algorithms 4 and 5). It bounds one direction only, and needs conditions C5 and C6.

The 2018 code's own entry point for the smooth sensitivity of one query passes its arguments in the wrong order; there is none
such here: take :func:`gnmax_local_sensitivity` and :func:`discounted_max`.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq
from scipy.special import log_ndtr, ndtri_exp

from pate.arrays import FloatArray, IntArray
from pate.errors import ParameterError
from pate.privacy.curve import check_orders
from pate.privacy.exact.rows import distinct_rows, sorted_rows
from pate.privacy.logs import log1mexp
from pate.privacy.published.gnmax import gnmax_logq
from pate.privacy.published.inputs import check_counts
from pate.validation import positive, whole

_GRID = 4000
_SMALLEST_LOGQ = -700.0
_WIGGLE = 1e-9  # relative: what rounding may do to a function that does not fall


class Conditions(NamedTuple):
    """c5: the bound does not fall in q, below q0. c6: nor does what it gains when q becomes B_U(q), below q1."""

    c5: bool
    c6: bool


def gnmax_local_sensitivity(counts: ArrayLike, sigma: float, order: float) -> FloatArray:
    """float64[query, distance], distances 0 to n - 1: bounds on the local sensitivity within each. counts: [query, class].

    All rows must have the same sum n. All queries move together, one distance at a time, each distinct histogram once.

    >>> gnmax_local_sensitivity([[10, 0, 0]], 0.5, 1.5).round(3)[0, :5].tolist()
    [0.0, 0.0, 0.006, 6.0, 6.0]
    """
    table = check_counts(counts).astype(np.int64)
    check_orders([order])
    n_teachers = _common_sum(table)
    rows, inverse = distinct_rows(sorted_rows(table))
    n_classes = table.shape[1]
    logq0, logq1 = gnmax_logq0(sigma, order), gnmax_logq1(sigma, order, n_classes)
    plateau = float(_local(np.array([logq1]), sigma, order, n_classes)[0])
    result = np.full((len(rows), n_teachers), plateau)
    logq = gnmax_logq(rows, sigma)
    moving = np.flatnonzero((logq < logq1) | (logq > logq0))
    result[moving, 0] = _local(logq[moving], sigma, order, n_classes)
    votes = rows.copy()
    apart = logq > logq0  # so the gap must widen to come to q0; elsewhere it must narrow to come to q1
    for distance in range(1, n_teachers):
        going = np.where(apart[moving], (logq[moving] > logq0) & (votes[moving, 1] > 0), logq[moving] < logq1)
        moving = moving[going]
        if not moving.size:
            break
        step = np.where(apart[moving], 1, -1)
        votes[moving, 0] += step
        votes[moving, 1] -= step
        votes[moving] = sorted_rows(votes[moving])
        logq[moving] = gnmax_logq(votes[moving], sigma)
        result[moving, distance] = _local(logq[moving], sigma, order, n_classes)
    return result[inverse]


def discounted_max(beta: float, local: FloatArray) -> FloatArray:
    """float64[...]: max over d of e^(-beta d) local[..., d], the smooth sensitivity.

    Of a batch: first add over queries, then take the maximum; that is smaller than the sum of maxima, and as valid.
    """
    positive(beta, "beta")
    decay = np.exp(-beta * np.arange(local.shape[-1]))
    result: FloatArray = (local * decay).max(axis=-1)
    return result


@lru_cache(maxsize=1024)
def gnmax_logq0(sigma: float, order: float) -> float:
    """log of q0, up to which Theorem 6 is used: where it meets the data-independent cost, or stops being valid."""
    positive(sigma, "sigma")
    ahead = order / sigma**2

    def surplus(logq: float) -> float:
        return float(_theorem6(np.array([logq]), sigma, order)[0]) - ahead

    highest = min(-((1 + 1 / sigma) ** 2), -(((order - 0.99) / sigma) ** 2), -1 / sigma**2)
    if surplus(highest) < 0:
        return highest
    lowest = 2 * highest
    while surplus(lowest) > 0:
        lowest *= 1.5
        if lowest < -10_000:
            raise ParameterError(
                f"At sigma={sigma:g}, order {order:g}, Theorem 6 is nowhere below the data-independent cost. Use that one."
            )
    return float(brentq(surplus, lowest, highest, xtol=1e-14, rtol=1e-14))


def gnmax_logq1(sigma: float, order: float, n_classes: int) -> float:
    """log of q1 = B_L(q0): above it a single move can reach q0."""
    whole(n_classes, "n_classes", 2)
    return float(_moved(np.array([gnmax_logq0(sigma, order)]), sigma, n_classes, -1)[0])


@lru_cache(maxsize=1024)
def gnmax_conditions(sigma: float, n_classes: int, order: float) -> Conditions:
    """Conditions C5 and C6 of appendix B.4.2, looked at on a fine grid of log q.

    >>> gnmax_conditions(20.0, 10, 25.0), gnmax_conditions(30.0, 10, 25.0)
    (Conditions(c5=True, c6=False), Conditions(c5=True, c6=True))
    """
    logq0, logq1 = gnmax_logq0(sigma, order), gnmax_logq1(sigma, order, n_classes)
    c5 = _rises(_theorem6(_log_grid(logq0), sigma, order))
    below = _log_grid(logq1)
    gain = _theorem6(_moved(below, sigma, n_classes, 1), sigma, order) - _theorem6(below, sigma, order)
    return Conditions(c5, c5 and _rises(gain))


def check_conditions(sigma: float, n_classes: int, order: float) -> None:
    """Raise where the published smooth sensitivity is not proven."""
    found = gnmax_conditions(sigma, n_classes, order)
    if not (found.c5 and found.c6):
        raise ParameterError(
            f"The published smooth sensitivity of GNMax is proven under conditions C5 and C6 (arXiv:1802.08908, appendix "
            f"B.4.2); at sigma={sigma:g}, {n_classes} classes, order {order:g} they are {found.c5} and {found.c6}. Take a "
            "smaller order or more noise, or the data-independent cost, whose local sensitivity is 0."
        )


def _log_grid(highest: float) -> FloatArray:
    return np.linspace(min(_SMALLEST_LOGQ, 2 * highest), highest, _GRID)


def _rises(values: FloatArray) -> bool:
    return bool((np.diff(values) >= -_WIGGLE * np.abs(values[1:])).all())


def _local(logq: FloatArray, sigma: float, order: float, n_classes: int) -> FloatArray:
    """Algorithm 3: by how much the figure moves at most when one vote does. float64[query]."""
    logq0, logq1 = gnmax_logq0(sigma, order), gnmax_logq1(sigma, order, n_classes)
    held = np.where((logq1 <= logq) & (logq <= logq0), logq1, logq)
    middle = _figure(held, sigma, order)
    up, down = (_figure(_moved(held, sigma, n_classes, way), sigma, order) for way in (1, -1))
    result: FloatArray = np.maximum(up - middle, middle - down)
    return result


def _moved(logq: FloatArray, sigma: float, n_classes: int, way: int) -> FloatArray:
    """log B_U(q) (way = 1) or log B_L(q) (way = -1): the gap of every class narrows, or widens, by two votes."""
    each = ndtri_exp(logq - math.log(n_classes - 1))
    result: FloatArray = np.minimum(math.log(n_classes - 1) + log_ndtr(each + way * math.sqrt(2) / sigma), 0.0)
    return result


def _figure(logq: FloatArray, sigma: float, order: float) -> FloatArray:
    below = logq < gnmax_logq0(sigma, order)
    result = np.full(logq.shape, order / sigma**2)
    result[below] = _theorem6(logq[below], sigma, order)
    return result


def _theorem6(logq: FloatArray, sigma: float, order: float) -> FloatArray:
    """Theorem 6 at Proposition 10's orders, its conditions unchecked: below q0 they hold."""
    mu2 = sigma * np.sqrt(-logq)
    epsilon1, epsilon2 = (mu2 + 1) / sigma**2, mu2 / sigma**2
    log1q = log1mexp(logq)
    log_a = log1q - log1mexp((logq + epsilon2) * (1 - 1 / mu2))
    log_b = epsilon1 - logq / mu2
    moment = np.logaddexp(log1q + (order - 1) * log_a, logq + (order - 1) * log_b)
    result: FloatArray = moment / (order - 1)
    return result


def _common_sum(table: IntArray) -> int:
    sums = table.sum(axis=1)
    if not len(sums) or (sums != sums[0]).any() or sums[0] < 1:
        raise ParameterError("Every row of counts must have the same sum, the number of teachers; these do not.")
    return int(sums[0])
