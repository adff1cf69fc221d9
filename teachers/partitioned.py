"""What the ensemble needs of disjoint private parts, wherever they lie: in memory, or in storage that workers read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pate.arrays import IntArray
from pate.execution import Placement


class PartLoader(Protocol):
    """Small and picklable: how a worker gets one teacher's records."""

    def load(self, shared: Mapping[str, NDArray[Any]]) -> tuple[NDArray[Any], IntArray, NDArray[np.uint64]]:
        """x[record, ...], y int64[record], keys uint64[record].

        keys: :func:`pate.digests.id_keys` of the records' own ids with the partition's salt; they decide who is held out.
        """


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

    def manifest(self) -> dict[str, Any]:
        """What was split, how, and the proof: JSON. Private: sizes and hashes depend on the data."""
