"""Reading one shard file of private records, through fsspec: a local path, ``file://``, ``memory://``, ``s3://`` and so on.

``.npz`` holds the arrays x, y, ids and, where the unit is a user, groups. ``.parquet`` and ``.csv`` are tables, whose
columns :class:`Columns` names. No message quotes a value: a shard is private. For the same reason nothing of how a record is
read hangs on the others: columns are known by their names, not by what is in them.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from pate.errors import ParameterError, PartitionError
from pate.extras import require
from pate.references import did_you_mean
from pate.teachers.data import PrivateData
from pate.teachers.storage.tables import cells_of, check_class_names, class_numbers, input_array, read_csv, read_parquet


@dataclass(frozen=True)
class Columns:
    """What the columns of a shard mean.

    group_by: the column of the user, where the unit of privacy is a user; None where it is a record. In ``.npz`` files the
    arrays have fixed names (x, y, ids, groups), and any ``group_by`` means "groups".
    features: the columns of x, in this order; None: every column of the header that is not id, label or group, in the file's
    order. All must be numbers, which become float64, or be one column of lists of numbers.
    shape: of one record's x, for example (28, 28); None: as stored.
    classes: names of the classes 0, 1, …; a label may be such a name in place of the number.
    """

    id: str = "id"
    label: str = "label"
    group_by: str | None = None
    features: tuple[str, ...] | None = None
    shape: tuple[int, ...] | None = None
    classes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_class_names(self.classes)

    @property
    def unit(self) -> str:
        """What one change of the data means."""
        return "record" if self.group_by is None else "user"


@dataclass(frozen=True)
class Shard:
    """The checked records of one file, and the names of the table's columns in x (none for ``.npz``)."""

    data: PrivateData
    features: tuple[str, ...]

    @property
    def layout(self) -> tuple[str, tuple[int, ...], tuple[str, ...]]:
        """What all shards of one data set must agree on: x's type, a record's shape, the columns."""
        return str(self.data.x.dtype), self.data.x.shape[1:], self.features


def read_shard(url: str, columns: Columns, name: str = "in this file") -> Shard:
    """All records of one file, checked as :class:`~pate.teachers.data.PrivateData` is, and so called ``name``."""
    reader = _READERS.get(shard_suffix(url))
    if reader is None:
        raise PartitionError(f"Shard {url}: the suffix must be one of {', '.join(SUFFIXES)}; got {shard_suffix(url)!r}.")
    try:
        # A path is no URL: fsspec would read :: in a name as a chain.
        with require("fsspec", "storage").open(url, "rb") if "://" in url else open(os.path.expanduser(url), "rb") as file:
            table = reader(file, columns)
        x = np.asarray(table.x)
        x = np.ascontiguousarray(x, dtype=x.dtype.newbyteorder("="))  # one layout in memory, whatever the file's
        data = PrivateData(_shaped(x, columns.shape), table.y, table.ids, group_by=table.groups, name=name)
    except FileNotFoundError:
        raise PartitionError(f"Shard {url}: there is no such file. Was it moved since the shards were listed?") from None
    except (PartitionError, ParameterError) as error:
        raise PartitionError(f"Shard {url}: {error}") from None
    return Shard(data, table.features)


def shard_suffix(url: str) -> str:
    return PurePosixPath(url).suffix.lower()


def _shaped(x: NDArray[Any], shape: tuple[int, ...] | None) -> NDArray[Any]:
    if shape is None:
        return x
    if math.prod(shape) != math.prod(x.shape[1:]):
        raise PartitionError(f"a record of shape {x.shape[1:]} does not fill the shape that was asked for, {shape}.")
    return x.reshape(len(x), *shape)


@dataclass(frozen=True)
class _Raw:
    """As read: nothing of it is checked."""

    x: NDArray[Any]
    y: Any
    ids: Any
    groups: Any
    features: tuple[str, ...] = ()


# .npz ---------------------------------------------------------------------------------------------------------------------


def _read_npz(file: BinaryIO, columns: Columns) -> _Raw:
    try:
        with np.load(file, allow_pickle=False) as stored:
            _need(["x", "y", "ids"] + ([] if columns.group_by is None else ["groups"]), stored.files)
            if columns.features is not None:
                raise PartitionError("inputs name columns of tables, and an .npz has none: x is the input. Leave them out.")
            if columns.group_by is None and "groups" in stored.files:
                raise PartitionError(
                    "it has groups, but the unit is a record. To protect users name them (data.group_by in a recipe, "
                    "--group-by on the command line, Columns(group_by=…) in Python), or leave the array out."
                )
            groups = None if columns.group_by is None else stored["groups"]
            return _Raw(stored["x"], _labels(stored["y"], "y", columns), stored["ids"], groups)
    except PartitionError:
        raise
    except Exception as error:  # numpy raises ValueError, OSError, EOFError, BadZipFile …, by where the damage is
        raise PartitionError(
            f"it cannot be read as .npz ({type(error).__name__}). It must be a whole file of plain arrays: Python objects "
            "(dtype=object) are never unpickled."
        ) from error


def _need(wanted: Sequence[str], known: Sequence[str]) -> None:
    for name in wanted:
        if name not in known:
            raise PartitionError(
                f"there is no array {name!r}{did_you_mean(name, known)} Found: {', '.join(known)}. An .npz of private records "
                "holds x, y and ids, and groups where the unit is a user: --id and --label name columns of tables only."
            )


# Tables -------------------------------------------------------------------------------------------------------------------


def _read_parquet(file: BinaryIO, columns: Columns) -> _Raw:
    named = _named(columns)
    return _from_table(*read_parquet(file, named, columns.features, named), columns)


def _read_csv(file: BinaryIO, columns: Columns) -> _Raw:
    named = _named(columns)
    return _from_table(*read_csv(file, named, columns.features, named), columns)


_READERS: Mapping[str, Callable[[BinaryIO, Columns], _Raw]] = {
    ".npz": _read_npz,
    ".parquet": _read_parquet,
    ".csv": _read_csv,
}
SUFFIXES = tuple(_READERS)


def _named(columns: Columns) -> list[str]:
    return [name for name in dict.fromkeys((columns.id, columns.label, columns.group_by)) if name is not None]


def _from_table(table: Any, features: Sequence[str], columns: Columns) -> _Raw:
    if not table.num_rows:
        raise PartitionError("a shard must hold at least one record, got a file without rows.")
    return _Raw(
        x=input_array(table, features),
        y=_labels(np.array(cells_of(table.column(columns.label)), dtype=object), f"label {columns.label!r}", columns),
        ids=cells_of(table.column(columns.id)),
        groups=None if columns.group_by is None else cells_of(table.column(columns.group_by)),
        features=tuple(features),
    )


def _labels(labels: NDArray[Any], subject: str, columns: Columns) -> NDArray[Any]:
    """As class numbers; what is no list of labels is told by :class:`~pate.teachers.data.PrivateData`."""
    if labels.ndim != 1 or (labels.dtype.kind in "biuf" and not columns.classes):
        return labels
    return class_numbers(labels.tolist(), columns.classes, subject)
