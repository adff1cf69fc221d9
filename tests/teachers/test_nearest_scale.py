"""Nearest-query votes of many records: memory that does not grow with them, and the benchmark. No assertion on time."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from pate.arrays import IntArray
from pate.experiments.bench import nearest as bench
from pate.teachers.data import PrivateData
from pate.teachers.nearest import nearest_votes
from pate.teachers.nearest.search import BLOCK_ROWS, Float32Array, QueryIndex, nearest_queries


def normal(rows: int, columns: int, seed: int) -> Float32Array:
    return np.random.default_rng(seed).standard_normal((rows, columns), dtype=np.float32)


def brute_force(x: Float32Array, queries: Float32Array) -> IntArray:
    return ((x.astype(np.float64)[:, None] - queries) ** 2).sum(axis=2).argmin(axis=1)


def test_memory_does_not_grow_with_the_records() -> None:
    """60,000 x 1,000 distances would take 240 MB; a block of scores takes 4 MB."""
    queries, labels = normal(1_000, 16, 0), np.arange(60_000) % 10
    data = PrivateData(normal(60_000, 16, 1), labels, range(60_000))
    tracemalloc.start()
    try:
        votes = nearest_votes(data, queries, n_classes=10)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert votes.counts.sum() == 60_000
    assert peak < 32e6


def test_memory_is_bounded_where_every_query_is_equally_near() -> None:
    """The worst case for the exact comparison: 1,024 x 300 pairs of 64 features are 157 MB of float64."""
    x = normal(BLOCK_ROWS, 64, 0)
    index = QueryIndex.build(np.zeros((300, 64)))
    tracemalloc.start()
    try:
        found = nearest_queries(x, index, 2)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    np.testing.assert_array_equal(found, np.tile([0, 1], (BLOCK_ROWS, 1)))
    assert peak < 48e6


def test_many_tasks_agree_with_brute_force_on_a_sample() -> None:
    """Every class is one record's own, so that the counts show each sampled record's vote."""
    n = 40_000
    x, queries = normal(n, 24, 2), normal(200, 24, 3)
    sample = np.random.default_rng(4).choice(n, 500, replace=False)
    labels = np.zeros(n, dtype=np.int64)
    labels[sample] = np.arange(1, 501)
    votes = nearest_votes(PrivateData(x, labels, range(n)), queries, n_classes=501)
    np.testing.assert_array_equal(votes.counts[:, 1:].argmax(axis=0), brute_force(x[sample], queries))
    np.testing.assert_array_equal(votes.counts[:, 1:].sum(axis=0), 1)


@pytest.mark.slow
def test_a_million_records() -> None:
    n = 1_000_000
    x, queries = normal(n, 64, 5), normal(1_000, 64, 6)
    labels = np.zeros(n, dtype=np.int64)
    sample = np.random.default_rng(7).choice(n, 300, replace=False)
    labels[sample] = np.arange(1, 301)
    votes = nearest_votes(PrivateData(x, labels, range(n)), queries, n_classes=301)
    assert (votes.n_teachers, int(votes.counts.sum())) == (n, n)
    np.testing.assert_array_equal(votes.counts[:, 1:].argmax(axis=0), brute_force(x[sample], queries))


def test_the_benchmark_compares_the_same_work() -> None:
    pytest.importorskip("sklearn")
    rows = bench.run(records=3_000, queries=50, dimensions=8, rounds=1)
    assert {row["way"] for row in rows} == {bench.OURS, bench.SKLEARN, bench.LOOP}
    measured = {row["way"]: row["measured"] for row in rows}
    assert measured == {bench.OURS: 3_000, bench.SKLEARN: 3_000, bench.LOOP: bench.LOOP_RECORDS}
    assert all(row["seconds"] > 0 and row["per_second"] > 0 for row in rows)
    assert bench.table(rows).row_count == 3
