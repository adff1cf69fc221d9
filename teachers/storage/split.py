"""The driver's side of splitting stored data by keyed hash: it sends tasks, gets counts and hashes, and checks them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np

from pate.errors import PartitionError
from pate.execution import ANYWHERE, Executor, Task
from pate.teachers.fingerprint import UnitSum
from pate.teachers.partition_checks import check_filled
from pate.teachers.storage.buckets import (
    BucketSummary,
    BucketTask,
    HashPlan,
    NobodyLoader,
    ShardSummary,
    ShardTask,
    StoredRowsLoader,
    sort_bucket,
    split_shard,
)
from pate.teachers.storage.files import StoredFile, join, make_private_directory, read_json, remove, write_json
from pate.teachers.storage.parts import StoredPart, check_classes, check_layouts, run_pass
from pate.teachers.storage.shards import Columns
from pate.teachers.storage.tables import how_to_name

_FORMAT = 2
_BUCKET_BYTES = 1 << 26  # of shard files that go into one bucket: what a worker holds at a time, before unpacking
_FEWEST, _MOST = 8, 1024


@dataclass(frozen=True)
class SplitFacts:
    """All that the two passes report."""

    shards: list[ShardSummary]
    buckets: list[BucketSummary]


def plan_split(files: Sequence[StoredFile], columns: Columns, n_teachers: int, salt: str, work_dir: str) -> HashPlan:
    """Its directory is named by a hash of all that the result depends on, so that another split cannot be taken for it."""
    wanted = min(_MOST, max(_FEWEST, sum(file.size for file in files) // _BUCKET_BYTES))
    n_buckets = min(n_teachers, wanted)
    facts = [_FORMAT, [asdict(file) for file in files], asdict(columns), n_teachers, n_buckets, salt]
    digest = hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:32]
    return HashPlan(join(work_dir, f"pate-split-{digest}"), columns, n_teachers, n_buckets, salt)


def split_by_hash(
    plan: HashPlan, files: Sequence[StoredFile], executor: Executor, n_classes: int | None, allow_empty: bool
) -> tuple[tuple[StoredPart, ...], UnitSum, Sequence[int]]:
    """Every teacher's part, the sum over all units, and the shape of a record.

    Data that cannot be split leave no file behind. A pass that was stopped does, to go on from there.
    """
    try:
        facts = _finished(plan) or _run(plan, files, executor)
        remove(plan.shards)
        check_layouts({file.url: shard.layout for file, shard in zip(files, facts.shards, strict=True)})
        check_classes([shard.classes for shard in facts.shards], n_classes)
        sizes = np.array([count for bucket in facts.buckets for count in bucket.records])
        units = sum((bucket.unit_sum for bucket in facts.buckets), UnitSum())
        check_filled(sizes, units.count, plan.columns.unit, allow_empty)
    except PartitionError:
        remove_split(plan.directory)
        raise
    return tuple(_parts(plan, facts)), units, facts.shards[0].shape


def remove_split(directory: str) -> None:
    """Remove a split's files; first of all what says that they are there."""
    remove(join(directory, "done.json"))
    remove(directory)


def _finished(plan: HashPlan) -> SplitFacts | None:
    done = read_json(join(plan.directory, "done.json"))
    if done is None:
        return None
    return SplitFacts([ShardSummary(**each) for each in done["shards"]], [BucketSummary(**each) for each in done["buckets"]])


def _run(plan: HashPlan, files: Sequence[StoredFile], executor: Executor) -> SplitFacts:
    for directory in (plan.directory, plan.shards, plan.buckets):
        make_private_directory(directory)
    shard_tasks = [Task(number, ShardTask(plan, number, file)) for number, file in enumerate(files)]
    shards = run_pass(executor, split_shard, shard_tasks)
    check_layouts({file.url: shard.layout for file, shard in zip(files, shards, strict=True)})  # before rows are put together
    buckets = run_pass(executor, sort_bucket, [_bucket_task(plan, shards, bucket) for bucket in range(plan.n_buckets)])
    repeated = sum(bucket.repeated for bucket in buckets)
    if repeated:
        records = sum(shard.offsets[-1] for shard in shards)
        raise PartitionError(
            f"Stored data: records overlap; {repeated} of {records} repeat the id of another record (7 and '7' are one id). "
            "Remove the copies; where several records belong to one person, give each an id of its own and name the "
            f"person's column: {how_to_name('group_by')}."
        )
    facts = SplitFacts(shards, buckets)
    write_json(join(plan.directory, "done.json"), asdict(facts))
    return facts


def _bucket_task(plan: HashPlan, shards: Sequence[ShardSummary], bucket: int) -> Task[BucketTask]:
    rows = tuple((shard.offsets[bucket], shard.offsets[bucket + 1]) for shard in shards)
    checks = tuple((shard.checks[bucket], shard.checks[bucket + 1]) for shard in shards)
    return Task(bucket, BucketTask(plan, bucket, rows, checks))


def _parts(plan: HashPlan, facts: SplitFacts) -> list[StoredPart]:
    dtype, shape, _ = facts.shards[0].layout
    parts: list[StoredPart] = []
    for number, bucket in enumerate(facts.buckets):
        start = 0
        for records, units, content in zip(bucket.records, bucket.units, bucket.hashes, strict=True):
            rows = StoredRowsLoader(plan.bucket_directory(number), start, start + records)
            loader = rows if records else NobodyLoader(dtype, shape)
            parts.append(StoredPart(records, units, content, loader, ANYWHERE))
            start += records
    return parts
