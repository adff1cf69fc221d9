"""Public and test records of a user's own, in tables or arrays: the columns that the private ones have."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pate.errors import DataError
from pate.experiments.array_files import read_arrays
from pate.extras import require
from pate.references import did_you_mean


def read_table(
    path: Path, inputs: Sequence[str], label: str | None, shape: tuple[int, ...], *, labels: bool = True
) -> tuple[NDArray[Any], NDArray[Any]]:
    """x [record, *shape] and, where there is a ``label`` and ``labels`` are wanted, y int64[record]; else y is empty.

    inputs: columns of a table; arrays (.npz, .npy) have x and y instead.
    """
    x, y = _arrays(path, label, labels) if path.suffix.lower() in (".npz", ".npy") else _columns(path, inputs, label, labels)
    if not len(x):
        raise DataError(f"{path}: it must hold at least one record, got none.")
    if x.dtype.kind not in "biuf" or (x.dtype.kind == "f" and not np.isfinite(x).all()):
        raise DataError(f"{path}: inputs must be finite numbers. Impute and encode by declared constants first.")
    if math.prod(x.shape[1:]) != math.prod(shape):
        raise DataError(f"{path}: a record must have the shape {shape} of the private ones, got {x.shape[1:]}.")
    if label is not None and labels and (len(y) != len(x) or y.dtype.kind not in "biuf" or (y != np.rint(y)).any()):
        raise DataError(f"{path}: every record needs a whole class number as its label.")
    return x.reshape(len(x), *shape), y.astype(np.int64)


def _arrays(path: Path, label: str | None, labels: bool) -> tuple[NDArray[Any], NDArray[Any]]:
    found = read_arrays(path, alone="x", error=DataError)
    wanted = ("x",) if label is None else ("x", "y")
    missing = [name for name in wanted if name not in found]
    if missing:
        raise DataError(f"{path}: it must hold the arrays {' and '.join(wanted)}, found {', '.join(found) or 'none'}.")
    return found["x"], found["y"] if label is not None and labels else np.zeros(0, dtype=np.int64)


def _columns(path: Path, inputs: Sequence[str], label: str | None, labels: bool) -> tuple[NDArray[Any], NDArray[Any]]:
    arrow = require("pyarrow", "storage")
    try:
        if path.suffix.lower() == ".csv":
            table = require("pyarrow.csv", "storage").read_csv(path)
        else:
            table = require("pyarrow.parquet", "storage").read_table(path)
        names = table.column_names
    except (arrow.ArrowException, OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: it cannot be read as {path.suffix} ({type(error).__name__}). Is it whole?") from error
    for name in (*inputs, *(() if label is None else (label,))):
        if name not in names:
            raise DataError(f"{path}: there is no column {name!r}{did_you_mean(name, names)} Found: {', '.join(names)}.")
    x = _stacked(path, table, inputs)
    if path.suffix.lower() == ".csv":
        x = x.astype(np.float64)  # as the private ones: else the type would hang on the values
    y = table.column(label).to_numpy() if label is not None and labels else np.zeros(0, dtype=np.int64)
    return x, y


def _stacked(path: Path, table: Any, inputs: Sequence[str]) -> NDArray[Any]:
    columns = []
    for name in inputs:
        column = table.column(name)
        if column.null_count:
            raise DataError(f"{path}: column {name!r} has {column.null_count} empty cells. Fill them by a declared constant.")
        values = column.to_numpy()
        if values.dtype == object and len(inputs) == 1:  # lists of numbers
            if len({len(each) for each in values}) > 1:
                raise DataError(f"{path}: the lists of column {name!r} must be equally long.")
            values = np.stack([np.asarray(each) for each in values])
        elif values.dtype.kind not in "biuf":
            raise DataError(f"{path}: column {name!r} must hold numbers, got {column.type}. Encode it by a public list first.")
        columns.append(values)
    return columns[0] if columns[0].ndim > 1 else np.column_stack(columns)
