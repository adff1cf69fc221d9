"""The m nearest public queries of every record: as fast as a float32 matrix product, as exact as float64 row by row.

The answer for a record is a function of that record and of the queries alone, bit for bit. A matrix product cannot give
this by itself: how it rounds a row depends on where the row stands among the others. So it only proposes. Every query
whose score is within a proven error bound of the m-th best stays a candidate, and candidates are compared by distances
made of elementwise IEEE operations, in which no row can feel another; equal distances go to the lowest query number.
The candidates contain the true m nearest whatever the rounding was, hence the answer does not depend on it.

The bound. Let u = 2**-24, c the (public) mean of the queries, a = x - c, b = q - c. Half the squared distance is
|a|²/2 - s with the score s = a·b - |b|²/2, computed as one float32 dot product of length d + 1. Rounding a, b and
|b|²/2 once each and summing in any order, with or without fused operations (Higham, Accuracy and Stability of Numerical
Algorithms, 2nd ed., section 3.1), gives |computed s - s| <= E = gamma(d + 5)·(|a||b| + |b|²/2), gamma(k) = ku / (1 - ku).
The float64 distance is off by at most e = gamma64(d + 3)·(|a| + |b|)². If a query j is among the m smallest float64
distances but not among the m best computed scores, some i is the other way round, and s(j) >= s(i) - e; so the computed
score of j is at least the m-th best one less 2E + e. The code keeps everything above that, with E doubled.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from pate.arrays import FloatArray, IntArray
from pate.errors import ParameterError

Metric = Literal["euclidean", "cosine"]
Float32Array = NDArray[np.float32]

BLOCK_ROWS = 1024  # records in one matrix product: with 1,000 queries 4 MB of scores
_PAIR_ELEMENTS = 2**17  # float64 numbers in one step of the exact comparison: 1 MB, stays in the cache
_UNIT = 2.0**-24
_TINY = 2.0**-120  # covers what float32 loses below its smallest normal number, 2**-126, even where a CPU flushes to zero
_LARGEST = 1e37  # scores above it could overflow on the way: such a record is compared with every query
_MAX_DIMENSIONS = 2**20  # keeps (d + 5)u far below 1, so that gamma stays a small number


@dataclass(frozen=True)
class QueryIndex:
    """Public queries, ready to be searched. Make it with :meth:`build`.

    queries: float32[query, feature], as compared; table: float32[feature + 1, query], whose product with [x - centre, 1]
    is the score; largest: the greatest norm of a centred query.
    """

    queries: Float32Array
    metric: Metric
    centre: Float32Array
    table: Float32Array
    largest: float

    @classmethod
    def build(cls, features: NDArray[Any], metric: Metric = "euclidean") -> QueryIndex:
        """Of the queries' features, [query, ...]: the same features that the records will have."""
        if metric not in get_args(Metric):
            raise ParameterError(f"metric must be one of {', '.join(get_args(Metric))}, got {metric!r}.")
        flat = flat_float32(features, "queries")
        if not 1 <= flat.shape[1] <= _MAX_DIMENSIONS:
            raise ParameterError(f"queries must have 1 to {_MAX_DIMENSIONS:,} features, got {flat.shape[1]:,}.")
        if metric == "cosine" and not flat.any(axis=1).all():
            raise ParameterError("queries must not be all zero under the cosine metric: found one without a direction.")
        queries = comparable(flat, metric)
        wide = queries.astype(np.float64)
        centre = wide.mean(axis=0).astype(np.float32)
        offsets = (wide - centre).astype(np.float32)
        squares = (offsets.astype(np.float64) ** 2).sum(axis=1)
        largest = float(np.sqrt(squares.max()))
        if not largest**2 < _LARGEST:
            raise ParameterError(
                f"queries must lie within 1e18 of their mean, got a distance of {largest:.1e}. Scale features."
            )
        table = np.vstack([offsets.T, (-squares / 2).astype(np.float32)])
        return cls(queries, metric, centre, np.ascontiguousarray(table), largest)

    def __len__(self) -> int:
        return len(self.queries)


def nearest_queries(x: NDArray[Any], index: QueryIndex, m: int) -> IntArray:
    """The m nearest queries of each record, nearest first, int64[record, m]; of equally near ones the lowest number first.

    x: [record, ...], features of records. Memory stays bounded: the matrix of all distances never exists.
    """
    if not 1 <= m <= len(index):
        raise ParameterError(f"A record can vote on 1 to {len(index)} of {len(index)} queries, got {m}.")
    out = np.empty((len(x), m), dtype=np.int64)
    scores = np.empty((min(BLOCK_ROWS, len(x)), len(index)), dtype=np.float32)
    for start in range(0, len(x), BLOCK_ROWS):
        block = comparable(flat_float32(x[start : start + BLOCK_ROWS], "records"), index.metric)
        if block.shape[1] != index.queries.shape[1]:
            raise ParameterError(
                f"Records and queries must have equally many features, got {block.shape[1]} and {index.queries.shape[1]}."
            )
        out[start : start + len(block)] = _nearest_of_block(block, index, m, scores[: len(block)])
    return out


def flat_float32(x: NDArray[Any], subject: str) -> Float32Array:
    """``x`` [record, ...] as float32[record, feature], each number rounded by itself; or an error about ``subject``."""
    with np.errstate(over="ignore"):
        flat = np.asarray(x).reshape(len(x), -1).astype(np.float32)
    if not np.isfinite(flat).all():
        raise ParameterError(f"Features of {subject} must be finite in float32; found NaN, infinity or a number above 3.4e38.")
    return flat


def comparable(flat: Float32Array, metric: Metric) -> Float32Array:
    """float32[record, feature] whose Euclidean distances are to be compared: for cosine, rows of norm one (or zero)."""
    if metric == "euclidean":
        return flat
    wide = flat.astype(np.float64)
    norms = np.sqrt(row_sums(wide * wide))
    return (wide / np.where(norms > 0, norms, 1.0)[:, None]).astype(np.float32)


def row_sums(table: FloatArray) -> FloatArray:
    """The sum of each row, float64[row], by halving; overwrites ``table``, float64[row, column].

    Additions are elementwise, so a row's sum depends on the row and its length alone. NumPy's ``sum`` promises no order.
    """
    width = table.shape[1]
    while width > 1:
        half = width // 2
        table[:, :half] += table[:, width - half : width]
        width -= half
    return table[:, 0]


def _nearest_of_block(x: Float32Array, index: QueryIndex, m: int, scores: Float32Array) -> IntArray:
    """int64[record, m] for a block of records; ``scores`` float32[record, query] is overwritten."""
    rows, queries = _candidates(x, index, m, scores)
    out = np.empty((len(x), m), dtype=np.int64)
    if m == 1:  # a lone candidate is the nearest; nothing to compare
        alone = np.bincount(rows, minlength=len(x))[rows] == 1
        out[rows[alone], 0] = queries[alone]
        rows, queries = rows[~alone], queries[~alone]
    distances = np.empty(len(rows))
    for part in _steps(len(rows), _PAIR_ELEMENTS // x.shape[1]):
        distances[part] = _squared_distances(x[rows[part]], index.queries[queries[part]])
    order = np.lexsort((queries, distances, rows))
    rows, queries = rows[order], queries[order]
    rank = np.arange(len(rows)) - np.searchsorted(rows, rows)  # 0 for the nearest of each record
    chosen = rank < m
    out[rows[chosen], rank[chosen]] = queries[chosen]
    return out


def _candidates(x: Float32Array, index: QueryIndex, m: int, scores: Float32Array) -> tuple[IntArray, IntArray]:
    """Pairs (row, query) that contain the m nearest queries of every row, sorted by row: two int64[pair]."""
    dimensions = x.shape[1]
    augmented = np.ones((len(x), dimensions + 1), dtype=np.float32)
    with np.errstate(over="ignore", invalid="ignore"):  # a record too far away for float32 is told by its scale
        offsets = np.subtract(x, index.centre, out=augmented[:, :dimensions])
        # Squares that vanish in float32 make a norm too small by at most sqrt(d) 2**-63.
        norms = np.sqrt(np.einsum("ij,ij->i", offsets, offsets)).astype(np.float64) + 2.0**-63 * dimensions**0.5
        scale = norms * index.largest + index.largest**2 / 2
    too_far = ~(scale < _LARGEST)
    augmented[too_far] = 0
    np.matmul(augmented, index.table, out=scores)
    margin = (
        4 * (dimensions + 8) * _UNIT * scale
        + (dimensions + 8) * 2.0**-52 * norms**2
        + (dimensions + 1) * _TINY * (1 + norms + index.largest)
    )
    margin[too_far] = np.inf
    limit = (_reached_by(scores, m) - margin).astype(np.float32)
    rows, queries = np.divmod(np.flatnonzero(scores >= limit[:, None]), scores.shape[1])
    return rows, queries


def _reached_by(scores: Float32Array, m: int) -> Float32Array:
    """A score that at least m queries of the row reach, float32[row]: the best one, or about the m-th best.

    Sorting a row costs far more than computing it. The maxima of groups of queries are cheap, and m groups have m members.
    """
    if m == 1:
        best: Float32Array = scores.max(axis=1)
        return best
    groups = min(scores.shape[1], max(64, 16 * m))
    maxima = scores[:, :groups].copy()
    for start in range(groups, scores.shape[1], groups):
        more = scores[:, start : start + groups]
        np.maximum(maxima[:, : more.shape[1]], more, out=maxima[:, : more.shape[1]])
    reached: Float32Array = np.partition(maxima, groups - m, axis=1)[:, groups - m]
    return reached


def _squared_distances(x: Float32Array, queries: Float32Array) -> FloatArray:
    """float64[pair] of two float32[pair, feature]: elementwise operations only."""
    differences = x.astype(np.float64)
    differences -= queries
    differences *= differences
    return row_sums(differences)


def _steps(length: int, step: int) -> Iterator[slice]:
    return (slice(start, start + max(1, step)) for start in range(0, length, max(1, step)))
