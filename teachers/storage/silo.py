"""Stored data of which every silo is one teacher: read where it lies; counts, hashes and digests of ids come back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pate.arrays import IntArray
from pate.digests import DIGEST_BYTES, row_digests, set_digest
from pate.errors import PartitionError
from pate.execution.base import Shared
from pate.teachers.data import PrivateData
from pate.teachers.fingerprint import distinct_digests, unit_digests
from pate.teachers.partition import Partition
from pate.teachers.partitioned import UsersRecords
from pate.teachers.storage.files import list_shards
from pate.teachers.storage.parts import Layout, check_layouts, rows_in_order, unit_names
from pate.teachers.storage.shards import Columns, read_shard

_TELLING = 16  # so many different records, all equal in two silos, are no chance


@dataclass(frozen=True)
class SiloTask:
    name: str
    url: str
    columns: Columns
    salt: str


@dataclass(frozen=True, eq=False)
class SiloSummary:
    """What leaves a silo.

    units: V16[unit], digests of the ids of its users (or records); ids: V16[record], of its records, where units are users.
    Whoever can guess an id can confirm the guess, so they stay inside the trust boundary, with the driver.
    contents: a hash of the records without their ids; kinds: how many of them differ.
    """

    records: int
    units: NDArray[np.void] = field(repr=False)
    ids: NDArray[np.void] | None = field(repr=False)
    content_hash: str
    contents: str
    kinds: int
    classes: int
    layout: Layout


@dataclass(frozen=True)
class SiloLoader:
    """A teacher's records: all shards of its silo."""

    silo: SiloTask
    content_hash: str

    def load(self, shared: Shared) -> tuple[NDArray[Any], IntArray, NDArray[np.uint64]]:
        """x[record, ...], y int64[record], keys uint64[record], ordered by key."""
        rows = self._rows()
        return rows["x"], rows["y"], rows["keys"]

    def load_users(self, shared: Shared) -> UsersRecords:
        """The same records, with whose they are. Only where units are users."""
        rows = self._rows()
        return UsersRecords(rows["x"], rows["y"], rows["users"], rows["turns"])

    def _rows(self) -> dict[str, NDArray[Any]]:
        parts, _ = _silo_part(self.silo)
        if parts.content_hash(0) != self.content_hash:  # disjointness was proven of what was there before
            raise PartitionError(
                f"Silo {self.silo.name!r}: its records have changed since the partition was made. Make it again."
            )
        return rows_in_order(parts, [0])


def survey_silo(task: SiloTask, shared: Shared) -> SiloSummary:
    """Read a silo once, where it lies, and say what the driver must know to prove silos disjoint."""
    parts, layout = _silo_part(task)
    data = parts.data
    contents = row_digests(data.x, data.y, dtype=np.float64)
    return SiloSummary(
        records=len(data),
        units=unit_digests(data.unit_ids),
        ids=None if data.unit == "record" else unit_digests(data.record_ids),
        content_hash=parts.content_hash(0),
        contents=set_digest(contents.tolist()),
        kinds=len(distinct_digests(contents)),
        classes=int(data.y.max()) + 1,
        layout=layout,
    )


def check_silos(silos: Mapping[str, SiloSummary]) -> None:
    """Raise unless no user and no record is in two silos, and no silo is another one's copy."""
    unit = "record" if all(silo.ids is None for silo in silos.values()) else "user"
    _check_apart({name: silo.units for name, silo in silos.items()}, unit)
    _check_apart({name: silo.ids for name, silo in silos.items() if silo.ids is not None}, "record")
    seen: dict[str, str] = {}
    for name, silo in silos.items():
        if silo.kinds >= _TELLING and silo.contents in seen:
            raise PartitionError(
                f"Silos {seen[silo.contents]!r} and {name!r} hold the same {silo.records} records under other ids. A copied "
                "record changes several teachers. Keep every record in one silo, under its one id."
            )
        seen[silo.contents] = name


def _check_apart(digests: Mapping[str, NDArray[np.void]], what: str) -> None:
    """digests: V16[...] of each silo, distinct within it."""
    if not digests:
        return
    names = list(digests)
    everything = np.concatenate(list(digests.values())).view(f"S{DIGEST_BYTES}")
    silo_of = np.repeat(np.arange(len(names)), [len(each) for each in digests.values()])
    order = np.argsort(everything, kind="stable")
    repeats = np.flatnonzero(everything[order[1:]] == everything[order[:-1]])
    if len(repeats):
        one, other = silo_of[order[repeats[0]]], silo_of[order[repeats[0] + 1]]
        raise PartitionError(
            f"Silos must not share a {what}; {len(repeats)} ids of {what}s are in two silos or more, for example in "
            f"{names[one]!r} and {names[other]!r}. One {what} would change several teachers: keep each in one silo, or, where "
            "numbers only happen to be equal, put the silo's name before them."
        )


def _silo_part(task: SiloTask) -> tuple[Partition, Layout]:
    """All records of the silo as the one part of a partition in memory: the same order and hash by construction."""
    shards = {file.url: read_shard(file.url, task.columns) for file in list_shards(task.url)}
    check_layouts({url: shard.layout for url, shard in shards.items()})
    parts = [shard.data for shard in shards.values()]
    users = [unit_names(part) for part in parts]
    data = PrivateData(
        np.concatenate([part.x for part in parts]),
        np.concatenate([part.y for part in parts]),
        [identity for part in parts for identity in part.record_ids],
        group_by=None if task.columns.group_by is None else [user for each in users for user in each or ()],
        name=f"silo {task.name}",
    )
    return Partition.by_hash(data, 1, salt=task.salt), next(iter(shards.values())).layout
