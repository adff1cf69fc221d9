"""Nearest-query voters: every private record votes its own label on the public queries nearest to it. Nothing is trained.

If a batch of queries is fixed in advance and nobody votes on more than m of them, chosen from public things and the
voter's own data alone, the whole batch costs what m queries cost, however many it has. Both conditions are kept here: the
choice is a function of the voter's own records, bit for bit, and the pass counts every voter's ballots.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from operator import add

import numpy as np
from numpy.typing import ArrayLike

from pate.arrays import IntArray
from pate.errors import ParameterError, VotesError
from pate.execution import Executor, Serial, Task
from pate.execution.base import Shared
from pate.features import Features
from pate.public import PublicData, numeric_records
from pate.teachers.data import PrivateData
from pate.teachers.nearest.ballots import checked_counts, record_ballots, tally, user_ballots
from pate.teachers.nearest.search import Metric, QueryIndex, nearest_queries
from pate.teachers.nearest.sources import Source, Voters, in_memory, in_parts
from pate.teachers.partition import Partition
from pate.teachers.partitioned import Partitioned
from pate.teachers.resuming import refuse_private_features
from pate.validation import whole
from pate.votes import Votes

RECORDS_PER_TASK = 16_384
"""Public and fixed, so that the work does not depend on the number of workers. A task goes on to the end of its last user."""

_QUERIES, _FEATURES = "nearest.queries", "nearest.features"


def nearest_votes(
    data: PrivateData | Partitioned,
    queries: ArrayLike | PublicData,
    *,
    n_classes: int,
    votes_per_record: int = 1,
    votes_per_user: int | None = None,
    voters: int | None = None,
    executor: Executor | None = None,
    features: Features | None = None,
    metric: Metric = "euclidean",
    report: Callable[[str], None] | None = None,
) -> Votes:
    """Every record votes its own label on its nearest queries: one pass, from which only sums of counts come back.

    data: private data in memory; or a ``StoredPartition``, whose parts the workers read themselves.
    queries: [query, ...], public, of the records' shape, fixed before the data is looked at.
    n_classes: declared, not counted: the largest private label would be a release of its own.
    votes_per_record: how many of its nearest queries a record votes on.
    votes_per_user: the most votes of a user, needed where data is grouped by user. A user votes once a query. Its first
        votes count: every record's nearest query before any record's second, records by a keyed hash of their ids.
    voters: declared: how many records (or users) there are at most. The number of voters is a public fact of the votes, which
        stands in every release, so without this it must be one: then neighbours differ in a record that is replaced. With it
        they may also differ in one that is added or removed.
    executor: ``Serial()`` unless given; ``OnRay(...)`` for all cores or a cluster. The votes are the same.
    features: public features, computed by the workers. They must give a record the same bits whatever records stand beside
        it, as :class:`~pate.features.base.Features` promises; all else in the pass keeps this by construction.
    metric: "euclidean" or "cosine", of features rounded to float32. Of equally near queries the lowest number is taken.
    report: called with a line before and after the pass. With ``voters`` declared neither tells how many there are.

    The result's ``n_teachers`` is ``voters``, or the number of records (or users) unless given, its ``participation`` the most
    votes of one, which was enforced, and counted, in the pass.

    >>> ward = PrivateData([[0.1], [0.2], [0.9]], [0, 0, 1], ids=["ann", "bob", "cy"])
    >>> votes = nearest_votes(ward, [[0.0], [1.0]], n_classes=2)
    >>> votes
    Votes(2 queries, 2 classes, 3 teachers, at most 1 votes each)
    >>> votes.counts.tolist()
    [[2, 0], [0, 1]]
    """
    if isinstance(data, Partition):
        data = data.data  # its parts do not matter here
    x = queries.x if isinstance(queries, PublicData) else numeric_records(queries, "queries")
    whole(n_classes, "n_classes", 2)
    if voters is not None:
        whole(voters, "voters, the declared number of records or users,", 1)
    most = _most_votes(data.unit, len(x), votes_per_record, votes_per_user)
    executor = executor or Serial()
    refuse_private_features(features, data, executor)
    if features is not None:
        x = features.transform(x)
    QueryIndex.build(x, metric)  # queries that cannot be searched are refused before anything is sent
    shared, tasks = in_memory(data, RECORDS_PER_TASK) if isinstance(data, PrivateData) else in_parts(data)
    shared[_QUERIES] = x
    if features is not None:
        shared[_FEATURES] = np.frombuffer(pickle.dumps(features), dtype=np.uint8)
    rules = _Rules(n_classes, votes_per_record, most, metric)
    work = [Task(task.key, (rules, task.payload), task.placement) for task in tasks]
    if report is not None:
        size = "" if voters is not None else f": {len(work)} tasks"  # their number follows from that of the records
        report(f"Each {data.unit} votes on at most {most} of {len(x)} queries{size}")
    sums = executor.total(count_ballots, work, shared)
    counts, n_voters = checked_counts(sums, (len(x), n_classes), most)
    if report is not None:
        who = f"{n_voters} {data.unit}s voted" if voters is None else f"The {data.unit}s voted"
        report(f"{who}: counted, none on more than {most} queries")
    if voters is not None and n_voters > voters:
        raise VotesError(
            f"At most {voters} {data.unit}s were declared to vote, and there are more. Declare a larger number, without "
            "looking for the least that will do."
        )
    return Votes(counts, n_voters if voters is None else voters, participation=most)


def _most_votes(unit: str, n_queries: int, votes_per_record: int, votes_per_user: int | None) -> int:
    """The bound on one voter's ballots."""
    whole(votes_per_record, "votes_per_record", 1)
    if votes_per_record > n_queries:
        raise ParameterError(f"votes_per_record must be at most the number of queries, {n_queries}, got {votes_per_record}.")
    if unit == "record":
        if votes_per_user is not None:
            raise ParameterError("votes_per_user needs users, the data has none. Give the data group_by, or leave it out.")
        return votes_per_record
    if votes_per_user is None:
        raise ParameterError(
            "votes_per_user must be given where data is grouped by user: a user with many records would vote without bound."
        )
    whole(votes_per_user, "votes_per_user", 1)
    return min(votes_per_user, n_queries)


# What a worker does -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Rules:
    n_classes: int
    votes_per_record: int
    most: int
    metric: Metric


def count_ballots(work: tuple[_Rules, Source], shared: Shared) -> IntArray:
    """The ballots of some voters in one array that can be summed; :func:`~pate.teachers.nearest.ballots.tally` says how."""
    rules, source = work
    features: Features | None = pickle.loads(shared[_FEATURES].tobytes()) if _FEATURES in shared else None
    index = QueryIndex.build(shared[_QUERIES], rules.metric)
    return reduce(add, (_count(voters, rules, index, features) for voters in source.load(shared)))


def _count(voters: Voters, rules: _Rules, index: QueryIndex, features: Features | None) -> IntArray:
    if len(voters.y) and (voters.y.min() < 0 or voters.y.max() >= rules.n_classes):
        raise ParameterError(
            f"Labels must lie in 0..{rules.n_classes - 1}, since n_classes={rules.n_classes}; found one outside. "
            "Declare all classes that there can be."
        )
    x = voters.x if features is None else features.transform(voters.x)
    nearest = nearest_queries(x, index, rules.votes_per_record)
    if voters.users is None:
        of_record = np.arange(len(voters.y))
        records, queries = record_ballots(nearest)
    else:
        of_record = voters.users.number
        records, queries = user_ballots(nearest, of_record, voters.users.turns, rules.most)
    n_voters = int(of_record.max(initial=-1)) + 1
    shape = (len(index), rules.n_classes)
    return tally(of_record[records], queries, voters.y[records], shape, n_voters, rules.most)
