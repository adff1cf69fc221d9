"""Private data: records, their labels, and the ids that say whose they are."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pate.arrays import IntArray
from pate.digests import id_keys, row_digests
from pate.errors import PartitionError
from pate.execution import Executor
from pate.features.checks import Overlap, share_of
from pate.public import numeric_records
from pate.teachers.fingerprint import UnitSum, units_fingerprint
from pate.teachers.identities import identities, refuse_masked

_TURNS = "pate.nearest"
_LONGEST_NAME = 400  # a ledger takes fingerprints of up to 512 characters


@dataclass(frozen=True, eq=False, repr=False)
class _People:
    """Whose records they are.

    record_ids: bytes[record], distinct; unit_ids: bytes[unit], distinct; unit_of: int64[record], an index in unit_ids.
    """

    record_ids: tuple[bytes, ...]
    unit_ids: tuple[bytes, ...]
    unit_of: IntArray
    unit: str

    @cached_property
    def total(self) -> UnitSum:
        return UnitSum.of(self.unit_ids)


class PrivateData:
    """Private records. They are never printed; everything a run may say of them is noise or a hash.

    x: [record, ...], finite numbers. y: whole class numbers from 0, [record]. ids: whole numbers, strings or bytes,
    [record]. group_by: the user of each record, of the same kinds, where one change of the data means one *user*.
    Arrays are kept as read-only views: do not change what was given.

    An id belongs to its record for good, whatever other records there are: a patient number, not the row number in a
    shuffled array. It must not be made from the record's content either: correcting a value would then move the record.

    The ledger is keyed by :attr:`fingerprint`, which is made of the name and of the *set of ids* (of users with
    ``group_by``) alone. So the same ids under the same name share one ledger and one budget, and other features, labels,
    salts, or numbers of teachers do not start a new one. Adding or removing somebody does, and so does another unit or
    name: fix them once, and where data grow, keep adding to the first ledger by its fingerprint.

    >>> PrivateData([[5.0], [6.0]], [0, 1], ids=["ann", "bob"], name="ward")
    PrivateData('ward', 2 records of shape (1,), unit record)
    """

    __slots__ = ("_name", "_people", "_x", "_y")

    def __init__(self, x: ArrayLike, y: ArrayLike, ids: Any, *, group_by: Any = None, name: str = "data") -> None:
        check_name(name)
        self._name = name
        self._x = _inputs(x, name)
        self._y = _labels(y, name)
        self._people = _people(ids, group_by, name)
        records = {"x": len(self._x), "y": len(self._y), "ids": len(self._people.record_ids)}
        if len(set(records.values())) > 1:
            lengths = ", ".join(f"{count} {key}" for key, count in records.items())
            raise PartitionError(f"PrivateData {name!r}: x, y and ids must be equally long, got {lengths}.")

    @property
    def x(self) -> NDArray[Any]:
        """[record, ...], read-only."""
        return self._x

    @property
    def y(self) -> IntArray:
        """int64[record], read-only."""
        return self._y

    @property
    def name(self) -> str:
        return self._name

    @property
    def unit(self) -> str:
        """ "record" or "user": whose presence is protected."""
        return self._people.unit

    @property
    def record_ids(self) -> tuple[bytes, ...]:
        """bytes[record], distinct."""
        return self._people.record_ids

    @property
    def unit_ids(self) -> tuple[bytes, ...]:
        """bytes[unit]: the distinct ids of the users, or of the records."""
        return self._people.unit_ids

    @property
    def unit_of(self) -> IntArray:
        """int64[record]: the place of a record's user (or of itself) in :attr:`unit_ids`."""
        return self._people.unit_of

    @property
    def fingerprint(self) -> str:
        """Names these people in the ledger; private as a hash of ids is: who guesses them all can confirm the guess."""
        return units_fingerprint(self._name, self._people.total)

    @property
    def turns(self) -> NDArray[np.uint64]:
        """uint64[record]: in which order a user's records vote, where not all may. A hash of the record's own id, no more."""
        return id_keys(self.record_ids, _TURNS)

    def overlap(self, fitted_digests: NDArray[np.void], executor: Executor | None = None) -> Overlap:
        """How far the rows that features were fitted on, ``Features.fitted_digests``, are these records. They are here, so
        no executor is needed.
        """
        return share_of(row_digests(self._x), fitted_digests)

    def with_inputs(self, x: ArrayLike) -> PrivateData:
        """The same people and labels with other inputs, for example features: the same fingerprint."""
        inputs = _inputs(x, self._name)
        if len(inputs) != len(self):
            raise PartitionError(
                f"PrivateData {self._name!r}: other inputs must be for the same {len(self)} records, got {len(inputs)}."
            )
        other = object.__new__(PrivateData)
        other._name, other._x, other._y, other._people = self._name, inputs, self._y, self._people
        return other

    def __len__(self) -> int:
        return len(self._x)

    def __repr__(self) -> str:
        return f"PrivateData({self._name!r}, {len(self)} records of shape {self._x.shape[1:]}, unit {self.unit})"

    def __reduce__(self) -> tuple[Any, ...]:
        users = [self.unit_ids[unit] for unit in self.unit_of] if self.unit == "user" else None
        return _unpickled, (self._x, self._y, self.record_ids, users, self._name)


def check_name(name: object) -> None:
    """Raise unless ``name`` can name private data in a ledger."""
    if not isinstance(name, str) or not 0 < len(name) <= _LONGEST_NAME or not name.isprintable():
        raise PartitionError(f"The name of private data must be 1 to {_LONGEST_NAME} printable characters, got {name!r}.")


def _unpickled(x: NDArray[Any], y: IntArray, ids: Any, users: Any, name: str) -> PrivateData:
    """Built anew, so that the arrays are read-only again."""
    return PrivateData(x, y, ids, group_by=users, name=name)


def _inputs(x: ArrayLike, name: str) -> NDArray[Any]:
    refuse_masked(x, f"PrivateData {name!r}: x")
    view = numeric_records(x, f"PrivateData {name!r}").view()
    view.flags.writeable = False
    return view


def _labels(y: ArrayLike, name: str) -> IntArray:
    subject = f"PrivateData {name!r}: y"
    refuse_masked(y, subject)
    array = np.asarray(y)
    if array.ndim != 1 or array.dtype.kind not in "biuf":
        raise PartitionError(
            f"{subject} must hold whole class numbers [record], got {array.dtype} of shape {array.shape}. Number the classes "
            "by a public list: a list read off private labels tells which classes occur."
        )
    if array.dtype.kind == "f":
        broken = int((~np.isfinite(array) | (array != np.rint(array))).sum())
        if broken:
            raise PartitionError(f"{subject} must hold whole class numbers; {broken} of {len(array)} are not whole.")
    outside = int(((array < 0) | (array > np.iinfo(np.int32).max)).sum())
    if outside:
        raise PartitionError(f"{subject} must hold class numbers from 0 to 2**31 - 1; {outside} of {len(array)} lie outside.")
    return _read_only(array.astype(np.int64))


def _people(ids: Any, group_by: Any, name: str) -> _People:
    if ids is None:
        raise PartitionError(
            f"PrivateData {name!r}: every record needs an id, got none. A record's place must not depend on other records, so "
            "neither a random shuffle nor the row number in a shuffled array will do: with one record more or less every "
            "other one may move to another teacher, and the privacy proof is lost. Give ids that stay with their records."
        )
    record_ids = tuple(identities(ids, f"PrivateData {name!r}: ids"))
    repeated = len(record_ids) - len(set(record_ids))
    if repeated:
        raise PartitionError(
            f"PrivateData {name!r}: records overlap; {repeated} of {len(record_ids)} repeat another record's id (7 and '7' "
            "are one id). Remove the copies; where one person has several records, give each an id of its own and the "
            "person in group_by."
        )
    if group_by is None:
        return _People(record_ids, record_ids, _read_only(np.arange(len(record_ids))), "record")
    users = identities(group_by, f"PrivateData {name!r}: group_by (the user of each record)")
    if len(users) != len(record_ids):
        raise PartitionError(
            f"PrivateData {name!r}: group_by must name the user of each of {len(record_ids)} records, got {len(users)} users."
        )
    unit_ids = tuple(dict.fromkeys(users))
    index = {user: place for place, user in enumerate(unit_ids)}
    return _People(record_ids, unit_ids, _read_only(np.array([index[user] for user in users])), "user")


def _read_only(array: IntArray) -> IntArray:
    array.flags.writeable = False
    return array
