"""Stored data: the same parts as in memory, read by workers; the driver gets counts and hashes only."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import uuid
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from small_teachers import MeanTeachers

from pate.digests import row_digests
from pate.errors import ExecutionError, ParameterError, PartitionError
from pate.execution import ANYWHERE, Executor, Finished, Lost, Placement, Serial, Task
from pate.teachers.data import PrivateData
from pate.teachers.ensemble import Ensemble
from pate.teachers.fingerprint import UnitSum, unit_digests, units_fingerprint
from pate.teachers.partition import Partition
from pate.teachers.partition_checks import check_manifest
from pate.teachers.partitioned import Partitioned
from pate.teachers.storage import buckets as stored_buckets
from pate.teachers.storage import silo as stored_silo
from pate.teachers.storage.shards import Columns, Shard, read_shard
from pate.teachers.storage.stored import StoredData, StoredPartition

arrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")
fsspec = pytest.importorskip("fsspec")

N = 120
USERS = Columns(group_by="user")


class Records:
    """Private records, to be held in memory and to be written as shards."""

    def __init__(self, n: int = N, seed: int = 3) -> None:
        rng = np.random.default_rng(seed)
        self.x = rng.normal(size=(n, 3))
        self.y = rng.integers(0, 3, n)
        self.ids = np.array([f"record-{row}" for row in range(n)])
        self.users = np.array([f"user-{number}" for number in rng.integers(0, n // 2, n)])

    def data(self, by_user: bool) -> PrivateData:
        return PrivateData(self.x, self.y, self.ids, group_by=self.users if by_user else None, name="ward")

    def write(self, path: Path, rows: Any, by_user: bool) -> None:
        rows = np.asarray(rows)
        path.parent.mkdir(exist_ok=True, parents=True)
        if path.suffix == ".npz":
            users = {"groups": self.users[rows]} if by_user else {}
            np.savez(path, x=self.x[rows], y=self.y[rows], ids=self.ids[rows], **users)
        else:
            users = {"user": self.users[rows]} if by_user else {}
            columns = {f"x{column}": self.x[rows, column] for column in range(self.x.shape[1])}
            parquet.write_table(arrow.table({"id": self.ids[rows], "label": self.y[rows], **columns, **users}), path)

    def shards(self, directory: Path, by_user: bool = False, suffix: str = ".npz", count: int = 4) -> StoredData:
        rows = np.random.default_rng(8).permutation(len(self.y))
        for number, part in enumerate(np.array_split(rows, count)):
            self.write(directory / f"part-{number}{suffix}", part, by_user)
        return StoredData(directory, columns=USERS if by_user else Columns(), name="ward")


@pytest.fixture
def records() -> Records:
    return Records()


def loaded(parts: Partitioned, teacher: int) -> list[tuple[Any, bytes]]:
    """What a teacher learns from, to the last bit."""
    return [((array.dtype, array.shape), array.tobytes()) for array in parts.loader(teacher).load(parts.shared())]


def assert_same(stored: StoredPartition, memory: Partition) -> None:
    check_manifest(memory.manifest(), stored)
    for teacher in range(memory.n_teachers):
        assert loaded(stored, teacher) == loaded(memory, teacher)
        assert stored.content_hash(teacher) == memory.content_hash(teacher)
    assert stored.fingerprint == memory.fingerprint
    assert stored.shared() == {}


# ---- by hash


@pytest.mark.parametrize("by_user", [False, True])
@pytest.mark.parametrize("suffix", [".npz", ".parquet"])
def test_by_hash_gives_the_parts_that_memory_gives(tmp_path: Path, records: Records, suffix: str, by_user: bool) -> None:
    stored = records.shards(tmp_path / "data", by_user, suffix)
    parts = StoredPartition.by_hash(stored, 11, salt="spring", work_dir=tmp_path / "work")
    assert_same(parts, Partition.by_hash(records.data(by_user), 11, salt="spring"))
    assert parts.unit == ("user" if by_user else "record")
    assert parts.placement(0) == ANYWHERE
    assert repr(parts) == f"StoredPartition(11 teachers by hash, {N} records, unit {parts.unit})"


identities = st.lists(
    st.integers(-5, 500) | st.text("abé", min_size=1, max_size=4) | st.binary(min_size=1, max_size=3),
    min_size=1,
    max_size=25,
    unique_by=lambda item: item if isinstance(item, bytes) else str(item).encode(),
)


@settings(max_examples=30, deadline=None)
@given(identities, st.integers(1, 20), st.integers(1, 4), st.booleans())
def test_by_hash_for_any_ids_and_shards(ids: list[Any], n_teachers: int, n_shards: int, by_user: bool) -> None:
    """Ids of all kinds, also with zero bytes at the end, in memory:// files; shards of one kind of id each."""
    root = f"memory://{uuid.uuid4().hex}"
    x, y = np.arange(float(len(ids)))[:, None], np.arange(len(ids)) % 3
    users = [row % 4 for row in range(len(ids))]
    for number in range(n_shards):
        for kind in (int, str, bytes):
            rows = [row for row in range(len(ids)) if row % n_shards == number and isinstance(ids[row], kind)]
            if rows:
                table = {"id": [ids[row] for row in rows], "label": y[rows], "x": x[rows, 0], "user": [users[r] for r in rows]}
                with fsspec.open(f"{root}/data/{number}-{kind.__name__}.parquet", "wb") as file:
                    parquet.write_table(arrow.table(table), file)
    columns = Columns(group_by="user" if by_user else None, features=("x",))
    stored = StoredData(f"{root}/data", columns=columns, name="any")
    parts = StoredPartition.by_hash(stored, n_teachers, salt="s", work_dir=f"{root}/work", allow_empty=True)
    data = PrivateData(x, y, ids, group_by=users if by_user else None, name="any")
    assert_same(parts, Partition.by_hash(data, n_teachers, salt="s", allow_empty=True))
    parts.cleanup()


def test_one_record_more_changes_one_teacher(tmp_path: Path) -> None:
    """A new record comes as a new first shard, so that every other one moves in the list."""
    one_more = Records(N + 1)
    one_more.ids[N] = "somebody-new"
    rows = np.arange(N)
    one_more.write(tmp_path / "a" / "m.npz", rows, False)
    one_more.write(tmp_path / "b" / "a.npz", [N], False)
    one_more.write(tmp_path / "b" / "m.npz", rows[::-1], False)
    before, after = (
        StoredPartition.by_hash(StoredData(tmp_path / name), 10, salt="s", work_dir=tmp_path / "w") for name in ("a", "b")
    )
    changed = [teacher for teacher in range(10) if loaded(before, teacher) != loaded(after, teacher)]
    assert len(changed) == 1
    assert after.sizes[changed[0]] == before.sizes[changed[0]] + 1


def test_votes_are_the_same_from_memory_and_from_storage(tmp_path: Path, records: Records) -> None:
    stored = StoredPartition.by_hash(records.shards(tmp_path / "data"), 6, salt="s", work_dir=tmp_path / "work")
    memory = Partition.by_hash(records.data(False), 6, salt="s")
    votes = [
        Ensemble.train(parts, MeanTeachers(), run_dir=run, n_classes=3).vote(records.x[:40]).counts
        for parts, run in ((stored, tmp_path / "a"), (memory, tmp_path / "b"))
    ]
    np.testing.assert_array_equal(votes[0], votes[1])


def test_empty_teachers(tmp_path: Path) -> None:
    stored = Records(4).shards(tmp_path / "data", count=1)
    with pytest.raises(PartitionError, match=r"40 teachers are more than there are records \(4\)"):
        StoredPartition.by_hash(stored, 40, salt="s", work_dir=tmp_path / "work")
    parts = StoredPartition.by_hash(stored, 40, salt="s", work_dir=tmp_path / "work", allow_empty=True)
    assert_same(parts, Partition.by_hash(Records(4).data(False), 40, salt="s", allow_empty=True))
    x, y, keys = parts.loader(int(np.flatnonzero(parts.sizes == 0)[0])).load({})
    assert (x.shape, y.shape, keys.shape) == ((0, 3), (0,), (0,))


def write_overlap(directory: Path, by_user: bool) -> StoredData:
    """Record 7 is in two shards; with users, as two users' whose teachers differ for most numbers of teachers."""
    records = Records()
    records.write(directory / "a.npz", range(60), by_user)
    records.users[7] = "somebody-else"
    records.write(directory / "b.npz", [7, *range(60, N)], by_user)
    return StoredData(directory, columns=USERS if by_user else Columns())


@pytest.mark.parametrize("n_teachers", [1, 2, 9])
@pytest.mark.parametrize("by_user", [False, True])
def test_a_repeated_record_is_refused_and_leaves_no_file(tmp_path: Path, by_user: bool, n_teachers: int) -> None:
    stored = write_overlap(tmp_path / "data", by_user)
    with pytest.raises(PartitionError, match=f"records overlap; 1 of {N + 1} repeat"):
        StoredPartition.by_hash(stored, n_teachers, salt="s", work_dir=tmp_path / "work", allow_empty=True)
    assert list((tmp_path / "work").iterdir()) == []


@pytest.mark.parametrize("by_hash", [True, False])
def test_shards_must_have_one_layout(tmp_path: Path, by_hash: bool) -> None:
    for name, order in (("a", ["id", "label", "x", "z"]), ("b", ["id", "label", "z", "x"])):
        columns = {"id": [f"{name}1", f"{name}2"], "label": [0, 1], "x": [1.0, 2.0], "z": [3.0, 4.0]}
        parquet.write_table(arrow.table({key: columns[key] for key in order}), tmp_path / f"{name}.parquet")
    with pytest.raises(PartitionError, match=r"same features in the same order.*\(x, z\).*\(z, x\)"):
        make(StoredData(tmp_path), by_hash, tmp_path / "_work")
    assert make(StoredData(tmp_path, columns=Columns(features=("x", "z"))), by_hash, tmp_path / "_work").n_teachers == 2


@pytest.mark.parametrize("by_hash", [True, False])
@pytest.mark.parametrize("suffix", [".parquet", ".csv"])
def test_shards_may_hold_other_kinds_of_numbers_but_no_text(tmp_path: Path, by_hash: bool, suffix: str) -> None:
    """A value that is not whole makes its column another type: in its own shard only, and to no effect."""
    csv = pytest.importorskip("pyarrow.csv")

    def write(name: str, x: list[Any]) -> None:
        table = arrow.table({"id": [f"{name}1", f"{name}2"], "label": [0, 1], "x": x, "z": [3, 4]})
        (csv.write_csv if suffix == ".csv" else parquet.write_table)(table, tmp_path / f"{name}{suffix}")

    write("a", [1, 2])
    for values in ([5, 6], [5, 6.5], [True, False]):
        write("b", values)
        parts = make(StoredData(tmp_path), by_hash, tmp_path / "_work")
        loads = [parts.loader(teacher).load({})[0] for teacher in range(2)]
        assert {x.dtype for x in loads} == {np.dtype(np.float64)}
        assert {1.0, 2.0} < {float(value) for x in loads for value in x[:, 0]}
    write("b", ["5", "high"])
    with pytest.raises(PartitionError, match=r"b\.[a-z]+: input 'x' must be a number in every record; 1 of 2 cells"):
        make(StoredData(tmp_path), by_hash, tmp_path / "_work")


@pytest.mark.parametrize("by_hash", [True, False])
def test_labels_outside_the_classes(tmp_path: Path, records: Records, by_hash: bool) -> None:
    stored = records.shards(tmp_path / "data")
    with pytest.raises(PartitionError, match=r"labels must lie in 0\.\.1 \(n_classes=2\)"):
        make(stored, by_hash, tmp_path / "work", n_classes=2)
    assert make(stored, by_hash, tmp_path / "work", n_classes=3).sizes.sum() == N


def make(stored: StoredData, by_hash: bool, work_dir: Path, **options: Any) -> StoredPartition:
    if by_hash:
        return StoredPartition.by_hash(stored, 2, salt="s", work_dir=work_dir, allow_empty=True, **options)
    return StoredPartition.by_silo(stored, **options)


# ---- interruptions, and what is on the disk


class Stopping(Executor):
    """Is stopped, as by the driver's death, after some tasks."""

    def __init__(self, after: int) -> None:
        self.left = after

    def run(self, work: Any, tasks: Iterable[Task[Any]], shared: Any) -> Iterator[Any]:
        for outcome in Serial().run(work, tasks, shared):
            if not self.left:
                raise KeyboardInterrupt
            self.left -= 1
            yield outcome


class Idle(Executor):
    def run(self, work: Any, tasks: Iterable[Task[Any]], shared: Any) -> Iterator[Any]:
        raise AssertionError("Nothing was left to do.")


@pytest.mark.parametrize("by_user", [False, True])
@pytest.mark.parametrize("after", [0, 2, 7])
def test_a_stopped_pass_goes_on(
    tmp_path: Path, records: Records, monkeypatch: pytest.MonkeyPatch, after: int, by_user: bool
) -> None:
    """4 shards and 8 buckets; a shard that was finished is not read again."""
    stored = records.shards(tmp_path / "data", by_user)
    read: list[str] = []

    def noting(url: str, columns: Columns) -> Shard:
        read.append(url)
        return read_shard(url, columns)

    monkeypatch.setattr(stored_buckets, "read_shard", noting)
    with pytest.raises(KeyboardInterrupt):
        StoredPartition.by_hash(stored, 9, salt="s", work_dir=tmp_path / "work", executor=Stopping(after))
    parts = StoredPartition.by_hash(stored, 9, salt="s", work_dir=tmp_path / "work")
    assert sorted(read) == [shard.url for shard in stored.shards()]
    assert_same(parts, Partition.by_hash(records.data(by_user), 9, salt="s"))


@pytest.mark.parametrize("at", [1, 6, 14, 30])
@pytest.mark.parametrize("root", ["{}", "memory://{}"])
def test_a_task_killed_while_writing_is_harmless(
    tmp_path: Path, records: Records, monkeypatch: pytest.MonkeyPatch, at: int, root: str
) -> None:
    """The at-th array is left half written, under its own name; the task is then run again."""
    stored = records.shards(tmp_path / "data")
    work = root.format(tmp_path / "work")
    count = iter(range(1, 1000))
    write_array = np.lib.format.write_array

    def dying(file: Any, array: NDArray[Any], **options: Any) -> None:
        if next(count) == at:
            file.write(b"half")
            file.flush()
            raise OSError("killed")
        write_array(file, array, **options)

    monkeypatch.setattr(np.lib.format, "write_array", dying)
    with pytest.raises(OSError, match="killed"):
        StoredPartition.by_hash(stored, 9, salt="s", work_dir=work)
    parts = StoredPartition.by_hash(stored, 9, salt="s", work_dir=work)
    assert_same(parts, Partition.by_hash(records.data(False), 9, salt="s"))
    parts.cleanup()


def test_a_finished_split_is_found_again_unless_something_changed(tmp_path: Path, records: Records) -> None:
    stored = records.shards(tmp_path / "data")
    first = StoredPartition.by_hash(stored, 5, salt="s", work_dir=tmp_path / "work")
    again = StoredPartition.by_hash(stored, 5, salt="s", work_dir=tmp_path / "work", executor=Idle())
    assert again.manifest() == first.manifest()
    assert loaded(again, 3) == loaded(first, 3)
    for n_teachers, salt in ((6, "s"), (5, "t")):
        with pytest.raises(AssertionError, match="Nothing was left"):
            StoredPartition.by_hash(stored, n_teachers, salt=salt, work_dir=tmp_path / "work", executor=Idle())
    records.y = (records.y + 1) % 3
    stored = records.shards(tmp_path / "data")
    changed = StoredPartition.by_hash(stored, 5, salt="s", work_dir=tmp_path / "work")
    assert_same(changed, Partition.by_hash(records.data(False), 5, salt="s"))
    assert changed.fingerprint == first.fingerprint


def test_a_shard_that_changes_during_the_pass(tmp_path: Path, records: Records) -> None:
    stored = records.shards(tmp_path / "data")

    class Meddling(Executor):
        def run(self, work: Any, tasks: Iterable[Task[Any]], shared: Any) -> Iterator[Any]:
            Records(seed=4).write(tmp_path / "data" / "part-2.npz", range(50), False)
            yield from Serial().run(work, tasks, shared)

    with pytest.raises(PartitionError, match="has changed since the shards were listed"):
        StoredPartition.by_hash(stored, 5, salt="s", work_dir=tmp_path / "work", executor=Meddling())


def test_files_are_private_and_removed(tmp_path: Path, records: Records) -> None:
    work = tmp_path / "work"
    old = os.umask(0)
    try:
        parts = StoredPartition.by_hash(records.shards(tmp_path / "data", True), 5, salt="s", work_dir=work)
    finally:
        os.umask(old)
    found = list(next(work.iterdir()).rglob("*"))
    assert {path.stat().st_mode & 0o777 for path in found if path.is_file()} == {0o600}
    assert {path.stat().st_mode & 0o777 for path in [next(work.iterdir()), *found] if path.is_dir()} == {0o700}
    assert not any(path.name in ("shards", "ids.npy", "groups.npy") for path in found)
    parts.cleanup()
    assert list(work.iterdir()) == []
    with pytest.raises(ExecutionError, match="Make the partition again"):
        parts.loader(0).load({})
    parts.cleanup()  # twice is no error


# ---- by silo


def write_silos(directory: Path, records: Records, by_user: bool) -> NDArray[Any]:
    """Three silos, one of them a directory of two shards; the silo of each record."""
    key = records.users if by_user else records.ids
    silo_of = np.array(["north", "south", "west"])[[sum(name.encode()) % 3 for name in key]]
    records.write(directory / "south.npz", np.flatnonzero(silo_of == "south"), by_user)
    records.write(directory / "west.npz", np.flatnonzero(silo_of == "west"), by_user)
    north = np.flatnonzero(silo_of == "north")
    records.write(directory / "north" / "2.npz", north[:10], by_user)
    records.write(directory / "north" / "1.npz", north[10:], by_user)
    return silo_of


@pytest.mark.parametrize("by_user", [False, True])
def test_by_silo_gives_the_parts_that_memory_gives(tmp_path: Path, records: Records, by_user: bool) -> None:
    silo_of = write_silos(tmp_path, records, by_user)
    (tmp_path / "_SUCCESS").touch()
    memory = Partition.by_silo(records.data(by_user), silo_of, salt="s")
    columns = USERS if by_user else Columns()
    places: list[Any] = [
        tmp_path,
        f"{tmp_path}/*",
        [tmp_path / "west.npz", tmp_path / "north", tmp_path / "south.npz"],
        {"west": tmp_path / "west.npz", "south": tmp_path / "south.npz", "north": f"file://{tmp_path}/north"},
    ]
    for place in places:
        assert_same(StoredPartition.by_silo(StoredData(place, columns=columns, name="ward"), salt="s"), memory)


def test_silos_are_read_where_they_lie(tmp_path: Path, records: Records) -> None:
    write_silos(tmp_path, records, False)
    asked: dict[str, Placement] = {}

    class Noting(Executor):
        def run(self, work: Any, tasks: Iterable[Task[Any]], shared: Any) -> Iterator[Any]:
            tasks = list(tasks)
            asked.update({task.payload.name: task.placement for task in tasks})
            yield from Serial().run(work, tasks, shared)

    south = Placement(labels={"silo": "south"})
    parts = StoredPartition.by_silo(StoredData(tmp_path), placements={"south": south}, executor=Noting())
    assert asked == {"north": ANYWHERE, "south": south, "west": ANYWHERE}
    assert [parts.placement(teacher) for teacher in range(3)] == [ANYWHERE, south, ANYWHERE]
    with pytest.raises(PartitionError, match=r"'soth', which is no silo \(did you mean 'south'\?\)"):
        StoredPartition.by_silo(StoredData(tmp_path), placements={"soth": south}, executor=Idle())


def test_a_user_or_record_in_two_silos(tmp_path: Path, records: Records) -> None:
    records.users = np.array([f"user-{row}" for row in range(N)])
    records.users[3] = records.users[100]
    for number, rows in enumerate((range(60), range(60, N))):
        records.write(tmp_path / "users" / f"{number}.npz", rows, True)
    with pytest.raises(PartitionError, match=r"must not share a user; 1 ids of users .* '0' and '1'"):
        StoredPartition.by_silo(StoredData(tmp_path / "users", columns=USERS))
    for by_user in (False, True):
        stored = write_overlap(tmp_path / f"records-{by_user}", by_user)
        records.users[3] = "user-3"
        with pytest.raises(PartitionError, match=r"must not share a (record|user)"):
            StoredPartition.by_silo(stored)


def test_a_record_in_two_silos_under_two_users(tmp_path: Path, records: Records) -> None:
    records.users = np.array([f"user-{row}" for row in range(N)])
    records.ids[5] = records.ids[80]
    for number, rows in enumerate((range(60), range(60, N))):
        records.write(tmp_path / f"{number}.npz", rows, True)
    with pytest.raises(PartitionError, match=r"must not share a record; 1 ids of records"):
        StoredPartition.by_silo(StoredData(tmp_path, columns=USERS))


def test_a_silo_that_copies_another(tmp_path: Path, records: Records) -> None:
    records.write(tmp_path / "one.npz", range(20), False)
    records.x[20:40], records.y[20:40] = records.x[:20], records.y[:20]
    records.write(tmp_path / "two.npz", range(39, 19, -1), False)
    with pytest.raises(PartitionError, match="'one' and 'two' hold the same 20 records under other ids"):
        StoredPartition.by_silo(StoredData(tmp_path))


def test_a_silo_that_changes_after_the_proof(tmp_path: Path, records: Records) -> None:
    write_silos(tmp_path, records, False)
    parts = StoredPartition.by_silo(StoredData(tmp_path))
    records.write(tmp_path / "west.npz", range(5), False)
    loaded(parts, 1)
    with pytest.raises(PartitionError, match="Silo 'west': its records have changed"):
        loaded(parts, 2)


def test_silos_without_shards_or_with_one_name(tmp_path: Path, records: Records) -> None:
    with pytest.raises(PartitionError, match="no silos found"):
        StoredPartition.by_silo(StoredData(tmp_path))
    records.write(tmp_path / "north.npz", range(5), False)
    with pytest.raises(PartitionError, match="but this is one file"):
        StoredPartition.by_silo(StoredData(tmp_path / "north.npz"))
    (tmp_path / "north").mkdir()
    with pytest.raises(PartitionError, match="Silo 'north': names must differ"):
        StoredPartition.by_silo(StoredData(tmp_path))
    with pytest.raises(PartitionError, match="no shards found"):
        StoredPartition.by_silo(StoredData({"a": tmp_path / "north.npz", "b": tmp_path / "north"}))


# ---- what the driver holds


class Elsewhere(Executor):
    """Runs tasks in another process and keeps what comes back, pickled."""

    def __init__(self) -> None:
        self.values: list[bytes] = []

    def run(self, work: Any, tasks: Iterable[Task[Any]], shared: Any) -> Iterator[Any]:
        with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
            for task in tasks:
                value = pool.submit(work, task.payload, dict(shared)).result()
                self.values.append(pickle.dumps((task.payload, value)))
                yield Finished(task.key, value)


def test_no_record_passes_through_the_driver(tmp_path: Path, records: Records, monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver may not read a shard; nothing that it sends or gets holds an input or an id."""
    stored = records.shards(tmp_path / "data", True, count=2)
    write_silos(tmp_path / "silos", records, True)

    def refuse(*_: Any) -> None:
        raise AssertionError("The driver read a shard.")

    monkeypatch.setattr(stored_buckets, "read_shard", refuse)
    monkeypatch.setattr(stored_silo, "read_shard", refuse)
    executor = Elsewhere()
    parts = StoredPartition.by_hash(stored, 3, salt="s", work_dir=tmp_path / "work", executor=executor)
    silos = StoredPartition.by_silo(StoredData(tmp_path / "silos", columns=USERS), executor=executor)
    assert len(executor.values) == 2 + 3 + 3
    seen = b"".join(executor.values) + pickle.dumps([each._parts for each in (parts, silos)])
    secrets = [row.tobytes() for row in records.x] + [value.tobytes() for value in records.x[:, 0]]
    secrets += [name.encode() for name in (*records.ids, *records.users)]
    assert not any(secret in seen for secret in secrets)
    assert all(len(pickle.dumps(parts.loader(teacher))) < 400 for teacher in range(3))


def test_a_lost_task_is_an_error(tmp_path: Path, records: Records) -> None:
    class Losing(Executor):
        def run(self, work: Any, tasks: Iterable[Task[Any]], shared: Any) -> Iterator[Any]:
            yield Lost(0, "its node died")

    for by_hash in (True, False):
        stored = records.shards(tmp_path / "data")
        with pytest.raises(ExecutionError, match="task 0 of 4 was lost"):
            make(stored, by_hash, tmp_path / "work", executor=Losing())
        parts = make(stored, by_hash, tmp_path / "work")
        parts._executor = Losing()
        with pytest.raises(ExecutionError, match=rf"task 0 of {parts.n_teachers} was lost"):
            parts.overlap(row_digests(records.x))


@pytest.mark.parametrize("by_hash", [True, False])
def test_overlap_with_fitted_rows_is_that_of_memory(tmp_path: Path, records: Records, by_hash: bool) -> None:
    """Contents repeat within a part and between parts; by hash, a task reads several parts, many of them empty."""
    records.x = np.round(records.x)
    stored = records.shards(tmp_path / "data")
    if by_hash:
        parts = StoredPartition.by_hash(stored, 200, salt="s", work_dir=tmp_path / "work", allow_empty=True)
    else:
        parts = StoredPartition.by_silo(stored)
    honest = np.round(np.random.default_rng(5).normal(size=(3 * N, 3)))
    for fitted in (records.x, records.x[: N // 10], honest, np.concatenate([honest, records.x]), honest[:0], records.x + 0.5):
        assert parts.overlap(row_digests(fitted)) == records.data(False).overlap(row_digests(fitted))
    assert parts.overlap(row_digests(records.x)).larger == 1.0
    assert 0 < parts.overlap(row_digests(honest)).larger < 0.5


def test_overlap_is_looked_for_where_the_silos_lie(tmp_path: Path, records: Records) -> None:
    write_silos(tmp_path, records, False)
    south = Placement(labels={"silo": "south"})
    asked: list[Placement] = []

    class Noting(Executor):
        def run(self, work: Any, tasks: Iterable[Task[Any]], shared: Any) -> Iterator[Any]:
            tasks = list(tasks)
            asked.extend(task.placement for task in tasks)
            yield from Serial().run(work, tasks, shared)

    parts = StoredPartition.by_silo(StoredData(tmp_path), placements={"south": south}, executor=Noting())
    asked.clear()
    assert parts.overlap(row_digests(records.x)).larger == 1.0
    assert asked == [ANYWHERE, south, ANYWHERE]


# ---- where shards lie


def test_listing(tmp_path: Path, records: Records) -> None:
    for name in ("b.npz", "a.parquet", "deep/c.npz", "_ignored/d.npz", ".e.npz", "odd[1].npz"):
        records.write(tmp_path / name, range(3), False)

    def names(place: Any) -> list[str]:
        return [Path(shard.url).name for shard in StoredData(place).shards()]

    assert names(tmp_path) == ["a.parquet", "b.npz", "c.npz", "odd[1].npz"]
    assert names(str(tmp_path)) == names(f"file://{tmp_path}") == names([f"{tmp_path}/*.*", tmp_path / "deep"])
    assert names(tmp_path / "odd[1].npz") == ["odd[1].npz"]
    assert names(f"{tmp_path}/*.npz") == ["b.npz", "odd[1].npz"]
    with pytest.raises(PartitionError, match="named twice"):
        names([tmp_path, tmp_path / "b.npz"])
    with pytest.raises(PartitionError, match="no such file or directory"):
        names(tmp_path / "absent")
    with pytest.raises(PartitionError, match="no shards found"):
        names(f"{tmp_path}/*.csv")
    (tmp_path / "notes.txt").touch()
    with pytest.raises(PartitionError, match=r"found 1 other\(s\), for example 'notes.txt'"):
        names(tmp_path)


def test_parameters(tmp_path: Path, records: Records) -> None:
    stored = records.shards(tmp_path / "data")
    with pytest.raises(ParameterError, match="n_teachers"):
        StoredPartition.by_hash(stored, 0, salt="s", work_dir=tmp_path)
    with pytest.raises(ParameterError, match="salt must be a string"):
        StoredPartition.by_hash(stored, 2, salt=5, work_dir=tmp_path)  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="needs the URL"):
        StoredData([])
    with pytest.raises(PartitionError, match="name of private data"):
        StoredData(tmp_path, name="")
    with pytest.raises(ParameterError, match=r"must lie in 0\.\.3, got 4"):
        StoredPartition.by_silo(stored).loader(4)


# ---- the fingerprint


@given(st.sets(st.integers()), st.sets(st.integers()))
def test_sums_of_disjoint_units_add_up(one: set[int], other: set[int]) -> None:
    assert UnitSum.of(one) + UnitSum.of(other - one) == UnitSum.of(one | other)
    plain = sum(int.from_bytes(bytes(digest), "big") for digest in unit_digests(one).tolist()) % 2**128
    assert UnitSum.of([*one, *one]) == UnitSum(len(one), plain)
    same = units_fingerprint("a", UnitSum.of(one)) == units_fingerprint("a", UnitSum.of(other))
    assert same == (one == other)
    assert units_fingerprint("b", UnitSum.of(one))[1:] != units_fingerprint("a", UnitSum.of(one))[1:]
