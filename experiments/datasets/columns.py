"""Columns of a table as numbers, by declared constants only: lists of categories and ranges from the data's documentation."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pate.arrays import FloatArray
from pate.errors import DataError
from pate.features.base import Float32Array

Columns = Mapping[str, Sequence[str]]
"""The text of each column by its name, str[record]."""


@dataclass(frozen=True)
class Table:
    """Text in columns, read from ``source``. Each method makes one column, or several, of numbers: float32[record, column]."""

    source: str
    columns: Columns

    def number(self, name: str, centre: float = 0.0, scale: float = 1.0) -> Float32Array:
        """(value - centre) / scale."""
        return _column((self._floats(name) - centre) / scale)

    def log(self, name: str, greatest: float) -> Float32Array:
        """log(1 + value) / log(1 + greatest), for amounts and counts from 0 to about ``greatest``; clipped to 0..1."""
        return _column(np.log1p(np.clip(self._floats(name), 0.0, greatest)) / np.log1p(greatest))

    def at_least(self, name: str, least: float) -> Float32Array:
        """1 where the value is ``least`` or more."""
        return _column(self._floats(name) >= least)

    def among(self, name: str, values: Collection[str]) -> Float32Array:
        """1 where the column names one of ``values``."""
        wanted = frozenset(values)
        return _column(np.array([each in wanted for each in self.columns[name]]))

    def one_hot(self, name: str, categories: Sequence[str], missing: str = "?") -> Float32Array:
        """A column for each category; ``missing`` is none of them; anything else is an error."""
        place = {category: index for index, category in enumerate(categories)} | {missing: len(categories)}
        try:
            found = [place[each] for each in self.columns[name]]
        except KeyError as error:
            row = next(row for row, each in enumerate(self.columns[name]) if each not in place)
            raise DataError(
                f"{self.source}, record {row}: {name} must be one of {', '.join(categories)}, found {error.args[0]!r}."
            ) from None
        return np.eye(len(categories) + 1, len(categories), dtype=np.float32)[found]

    def grouped(self, name: str, groups: Mapping[str, Collection[str]], other: str = "other") -> Float32Array:
        """A column for each group of categories, and a last one for what is in no group."""
        group_of = {each: group for group, members in groups.items() for each in members}
        names = [group_of.get(each, other) for each in self.columns[name]]
        return Table(self.source, {name: names}).one_hot(name, [*groups, other])

    def _floats(self, name: str) -> FloatArray:
        try:
            return np.array([float(each) for each in self.columns[name]])
        except ValueError as error:
            raise DataError(f"{self.source}: {name} must be a number in every record: {error}.") from None


def _column(values: NDArray[Any]) -> Float32Array:
    column: Float32Array = values.astype(np.float32)[:, None]
    return column


def as_table(source: str, names: Sequence[str], rows: Sequence[Sequence[str]], expected: int) -> Table:
    """Rows of text as columns, if there are as many rows, and fields in each, as there should be."""
    wrong = next((place for place, row in enumerate(rows) if len(row) != len(names)), None)
    if wrong is not None:
        raise DataError(
            f"{source}, record {wrong}: expected {len(names)} fields, found {len(rows[wrong])}. Fetch the original again."
        )
    if len(rows) != expected:
        raise DataError(f"{source} must hold {expected:,} records, found {len(rows):,}. Fetch the original again.")
    return Table(source, dict(zip(names, zip(*rows, strict=True), strict=True)))
