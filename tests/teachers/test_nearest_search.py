"""The nearest queries of a record: exact, and a function of the record alone, bit for bit."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from pate.arrays import FloatArray, IntArray
from pate.errors import ParameterError
from pate.teachers.nearest import search as nearest_search
from pate.teachers.nearest.search import Metric, QueryIndex, nearest_queries, row_sums


def search(x: NDArray[Any], queries: NDArray[Any], m: int = 1, metric: Metric = "euclidean") -> IntArray:
    return nearest_queries(x, QueryIndex.build(queries, metric), m)


def brute_force(x: NDArray[Any], queries: NDArray[Any], m: int = 1) -> IntArray:
    """Distances of float32 numbers in float64, equal ones by the query's number."""
    distances = ((x.astype(np.float32).astype(np.float64)[:, None] - queries.astype(np.float32)) ** 2).sum(axis=2)
    return np.argsort(distances, axis=1, kind="stable")[:, :m]


def near_ties(records: int, seed: int = 0) -> tuple[FloatArray, FloatArray]:
    """Records half-way between two queries but for a few parts in 10 million, far from the origin; some exactly half-way."""
    random = np.random.default_rng(seed)
    queries = (random.normal(size=(40, 24)) + 3).astype(np.float32)
    left, right = random.integers(0, 40, records), random.integers(0, 40, records)
    towards = random.choice([-3e-7, 0.0, 1e-7, 3e-6], (records, 1))
    middle = (queries[left] + queries[right]) / 2
    return (middle + towards * (queries[right] - queries[left])).astype(np.float64), queries.astype(np.float64)


@pytest.mark.parametrize("m", [1, 2, 7, 30])
@pytest.mark.parametrize("dimensions", [1, 2, 17, 64, 300])
def test_the_same_as_brute_force(m: int, dimensions: int) -> None:
    random = np.random.default_rng([m, dimensions])
    x, queries = random.normal(size=(300, dimensions)), random.normal(size=(30, dimensions))
    np.testing.assert_array_equal(search(x, queries, m), brute_force(x, queries, m))


@pytest.mark.parametrize("m", [1, 3, 100])
def test_more_queries_than_groups(m: int) -> None:
    random = np.random.default_rng(m)
    x, queries = random.normal(size=(200, 8)), random.normal(size=(1_003, 8))
    np.testing.assert_array_equal(search(x, queries, m), brute_force(x, queries, m))


@pytest.mark.parametrize("m", [1, 2, 5])
def test_exact_ties_go_to_the_lowest_query(m: int) -> None:
    """Small whole numbers: every sum is exact in float64, and ties abound."""
    random = np.random.default_rng(m)
    x, queries = random.integers(0, 3, (500, 6)), random.integers(0, 3, (60, 6))
    queries[10:20] = queries[:10]  # duplicates
    np.testing.assert_array_equal(search(x, queries, m), brute_force(x, queries, m))


def test_all_queries_equal() -> None:
    x = np.random.default_rng(0).normal(size=(50, 5))
    np.testing.assert_array_equal(search(x, np.ones((8, 5)), 3), np.tile([0, 1, 2], (50, 1)))


@pytest.mark.parametrize("m", [1, 2])
def test_near_ties_are_decided_in_float64_where_float32_is_wrong(m: int) -> None:
    x, queries = near_ties(2_000)
    truth = brute_force(x, queries, m)
    np.testing.assert_array_equal(search(x, queries, m), truth)
    flat, public = x.astype(np.float32), queries.astype(np.float32)
    single = (flat @ public.T - (public**2).sum(axis=1) / 2).argmax(axis=1)
    assert (single != truth[:, 0]).sum() > 50  # the case is as hard as it says


@pytest.mark.parametrize("m", [1, 3])
@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_a_record_is_alone_in_its_choice(m: int, metric: Metric, monkeypatch: pytest.MonkeyPatch) -> None:
    x, queries = near_ties(700)
    whole = search(x, queries, m, metric)
    random = np.random.default_rng(1)
    for _ in range(5):
        order = random.permutation(len(x))
        np.testing.assert_array_equal(search(x[order], queries, m, metric), whole[order])
    for cut in (1, 2, 3, 17, 400):
        np.testing.assert_array_equal(search(x[cut:], queries, m, metric), whole[cut:])
    others = random.normal(size=x.shape) * 1e6  # whatever stands beside it
    others[::7] = x[::7]
    np.testing.assert_array_equal(search(others, queries, m, metric)[::7], whole[::7])
    for rows in (1, 2, 3, 64, 333):
        monkeypatch.setattr(nearest_search, "BLOCK_ROWS", rows)
        np.testing.assert_array_equal(search(x, queries, m, metric), whole)


@pytest.mark.parametrize("m", [1, 3])
def test_no_error_within_the_bound_changes_the_answer(m: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A matrix product that is wrong by the whole of the proven bound, in random directions, proposes the same winners."""
    x, queries = near_ties(1_000)
    index = QueryIndex.build(queries)
    whole = nearest_queries(x, index, m)
    random = np.random.default_rng(0)
    unit, dimensions, product = 2.0**-24, x.shape[1], np.matmul

    def wrong(augmented: FloatArray, table: FloatArray, out: NDArray[np.float32]) -> None:
        norms = np.linalg.norm(augmented[:, :-1].astype(np.float64), axis=1)
        gamma = (dimensions + 5) * unit / (1 - (dimensions + 5) * unit)
        bound = gamma * (norms * index.largest + index.largest**2 / 2)
        exact = product(augmented.astype(np.float64), table.astype(np.float64))
        out[:] = exact + random.choice([-1, 1], exact.shape) * bound[:, None]

    with monkeypatch.context() as patch:
        patch.setattr(np, "matmul", wrong)
        for _ in range(5):
            np.testing.assert_array_equal(nearest_queries(x, index, m), whole)


@pytest.mark.parametrize("scale", [1e-38, 1e-25, 1e-10, 1.0, 1e10, 1e17])
def test_scores_are_within_the_bound(scale: float) -> None:
    """The computed score against rational arithmetic; also where float32 under- or nearly overflows."""
    random = np.random.default_rng(0)
    queries = (scale * (random.normal(size=(6, 9)) + 1)).astype(np.float32)
    x = (scale * (10 * random.normal(size=(20, 9)) + 1)).astype(np.float32)
    index = QueryIndex.build(queries)
    scores = np.empty((20, 6), dtype=np.float32)
    nearest_search._candidates(x, index, 1, scores)
    for row in range(20):
        a = [Fraction(float(value)) - Fraction(float(c)) for value, c in zip(x[row], index.centre, strict=True)]
        norm = float(sum(value**2 for value in a)) ** 0.5
        bound = 14 * 2.0**-24 * 1.0001 * (norm * index.largest + index.largest**2 / 2) + 10 * 2.0**-123 * (1 + norm)
        for query in range(6):
            b = [Fraction(float(value)) - Fraction(float(c)) for value, c in zip(queries[query], index.centre, strict=True)]
            score = sum(p * q for p, q in zip(a, b, strict=True)) - sum(q * q for q in b) / 2
            assert abs(float(Fraction(float(scores[row, query])) - score)) <= bound


def by_definition(x: NDArray[Any], queries: NDArray[Any], m: int) -> IntArray:
    """Every query compared, record by record: float64 distances, summed by halving."""
    wide, public = x.astype(np.float64), queries.astype(np.float64)
    distances = np.stack([row_sums((public - record) ** 2) for record in wide])
    return np.argsort(distances, axis=1, kind="stable")[:, :m]


@pytest.mark.parametrize("m", [1, 3])
@pytest.mark.parametrize("queries_scale", [1e-30, 1e-23, 1e-22, 1e-21, 1e-18, 1.0, 1e17])
def test_every_scale_as_defined(m: int, queries_scale: float) -> None:
    """Records from denormal to nearly the largest float32, in one block.

    So that products lose digits below 2**-126 (at 1e-22), float64 itself rounds distances to ties (records 1e14 times
    farther than queries), and scores overflow (1e37 times 1e17).
    """
    random = np.random.default_rng(0)
    queries = (queries_scale * random.uniform(-1, 1, (60, 5))).astype(np.float32)
    queries[8] = queries[1]
    near = queries_scale * 10.0 ** np.array([0, 0, 0, 1, 8, 12, 14, 15, 16])
    scales = np.repeat([1e-42, 1e-30, 1e-3, 1e12, 1e25, 3e37, *near[near < 1e37]], 40)[:, None]
    x = (scales * random.uniform(-1, 1, (len(scales), 5))).astype(np.float32)
    np.testing.assert_array_equal(search(x, queries, m), by_definition(x, queries, m))


def test_cosine_is_about_directions() -> None:
    random = np.random.default_rng(0)
    x, queries = random.normal(size=(400, 12)), random.normal(size=(25, 12))
    similarity = (x @ queries.T) / np.linalg.norm(x, axis=1)[:, None] / np.linalg.norm(queries, axis=1)
    expected = np.argsort(-similarity, axis=1)[:, :3]
    np.testing.assert_array_equal(search(x, queries, 3, "cosine"), expected)
    lengths = 2.0 ** random.integers(-60, 60, (400, 1))
    np.testing.assert_array_equal(search(x * lengths, queries, 3, "cosine"), expected)
    assert (search(x, 100 * queries, 3, "euclidean") != search(x, 100 * queries, 3, "cosine")).any()
    assert search(np.zeros((1, 12)), queries, 1, "cosine").shape == (1, 1)


def test_pictures_are_flattened_and_whole_numbers_taken() -> None:
    random = np.random.default_rng(0)
    x, queries = random.integers(0, 256, (50, 4, 4), dtype=np.uint8), random.integers(0, 256, (7, 4, 4), dtype=np.uint8)
    np.testing.assert_array_equal(search(x, queries), brute_force(x.reshape(50, 16), queries.reshape(7, 16)))


def test_no_records_no_answer() -> None:
    assert search(np.empty((0, 4)), np.eye(4), 2).shape == (0, 2)


@pytest.mark.parametrize("width", [1, 2, 3, 5, 64, 257])
def test_row_sums_do_not_feel_the_other_rows(width: int) -> None:
    table = np.random.default_rng(width).normal(size=(40, width)) * 1e8
    together = row_sums(table.copy()).copy()
    alone = np.array([row_sums(table[[row]].copy())[0] for row in range(40)])
    np.testing.assert_array_equal(together, alone)
    np.testing.assert_allclose(together, table.sum(axis=1), rtol=1e-12, atol=1e-5)


@pytest.mark.parametrize(
    ("x", "queries", "m", "metric", "message"),
    [
        (np.eye(3), np.eye(3), 0, "euclidean", "1 to 3"),
        (np.eye(3), np.eye(3), 4, "euclidean", "1 to 3"),
        (np.eye(4), np.eye(3), 1, "euclidean", "equally many features, got 4 and 3"),
        (np.eye(3), np.eye(3), 1, "manhattan", "euclidean, cosine"),
        (np.eye(3), np.diag([1.0, 1.0, 0.0]), 1, "cosine", "must not be all zero"),
        (np.eye(3), 1e19 * np.eye(3), 1, "euclidean", "Scale features"),
        (np.eye(3), np.empty((3, 0)), 1, "euclidean", "got 0"),
        (np.full((2, 3), np.nan), np.eye(3), 1, "euclidean", "records must be finite"),
        (np.full((2, 3), 1e39), np.eye(3), 1, "euclidean", "records must be finite"),
        (np.eye(3), np.full((2, 3), np.inf), 1, "euclidean", "queries must be finite"),
    ],
)
def test_refused(x: FloatArray, queries: FloatArray, m: int, metric: Metric, message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        search(x, queries, m, metric)
