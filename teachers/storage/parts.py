"""What both ways of splitting stored data share: running a pass over storage, and checking what the workers report."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pate.errors import ExecutionError, PartitionError
from pate.execution import Executor, Finished, Lost, Placement, Task
from pate.execution.base import Payload, Shared, Value, Work
from pate.teachers.data import PrivateData
from pate.teachers.partition import Partition
from pate.teachers.partitioned import PartLoader
from pate.teachers.storage.tables import how_to_name

Layout = tuple[str, tuple[int, ...], tuple[str, ...]]
"""x's type, the shape of a record, the names of the columns: :attr:`pate.teachers.storage.shards.Shard.layout`."""


@dataclass(frozen=True)
class StoredPart:
    """What the driver knows of one teacher's records: how many, of how many units, their hash, and how a worker gets them."""

    records: int
    units: int
    content_hash: str
    loader: PartLoader
    placement: Placement


def outcomes(
    executor: Executor, work: Work[Payload, Value], tasks: Sequence[Task[Payload]], shared: Shared
) -> Iterator[Finished[Value]]:
    """What the tasks give, as they finish. A lost task is an error: no record may be missing."""
    for outcome in executor.run(work, tasks, shared):
        if isinstance(outcome, Lost):
            raise ExecutionError(
                f"Reading stored data, task {outcome.key} of {len(tasks)} was lost ({outcome.reason}). "
                "Run the same again: what is finished is kept."
            )
        yield outcome


def run_pass(executor: Executor, work: Work[Payload, Value], tasks: Sequence[Task[Payload]]) -> list[Value]:
    """The value of every task, in the tasks' order."""
    values = {outcome.key: outcome.value for outcome in outcomes(executor, work, tasks, {})}
    return [values[task.key] for task in tasks]


def rows_in_order(parts: Partition, teachers: Iterable[int]) -> dict[str, NDArray[Any]]:
    """The records of these teachers, one teacher after another, each in its order: x, y and keys as a loader gives them.

    With users also users: int64[record], their numbers in these parts; and turns: uint64[record], in which order they vote.
    """
    rows = np.concatenate([parts.loader(teacher).rows for teacher in teachers])
    arrays = parts.shared()
    if parts.unit == "user":
        arrays |= {"users": parts.data.unit_of, "turns": parts.data.turns}
    return {name: array[rows] for name, array in arrays.items()}


def unit_names(data: PrivateData) -> list[bytes] | None:
    """The user of each record, bytes[record]; None where the unit is a record."""
    return None if data.unit == "record" else [data.unit_ids[unit] for unit in data.unit_of]


def pack_ids(ids: Sequence[bytes]) -> NDArray[np.bytes_]:
    """bytes[record] as an array of one width. numpy drops zero bytes at the end, so each gets a last byte that is none."""
    return np.array([identity + b"." for identity in ids], dtype=np.bytes_)


def unpack_ids(packed: NDArray[Any]) -> list[bytes]:
    """What :func:`pack_ids` packed."""
    return [identity[:-1] for identity in packed.tolist()]


def check_layouts(layouts: Mapping[str, Layout]) -> None:
    """Raise unless all files hold the same columns, of one type and shape."""
    (first_name, first), *others = layouts.items()
    for name, layout in others:
        if layout != first:
            raise PartitionError(
                f"Stored data: all shards must hold the same features in the same order and of one type; "
                f"{first_name} has {_describe(first)}, {name} has {_describe(layout)}. "
                f"Name the inputs ({how_to_name('inputs')}), or write the shards with one type."
            )


def check_classes(classes: Sequence[int], n_classes: int | None) -> None:
    """Raise if a label is no class. classes: of each file, its largest label and 1."""
    if n_classes is not None and max(classes) > n_classes:
        raise PartitionError(f"Stored data: labels must lie in 0..{n_classes - 1} (n_classes={n_classes}); found one outside.")


def _describe(layout: Layout) -> str:
    dtype, shape, features = layout
    columns = f" ({', '.join(features[:8])}{' …' if len(features) > 8 else ''})" if features else ""
    return f"{dtype} of shape {shape}{columns}"
