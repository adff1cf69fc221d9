"""Disjoint parts of private data in memory, one for each teacher."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pate.arrays import IntArray
from pate.digests import id_keys, identity_bytes, place_of_keys, row_digests, set_digest
from pate.errors import ParameterError, PartitionError
from pate.execution import ANYWHERE, Executor, Placement
from pate.features.checks import Overlap
from pate.teachers.data import PrivateData
from pate.teachers.identities import identities
from pate.teachers.partition_checks import check_filled, check_no_copies, check_together, teacher_of_rows
from pate.validation import whole

FORMAT = 1


@dataclass(frozen=True, eq=False)
class RowsLoader:
    """The rows of one teacher in the shared arrays: unsigned whole numbers [record], as small as they fit."""

    rows: NDArray[Any] = field(repr=False)

    def load(self, shared: Mapping[str, NDArray[Any]]) -> tuple[NDArray[Any], IntArray, NDArray[np.uint64]]:
        """x[record, ...], y int64[record], keys uint64[record] of this teacher."""
        return shared["x"][self.rows], shared["y"][self.rows], shared["keys"][self.rows]


@dataclass(frozen=True)
class _Method:
    """How the records were placed: the public part of a manifest, and where each silo's teachers run."""

    name: str
    salt: str
    neighbours: str
    silos: Mapping[str, Sequence[int]] | None = None
    placements: Mapping[int, Placement] = field(default_factory=dict)


class Partition:
    """Private data in one part for each teacher; every record, and every user, in exactly one. Proven at construction.

    Which changes of the data one teacher absorbs (the *neighbours* of the privacy proof): a place is a keyed hash of the id
    alone. So adding the record of one id, removing it, or replacing its content under the same id changes one teacher's
    part, and no other record moves. With ``group_by`` read "all records of one user" for "the record". Replacing a record
    by one with *another* id changes two teachers: it is two changes, a removal and an addition, and costs as a group of
    two. Hence an id must not be derived from the record's content, or a corrected value would count as two changes.

    The salt, the number of teachers and the list of silos are public: fix them before looking at the data. That every
    teacher got a record is a fact about the data; ``allow_empty=True`` gives a partition for any data at all.

    >>> data = PrivateData([[1.0], [2.0], [3.0], [4.0]], [0, 1, 0, 1], ids=["ann", "bob", "cy", "di"])
    >>> Partition.by_hash(data, 2, salt="spring")
    Partition(2 teachers by hash, 4 records, unit record)
    """

    def __init__(
        self,
        data: PrivateData,
        teacher_of: IntArray,
        n_teachers: int,
        keys: NDArray[np.uint64],
        method: _Method,
        *,
        allow_empty: bool,
    ) -> None:
        """Use :meth:`by_hash`, :meth:`by_silo` or :meth:`from_rows`."""
        check_together(data.unit_of, teacher_of, "teacher")
        self._data = data
        self._method = method
        self._keys = keys
        self._teacher_of = teacher_of
        self._sizes = np.bincount(teacher_of, minlength=n_teachers)
        check_filled(self._sizes, len(data.unit_ids), data.unit, allow_empty)
        self._order = _order(teacher_of, keys, data.record_ids)
        self._starts = np.concatenate(([0], np.cumsum(self._sizes)))
        # As float64: what a teacher learns from, to the last digit.
        self._digests = row_digests(data.x, data.y, dtype=np.float64)
        check_no_copies(self._digests, (self._rows(teacher) for teacher in range(n_teachers)))
        for array in (self._keys, self._teacher_of, self._sizes):
            array.flags.writeable = False

    @classmethod
    def by_hash(cls, data: PrivateData, n_teachers: int, *, salt: str, allow_empty: bool = False) -> Partition:
        """Place every record (with ``group_by``, every user) by a keyed hash of its id with a public salt."""
        whole(n_teachers, "n_teachers", 1)
        unit_keys, keys = _keys(data, salt)
        teacher_of = place_of_keys(unit_keys, int(n_teachers))[data.unit_of]
        method = _Method("hash", salt, neighbours(data.unit, "Its place is a keyed hash of its id."))
        return cls(data, teacher_of, int(n_teachers), keys, method, allow_empty=allow_empty)

    @classmethod
    def by_silo(
        cls,
        data: PrivateData,
        silos: Any,
        *,
        teachers_per_silo: int | Mapping[Any, int] = 1,
        salt: str = "",
        placements: Mapping[Any, Placement] | None = None,
        allow_empty: bool = False,
    ) -> Partition:
        """Place every record with a teacher of its silo; silos: whole numbers, strings or bytes, [record].

        teachers_per_silo: one number for all silos that occur, or a mapping that names all silos, those without data too.
        Use the mapping where the last record of a silo could go: the number of teachers must not depend on a record.
        Teachers are numbered by the silos' names in the order of text; within a silo, by a keyed hash of the id.
        placements: where the teachers of a silo must run.
        """
        given = identities(silos, "silos")
        if len(given) != len(data):
            raise PartitionError(f"silos must name the silo of each of {len(data)} records, got {len(given)}.")
        teachers = _teachers_of_silos(given, teachers_per_silo)
        number = {silo: place for place, silo in enumerate(teachers)}
        silo_of = np.array([number[silo] for silo in given])
        check_together(data.unit_of, silo_of, "silo")
        unit_keys, keys = _keys(data, salt)
        first = np.array([range_.start for range_ in teachers.values()])
        count = np.array([len(range_) for range_ in teachers.values()])
        teacher_of = first[silo_of] + place_of_keys(unit_keys[data.unit_of], count[silo_of])
        method = _Method(
            "silo",
            salt,
            neighbours(data.unit, "Its place is its silo and a keyed hash of its id; moving to another silo is two changes."),
            {silo.decode(errors="backslashreplace"): [*range_] for silo, range_ in teachers.items()},
            _placements(teachers, placements or {}),
        )
        return cls(data, teacher_of, int(count.sum()), keys, method, allow_empty=allow_empty)

    @classmethod
    def from_rows(cls, data: PrivateData, rows: Sequence[ArrayLike], *, allow_empty: bool = False) -> Partition:
        """Take an assignment made elsewhere: the row numbers of every teacher, rows[teacher][...].

        Checked: every record is in one part, once, and so is every user. Not checkable, and so the caller's promise: that
        no record's place depends on other records.
        """
        teacher_of = teacher_of_rows(rows, len(data))
        promise = "Its place was given; that it depends on no other record is the caller's promise."
        method = _Method("rows", "", neighbours(data.unit, promise))
        return cls(data, teacher_of, len(rows), id_keys(data.record_ids, ""), method, allow_empty=allow_empty)

    @property
    def data(self) -> PrivateData:
        return self._data

    @property
    def n_teachers(self) -> int:
        return len(self._sizes)

    @property
    def unit(self) -> str:
        """ "record" or "user": what one change of the data means."""
        return self._data.unit

    @property
    def fingerprint(self) -> str:
        """Names the private data in the ledger, see :class:`PrivateData`."""
        return self._data.fingerprint

    @property
    def sizes(self) -> IntArray:
        """int64[teacher]: how many records each has. Private."""
        return self._sizes

    @property
    def teacher_of(self) -> IntArray:
        """int64[record]."""
        return self._teacher_of

    def shared(self) -> dict[str, NDArray[Any]]:
        """x [record, ...], y int64[record], keys uint64[record]: what goes to the workers once."""
        return {"x": self._data.x, "y": self._data.y, "keys": self._keys}

    def loader(self, teacher: int) -> RowsLoader:
        """The records of one teacher, ordered by their keys: others' records do not change the order."""
        return RowsLoader(self._rows(teacher).astype(np.min_scalar_type(len(self._data) - 1)))

    def placement(self, teacher: int) -> Placement:
        """Where this teacher's data lies."""
        return self._method.placements.get(teacher, ANYWHERE)

    def content_hash(self, teacher: int) -> str:
        """A hash of the teacher's records: ids, inputs and labels, whatever their order."""
        rows = self._rows(teacher)
        ids = self._data.record_ids
        return set_digest(digest + ids[row] for digest, row in zip(self._digests[rows].tolist(), rows.tolist(), strict=True))

    def manifest(self) -> dict[str, Any]:
        """What was split, how, and the content of every part: JSON. Private: sizes and hashes depend on the data."""
        return {
            "format": FORMAT,
            "private": True,
            "method": self._method.name,
            "salt": self._method.salt,
            "unit": self.unit,
            "neighbours": self._method.neighbours,
            "fingerprint": self.fingerprint,
            "n_teachers": self.n_teachers,
            "n_records": len(self._data),
            "n_units": len(self._data.unit_ids),
            "record_shape": list(self._data.x.shape[1:]),
            **({} if self._method.silos is None else {"silos": dict(self._method.silos)}),
            "teachers": [dict(part) for part in self._parts],
        }

    def overlap(self, fitted_digests: NDArray[np.void], executor: Executor | None = None) -> Overlap:
        """How far the rows that features were fitted on, ``Features.fitted_digests``, are these records. They are here, so
        no executor is needed.
        """
        return self._data.overlap(fitted_digests)

    def __repr__(self) -> str:
        return f"Partition({self.n_teachers} teachers by {self._method.name}, {len(self._data)} records, unit {self.unit})"

    def _rows(self, teacher: int) -> IntArray:
        if not 0 <= teacher < self.n_teachers:
            raise ParameterError(f"A teacher's number must lie in 0..{self.n_teachers - 1}, got {teacher}.")
        return self._order[self._starts[teacher] : self._starts[teacher + 1]]

    @cached_property
    def _parts(self) -> list[dict[str, Any]]:
        _, first = np.unique(self._data.unit_of, return_index=True)
        units = np.bincount(self._teacher_of[first], minlength=self.n_teachers)
        return [
            {"records": int(self._sizes[teacher]), "units": int(units[teacher]), "content": self.content_hash(teacher)}
            for teacher in range(self.n_teachers)
        ]


def check_salt(salt: object) -> None:
    """Raise unless ``salt`` is text."""
    if not isinstance(salt, str):
        raise ParameterError(
            f"salt must be a string (public, and fixed before looking at the data), got {type(salt).__name__}."
        )


def _keys(data: PrivateData, salt: str) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """The keys of the units, uint64[unit], which place them, and of the records, uint64[record]."""
    check_salt(salt)
    keys = id_keys(data.record_ids, salt)
    return (keys if data.unit == "record" else id_keys(data.unit_ids, salt)), keys


def _order(teacher_of: IntArray, keys: NDArray[np.uint64], ids: Sequence[bytes]) -> IntArray:
    """The records by teacher, then by key, then by id, int64[record]: a teacher meets its records in an order of their own."""
    order = np.lexsort((keys, teacher_of))
    same_key = keys[order[1:]] == keys[order[:-1]]
    if not same_key.any():
        return order
    rank = np.empty(len(ids), dtype=np.int64)
    rank[sorted(range(len(ids)), key=ids.__getitem__)] = np.arange(len(ids))
    return np.lexsort((rank, keys, teacher_of))


def neighbours(unit: str, place: str) -> str:
    """Which change of the data one teacher absorbs, in words; ``place``: what decides the teacher."""
    change = "one record" if unit == "record" else "all records of one user"
    return (
        f"Neighbouring data differ by adding or removing {change}, or by replacing the content under the same id: one "
        f"teacher's part changes. Replacing a {unit} by one with another id is two changes. {place}"
    )


def _teachers_of_silos(given: Sequence[bytes], teachers_per_silo: int | Mapping[Any, int]) -> dict[bytes, range]:
    """The teachers' numbers of every silo, in the order of the silos' names."""
    if isinstance(teachers_per_silo, Mapping):
        names = identities(list(teachers_per_silo), "The silos in teachers_per_silo")
        counts = dict(zip(names, teachers_per_silo.values(), strict=True))
        if len(counts) < len(teachers_per_silo):
            raise PartitionError("teachers_per_silo names a silo twice (7 and '7' are one name). Name each silo once.")
        unknown = len(set(given) - set(counts))
        if unknown:
            raise PartitionError(f"teachers_per_silo must name every silo; {unknown} silos of the data are not in it.")
    else:
        counts = dict.fromkeys(given, teachers_per_silo)
    teachers: dict[bytes, range] = {}
    start = 0
    for silo in sorted(counts):
        whole(counts[silo], "teachers_per_silo", 1)
        teachers[silo] = range(start, start + int(counts[silo]))
        start += int(counts[silo])
    return teachers


def _placements(teachers: Mapping[bytes, range], placements: Mapping[Any, Placement]) -> dict[int, Placement]:
    """Where each teacher runs, of those tied to a place."""
    known = {identity_bytes(silo): placement for silo, placement in placements.items()}
    unknown = len(set(known) - set(teachers))
    if unknown:
        raise PartitionError(f"placements must name silos of this partition; {unknown} of {len(known)} are none of them.")
    return {teacher: placement for silo, placement in known.items() for teacher in teachers[silo]}
