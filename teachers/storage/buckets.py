"""Splitting stored data by keyed hash, in two passes that run where the executor runs them.

First pass, one task for each shard: read it, find each unit's teacher, write the rows ordered by bucket (a bucket is a
range of teachers). Second pass, one task for each bucket: gather its rows from all shards, prove ids unique, and write
them ordered by teacher, so that a teacher's records are one range of rows. The driver gets counts and hashes. Every
task leaves a marker when it is done, so a pass that was stopped goes on where it stopped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pate.arrays import IntArray
from pate.digests import keyed_place, set_digest
from pate.execution.base import Shared
from pate.teachers.data import PrivateData
from pate.teachers.fingerprint import UnitSum, distinct_digests, unit_digests
from pate.teachers.partition import Partition
from pate.teachers.partitioned import UsersRecords
from pate.teachers.storage.files import (
    StoredFile,
    check_unchanged,
    join,
    make_private_directory,
    read_json,
    read_rows,
    write_json,
    write_rows,
)
from pate.teachers.storage.parts import Layout, pack_ids, rows_in_order, unit_names, unpack_ids
from pate.teachers.storage.shards import Columns, read_shard


@dataclass(frozen=True)
class HashPlan:
    """How the data are split, and where the pieces go."""

    directory: str
    columns: Columns
    n_teachers: int
    n_buckets: int
    salt: str

    def teachers(self, bucket: int) -> range:
        """The teachers whose records are in this bucket."""
        return range(
            bucket * self.n_teachers // self.n_buckets,
            (bucket + 1) * self.n_teachers // self.n_buckets,
        )

    def bucket_of(self, teachers: IntArray) -> IntArray:
        """The bucket of each teacher, int64[teacher]."""
        firsts = [self.teachers(bucket).start for bucket in range(self.n_buckets)]
        return np.searchsorted(firsts, teachers, side="right") - 1

    @property
    def shards(self) -> str:
        """Where the first pass writes; removed after the second."""
        return join(self.directory, "shards")

    @property
    def buckets(self) -> str:
        """Where the second pass writes, and teachers read."""
        return join(self.directory, "buckets")

    def shard_directory(self, shard: int) -> str:
        return join(self.shards, f"{shard:06d}")

    def bucket_directory(self, bucket: int) -> str:
        return join(self.buckets, f"{bucket:06d}")


@dataclass(frozen=True)
class ShardTask:
    plan: HashPlan
    shard: int
    file: StoredFile


@dataclass(frozen=True)
class ShardSummary:
    """offsets: where each bucket's rows begin and end, int[bucket + 1]. checks: the same for the ids to be proven unique."""

    offsets: list[int]
    checks: list[int]
    classes: int
    dtype: str
    shape: list[int]
    features: list[str]

    @property
    def layout(self) -> Layout:
        return self.dtype, tuple(self.shape), tuple(self.features)


@dataclass(frozen=True)
class BucketTask:
    """rows, checks: for each shard, from which row to which."""

    plan: HashPlan
    bucket: int
    rows: tuple[tuple[int, int], ...]
    checks: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class BucketSummary:
    """records, units, hashes: of each teacher of the bucket. repeated: how many records have an id that came before."""

    records: list[int]
    units: list[int]
    hashes: list[str]
    unit_total: int
    repeated: int

    @property
    def unit_sum(self) -> UnitSum:
        return UnitSum(sum(self.units), self.unit_total)


@dataclass(frozen=True)
class StoredRowsLoader:
    """A teacher's records: a range of rows of its bucket's files."""

    directory: str
    start: int
    stop: int

    def load(self, shared: Shared) -> tuple[NDArray[Any], IntArray, NDArray[np.uint64]]:
        """x[record, ...], y int64[record], keys uint64[record], ordered by key."""
        return self._read("x"), self._read("y"), self._read("keys")

    def load_users(self, shared: Shared) -> UsersRecords:
        """The same records, with whose they are. Only where units are users."""
        return UsersRecords(self._read("x"), self._read("y"), self._read("users"), self._read("turns"))

    def _read(self, name: str) -> NDArray[Any]:
        return read_rows(join(self.directory, f"{name}.npy"), self.start, self.stop)


@dataclass(frozen=True)
class NobodyLoader:
    """A teacher without records; their type and shape are still known."""

    dtype: str
    shape: tuple[int, ...]

    def load(self, shared: Shared) -> tuple[NDArray[Any], IntArray, NDArray[np.uint64]]:
        """x[0, ...], y int64[0], keys uint64[0]."""
        return np.empty((0, *self.shape), self.dtype), np.empty(0, np.int64), np.empty(0, np.uint64)

    def load_users(self, shared: Shared) -> UsersRecords:
        """No records of no users."""
        x, y, keys = self.load(shared)
        return UsersRecords(x, y, np.empty(0, np.int64), keys)


def split_shard(task: ShardTask, shared: Shared) -> ShardSummary:
    """First pass: write the shard's rows ordered by bucket."""
    plan, directory = task.plan, task.plan.shard_directory(task.shard)
    done = read_json(join(directory, "done.json"))
    if done is not None:
        return ShardSummary(**done)
    shard = read_shard(task.file.url, plan.columns)
    check_unchanged(task.file)  # after reading, so that a change during it is seen too
    data = shard.data
    teachers = keyed_place(data.unit_ids, plan.salt, plan.n_teachers)[data.unit_of]
    order, offsets = _by_bucket(plan.bucket_of(teachers), plan.n_buckets)
    arrays: dict[str, NDArray[Any]] = {"x": data.x[order], "y": data.y[order], "ids": pack_ids(data.record_ids)[order]}
    checks = [0] * (plan.n_buckets + 1)
    users = unit_names(data)
    if users is not None:
        arrays["groups"] = pack_ids(users)[order]
        arrays["checks"], checks = _ids_to_check(data, plan)
    make_private_directory(directory)
    for name, array in arrays.items():
        write_rows(join(directory, f"{name}.npy"), array)
    dtype, shape, features = shard.layout
    summary = ShardSummary(offsets, checks, int(data.y.max()) + 1, dtype, list(shape), list(features))
    write_json(join(directory, "done.json"), asdict(summary))
    return summary


def _ids_to_check(data: PrivateData, plan: HashPlan) -> tuple[NDArray[np.void], list[int]]:
    """Digests of the records' ids, V16[record], ordered by bucket, each in the bucket of its own hash.

    Records go where their user goes, so two records of one id may be in two buckets; their digests meet in one.
    """
    order, offsets = _by_bucket(keyed_place(data.record_ids, plan.salt, plan.n_buckets), plan.n_buckets)
    return unit_digests(data.record_ids)[order], offsets


def _by_bucket(buckets: IntArray, n_buckets: int) -> tuple[IntArray, list[int]]:
    order = np.argsort(buckets, kind="stable")
    return order, np.searchsorted(buckets[order], np.arange(n_buckets + 1)).tolist()


def sort_bucket(task: BucketTask, shared: Shared) -> BucketSummary:
    """Second pass: gather the bucket's rows and write them ordered by teacher, key and id."""
    directory = task.plan.bucket_directory(task.bucket)
    done = read_json(join(directory, "done.json"))
    if done is not None:
        return BucketSummary(**done)
    ids = _gather_ids(task, "ids")
    repeated = _repeated(task, ids)
    # With users, a repeat is counted in the bucket of the id's digest, which may be another than this.
    if repeated or len(set(ids)) < len(ids):
        return BucketSummary([], [], [], 0, repeated)
    make_private_directory(directory)
    summary = _write_parts(task, ids) if ids else _nobody(task)
    write_json(join(directory, "done.json"), asdict(summary))
    return summary


def _write_parts(task: BucketTask, ids: Sequence[bytes]) -> BucketSummary:
    """The bucket's records are split as records in memory are: the same order and the same hashes by construction."""
    plan, directory = task.plan, task.plan.bucket_directory(task.bucket)
    users = None if plan.columns.group_by is None else _gather_ids(task, "groups")
    x, y = (np.concatenate(_pieces(task, name, task.rows)) for name in ("x", "y"))
    data = PrivateData(x, y, ids, group_by=users, name=f"bucket {task.bucket}")
    parts = Partition.by_hash(data, plan.n_teachers, salt=plan.salt, allow_empty=True)  # only this bucket's teachers get any
    teachers = plan.teachers(task.bucket)
    for name, rows in rows_in_order(parts, teachers).items():
        write_rows(join(directory, f"{name}.npy"), rows)
    facts = parts.manifest()["teachers"][teachers.start : teachers.stop]
    return BucketSummary(
        records=[fact["records"] for fact in facts],
        units=[fact["units"] for fact in facts],
        hashes=[fact["content"] for fact in facts],
        unit_total=UnitSum.of(data.unit_ids).total,
        repeated=0,
    )


def _nobody(task: BucketTask) -> BucketSummary:
    count = len(task.plan.teachers(task.bucket))
    return BucketSummary([0] * count, [0] * count, [set_digest(())] * count, 0, 0)


def _pieces(task: BucketTask, name: str, ranges: Sequence[tuple[int, int]]) -> list[NDArray[Any]]:
    """The bucket's rows of one array from each shard that has any."""
    return [
        read_rows(join(task.plan.shard_directory(shard), f"{name}.npy"), start, stop)
        for shard, (start, stop) in enumerate(ranges)
        if stop > start
    ]


def _gather_ids(task: BucketTask, name: str) -> list[bytes]:
    return [identity for piece in _pieces(task, name, task.rows) for identity in unpack_ids(piece)]


def _repeated(task: BucketTask, ids: Sequence[bytes]) -> int:
    if task.plan.columns.group_by is None:
        return len(ids) - len(set(ids))
    pieces = _pieces(task, "checks", task.checks)
    return sum(len(piece) for piece in pieces) - len(distinct_digests(np.concatenate(pieces))) if pieces else 0
