"""What one crossing of a noisy threshold costs with Gaussian noise on the queries, however they are chosen. Certified.

Let a run ask up to n queries one after the other until the first lies above. Given the noise on the threshold, query i lies
above with probability B(u_i), where B is the tail of the noise in units of its scale and u_i what is missing; and under the
neighbour, with the threshold's noise moved so that no query below becomes likelier above, with B(u_i + s) at least. The sum
over all outcomes of P^a Q^(1-a) is then at most the largest value V_n of

    V_0 = 1,   V_n = sup_u B(u)^a B(u+s)^(1-a) + (1 - B(u)) V_(n-1)

(:mod:`pate.mechanisms.above_threshold` has the whole proof). With r(u) = B(u)/B(u+s) that is V_n = V_(n-1) + phi(V_(n-1)),

    phi(V) = sup_u B(u) max(r(u)^(a-1) - V, 0),

where B falls, r rises (the Gaussian tail is log-concave) and phi falls. Hence the safe sides: on a cell [u, u'] the supremum
is at most B(u) max(r(u')^(a-1) - V, 0); m steps add at most m phi(V); beyond u >= (a-1) s, where B^a B(.+s)^(1-a) falls, it
is at most its value at the end of the grid; and log V_n is convex in a (a supremum, over how queries are chosen, of
log-moments) and 0 at a = 1, so that between two orders the chord lies above it.
"""

from __future__ import annotations

import math
import threading
from bisect import bisect_left
from functools import lru_cache

import numpy as np
from scipy.special import log_ndtr

from pate.arrays import FloatArray
from pate.privacy.logs import log1mexp

_CELLS = 3000
_FIRST = -4.0  # to the left, r is 1 up to a few millionths of s, and B is 1
_NEGLIGIBLE = 60.0  # what lies beyond the grid adds e^-60 a query
_STRIDE = 0.01  # several steps are taken at once while log V grows by less than this times (a-1) s: phi hardly falls then
_ROUNDING = 16 * float(np.finfo(np.float64).eps)
_KNOTS = np.array(
    [1.1, 1.3, 1.6, 2, 2.5, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 32, 40, 48, 64, 96, 128, 192, 256, 384, 512]
)


def log_crossing_moments(shift: float, n_queries: int, orders: FloatArray) -> FloatArray:
    """float64[order]: log V_n, never too small. shift: s, in units of the noise's scale.

    >>> log_crossing_moments(0.1, 100, np.array([2.0])).round(2)
    array([0.24])
    """
    if n_queries == 0:
        return np.zeros_like(orders)
    last = float(orders[-1])
    knots = np.concatenate([_KNOTS[last > _KNOTS], [last]])
    moments = np.array([_run(float(shift), float(a)).moment(int(n_queries)) for a in knots])
    result: FloatArray = np.interp(orders, np.append(1.0, knots), np.append(0.0, moments)) * (1 + _ROUNDING)
    return result


@lru_cache(maxsize=2048)
def _run(s: float, a: float) -> _Run:
    return _Run(s, a)


class _Run:
    """log V_n at one order for growing n, as far as it was asked for; some n are skipped, and stand above those before them."""

    def __init__(self, s: float, a: float) -> None:
        # B(u)^a B(u+s)^(1-a) is at most about e^(log_most - (u - (a-1)s)^2/2): beyond the last end it is negligible.
        log_most = a * (a - 1) * s**2 / 2
        ends = np.linspace(_FIRST, (a - 1) * s + math.sqrt(2 * (log_most + _NEGLIGIBLE)) + 1, _CELLS + 1)
        log_b, log_b_moved = log_ndtr(-ends), log_ndtr(-ends - s)
        rounding = _ROUNDING * (1 + np.abs(log_b) + np.abs(log_b_moved))
        log_gain = (a - 1) * (log_b - log_b_moved + rounding)
        self._log_beyond = float(log_b[-1] + log_gain[-1] + rounding[-1])
        # Of each cell B at its left end and r at its right end; left of all ends B is at most 1.
        log_left = np.concatenate([[0.0], log_b[:-1] + rounding[:-1]])
        self._left = np.exp(log_left) * (1 - _ROUNDING)
        self._log_both = log_left + log_gain
        self._stride = _STRIDE * (a - 1) * s
        # The first step from V = 1, where r^(a-1) may be out of a float's range.
        first = max(float((self._log_both + log1mexp(-log_gain)).max()), self._log_beyond)
        self._queries, self._log_v = [1], [float(np.logaddexp(0.0, first))]
        self._lock = threading.Lock()

    def moment(self, n_queries: int) -> float:
        with self._lock:
            while self._queries[-1] < n_queries:
                self._extend()
            return self._log_v[bisect_left(self._queries, n_queries)]

    def _extend(self) -> None:
        log_v = self._log_v[-1]
        # phi(V)/V. Every value is below 1 after the first step, so that the rounding of the difference is absolute.
        most = max(float((np.exp(self._log_both - log_v) - self._left).max()), 0.0)
        step = most + math.exp(self._log_beyond - log_v) + _ROUNDING
        many = max(1, int(self._stride / step))
        self._queries.append(self._queries[-1] + many)
        self._log_v.append((log_v + math.log1p(many * step)) * (1 + _ROUNDING))
