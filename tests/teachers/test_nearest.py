"""Records and users that vote on their nearest queries: who votes on what, how often, and what leaves a worker."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from pate.arrays import FloatArray, IntArray
from pate.digests import id_keys
from pate.errors import ParameterError, PartitionError, VotesError
from pate.execution import ANYWHERE, Executor, Finished, Lost, Placement, Serial, Task
from pate.execution.base import Payload, Shared, Value, Work
from pate.experiments.datasets import load
from pate.features import PCA, Standardise
from pate.features.checks import Overlap
from pate.public import PublicData
from pate.teachers.data import PrivateData
from pate.teachers.nearest import nearest_votes
from pate.teachers.nearest import votes as nearest
from pate.teachers.nearest.ballots import checked_counts, tally, user_ballots
from pate.teachers.partition import Partition
from pate.teachers.partitioned import UsersRecords
from pate.teachers.storage import Columns, StoredData, StoredPartition

N_CLASSES = 4
N_QUERIES = 12


class FarAway(Executor):
    """Like workers in other processes: everything is pickled on its way, and tasks finish in another order."""

    def run(
        self, work: Work[Payload, Value], tasks: Iterable[Task[Payload]], shared: Shared
    ) -> Iterator[Finished[Value] | Lost]:
        copied = pickle.loads(pickle.dumps(dict(shared)))
        for task in reversed(list(tasks)):
            outcome = next(iter(Serial().run(work, [pickle.loads(pickle.dumps(task))], copied)))
            yield pickle.loads(pickle.dumps(outcome))


def queries() -> FloatArray:
    return np.random.default_rng(99).integers(0, 4, (N_QUERIES, 3)).astype(float)


def records(n: int = 300, *, users: int | None = None, seed: int = 0) -> PrivateData:
    """On a grid, so that ties abound; ids that are no row numbers."""
    random = np.random.default_rng(seed)
    owner = None if users is None else [f"user {number}" for number in random.integers(0, users, n)]
    x, y = random.integers(0, 4, (n, 3)).astype(float), random.integers(0, N_CLASSES, n)
    return PrivateData(x, y, [f"record {number}" for number in random.permutation(n)], group_by=owner)


def rows_of(data: PrivateData, rows: Any) -> PrivateData:
    """Some of the records, in another order."""
    chosen = np.arange(len(data))[rows]
    owner = None if data.unit == "record" else [data.unit_ids[data.unit_of[row]] for row in chosen]
    return PrivateData(data.x[chosen], data.y[chosen], [data.record_ids[row] for row in chosen], group_by=owner)


def nearest_by_loop(x: FloatArray, m: int) -> list[int]:
    return sorted(range(N_QUERIES), key=lambda query: (((x - queries()[query]) ** 2).sum(), query))[:m]


def counts_by_loop(data: PrivateData, m: int, most: int | None = None) -> IntArray:
    """The rule of the docstring, spelt out record by record and user by user."""
    counts = np.zeros((N_QUERIES, N_CLASSES), dtype=np.int64)
    keys = id_keys(data.record_ids, "pate.nearest")
    asked = [nearest_by_loop(x, m) for x in data.x]
    for unit in range(len(data.unit_ids)):
        mine = sorted(np.flatnonzero(data.unit_of == unit), key=lambda row: keys[row])
        seen: list[int] = []
        for rank in range(m):
            for row in mine:
                query = asked[row][rank]
                if query not in seen and (most is None or len(seen) < most):
                    seen.append(query)
                    counts[query, data.y[row]] += 1
    return counts


def test_single_records_of_the_digits_vote_as_the_demo_says() -> None:
    pytest.importorskip("sklearn")
    data = load("digits")
    asked = data.public_x[::20]
    votes = nearest_votes(data.private, asked, n_classes=data.n_classes)
    expected = np.zeros((len(asked), data.n_classes), dtype=np.int64)
    for x, label in zip(data.private.x, data.private.y, strict=True):
        distances = [((x - query) ** 2).sum() for query in asked]
        expected[distances.index(min(distances)), label] += 1
    np.testing.assert_array_equal(votes.counts, expected)
    assert (votes.n_teachers, votes.participation) == (len(data.private), 1)


@pytest.mark.parametrize("m", [1, 3, N_QUERIES])
def test_records_as_by_a_plain_loop(m: int) -> None:
    data = records()
    votes = nearest_votes(data, queries(), n_classes=N_CLASSES, votes_per_record=m)
    np.testing.assert_array_equal(votes.counts, counts_by_loop(data, m))
    assert (votes.n_teachers, votes.participation) == (300, m)
    assert votes.counts.sum() == 300 * m


@pytest.mark.parametrize(("m", "most"), [(1, 1), (1, 3), (3, 2), (4, 100)])
def test_users_as_by_a_plain_loop(m: int, most: int) -> None:
    data = records(users=40)
    votes = nearest_votes(data, queries(), n_classes=N_CLASSES, votes_per_record=m, votes_per_user=most)
    np.testing.assert_array_equal(votes.counts, counts_by_loop(data, m, most))
    assert (votes.n_teachers, votes.participation) == (len(data.unit_ids), min(most, N_QUERIES))


@pytest.mark.parametrize("per_task", [1, 7, 119, 120])
@pytest.mark.parametrize("users", [None, 40])
def test_tasks_and_executors_do_not_matter(per_task: int, users: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    data, most = records(120, users=users), None if users is None else 2
    votes = nearest_votes(data, queries(), n_classes=N_CLASSES, votes_per_record=2, votes_per_user=most)
    monkeypatch.setattr(nearest, "RECORDS_PER_TASK", per_task)
    others = nearest_votes(data, queries(), n_classes=N_CLASSES, votes_per_record=2, votes_per_user=most, executor=FarAway())
    np.testing.assert_array_equal(votes.counts, others.counts)
    assert votes.electorate == others.electorate


@pytest.mark.parametrize("users", [None, 40])
def test_who_leaves_takes_its_own_ballots_and_no_other(users: int | None) -> None:
    """The privacy proof itself: without one voter, whatever the order of the rest, only its own votes are missing."""
    data, most = records(200, users=users), None if users is None else 2

    def count(some: PrivateData) -> IntArray:
        return nearest_votes(some, queries(), n_classes=N_CLASSES, votes_per_record=2, votes_per_user=most).counts

    everybody = count(data)
    random = np.random.default_rng(0)
    for unit in random.choice(len(data.unit_ids), 15, replace=False):
        mine = np.flatnonzero(data.unit_of == unit)
        rest = random.permutation(np.flatnonzero(data.unit_of != unit))
        lost = everybody - count(rows_of(data, rest))
        np.testing.assert_array_equal(lost, count(rows_of(data, mine)))
        assert lost.min() == 0
        assert lost.sum(axis=1).max() == 1
        assert 1 <= lost.sum() <= 2


def test_a_user_with_many_records_votes_no_more_than_others() -> None:
    data = PrivateData(np.repeat(queries(), 50, axis=0), np.zeros(600, int), range(600), group_by=["one"] * 600)
    votes = nearest_votes(data, queries(), n_classes=2, votes_per_user=3, votes_per_record=2)
    assert votes.n_teachers == 1
    assert votes.counts.sum() == 3
    assert votes.counts.max() == 1


def test_ballots_of_users_are_first_choices_first() -> None:
    found = np.array([[0, 1], [2, 3], [0, 4]])
    keys = np.array([9, 5, 1], dtype=np.uint64)
    records_, asked = user_ballots(found, np.array([0, 0, 0]), keys, 3)
    assert list(zip(records_.tolist(), asked.tolist(), strict=True)) == [(2, 0), (1, 2), (2, 4)]


def test_a_broken_bound_is_found() -> None:
    voters, asked, labels = np.array([0, 0, 0, 1]), np.array([0, 1, 2, 0]), np.array([1, 1, 0, 1])
    counts, n_voters = checked_counts(tally(voters, asked, labels, (3, 2), 3, most=3), (3, 2), 3)
    assert counts.tolist() == [[0, 2], [0, 1], [1, 0]]
    assert n_voters == 3  # one of them cast no ballot
    with pytest.raises(VotesError, match="1 voters cast more and 0 ballots"):
        checked_counts(tally(voters, asked, labels, (3, 2), 3, most=2), (3, 2), 2)
    twice = tally(voters, np.array([0, 0, 2, 0]), labels, (3, 2), 3, most=3)
    with pytest.raises(VotesError, match="0 voters cast more and 1 ballots"):
        checked_counts(twice, (3, 2), 3)


def test_a_worker_that_lets_users_vote_freely_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nearest, "user_ballots", lambda found, users, keys, most: nearest.record_ballots(found))
    with pytest.raises(VotesError, match="Nothing may be released"):
        nearest_votes(records(users=10), queries(), n_classes=N_CLASSES, votes_per_user=2)


def test_only_a_count_matrix_leaves_a_worker() -> None:
    shapes = set()

    class Watching(FarAway):
        def run(
            self, work: Work[Payload, Value], tasks: Iterable[Task[Payload]], shared: Shared
        ) -> Iterator[Finished[Value] | Lost]:
            for outcome in super().run(work, tasks, shared):
                assert isinstance(outcome, Finished)
                shapes.add((type(outcome.value), np.shape(outcome.value)))
                yield outcome

    for n in (10, 200):
        nearest_votes(records(n), queries(), n_classes=N_CLASSES, executor=Watching())
    assert shapes == {(np.ndarray, (N_QUERIES * N_CLASSES + 1 + 3,))}


def test_features_are_computed_by_the_workers() -> None:
    random = np.random.default_rng(0)
    public = PublicData(random.normal(size=(80, 5, 2)), name="brochure")
    x = random.normal(size=(500, 5, 2))
    y = random.integers(0, 3, 500)
    for features in (PCA(4).fit(public), Standardise(mean=0.5, scale=3.0)):
        votes = nearest_votes(
            PrivateData(x, y, range(500)), public, n_classes=3, votes_per_record=2, features=features, executor=FarAway()
        )
        ready = PrivateData(features.transform(x), y, range(500))
        expected = nearest_votes(ready, features.transform(public.x), n_classes=3, votes_per_record=2)
        np.testing.assert_array_equal(votes.counts, expected.counts)


def test_cosine_reaches_the_workers() -> None:
    data = PrivateData([[10.0, 1.0], [0.1, 1.0]], [0, 1], ids=["ann", "bob"])
    asked = [[1.0, 0.0], [0.0, 9.0]]
    assert nearest_votes(data, asked, n_classes=2, metric="cosine").counts.tolist() == [[1, 0], [0, 1]]
    assert nearest_votes(data, asked, n_classes=2).counts.tolist() == [[1, 1], [0, 0]]


def test_report_tells_the_bound() -> None:
    lines: list[str] = []
    nearest_votes(records(users=7), queries(), n_classes=N_CLASSES, votes_per_user=2, report=lines.append)
    assert lines == [
        "Each user votes on at most 2 of 12 queries: 1 tasks",
        "7 users voted: counted, none on more than 2 queries",
    ]


@pytest.mark.parametrize("users", [7, 25])
def test_report_tells_no_count_of_voters_where_their_number_is_declared(users: int) -> None:
    """One line for all data: a log is read by many."""
    lines: list[str] = []
    told = lines.append
    nearest_votes(records(users=users), queries(), n_classes=N_CLASSES, votes_per_user=2, voters=50, report=told)
    assert lines == [
        "Each user votes on at most 2 of 12 queries",
        "The users voted: counted, none on more than 2 queries",
    ]


def test_parts_do_not_matter() -> None:
    data = records(users=30)
    parts = Partition.by_hash(data, 4, salt="spring")
    one = nearest_votes(parts, queries(), n_classes=N_CLASSES, votes_per_user=2)
    other = nearest_votes(data, queries(), n_classes=N_CLASSES, votes_per_user=2)
    np.testing.assert_array_equal(one.counts, other.counts)


def write_shards(directory: Path, data: PrivateData, shard_of: IntArray) -> StoredData:
    """One file for each shard; the shard of each record is given."""
    directory.mkdir()
    for number in np.unique(shard_of):
        mine = np.flatnonzero(shard_of == number)
        arrays: dict[str, Any] = {"x": data.x[mine], "y": data.y[mine]}
        arrays["ids"] = np.array([data.record_ids[row].decode() for row in mine])
        if data.unit == "user":
            arrays["groups"] = np.array([data.unit_ids[data.unit_of[row]].decode() for row in mine])
        np.savez(directory / f"{number}.npz", **arrays)
    return StoredData(directory, columns=Columns(group_by="groups" if data.unit == "user" else None))


def assert_same_votes(stored: StoredPartition, data: PrivateData, **rules: int) -> None:
    votes = nearest_votes(stored, queries(), n_classes=N_CLASSES, executor=FarAway(), **rules)
    expected = nearest_votes(data, queries(), n_classes=N_CLASSES, **rules)
    np.testing.assert_array_equal(votes.counts, expected.counts)
    assert votes.electorate == expected.electorate


@pytest.mark.parametrize("n_teachers", [1, 5, 400])
def test_records_in_storage_are_read_by_the_workers(tmp_path: Path, n_teachers: int) -> None:
    """With 400 parts of 300 records many are empty."""
    pytest.importorskip("fsspec")
    data = records()
    stored = write_shards(tmp_path / "shards", data, np.arange(300) % 3)
    parts = StoredPartition.by_hash(stored, n_teachers, salt="spring", work_dir=tmp_path / "work", allow_empty=True)
    assert_same_votes(parts, data, votes_per_record=2)


@pytest.mark.parametrize("n_teachers", [1, 5, 50])
@pytest.mark.parametrize(("m", "most"), [(1, 1), (3, 2), (4, 100)])
def test_users_in_storage_vote_as_in_memory(tmp_path: Path, n_teachers: int, m: int, most: int) -> None:
    """A user's records lie in several shards; whatever the parts and their salt, the same of its records vote."""
    pytest.importorskip("fsspec")
    data = records(users=40)
    stored = write_shards(tmp_path / "shards", data, np.arange(300) % 3)
    parts = StoredPartition.by_hash(stored, n_teachers, salt="spring", work_dir=tmp_path / "work", allow_empty=True)
    assert_same_votes(parts, data, votes_per_record=m, votes_per_user=most)


@pytest.mark.parametrize("users", [None, 40])
def test_silos_in_storage_vote_as_in_memory(tmp_path: Path, users: int | None) -> None:
    pytest.importorskip("fsspec")
    data = records(users=users)
    rules = {"votes_per_record": 2} | ({} if users is None else {"votes_per_user": 3})
    parts = StoredPartition.by_silo(write_shards(tmp_path / "silos", data, data.unit_of % 4), salt="winter")
    assert_same_votes(parts, data, **rules)


@dataclass(frozen=True)
class OwnLoader:
    """Rows of shared arrays, without saying whose they are."""

    rows: tuple[int, ...]

    def load(self, shared: Mapping[str, NDArray[Any]]) -> tuple[NDArray[Any], IntArray, NDArray[np.uint64]]:
        rows = list(self.rows)
        return shared["x"][rows], shared["y"][rows], shared["keys"][rows]


@dataclass(frozen=True)
class OwnUsersLoader(OwnLoader):
    def load_users(self, shared: Mapping[str, NDArray[Any]]) -> UsersRecords:
        x, y, keys = self.load(shared)
        return UsersRecords(x, y, shared["owner"][list(self.rows)] * 1000 - 7, keys)  # any numbers will do


class OwnParts:
    """Somebody's own way to keep data in parts of whole users."""

    n_teachers = 3
    unit = "user"
    fingerprint = "own"

    def __init__(self, data: PrivateData, loader: type[OwnLoader]) -> None:
        self._data = data
        self._loader = loader

    def shared(self) -> dict[str, NDArray[Any]]:
        return {"x": self._data.x, "y": self._data.y, "keys": self._data.turns, "owner": self._data.unit_of}

    def loader(self, teacher: int) -> OwnLoader:
        return self._loader(tuple(np.flatnonzero(self._data.unit_of % 3 == teacher).tolist()))

    def placement(self, teacher: int) -> Placement:
        return ANYWHERE

    def content_hash(self, teacher: int) -> str:
        return ""

    def overlap(self, fitted_digests: NDArray[np.void]) -> Overlap:
        return self._data.overlap(fitted_digests)

    def manifest(self) -> dict[str, Any]:
        return {}


def test_users_in_parts_that_know_their_users() -> None:
    data = records(users=30)
    votes = nearest_votes(OwnParts(data, OwnUsersLoader), queries(), n_classes=N_CLASSES, votes_per_record=2, votes_per_user=3)
    expected = nearest_votes(data, queries(), n_classes=N_CLASSES, votes_per_record=2, votes_per_user=3)
    np.testing.assert_array_equal(votes.counts, expected.counts)
    assert votes.electorate == expected.electorate


def test_users_in_parts_that_do_not_know_them_are_refused() -> None:
    with pytest.raises(PartitionError, match="OwnLoader has no load_users"):
        nearest_votes(OwnParts(records(users=30), OwnLoader), queries(), n_classes=N_CLASSES, votes_per_user=3)


@pytest.mark.parametrize(
    ("users", "settings", "message"),
    [
        (None, {"n_classes": 3}, "0..2, since n_classes=3"),
        (None, {"n_classes": 1}, "n_classes must be a whole number of at least 2"),
        (None, {"votes_per_record": 0}, "votes_per_record must be"),
        (None, {"votes_per_record": 13}, "at most the number of queries, 12, got 13"),
        (None, {"votes_per_user": 2}, "votes_per_user needs users"),
        (9, {}, "votes_per_user must be given"),
        (9, {"votes_per_user": 0}, "votes_per_user must be"),
        (None, {"metric": "manhattan"}, "metric must be one of"),
        (None, {"queries": np.zeros((3, 7))}, "equally many features, got 3 and 7"),
        (None, {"queries": np.full((3, 3), np.nan)}, "queries: x must be finite"),
        (None, {"features": object()}, r"must be a pate\.features\.Features, .* got object"),
    ],
)
def test_refused(users: int | None, settings: dict[str, Any], message: str) -> None:
    given = {"n_classes": N_CLASSES, "queries": queries(), **settings}
    with pytest.raises(ParameterError, match=message):
        nearest_votes(records(users=users), given.pop("queries"), **given)
