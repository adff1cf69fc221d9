"""Reading one shard file of private records, through fsspec: a local path, ``file://``, ``memory://``, ``s3://`` and so on.

``.npz`` holds the arrays x, y, ids and, where the unit is a user, groups. ``.parquet`` and ``.csv`` are tables, whose
columns :class:`Columns` names. No message quotes a value: a shard is private.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from pate.errors import ParameterError, PartitionError
from pate.extras import require
from pate.references import did_you_mean
from pate.teachers.data import PrivateData


@dataclass(frozen=True)
class Columns:
    """What the columns of a shard mean.

    group_by: the column of the user, where the unit of privacy is a user; None where it is a record. In ``.npz`` files the
    arrays have fixed names (x, y, ids, groups), and any ``group_by`` means "groups".
    features: the columns of x, in this order; None: every numeric column that is not id, label or group, in the file's order,
    or the one column of lists.
    shape: of one record's x, for example (28, 28); None: as stored.
    """

    id: str = "id"
    label: str = "label"
    group_by: str | None = None
    features: tuple[str, ...] | None = None
    shape: tuple[int, ...] | None = None

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
        with require("fsspec", "storage").open(url, "rb") as file:
            table = reader(file, columns, url)
    except FileNotFoundError:
        raise PartitionError(f"Shard {url}: there is no such file. Was it moved since the shards were listed?") from None
    try:
        x = np.asarray(table.x)
        x = np.ascontiguousarray(x, dtype=x.dtype.newbyteorder("="))  # one layout in memory, whatever the file's
        data = PrivateData(_shaped(x, columns.shape), table.y, table.ids, group_by=table.groups, name=name)
    except (PartitionError, ParameterError) as error:
        raise PartitionError(f"Shard {url}: {error}") from None
    return Shard(data, table.features)


def shard_suffix(url: str) -> str:
    return PurePosixPath(url).suffix.lower()


def _shaped(x: NDArray[Any], shape: tuple[int, ...] | None) -> NDArray[Any]:
    if shape is None:
        return x
    if math.prod(shape) != math.prod(x.shape[1:]):
        raise PartitionError(f"a record of shape {x.shape[1:]} does not fill Columns.shape, {shape}.")
    return x.reshape(len(x), *shape)


@dataclass(frozen=True)
class _Raw:
    """As read: nothing of it is checked."""

    x: NDArray[Any]
    y: NDArray[Any]
    ids: Any
    groups: Any
    features: tuple[str, ...] = ()


def _need(wanted: Iterable[str], known: Iterable[str], url: str) -> None:
    known = list(known)
    for name in wanted:
        if name not in known:
            raise PartitionError(
                f"Shard {url}: there is no column {name!r}{did_you_mean(name, known)} Found: {', '.join(known)}. "
                "Name the columns with Columns(...)."
            )


# .npz ---------------------------------------------------------------------------------------------------------------------


def _read_npz(file: BinaryIO, columns: Columns, url: str) -> _Raw:
    try:
        with np.load(file, allow_pickle=False) as stored:
            _need(["x", "y", "ids"] + ([] if columns.group_by is None else ["groups"]), stored.files, url)
            if columns.group_by is None and "groups" in stored.files:
                raise PartitionError(
                    f"Shard {url}: it has groups, but the unit is a record. Say Columns(group_by='groups') to protect users, "
                    "or leave the array out."
                )
            groups = None if columns.group_by is None else stored["groups"]
            return _Raw(stored["x"], stored["y"], stored["ids"], groups)
    except PartitionError:
        raise
    except Exception as error:  # numpy raises ValueError, OSError, EOFError, BadZipFile …, by where the damage is
        raise PartitionError(
            f"Shard {url}: it cannot be read as .npz ({type(error).__name__}). It must be a whole file of plain arrays: "
            "Python objects (dtype=object) are never unpickled."
        ) from error


# Tables -------------------------------------------------------------------------------------------------------------------


def _read_parquet(file: BinaryIO, columns: Columns, url: str) -> _Raw:
    parquet = require("pyarrow.parquet", "storage")
    try:
        source = parquet.ParquetFile(file)
        _check_rows(source.metadata.num_rows, url)
        features = _features(source.schema_arrow, columns, url)
        table = source.read(columns=[*_named(columns), *features], use_threads=False)
    except (require("pyarrow", "storage").ArrowException, OSError) as error:
        raise PartitionError(f"Shard {url}: it cannot be read as .parquet ({type(error).__name__}).") from error
    return _from_table(table, features, columns, url)


def _read_csv(file: BinaryIO, columns: Columns, url: str) -> _Raw:
    """Ids stay text (else 007 would be 7), features are float64 (else their type would hang on the values)."""
    arrow, csv = require("pyarrow", "storage"), require("pyarrow.csv", "storage")
    as_text = {name: arrow.string() for name in (columns.id, columns.group_by) if name is not None}
    try:
        options = csv.ConvertOptions(column_types=as_text)
        table = csv.read_csv(file, read_options=csv.ReadOptions(use_threads=False), convert_options=options)
        table.schema.names  # noqa: B018  (decoded when asked for: a file that is no text is told here)
    except (arrow.ArrowException, UnicodeDecodeError) as error:
        raise PartitionError(f"Shard {url}: it cannot be read as .csv ({type(error).__name__}).") from error
    _check_rows(table.num_rows, url)
    raw = _from_table(table, _features(table.schema, columns, url), columns, url)
    return replace(raw, x=raw.x.astype(np.float64))


_READERS: Mapping[str, Callable[[BinaryIO, Columns, str], _Raw]] = {
    ".npz": _read_npz,
    ".parquet": _read_parquet,
    ".csv": _read_csv,
}
SUFFIXES = tuple(_READERS)


def _check_rows(rows: int, url: str) -> None:
    if not rows:
        raise PartitionError(f"Shard {url}: a shard must hold at least one record, got a file without rows.")


def _named(columns: Columns) -> list[str]:
    return [name for name in (columns.id, columns.label, columns.group_by) if name is not None]


def _features(schema: Any, columns: Columns, url: str) -> tuple[str, ...]:
    """The names of the feature columns, each numeric, or one alone whose cells are lists of numbers."""
    types = require("pyarrow.types", "storage")
    named = _named(columns)
    _need([*named, *(columns.features or ())], schema.names, url)

    def is_numeric(kind: Any) -> bool:
        return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind))

    def is_list(kind: Any) -> bool:
        lists = types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
        return bool(lists and is_numeric(kind.value_type))

    kinds = dict(zip(schema.names, schema.types, strict=True))
    if columns.features is None:
        features = tuple(name for name, kind in kinds.items() if name not in named and (is_numeric(kind) or is_list(kind)))
    else:
        features = columns.features
        wrong = [name for name in features if name in named or not (is_numeric(kinds[name]) or is_list(kinds[name]))]
        if wrong:
            raise PartitionError(
                f"Shard {url}: features must be columns of numbers (or of lists of numbers), not id, label or group; "
                f"got {', '.join(f'{name} ({kinds[name]})' for name in wrong)}. Encode them by a public table first."
            )
    if not features:
        raise PartitionError(f"Shard {url}: no numeric feature columns found among {', '.join(schema.names)}.")
    if len(features) > 1 and any(is_list(kinds[name]) for name in features):
        raise PartitionError(
            f"Shard {url}: a column of lists must be the only feature, got {', '.join(features)}. Name it: Columns(features=…)."
        )
    return features


def _from_table(table: Any, features: tuple[str, ...], columns: Columns, url: str) -> _Raw:
    return _Raw(
        x=_table_x(table, features, url),
        y=table.column(columns.label).to_numpy(),
        ids=table.column(columns.id).to_pylist(),
        groups=None if columns.group_by is None else table.column(columns.group_by).to_pylist(),
        features=features,
    )


def _table_x(table: Any, features: tuple[str, ...], url: str) -> NDArray[Any]:
    """x: number[record, feature]. Nulls are refused: filling them here would decide on private data's behalf."""
    for name in features:
        if table.column(name).null_count:
            raise PartitionError(f"Shard {url}: feature {name!r} has nulls. Impute by a declared constant first.")
    first = table.column(features[0]).combine_chunks()
    if len(features) > 1 or not hasattr(first.type, "value_type"):
        return np.column_stack([table.column(name).to_numpy() for name in features])
    values = first.flatten()
    lengths = require("pyarrow.compute", "storage").list_value_length(first).to_numpy()
    if values.null_count or (lengths != lengths[0]).any():
        raise PartitionError(f"Shard {url}: the lists of {features[0]!r} must be equally long and without nulls.")
    return np.asarray(values.to_numpy(zero_copy_only=False)).reshape(len(first), -1)
