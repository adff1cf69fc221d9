"""Where the records of nearest-query voters come from: shared arrays, or parts that a worker loads itself."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pate.arrays import IntArray
from pate.errors import PartitionError
from pate.execution import Task
from pate.execution.base import Shared
from pate.teachers.data import PrivateData
from pate.teachers.nearest.ballots import Turns
from pate.teachers.partitioned import Partitioned, PartLoader, UsersLoader, parts_per_task
from pate.teachers.training import chunked


@dataclass(frozen=True)
class Users:
    """Whose records they are: number int64[record], 0, 1, 2, … within the task; turns uint64[record]."""

    number: IntArray
    turns: Turns


@dataclass(frozen=True)
class Voters:
    """The records of some voters, and all records of each. x: [record, ...]; y: int64[record].

    users: None where every record is a voter.
    """

    x: NDArray[Any]
    y: IntArray
    users: Users | None


class Source(Protocol):
    """Small and picklable: how a worker gets the records of some voters, a piece at a time."""

    def load(self, shared: Shared) -> Iterator[Voters]: ...


def in_memory(data: PrivateData, records_per_task: int) -> tuple[dict[str, NDArray[Any]], list[Task[Source]]]:
    """The shared arrays, and a task for every so many records; a task goes on to the end of its last user."""
    shared: dict[str, NDArray[Any]] = {"x": data.x, "y": data.y}
    cuts = np.arange(records_per_task, len(data), records_per_task)
    if data.unit == "user":
        order = np.argsort(data.unit_of, kind="stable")
        shared |= {"order": order, "unit_of": data.unit_of, "turns": data.turns}
        users = data.unit_of[order]
        cuts = np.unique(np.searchsorted(users, users[cuts - 1], side="right"))
        cuts = cuts[cuts < len(data)]
    edges = [0, *cuts.tolist(), len(data)]
    return shared, [Task(key, _Rows(start, stop)) for key, (start, stop) in enumerate(pairwise(edges))]


def in_parts(parts: Partitioned) -> tuple[dict[str, NDArray[Any]], list[Task[Source]]]:
    """The shared arrays, and a task for every few parts, where their data lies."""
    chunks = chunked(range(parts.n_teachers), parts_per_task(parts.n_teachers), parts.placement)
    tasks: list[Task[Source]] = [
        Task(chunk[0], _Parts(tuple(parts.loader(part) for part in chunk), parts.unit), placement)
        for chunk, placement in chunks
    ]
    return dict(parts.shared()), tasks


@dataclass(frozen=True)
class _Rows:
    """Records ``start`` to ``stop`` - 1 of the shared arrays; with users, of their order by user."""

    start: int
    stop: int

    def load(self, shared: Shared) -> Iterator[Voters]:
        mine = slice(self.start, self.stop)
        if "order" not in shared:
            yield Voters(shared["x"][mine], shared["y"][mine], None)
            return
        rows = shared["order"][mine]
        users = shared["unit_of"][rows]
        yield Voters(shared["x"][rows], shared["y"][rows], Users(users - users[0], shared["turns"][rows]))


@dataclass(frozen=True)
class _Parts:
    """Parts that a worker loads itself, one after another."""

    loaders: tuple[PartLoader, ...]
    unit: str

    def load(self, shared: Shared) -> Iterator[Voters]:
        for loader in self.loaders:
            yield _records(loader, shared) if self.unit == "record" else _users(loader, shared)


def _records(loader: PartLoader, shared: Shared) -> Voters:
    x, y, _ = loader.load(shared)
    return Voters(x, y, None)


def _users(loader: PartLoader, shared: Shared) -> Voters:
    if not isinstance(loader, UsersLoader):
        raise PartitionError(
            f"Votes of users need loaders that tell whose each record is; {type(loader).__name__} has no load_users. "
            "Load the records as PrivateData with group_by."
        )
    records = loader.load_users(shared)
    _, number = np.unique(records.users, return_inverse=True)
    return Voters(records.x, records.y, Users(number, records.turns))
