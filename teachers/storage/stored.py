"""Private data that workers read from storage themselves: no record passes through the driver."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike, fspath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pate.arrays import IntArray
from pate.errors import ParameterError, PartitionError
from pate.execution import ANYWHERE, Executor, Placement, Serial, Task
from pate.features.checks import Overlap
from pate.references import did_you_mean
from pate.teachers.data import check_name
from pate.teachers.fingerprint import UnitSum, units_fingerprint
from pate.teachers.partition import FORMAT, check_salt, neighbours
from pate.teachers.partitioned import PartLoader
from pate.teachers.storage.files import StoredFile, as_url, list_entries, list_shards, named_entries
from pate.teachers.storage.overlap import stored_overlap
from pate.teachers.storage.parts import StoredPart, check_classes, check_layouts, run_pass
from pate.teachers.storage.shards import Columns
from pate.teachers.storage.silo import SiloLoader, SiloTask, check_silos, survey_silo
from pate.teachers.storage.split import plan_split, remove_split, split_by_hash
from pate.validation import whole

Location = str | PathLike[str]
_USUAL = Columns()


class StoredData:
    """Where private records lie: shard files (``.npz``, ``.parquet``, ``.csv``) that fsspec can open.

    url: a directory, a glob, one file; a list of those; or, where every silo has its own place, a mapping silo: URL.
    columns: what the shards' columns mean, and the unit: a user if ``columns.group_by`` is given, else a record.
    name: as :class:`~pate.teachers.data.PrivateData` has one: the same name and ids give the same fingerprint.

    Only names and sizes of files are read here.

    >>> StoredData("s3://ward/2024/*.parquet", columns=Columns(id="record", group_by="patient"), name="ward")
    StoredData('ward', s3://ward/2024/*.parquet, unit user)
    """

    __slots__ = ("columns", "location", "name")

    def __init__(
        self, url: Location | Sequence[Location] | Mapping[str, Location], *, columns: Columns = _USUAL, name: str = "data"
    ) -> None:
        check_name(name)
        self.columns = columns
        self.name = name
        self.location: str | tuple[str, ...] | dict[str, str]
        if isinstance(url, Mapping):
            self.location = {silo: fspath(each) for silo, each in url.items()}
        elif isinstance(url, str | PathLike):
            self.location = fspath(url)
        else:
            self.location = tuple(fspath(each) for each in url)
        if not self.location:
            raise ParameterError(
                "StoredData needs the URL of a directory or file, a glob, or a list or mapping of them; got none."
            )

    @property
    def unit(self) -> str:
        """ "record" or "user": what one change of the data means."""
        return self.columns.unit

    def shards(self) -> tuple[StoredFile, ...]:
        """All shard files, sorted by URL."""
        found = [shard for url in self._urls() for shard in list_shards(url)]
        if len({shard.url for shard in found}) < len(found):
            raise PartitionError(f"Stored data {self.name!r}: a shard is named twice, by overlapping URLs. Name each once.")
        return tuple(sorted(found, key=lambda shard: shard.url))

    def silos(self) -> dict[str, str]:
        """The URL of each silo, sorted by name: the mapping's; or those of the sub-directories and files, by their names."""
        if isinstance(self.location, dict):
            silos = {silo: as_url(url) for silo, url in self.location.items()}
        elif isinstance(self.location, str):
            silos = list_entries(self.location)
        else:
            silos = named_entries([as_url(url) for url in self.location])
        if not silos:
            raise PartitionError(f"Stored data {self.name!r}: no silos found; each is a sub-directory or a file.")
        return dict(sorted(silos.items(), key=lambda item: item[0].encode()))

    def __repr__(self) -> str:
        where = self.location if isinstance(self.location, str) else f"{len(self.location)} URLs"
        return f"StoredData({self.name!r}, {where}, unit {self.unit})"

    def _urls(self) -> Sequence[str]:
        if isinstance(self.location, str):
            return [self.location]
        return list(self.location.values() if isinstance(self.location, dict) else self.location)


class StoredPartition:
    """Stored private data in one part for each teacher, proven disjoint at construction; workers read the parts.

    The same records, order, hashes, manifest and fingerprint as :class:`~pate.teachers.partition.Partition` gives in
    memory. The driver holds numbers of records, hashes, and file names.
    """

    def __init__(
        self,
        stored: StoredData,
        parts: Sequence[StoredPart],
        units: UnitSum,
        record_shape: Sequence[int],
        method: Mapping[str, Any],
        executor: Executor,
        work: str | None,
    ) -> None:
        """Use :meth:`by_hash` or :meth:`by_silo`."""
        self._stored = stored
        self._parts = tuple(parts)
        self._units = units
        self._record_shape = tuple(record_shape)
        self._method = dict(method)
        self._executor = executor
        self._work = work

    @classmethod
    def by_hash(
        cls,
        stored: StoredData,
        n_teachers: int,
        *,
        salt: str,
        work_dir: Location,
        executor: Executor | None = None,
        n_classes: int | None = None,
        allow_empty: bool = False,
    ) -> StoredPartition:
        """Place every record (with ``group_by``, every user) by a keyed hash of its id with a public salt.

        The workers read each shard once and write its records to ``work_dir``, a directory or URL that all of them see,
        ordered by teacher. Those files are private data: readable by their owner only on a local file system, and to be
        removed with :meth:`cleanup` when the ensemble is trained. The same call again, of shards that have not changed,
        finds them and reads nothing; after an interruption it goes on.

        executor: ``Serial()`` unless given. n_classes: if given, larger labels are an error here rather than in training.
        """
        whole(n_teachers, "n_teachers", 1)
        check_salt(salt)
        executor = executor or Serial()
        files = stored.shards()
        work = as_url(fspath(work_dir))
        plan = plan_split(files, stored.columns, int(n_teachers), salt, work)
        parts, units, shape = split_by_hash(plan, files, executor, n_classes, allow_empty)
        place = neighbours(stored.unit, "Its place is a keyed hash of its id.")
        method = {"method": "hash", "salt": salt, "neighbours": place}
        return cls(stored, parts, units, shape, method, executor, plan.directory)

    @classmethod
    def by_silo(
        cls,
        stored: StoredData,
        *,
        salt: str = "",
        placements: Mapping[str, Placement] | None = None,
        executor: Executor | None = None,
        n_classes: int | None = None,
    ) -> StoredPartition:
        """Every silo is one teacher: a sub-directory or file of ``stored``, numbered in the order of their names.

        The silos are public: where the last record of one could go, name them all by a mapping. A silo is read by a task
        with its placement, so it may lie on a disk that only its own node sees (give a mapping of silos then: a directory or
        glob is listed by the driver). What comes back is counts, hashes, and 16-byte digests of ids, by which the driver
        proves that no user and no record is in two silos; they stay inside the trust boundary.

        salt: public; it decides who is held out. executor, n_classes: as in :meth:`by_hash`.
        """
        check_salt(salt)
        executor = executor or Serial()
        placements = placements or {}
        silos = stored.silos()
        for silo in placements:
            if silo not in silos:
                raise PartitionError(f"placements names {silo!r}, which is no silo{did_you_mean(silo, silos)}")
        tasks = [
            Task(number, SiloTask(silo, url, stored.columns, salt), placements.get(silo, ANYWHERE))
            for number, (silo, url) in enumerate(silos.items())
        ]
        found = run_pass(executor, survey_silo, tasks)
        check_layouts({f"silo {silo!r}": each.layout for silo, each in zip(silos, found, strict=True)})
        check_classes([each.classes for each in found], n_classes)
        check_silos(dict(zip(silos, found, strict=True)))
        parts = [
            StoredPart(
                each.records, len(each.units), each.content_hash, SiloLoader(task.payload, each.content_hash), task.placement
            )
            for task, each in zip(tasks, found, strict=True)
        ]
        units = sum((UnitSum.of_digests(each.units) for each in found), UnitSum())
        place = "Its place is its silo and a keyed hash of its id; moving to another silo is two changes."
        method = {
            "method": "silo",
            "salt": salt,
            "neighbours": neighbours(stored.unit, place),
            "silos": {silo: [number] for number, silo in enumerate(silos)},
        }
        return cls(stored, parts, units, found[0].layout[1], method, executor, None)

    @property
    def n_teachers(self) -> int:
        return len(self._parts)

    @property
    def unit(self) -> str:
        """ "record" or "user": what one change of the data means."""
        return self._stored.unit

    @property
    def fingerprint(self) -> str:
        """Names the private data in the ledger, see :class:`~pate.teachers.data.PrivateData`."""
        return units_fingerprint(self._stored.name, self._units)

    @property
    def sizes(self) -> IntArray:
        """int64[teacher]: how many records each has. Private."""
        return np.array([part.records for part in self._parts], dtype=np.int64)

    def shared(self) -> dict[str, NDArray[Any]]:
        """Nothing: workers read storage themselves."""
        return {}

    def loader(self, teacher: int) -> PartLoader:
        """File names and row numbers, by which a worker reads the teacher's records, ordered by their keys."""
        return self._part(teacher).loader

    def placement(self, teacher: int) -> Placement:
        """Where this teacher's data lies."""
        return self._part(teacher).placement

    def content_hash(self, teacher: int) -> str:
        """A hash of the teacher's records: ids, inputs and labels, whatever their order."""
        return self._part(teacher).content_hash

    def manifest(self) -> dict[str, Any]:
        """What was split, how, and the content of every part: JSON. Private: sizes and hashes depend on the data."""
        return {
            "format": FORMAT,
            "private": True,
            **self._method,
            "unit": self.unit,
            "fingerprint": self.fingerprint,
            "n_teachers": self.n_teachers,
            "n_records": int(self.sizes.sum()),
            "n_units": self._units.count,
            "record_shape": list(self._record_shape),
            "teachers": [{"records": part.records, "units": part.units, "content": part.content_hash} for part in self._parts],
        }

    def overlap(self, fitted_digests: NDArray[np.void], executor: Executor | None = None) -> Overlap:
        """How far the rows that features were fitted on, ``Features.fitted_digests``, are these records.

        One more pass over storage, where the parts lie; with the executor that split them unless another is given.
        """
        return stored_overlap(self._parts, fitted_digests, executor or self._executor)

    def cleanup(self) -> None:
        """Remove the private files that :meth:`by_hash` wrote. The partition cannot be loaded afterwards."""
        if self._work is not None:
            remove_split(self._work)

    def __repr__(self) -> str:
        records = int(self.sizes.sum())
        return f"StoredPartition({self.n_teachers} teachers by {self._method['method']}, {records} records, unit {self.unit})"

    def _part(self, teacher: int) -> StoredPart:
        if not 0 <= teacher < self.n_teachers:
            raise ParameterError(f"A teacher's number must lie in 0..{self.n_teachers - 1}, got {teacher}.")
        return self._parts[teacher]
