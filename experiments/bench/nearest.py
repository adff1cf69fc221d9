"""How fast do records find their nearest queries? Against a plain loop over records, and scikit-learn's brute force."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from rich.table import Table

from pate.arrays import IntArray
from pate.execution import Serial
from pate.execution.threads import one_thread
from pate.experiments.bench.timing import median_seconds
from pate.extras import require
from pate.teachers.data import PrivateData
from pate.teachers.nearest import nearest_votes
from pate.votes import Votes

CLASSES = 10
LOOP_RECORDS = 2_000  # the loop does so many, and its time is multiplied: all of them would take minutes
OURS = "nearest_votes, exact ties, ballots counted"
LOOP = "plain loop over records"
SKLEARN = "scikit-learn NearestNeighbors, brute"


def run(records: int = 200_000, queries: int = 1_000, dimensions: int = 64, rounds: int = 3) -> list[dict[str, Any]]:
    """Median seconds of each alternative over ``rounds`` interleaved rounds, one thread each, on normal random numbers.

    The plain loop works on a part of the records, and its time is scaled up; ``measured`` says on how many.
    """
    neighbours = require("sklearn.neighbors", "train")
    random = np.random.default_rng(0)
    x = random.standard_normal((records, dimensions), dtype=np.float32)
    public = random.standard_normal((queries, dimensions), dtype=np.float32)
    y = random.integers(0, CLASSES, records)
    data = PrivateData(x, y, np.arange(records))
    part = min(records, LOOP_RECORDS)

    def by_loop() -> IntArray:
        counts = np.zeros((queries, CLASSES), dtype=np.int64)
        with one_thread():
            for record in range(part):
                counts[((public - x[record]) ** 2).sum(axis=1).argmin(), y[record]] += 1
        return counts

    def by_sklearn() -> Votes:
        with one_thread():
            found = (
                neighbours.NearestNeighbors(n_neighbors=1, algorithm="brute").fit(public).kneighbors(x, return_distance=False)
            )
        return Votes.from_ballots(
            np.arange(records), found[:, 0], y, n_teachers=records, n_queries=queries, n_classes=CLASSES, participation=1
        )

    tasks: dict[str, Callable[[], object]] = {
        OURS: lambda: nearest_votes(data, public, n_classes=CLASSES, executor=Serial()),
        SKLEARN: by_sklearn,
        LOOP: by_loop,
    }
    median = median_seconds(tasks, rounds)
    median[LOOP] *= records / part
    shared = {"records": records, "queries": queries, "dimensions": dimensions}
    return [
        {
            **shared,
            "way": way,
            "measured": part if way == LOOP else records,
            "seconds": value,
            "per_second": records / value,
            "times_faster": median[LOOP] / value,
        }
        for way, value in median.items()
    ]


def table(rows: list[dict[str, Any]]) -> Table:
    """The rows of :func:`run` as a table for people."""
    first = rows[0]
    title = f"{first['records']:,} records vote on the nearest of {first['queries']:,} queries, {first['dimensions']} features"
    result = Table(title=f"{title}, one thread")
    for column in ("way", "seconds", "records a second", "times faster"):
        result.add_column(column, justify="left" if column == "way" else "right")
    for row in rows:
        scaled = "" if row["measured"] == row["records"] else f" (from {row['measured']:,} records)"
        numbers = (f"{row['seconds']:.2f}", f"{row['per_second']:,.0f}", f"{row['times_faster']:.1f}")
        result.add_row(f"{row['way']}{scaled}", *numbers)
    return result
