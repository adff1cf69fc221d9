"""What the ensemble needs of disjoint private parts, wherever they lie: in memory, or in storage that workers read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from pate.arrays import IntArray
from pate.execution import Executor, Placement
from pate.features.checks import Overlap


class PartLoader(Protocol):
    """Small and picklable: how a worker gets one teacher's records."""

    def load(self, shared: Mapping[str, NDArray[Any]]) -> tuple[NDArray[Any], IntArray, NDArray[np.uint64]]:
        """x[record, ...], y int64[record], keys uint64[record].

        keys: :func:`pate.digests.id_keys` of the records' own ids with the partition's salt; they decide who is held out.
        """


@dataclass(frozen=True, eq=False)
class UsersRecords:
    """All records of some users. x: [record, ...]; y: int64[record].

    users: int64[record], equal for records of one user and different for different users.
    turns: uint64[record], :attr:`pate.teachers.data.PrivateData.turns`: in which order a user's records vote.
    """

    x: NDArray[Any] = field(repr=False)
    y: IntArray = field(repr=False)
    users: IntArray = field(repr=False)
    turns: NDArray[np.uint64] = field(repr=False)


@runtime_checkable
class UsersLoader(PartLoader, Protocol):
    """A loader that also tells whose each record is; needed where users vote by themselves."""

    def load_users(self, shared: Mapping[str, NDArray[Any]]) -> UsersRecords:
        """The same records as :meth:`load` gives, in one reading."""


class Partitioned(Protocol):
    """Private data in disjoint parts, proven so at construction."""

    @property
    def n_teachers(self) -> int: ...

    @property
    def unit(self) -> str:
        """ "record" or "user": what one change of the data means."""

    @property
    def fingerprint(self) -> str:
        """Names the private data in the ledger: the same for every number of teachers and every salt."""

    def shared(self) -> Mapping[str, NDArray[Any]]:
        """Arrays that go to the workers once; empty where workers read storage themselves."""

    def loader(self, teacher: int) -> PartLoader: ...

    def placement(self, teacher: int) -> Placement:
        """Where this teacher's data lies; ANYWHERE unless it is tied to a silo."""

    def content_hash(self, teacher: int) -> str:
        """A hash of the teacher's records; empty where only the worker can know it."""

    def overlap(self, fitted_digests: NDArray[np.void], executor: Executor | None = None) -> Overlap:
        """How far the rows that features were fitted on, ``Features.fitted_digests``, are these records.

        executor: who looks, where only the workers can read the records.
        """

    def manifest(self) -> dict[str, Any]:
        """What was split, how, and the proof: JSON. Private: sizes and hashes depend on the data."""


def parts_per_task(n_parts: int) -> int:
    """How many parts one task of a pass over all of them reads.

    One where there are few, so that every worker has work; more where there are thousands, so that a task is worth starting.
    """
    return max(1, min(32, n_parts // 64))
