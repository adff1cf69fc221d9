"""Exact cost when it is known who voted for what: one teacher moves its own votes only."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from pate.arrays import FloatArray
from pate.privacy.curve import check_orders
from pate.privacy.exact.engine import distinct_costs
from pate.privacy.exact.mechanism import NoisyMax
from pate.privacy.exact.rows import distinct_rows, sorted_rows
from pate.votes import Votes

_CHUNK = 1 << 22


def per_teacher_rdp(mechanism: NoisyMax, predictions: ArrayLike, n_classes: int, orders: ArrayLike) -> FloatArray:
    """float64[order]: cost of the whole batch, max over teachers of the sum over queries.

    predictions: int[teacher, query], the class each teacher voted for. A neighbouring data set changes one teacher t,
    which moves its vote on every query from where it was to any class b. So the batch costs at most
    max over t of Σ_queries max_b D(M(n)||M(n - e_{vote of t} + e_b)), and the same in the other direction; the larger
    of both is returned. Never above the sum of the worst case of every query, which moves another teacher's vote each time.
    """
    grid = check_orders(orders)
    votes = np.asarray(predictions)
    counts = Votes.from_predictions(votes, n_classes).counts
    n_queries = len(counts)
    rows, inverse = distinct_rows(sorted_rows(counts))
    costs = distinct_costs(mechanism, rows, grid, by_source=True)
    # Level of each class of each query: how many distinct larger counts its row has.
    starts = np.ones(rows.shape, dtype=np.bool_)
    starts[:, 1:] = rows[:, 1:] != rows[:, :-1]
    level = np.cumsum(starts, axis=1) - 1
    rank = np.empty_like(counts)
    order = np.argsort(-counts, axis=1, kind="stable")
    np.put_along_axis(rank, order, level[inverse], axis=1)
    total = np.zeros((2, len(votes), grid.size))
    size = max(1, _CHUNK // (2 * len(votes) * grid.size))
    for start in range(0, n_queries, size):
        some = np.arange(start, min(start + size, n_queries))
        source = rank[some[:, None], votes[:, some].T]  # [query, teacher]
        total += costs[:, inverse[some][:, None], source].sum(axis=1)
    worst: FloatArray = total.max(axis=(0, 1))
    return worst
