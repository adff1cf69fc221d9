"""How fast is exact accounting? The plain loop over the 2018 bound, and the exact accountant with and without numba; and the
published smooth sensitivity, one query and one distance at a time, against all at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from rich.table import Table

from pate.arrays import FloatArray, IntArray
from pate.experiments.bench.published_loop import gnmax_bound_loop
from pate.experiments.bench.published_smooth import gnmax_local_sensitivity_loop
from pate.experiments.bench.timing import median_seconds
from pate.privacy.curve import DEFAULT_ORDERS
from pate.privacy.exact import NoisyMax
from pate.privacy.exact.engine import distinct_costs, kernel
from pate.privacy.exact.rows import distinct_rows, sorted_rows
from pate.privacy.smooth import cost_tables, discounted_max, gnmax_local_sensitivity

TEACHERS = 250
SIGMA = 40.0
BASELINE = "2018 bound, plain loop, one direction"
SMOOTH_BASELINE = "2018 smooth sensitivity, plain loop"
SMOOTH_ORDER, SMOOTH_BETA = 8.0, 0.03
SMOOTH_QUERIES = 640
_LOOPED = 10
"""Queries that the plain loop over the smooth sensitivity is run on; its time is scaled up from these."""


def random_votes(queries: int, classes: int, concentration: float, seed: int = 0) -> IntArray:
    """int64[query, class]: votes of 250 teachers, class shares from a symmetric Dirichlet. Practically all distinct.

    A concentration of 1 spreads the votes over all classes, which is hard on the exact accountant: nothing merges. At
    0.1 most teachers agree, as real ensembles do.
    """
    rng = np.random.default_rng(seed)
    shares = rng.dirichlet(np.full(classes, concentration), queries)
    return rng.multinomial(TEACHERS, shares).astype(np.int64)


def run(
    queries: int = 10_000, classes: int = 10, n_orders: int = 60, rounds: int = 5, votes: IntArray | None = None
) -> list[dict[str, Any]]:
    """Median seconds of each alternative over ``rounds`` interleaved rounds, and how many times faster than the loop.

    Without ``votes``, int64[query, class], both spread and agreeing random votes are measured.
    """
    orders = DEFAULT_ORDERS[np.unique(np.linspace(0, DEFAULT_ORDERS.size - 1, n_orders).astype(np.int64))]
    sets = (
        {"given votes": votes}
        if votes is not None
        else {
            "random votes, spread": random_votes(queries, classes, 1.0),
            "random votes, agreeing": random_votes(queries, classes, 0.1),
        }
    )
    rows = [row for name, counts in sets.items() for row in _measure(name, counts, orders, rounds)]
    return rows + [row for name, counts in sets.items() for row in _measure_smooth(name, counts[:SMOOTH_QUERIES], rounds)]


def _measure(name: str, counts: IntArray, orders: FloatArray, rounds: int) -> list[dict[str, Any]]:
    def exact(compiled: bool) -> Callable[[], object]:
        mechanism = NoisyMax("gaussian", SIGMA)

        def account() -> FloatArray:
            rows, inverse = distinct_rows(sorted_rows(counts))
            return distinct_costs(mechanism, rows, orders, compiled=compiled)[:, inverse]

        return account

    tasks: dict[str, Callable[[], object]] = {
        BASELINE: lambda: gnmax_bound_loop(counts, SIGMA, orders),
        "exact, NumPy, both directions": exact(compiled=False),
    }
    if kernel() is not None:
        tasks["exact, numba, both directions"] = exact(compiled=True)
        distinct_costs(NoisyMax("gaussian", SIGMA), sorted_rows(counts[:2]), orders)  # compile outside the clock
    median = median_seconds(tasks, rounds)
    shared = {
        "votes": name,
        "queries": len(counts),
        "distinct": len(distinct_rows(sorted_rows(counts))[0]),
        "classes": counts.shape[1],
        "orders": orders.size,
    }
    return [
        {**shared, "accountant": task, "seconds": value, "times_faster": median[BASELINE] / value}
        for task, value in median.items()
    ]


def _measure_smooth(name: str, counts: IntArray, rounds: int) -> list[dict[str, Any]]:
    """The smooth sensitivity of a batch at one order. The loop is run on evenly spaced queries and its time scaled up.

    For all 640 random queries it takes seconds a round. It is our own loop, not the published script: how long that one takes
    is not measured here.
    """
    some = counts[np.unique(np.linspace(0, len(counts) - 1, min(_LOOPED, len(counts))).astype(np.int64))]
    mechanism, orders = NoisyMax("gaussian", SIGMA), np.array([SMOOTH_ORDER])
    teachers = int(counts[0].sum())

    def from_table() -> object:
        made = cost_tables(mechanism, teachers, counts.shape[1], orders)[0]
        return made.sensitivity_within([counts])[0].smooth(SMOOTH_BETA)

    def all_at_once() -> object:
        return discounted_max(SMOOTH_BETA, gnmax_local_sensitivity(counts, SIGMA, SMOOTH_ORDER).sum(axis=0))

    def looped() -> object:
        return discounted_max(SMOOTH_BETA, gnmax_local_sensitivity_loop(some, SIGMA, SMOOTH_ORDER).sum(axis=0))

    loop = f"{SMOOTH_BASELINE}, scaled up from {len(some)} queries"
    median = median_seconds(
        {loop: looped, "2018 smooth sensitivity, all queries at once": all_at_once, "smooth sensitivity by table": from_table},
        rounds,
    )
    median[loop] *= len(counts) / len(some)
    shared = {
        "votes": name,
        "queries": len(counts),
        "distinct": len(distinct_rows(sorted_rows(counts))[0]),
        "classes": counts.shape[1],
        "orders": 1,
    }
    return [
        {**shared, "accountant": task, "seconds": value, "times_faster": median[loop] / value} for task, value in median.items()
    ]


def table(rows: list[dict[str, Any]]) -> Table:
    """The rows of :func:`run` as a table for people."""
    result = Table(title="Accounting speed, median seconds")
    for column in ("votes", "accountant", "queries", "distinct", "seconds", "times faster"):
        result.add_column(column, justify="left" if column in ("votes", "accountant") else "right")
    for row in rows:
        numbers = (f"{row['queries']:,}", f"{row['distinct']:,}", f"{row['seconds']:.3f}", f"{row['times_faster']:.1f}")
        result.add_row(row["votes"], row["accountant"], *numbers)
    return result
