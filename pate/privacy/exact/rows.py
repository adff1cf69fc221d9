"""Histograms reduced to what their cost depends on: sorted, each once, equal counts merged.

Noise is alike on every class, so the cost of a histogram does not change when its classes are permuted, and moving a
vote between two classes is the same move after sorting. A class counts only through its number of votes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from pate.arrays import IntArray


class Group(NamedTuple):
    """Histograms with the same number of distinct counts.

    position: int64[row], their places among the distinct histograms.
    values: int64[row, level], the distinct counts, largest first.
    classes: int64[row, level], how many classes have that count.
    """

    position: IntArray
    values: IntArray
    classes: IntArray


def distinct_rows(counts: IntArray) -> tuple[IntArray, IntArray]:
    """(int64[row, class] distinct rows, int64[query] row of each query)."""
    if not len(counts):
        return counts, np.zeros(0, dtype=np.int64)
    # Narrow rows compare faster; a row as one opaque key sorts in one pass.
    narrow = counts.astype(np.min_scalar_type(int(counts.max())))
    keys = np.ascontiguousarray(narrow).view(np.dtype((np.void, narrow.dtype.itemsize * narrow.shape[1])))[:, 0]
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    return counts[first], inverse.astype(np.int64)


def sorted_rows(counts: IntArray) -> IntArray:
    """Every row sorted, largest count first."""
    return np.ascontiguousarray(np.sort(counts, axis=1)[:, ::-1])


def merged(rows: IntArray) -> Iterator[Group]:
    """Group sorted rows int64[row, class] by their number of distinct counts, neighbouring rows of similar spread."""
    starts = np.ones(rows.shape, dtype=np.bool_)
    starts[:, 1:] = rows[:, 1:] != rows[:, :-1]
    levels = starts.sum(axis=1)
    spread = rows[:, 0] - rows[:, -1] if len(rows) else levels
    order = np.lexsort((spread, levels))
    for n_levels in np.unique(levels):
        index = order[levels[order] == n_levels]
        mask = starts[index]
        values = rows[index][mask].reshape(index.size, n_levels)
        place = np.nonzero(mask)[1].reshape(index.size, n_levels)
        classes = np.diff(place, axis=1, append=rows.shape[1])
        yield Group(index, values, classes)
