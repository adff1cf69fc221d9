"""The exact cost of any mechanism that can state the log-probabilities of its public outcomes."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import ArrayLike

from pate.arrays import FloatArray, IntArray
from pate.errors import ParameterError
from pate.privacy.curve import check_orders

LOG_PROB_ERROR = 1e-12
"""The absolute error of a log-probability that every exact cost allows for."""

_CHUNK = 1 << 20
"""Numbers held at once, about."""


def renyi_divergence(log_p: ArrayLike, log_q: ArrayLike, orders: ArrayLike) -> FloatArray:
    """D_a(P||Q) = log(Σ P^a Q^(1-a)) / (a-1) at every order (Mironov 2017, arXiv:1702.07476, Definition 3).

    log_p, log_q: float64[..., outcome], each a whole distribution. Returns float64[..., order]; infinite where an
    outcome of P cannot happen under Q.

    With l = log(P/Q) and Σ(P - Q) = 0 the sum is 1 + Σ P [expm1((a-1) l) + (a-1) expm1(-l)], all terms >= 0, so that tiny
    divergences keep their digits.

    >>> bool(np.isclose(renyi_divergence(np.log([0.5, 0.5]), np.log([0.25, 0.75]), [2.0]), np.log(4 / 3)))
    True
    """
    p, q = np.broadcast_arrays(np.asarray(log_p, dtype=np.float64), np.asarray(log_q, dtype=np.float64))
    s = check_orders(orders) - 1
    possible = p > -np.inf
    with np.errstate(invalid="ignore"):
        log_ratio = np.where(possible, p - q, 0.0)
    impossible = (log_ratio == np.inf).any(axis=-1)
    log_ratio = np.where(log_ratio == np.inf, 0.0, log_ratio)
    # Outcomes that only Q has belong to Σ(Q - P).
    excess = np.where(possible, _mass_times_expm1(p, -log_ratio), np.exp(q)).sum(axis=-1)
    result = np.empty((*p.shape[:-1], s.size))
    for i, shift in enumerate(s):
        exponent = p + shift * log_ratio
        peak = exponent.max(axis=-1)
        small = np.log1p(np.maximum(_mass_times_expm1(p, shift * log_ratio).sum(axis=-1) + shift * excess, 0.0))
        large = peak + np.log(np.exp(exponent - peak[..., None]).sum(axis=-1))
        result[..., i] = np.where(peak > 1, large, small) / shift
    result[impossible] = np.inf
    return result


def _mass_times_expm1(log_p: FloatArray, exponent: FloatArray) -> FloatArray:
    """e^log_p (e^exponent - 1), where e^exponent alone may overflow."""
    near = np.abs(exponent) < 1
    tame = np.where(near, exponent, 0.0)
    # 700 keeps e^x finite; sums that large are taken in log space by the caller.
    far = np.exp(np.minimum(log_p + exponent, 700.0)) - np.exp(log_p)
    result: FloatArray = np.where(near, np.exp(log_p) * np.expm1(tame), far)
    return result


def numeric_margin(orders: FloatArray, log_prob_error: FloatArray | float = LOG_PROB_ERROR) -> FloatArray:
    """What to add to a divergence so that numeric error never makes it too small.

    If every log P and every log Q is off by at most η, then log Σ P^a Q^(1-a) is off by at most a·η + (a-1)·η, and D by
    (2 + 1/(a-1))·η. float64[..., order] for an η of shape [...].
    """
    margin: FloatArray = np.asarray(log_prob_error, dtype=np.float64)[..., None] * (2 + 1 / (orders - 1))
    return margin


def moved_votes(counts: IntArray) -> IntArray:
    """int64[neighbour, class]: every histogram with one vote moved from a class that has one to another class.

    >>> moved_votes(np.array([2, 0]))
    array([[1, 1]])
    """
    k = counts.shape[0]
    source, target = np.nonzero((counts >= 1)[:, None] & ~np.eye(k, dtype=np.bool_))
    neighbours = np.repeat(counts[None, :], source.size, axis=0)
    each = np.arange(source.size)
    neighbours[each, source] -= 1
    neighbours[each, target] += 1
    return neighbours


def rdp_from_outcomes(
    outcome_log_probs: Callable[[IntArray], FloatArray | None], counts: IntArray, orders: ArrayLike, public: int = 0
) -> FloatArray | None:
    """float64[query, order]: max over all neighbours n - e_a + e_b, both directions, of the Rényi divergence.

    outcome_log_probs: int64[query, class] -> float64[query, outcome], or None where the mechanism cannot tell; then the
    answer is None. Its log-probabilities are trusted to about 1e-12. Infinite where an outcome is possible on one side
    only. The classes need not be alike: rows are deduplicated, not sorted.

    public: so many columns at the end of ``counts`` are no votes but public facts about the query, which the mechanism is told
    with them; no neighbour changes them.
    """
    grid = check_orders(orders)
    rows, inverse = np.unique(np.asarray(counts, dtype=np.int64), axis=0, return_inverse=True)
    cost = np.empty((len(rows), grid.size))
    done = 0
    for batch in _batches(rows):
        part = _worst(outcome_log_probs, batch, grid, public)
        if part is None:
            return None
        cost[done : done + len(batch)] = part
        done += len(batch)
    return cost[inverse.reshape(-1)]


def _batches(rows: IntArray) -> Iterator[IntArray]:
    k = rows.shape[1]
    size = max(1, _CHUNK // k**3)
    for start in range(0, len(rows), size):
        yield rows[start : start + size]


def _worst(
    outcome_log_probs: Callable[[IntArray], FloatArray | None], rows: IntArray, orders: FloatArray, public: int
) -> FloatArray | None:
    """float64[row, order] for a batch of distinct rows, or None."""
    n_classes = rows.shape[1] - public
    moved = [moved_votes(row[:n_classes]) for row in rows]
    owner = np.repeat(np.arange(len(rows)), [len(some) for some in moved])
    neighbours = np.column_stack([np.concatenate(moved), rows[owner, n_classes:]])
    before = _checked(outcome_log_probs(rows), len(rows))
    after = _checked(outcome_log_probs(neighbours), owner.size)
    if before is None or after is None:
        return None
    cost = np.zeros((len(rows), orders.size))
    for start in range(0, owner.size, size := max(1, _CHUNK // before.shape[1])):
        some = slice(start, start + size)
        p, q = before[owner[some]], after[some]
        both = np.maximum(renyi_divergence(p, q, orders), renyi_divergence(q, p, orders))
        np.maximum.at(cost, owner[some], both)
    finite = np.where(np.isfinite(before), before, 0.0)
    # Logs are stored to 16 digits, so a log-probability of -10,000 cannot be right to 1e-12.
    error = LOG_PROB_ERROR * np.maximum(1.0, np.abs(finite).max(axis=1) / 1000)
    result: FloatArray = np.where(np.isnan(cost), np.inf, cost + numeric_margin(orders, error))
    return result


def _checked(log_probs: FloatArray | None, n_rows: int) -> FloatArray | None:
    if log_probs is None:
        return None
    table = np.asarray(log_probs, dtype=np.float64)
    if table.ndim != 2 or table.shape[0] != n_rows:
        raise ParameterError(
            f"outcome_log_probs must return an array [query, outcome] with {n_rows} rows, got shape {table.shape}."
        )
    if np.isnan(table).any():
        raise ParameterError("outcome_log_probs returned NaN; use -inf for an outcome that cannot happen.")
    # 1e-6 is far above rounding and far below any mistake that matters.
    total = np.exp(table).sum(axis=1)
    if (np.abs(total - 1) > 1e-6).any():
        raise ParameterError(
            f"outcome_log_probs must describe whole distributions; a row sums to {total[np.argmax(np.abs(total - 1))]:.6g} "
            "instead of 1. List every public outcome, abstention included."
        )
    return table
