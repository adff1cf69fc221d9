"""Who votes on what, and the proof that nobody voted too often: pure functions over the records of one task."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pate.arrays import IntArray
from pate.errors import VotesError

Turns = NDArray[np.uint64]
"""uint64[record], :attr:`pate.teachers.data.PrivateData.turns`."""


def record_ballots(nearest: IntArray) -> tuple[IntArray, IntArray]:
    """Every record votes on all its nearest queries, int64[record, m]: (record, query), two int64[ballot]."""
    n_records, m = nearest.shape
    return np.repeat(np.arange(n_records), m), nearest.ravel()


def user_ballots(nearest: IntArray, users: IntArray, turns: Turns, most: int) -> tuple[IntArray, IntArray]:
    """At most ``most`` ballots a user and one a user and query: (record, query), two int64[ballot].

    A user's ballots stand in this order, and the first ones are cast: every record's nearest query before any record's
    second, records by their turns. So the choice looks at the user's own records only. users: int64[record], from 0.
    """
    records, queries = record_ballots(nearest)
    rank = np.tile(np.arange(nearest.shape[1]), len(nearest))
    order = np.lexsort((turns[records], rank, users[records]))
    records, queries = records[order], queries[order]
    _, first = np.unique(_pairs(users[records], queries), return_index=True)
    first.sort()
    records, queries = records[first], queries[first]
    cast = _rank_in_run(users[records]) < most
    return records[cast], queries[cast]


def tally(voters: IntArray, queries: IntArray, labels: IntArray, shape: tuple[int, int], n_voters: int, most: int) -> IntArray:
    """What one task sends back, in one array that can be summed: int64[query * class + most + 3].

    First the counts of each query and class; then how many voters cast 0, 1, …, ``most``, and more ballots; last how many
    ballots were a voter's second on a query. voters, queries, labels: int64[ballot]; shape: (queries, classes).
    """
    n_queries, n_classes = shape
    counts = np.bincount(queries * n_classes + labels, minlength=n_queries * n_classes)
    cast = np.bincount(voters, minlength=n_voters)
    how_often = np.bincount(np.minimum(cast, most + 1), minlength=most + 2)
    doubled = len(voters) - len(np.unique(_pairs(voters, queries)))
    return np.concatenate([counts, how_often, [doubled]]).astype(np.int64)


def checked_counts(sums: IntArray, shape: tuple[int, int], most: int) -> tuple[IntArray, int]:
    """The counts, int64[query, class], and the number of voters in a sum of tallies, if nobody broke the bound."""
    cells = shape[0] * shape[1]
    counts, how_often, doubled = sums[:cells].reshape(shape), sums[cells:-1], int(sums[-1])
    if how_often[-1] or doubled:
        raise VotesError(
            f"No voter may cast more than {most} ballots, or two on one query; {int(how_often[-1])} voters cast more and "
            f"{doubled} ballots were second ones. Nothing may be released from these votes."
        )
    return counts, int(how_often.sum())


def _pairs(voters: IntArray, queries: IntArray) -> IntArray:
    """One number for each pair of voter and query."""
    return voters * (int(queries.max(initial=0)) + 1) + queries


def _rank_in_run(values: IntArray) -> IntArray:
    """0, 1, 2, … within each run of equal values; ``values`` is sorted."""
    return np.arange(len(values)) - np.searchsorted(values, values)
