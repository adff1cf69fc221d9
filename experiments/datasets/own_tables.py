"""Public and test records of a user's own, in tables or arrays. The public file says what a record looks like, in all three."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pate.errors import DataError, ParameterError, PartitionError
from pate.experiments.array_files import read_arrays
from pate.teachers import PrivateData
from pate.teachers.storage.tables import (
    cells_of,
    class_numbers,
    how_to_name,
    input_array,
    is_list,
    is_no_input,
    is_numeric,
    numbers_in,
    read_csv,
    read_header,
    read_parquet,
)


@dataclass(frozen=True)
class Label:
    """Where a test record's class stands, and what the classes are called, if they have names."""

    column: str
    classes: Sequence[str]


def read_public(
    path: Path, inputs: Sequence[str] | None, named: Sequence[str], shape: tuple[int, ...] | None
) -> tuple[NDArray[Any], tuple[str, ...]]:
    """x [record, *shape], and the names of the columns in it (none for arrays).

    inputs: columns of a table; None for every column of numbers but ``named``. Anybody may see a public record, so its values
    may say which columns are numbers; a private one's may not.
    """
    if path.suffix.lower() in (".npz", ".npy"):
        if inputs is not None:
            raise DataError(f"{path}: data.inputs names columns of tables, and an array has none. Leave it out.")
        found: list[str] = []
        x = _checked(path, _arrays(path, ("x",))["x"])
    else:
        table, found = _table(path, (), inputs, named)
        found = found if inputs is not None else _columns_of_numbers(path, table, found)
        x = _matrix(path, table, found)
    if shape is None:
        return x, tuple(found)
    if math.prod(x.shape[1:]) != math.prod(shape):
        raise DataError(f"{path}: a record of shape {x.shape[1:]} does not fill data.shape, {shape}.")
    return x.reshape(len(x), *shape), tuple(found)


def check_columns(private: Path, public: Path, named: Sequence[str]) -> None:
    """Raise if the private table has columns, besides ``named``, that the public one has not: inputs would be lost unsaid."""
    headers = []
    for path in (private, public):
        with path.open("rb") as file:
            headers.append(read_header(file, path.suffix))
    lost = [name for name in headers[0] if name not in named and name not in headers[1]]
    if lost:
        raise DataError(
            f"{public}: inputs are read off this file, and there is no column {', '.join(lost)} in it, as there is in "
            f"{private}. Add it, or name the inputs: {how_to_name('inputs')}."
        )


def read_test(
    path: Path, inputs: Sequence[str], label: Label, shape: tuple[int, ...], *, labels: bool = True
) -> tuple[NDArray[Any], NDArray[Any]]:
    """x [record, *shape] and, where ``labels`` are wanted, y int64[record]; else y is empty."""
    if path.suffix.lower() in (".npz", ".npy"):
        arrays = _arrays(path, ("x", "y"))
        x, column = _checked(path, arrays["x"]), arrays["y"]
    else:
        table, _ = _table(path, (label.column,), inputs, ())
        x = _matrix(path, table, inputs)
        column = table.column(label.column)
    if math.prod(x.shape[1:]) != math.prod(shape):
        raise DataError(f"{path}: a record must have the shape {shape} of the public ones, got {x.shape[1:]}.")
    x = x.reshape(len(x), *shape)
    if not labels:
        return x, np.zeros(0, dtype=np.int64)
    y = np.ravel(column).tolist() if isinstance(column, np.ndarray) else cells_of(column)
    if len(y) != len(x):
        raise DataError(f"{path}: every record needs a label, got {len(x)} records and {len(y)} labels.")
    try:
        return x, class_numbers(y, label.classes, "the labels")
    except PartitionError as error:
        raise DataError(f"{path}: {error}") from None


def as_public(path: Path, private: PrivateData, public_x: NDArray[Any]) -> PrivateData:
    """Private records of the shape and the type of number that the public ones have; or an error.

    The type is what whoever wrote the file found fit for all private values, so it must not decide how teachers compute.
    """
    own, wanted = private.x, public_x.dtype.newbyteorder("=")
    if own.shape[1:] != public_x.shape[1:]:
        raise DataError(
            f"{path}: a record must have the shape {public_x.shape[1:]} of the public ones, got {own.shape[1:]}. If the "
            "numbers are the same in another arrangement, declare data.shape."
        )
    if own.dtype == wanted:
        return private
    if wanted.kind != "f" and not np.can_cast(own.dtype, wanted):
        raise DataError(
            f"{path}: inputs must be of the public ones' type, {wanted}, or fit into it; got {own.dtype}. Write both files "
            "with one type, and check that both have one scale."
        )
    with np.errstate(over="ignore"):  # what does not fit is infinite, and refused as such
        x = own.astype(wanted)
    try:
        return private.with_inputs(x)
    except ParameterError as error:
        raise DataError(f"{path}: {error}") from None


def _arrays(path: Path, wanted: Sequence[str]) -> dict[str, NDArray[Any]]:
    found = read_arrays(path, alone="x", error=DataError)
    if any(name not in found for name in wanted):
        raise DataError(f"{path}: it must hold the arrays {' and '.join(wanted)}, found {', '.join(found) or 'none'}.")
    return found


def _table(path: Path, wanted: Sequence[str], inputs: Sequence[str] | None, named: Sequence[str]) -> tuple[Any, list[str]]:
    try:
        with path.open("rb") as file:
            return (read_csv if path.suffix.lower() == ".csv" else read_parquet)(file, wanted, inputs, named)
    except (PartitionError, OSError) as error:
        raise DataError(f"{path}: {error}") from None


def _columns_of_numbers(path: Path, table: Any, names: Sequence[str]) -> list[str]:
    """The columns whose cells are numbers. One of text is none; one of both, or of empty cells, is an error."""
    if not table.num_rows:
        raise DataError(f"{path}: it must hold at least one record, got none.")
    found = []
    for name in names:
        column = table.column(name)
        numbers = numbers_in(column)
        if is_numeric(column.type) or is_list(column.type):
            found.append(name)
        elif numbers or column.null_count == len(column) or not is_no_input(column.type):
            raise DataError(
                f"{path}: column {name!r} is an input only if it holds a number in every record, kept as one; {numbers} of "
                f"{len(column)} cells are numbers (it is read as {column.type}). Mend it, leave it out, or name the inputs: "
                f"{how_to_name('inputs')}."
            )
    if not found:
        raise DataError(f"{path}: there must be a column of numbers, found none among {', '.join(names)}.")
    return found


def _matrix(path: Path, table: Any, names: Sequence[str]) -> NDArray[Any]:
    if not table.num_rows:
        raise DataError(f"{path}: it must hold at least one record, got none.")
    try:
        return _checked(path, input_array(table, names))
    except PartitionError as error:
        raise DataError(f"{path}: {error}") from None


def _checked(path: Path, x: NDArray[Any]) -> NDArray[Any]:
    if not x.ndim or not len(x):
        raise DataError(f"{path}: it must hold at least one record, got none.")
    if x.dtype.kind not in "biuf" or (x.dtype.kind == "f" and not np.isfinite(x).all()):
        raise DataError(f"{path}: inputs must be finite numbers. Impute and encode by declared constants first.")
    return x
