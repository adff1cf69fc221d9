"""Tables (.csv, .parquet): which columns are inputs, read off the header and never off values, and the columns as numbers.

In a private table one cell must not decide how another record is read. So a column that is an input must be numbers in every
record, or it is an error; numbers are float64, whatever type the file's writer or reader found fit for them all; and each
label is read by itself. Errors name columns and count cells: they quote no value and no row.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from pate.errors import ParameterError, PartitionError
from pate.extras import require
from pate.references import did_you_mean

_BOOLEANS = {"true": 1, "false": 0}
_MOST = float(2**53)  # beyond it a float is no longer one whole number
_ROW_NUMBER = re.compile(r"\s*|Unnamed: \d+|__index_level_\d+__")
"""Columns that writers of tables add by themselves: a row's number, which hangs on the records before it."""


def how_to_name(key: str) -> str:
    """Where a column is named, in a recipe, on the command line and in Python; ``key`` is the recipe's."""
    python = "features" if key == "inputs" else key
    return f"data.{key} in a recipe, --{key.replace('_', '-')} on the command line, Columns({python}=…) in Python"


# Reading -------------------------------------------------------------------------------------------------------------------


def read_parquet(
    file: BinaryIO, wanted: Sequence[str], inputs: Sequence[str] | None, named: Sequence[str]
) -> tuple[Any, list[str]]:
    """The table's columns that are needed, and which of them are inputs, as :func:`read_csv` gives them."""
    parquet, arrow = require("pyarrow.parquet", "storage"), require("pyarrow", "storage")
    try:
        source = parquet.ParquetFile(file)
        header = source.schema_arrow.names
        chosen = input_names(header, wanted, inputs, named)
        return source.read(columns=[*wanted, *chosen], use_threads=False), chosen
    except (arrow.ArrowException, OSError) as error:
        raise PartitionError(f"it cannot be read as .parquet ({type(error).__name__}). Is it whole?") from error


def read_csv(
    file: BinaryIO, wanted: Sequence[str], inputs: Sequence[str] | None, named: Sequence[str]
) -> tuple[Any, list[str]]:
    """The table's columns that are needed, and which of them are inputs.

    wanted: columns besides the inputs; they stay text (else 007 would be 7). inputs: None for all but ``named``.
    """
    arrow, reader = require("pyarrow", "storage"), require("pyarrow.csv", "storage")
    content = file.read()
    end = content.find(b"\n") + 1 or len(content)
    header = _header(content[:end])
    chosen = input_names(header, wanted, inputs, named)
    if not content[end:].strip():
        return arrow.table({name: arrow.array([]) for name in (*wanted, *chosen)}), chosen
    uneven = 0

    def count(row: Any) -> str:
        nonlocal uneven
        uneven += 1
        return "skip"

    try:
        table = reader.read_csv(
            arrow.BufferReader(arrow.py_buffer(content).slice(end)),
            read_options=reader.ReadOptions(use_threads=False, column_names=header),
            parse_options=reader.ParseOptions(invalid_row_handler=count),
            convert_options=reader.ConvertOptions(
                column_types=dict.fromkeys(wanted, arrow.string()), include_columns=[*wanted, *chosen]
            ),
        )
    except arrow.ArrowException:  # its text quotes the row
        raise PartitionError(
            "it cannot be read as .csv: after the header, every line must be a record, in UTF-8, its cells divided by commas."
        ) from None
    lines = _count_lines(content, end)
    records = table.num_rows + uneven
    if lines != records:
        raise PartitionError(
            f"it cannot be read as .csv: every line must be a record, and there are {lines} lines with {records} records. A "
            "quotation mark is not closed, or a text has a line break in it."
        )
    if uneven:
        raise PartitionError(
            f"it cannot be read as .csv: every record must have the {len(header)} cells of the header; {uneven} have more or "
            "fewer. A text with a comma in it needs quotation marks."
        )
    return table, chosen


def _count_lines(content: bytes, begin: int) -> int:
    """How many are not empty."""
    codes = np.frombuffer(content, dtype=np.uint8)[begin:]
    ends = (codes == ord("\n")) | (codes == ord("\r"))
    return int(np.count_nonzero(~ends[1:] & ends[:-1])) + int(len(ends) > 0 and not ends[0])


def read_header(file: BinaryIO, suffix: str) -> list[str]:
    """The names of a table's columns; no record is looked at."""
    if suffix.lower() == ".csv":
        return _header(file.readline())
    return list(require("pyarrow.parquet", "storage").read_schema(file).names)


def _header(line: bytes) -> list[str]:
    try:
        names = next(csv.reader([line.decode("utf-8-sig").rstrip("\r\n")], strict=True), [])
    except (UnicodeDecodeError, csv.Error):
        names = []
    if not any(names) or "\0" in "".join(names):
        raise PartitionError("it cannot be read as .csv: its first line, and no more, must name the columns, in UTF-8.")
    return names


def input_names(header: Sequence[str], wanted: Sequence[str], inputs: Sequence[str] | None, named: Sequence[str]) -> list[str]:
    """The columns that are inputs: ``inputs``, else all of the header but ``named``. They and ``wanted`` must be there.

    Nothing but the header is looked at: the types of private values would let one cell take an input from every teacher.
    """
    for name in (*wanted, *(inputs or ())):
        if name not in header:
            # Then the first record may stand in the header's place.
            headless = any(_is_number(each) or each.strip().lower() in ("", *_BOOLEANS) for each in header)
            found = (
                ". The first line must name the columns."
                if headless
                else f"{did_you_mean(name, header)} Found: {', '.join(header)}."
            )
            if name in wanted:
                raise PartitionError(
                    f"there is no column {name!r}{found} Name the columns: data.id, data.label and data.group_by in a recipe; "
                    "--id, --label and --group-by on the command line; Columns(id=…, label=…, group_by=…) in Python."
                )
            raise PartitionError(
                f"there is no column {name!r}, which is an input{found} Add it, or name the inputs: {how_to_name('inputs')}."
            )
    chosen = [name for name in header if name not in named] if inputs is None else list(inputs)
    wrong = [name for name in chosen if name in named]
    if wrong:
        raise PartitionError(f"inputs must be columns of numbers, not id, label or group; got {', '.join(wrong)}.")
    twice = [name for name, uses in Counter(header).items() if uses > 1 and name in {*wanted, *chosen}]
    twice += [name for name, uses in Counter(chosen).items() if uses > 1 and name not in twice]
    if twice:
        raise PartitionError(f"every column must have a name of its own; {', '.join(twice)} stands there more than once.")
    numbered = [] if inputs is not None else [name for name in chosen if _ROW_NUMBER.fullmatch(name)]
    if numbered:
        raise PartitionError(
            f"column {numbered[0]!r} looks like the number of the row, which changes where another record is added. Leave it "
            f"out (pandas: index=False; a header that ends in a comma has it too), or name the inputs: {how_to_name('inputs')}."
        )
    if not chosen:
        raise PartitionError(f"there are no inputs: no other columns among {', '.join(header)}. A record needs one at least.")
    return chosen


# Inputs --------------------------------------------------------------------------------------------------------------------


def is_numeric(kind: Any) -> bool:
    """Whether an Arrow type is of numbers."""
    types = require("pyarrow.types", "storage")
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind) or types.is_decimal(kind))


def is_no_input(kind: Any) -> bool:
    """Whether an Arrow type is one that nobody takes for numbers: text, dates and times."""
    types = require("pyarrow.types", "storage")
    return bool(_is_text(kind) or types.is_temporal(kind))


def _is_text(kind: Any) -> bool:
    types = require("pyarrow.types", "storage")
    kind = kind.value_type if types.is_dictionary(kind) else kind
    return bool(types.is_string(kind) or types.is_large_string(kind))


def is_list(kind: Any) -> bool:
    """Whether an Arrow type is of lists of numbers."""
    types = require("pyarrow.types", "storage")
    lists = types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
    return bool(lists and is_numeric(kind.value_type) and not types.is_decimal(kind.value_type))


def numbers_in(column: Any) -> int:
    """How many cells of a column are numbers, though they may be kept as text."""
    if is_numeric(column.type):
        return len(column) - int(column.null_count)
    if not _is_text(column.type):
        return 0
    return sum(_is_number(cell) for cell in cells_of(column) if isinstance(cell, str))


def cells_of(column: Any) -> list[Any]:
    """As Python's own; an error, without its value, where one has no like."""
    try:
        found: list[Any] = column.to_pylist()
        return found
    except (ValueError, OverflowError, require("pyarrow", "storage").ArrowException):
        raise PartitionError(
            f"a column of {column.type} holds cells that are no text and no whole number in Python. Write it as one of them."
        ) from None


def input_array(table: Any, inputs: Sequence[str]) -> NDArray[Any]:
    """float64[record, input]; of one column of lists, number[record, place] as stored."""
    columns = {name: table.column(name) for name in inputs}
    for name, column in columns.items():
        if column.null_count:
            raise PartitionError(
                f"input {name!r} must be there in every record; {column.null_count} of {len(column)} cells are empty. Fill "
                "them by a declared constant first."
            )
        if not (is_numeric(column.type) or is_list(column.type)):
            wrong = len(column) - numbers_in(column)
            told = f"{wrong} of {len(column)} cells are none" if wrong else "all are, but kept as text"
            raise PartitionError(
                f"input {name!r} must be a number in every record; {told} (the column is read as {column.type}). "
                f"Mend them, encode the column by a public list, or name the inputs without it: {how_to_name('inputs')}."
            )
    lists = [name for name, column in columns.items() if is_list(column.type)]
    if lists and len(columns) > 1:
        raise PartitionError(
            f"a column of lists must be the only input, got {', '.join(columns)}. Name it alone: {how_to_name('inputs')}."
        )
    if lists:
        return _list_array(columns[lists[0]], lists[0])
    plain = [np.asarray(column.to_numpy(), dtype=np.float64) for column in columns.values()]
    return np.column_stack(plain) + 0.0  # -0 is 0 as a whole number, and -0.0 as none


def _list_array(column: Any, name: str) -> NDArray[Any]:
    """Nulls are refused: filling them here would decide on private data's behalf."""
    first = column.combine_chunks()
    values = first.flatten()
    lengths = require("pyarrow.compute", "storage").list_value_length(first).to_numpy()
    if values.null_count or (lengths != lengths[0]).any():
        raise PartitionError(f"the lists of {name!r} must be equally long and without nulls.")
    return np.asarray(values.to_numpy(zero_copy_only=False)).reshape(len(first), -1)


def _is_number(text: str) -> bool:
    """As a table has it: Python itself takes more, such as 1_0 and figures of other scripts."""
    try:
        return text.isascii() and "_" not in text and bool(np.isfinite(float(text)))
    except ValueError:
        return False


# Labels --------------------------------------------------------------------------------------------------------------------


def check_class_names(names: Sequence[str]) -> None:
    """Raise if a label could mean two classes: a name that is another class's number."""
    for place, name in enumerate(names):
        if name.isascii() and name.isdigit() and int(name) < len(names) and int(name) != place:
            raise ParameterError(
                f"classes: {name!r} is the name of class {place}, but a label {name} would mean class {int(name)}. Name the "
                "classes in the order of their numbers, or by words."
            )


def class_numbers(labels: Iterable[object], classes: Sequence[str], subject: str) -> NDArray[Any]:
    """The class of each label, int64[record]: a class number, in figures or as such, or one of the declared names.

    Each label by itself: what others look like does not matter. labels: numbers or text, [record], no NumPy scalars.
    """
    words = _boolean_words(classes) | {name: number for number, name in enumerate(classes)}
    items = [item if isinstance(item, bool | int | float | str) else None for item in labels]
    known = {item: _class_number(item, words) for item in set(items)}
    numbers = [known[item] for item in items]
    unknown = sum(number is None for number in numbers)
    if unknown:
        names = f", or names of data.classes ({', '.join(classes)})" if classes else ""
        raise PartitionError(
            f"{subject} must hold whole class numbers{names}; {unknown} of {len(items)} are neither. Number the classes by a "
            "public list, or declare their names: data.classes in a recipe, Columns(classes=…) in Python."
        )
    return np.array(numbers, dtype=np.int64)


def _class_number(item: bool | int | float | str | None, words: Mapping[str, int]) -> int | None:
    if isinstance(item, bool):
        item = str(item)
    if isinstance(item, str):
        text = item.strip()
        if text in words:
            return words[text]
        if not _is_number(text):
            return None
        item = float(text)
    if item is None or not abs(item) < _MOST or item != round(item):
        return None
    return words.get(str(int(item)), int(item))


def _boolean_words(classes: Iterable[str]) -> dict[str, int]:
    """What true and false mean: 1 and 0, unless classes are named so."""
    named = {name.casefold(): number for number, name in enumerate(classes) if name.casefold() in _BOOLEANS}
    return {
        spelling: number
        for word, number in (named or _BOOLEANS).items()
        for spelling in (word, word.capitalize(), word.upper())
    }
