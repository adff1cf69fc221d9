"""One private record never decides how another one is read: it is an error, or it changes that record alone."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pate.errors import ParameterError, PartitionError
from pate.teachers.storage.shards import Columns, Shard, read_shard
from pate.teachers.storage.tables import class_numbers

arrow = pytest.importorskip("pyarrow")
pytest.importorskip("fsspec")
parquet = pytest.importorskip("pyarrow.parquet")

CELLS = (
    *("7", "-0", "0", "1", "1.5", "1e3", "1e400", "inf", "nan", "NA", "", "high", "true", "False", "2024-01-01", "12:30"),
    *("0x1F", "9007199254740993", "99999999999999999999", "1,5", '"1,5"', '"', "1_0", " 7 ", "é"),
)
COLUMN_OF = {"id": 0, "a": 1, "b": 2, "label": 3}
WHOLE = [["007", "4", "5", "0"], ["x7", "-0", "1", "1"], ["7", "1", "0", "sick"]]
MIXED = [["1", "0.5", "true", "1"], ["2", "-0", "false", "0"], ["3", "1", "true", "well"]]
WARD = Columns(classes=("well", "sick"))


def read_rows(path: Path, rows: list[list[str]], columns: Columns = WARD) -> Shard:
    path.write_text("\n".join(["id,a,b,label", *(",".join(row) for row in rows)]) + "\n", encoding="utf-8")
    return read_shard(str(path), columns)


def facts(shard: Shard, row: int) -> tuple[Any, ...]:
    """All of how a record is read, to the last bit."""
    data = shard.data
    return shard.layout, data.x[row].tobytes(), int(data.y[row]), data.record_ids[row]


@pytest.mark.parametrize("rows", [WHOLE, MIXED], ids=["whole", "mixed"])
@pytest.mark.parametrize("column", sorted(COLUMN_OF))
def test_one_cell_of_a_csv_changes_its_own_record_or_is_an_error(tmp_path: Path, rows: list[list[str]], column: str) -> None:
    before = read_rows(tmp_path / "s.csv", rows)
    refused: list[str] = []
    for row in range(3):
        others = [each for each in range(3) if each != row]
        for cell in CELLS:
            changed = [list(each) for each in rows]
            changed[row][COLUMN_OF[column]] = cell
            try:
                after = read_rows(tmp_path / "s.csv", changed)
            except PartitionError as error:
                refused.append(str(error))
                continue
            assert [facts(after, each) for each in others] == [facts(before, each) for each in others], cell
    assert 0 < len(refused) < 3 * len(CELLS)
    assert not any(cell in error for error in refused for cell in ("high", "2024-01-01", "12:30")), "no private value is quoted"


@pytest.mark.parametrize(("cell", "fits"), [("1.5", True), ("high", False), ("", False)])
def test_a_cell_far_down_in_a_large_csv(tmp_path: Path, cell: str, fits: bool) -> None:
    """Files are read in blocks of a megabyte, and the first ones know nothing of the last cell."""
    rows = [[f"somebody-{number}", str(number % 9), "-0", "1"] for number in range(80_000)]
    before = read_rows(tmp_path / "s.csv", rows)
    assert (tmp_path / "s.csv").stat().st_size > 3 << 19
    rows[-1][1] = cell
    if not fits:
        with pytest.raises(PartitionError, match=r"input 'a' must .*; 1 of 80000 cells are"):
            read_rows(tmp_path / "s.csv", rows)
        return
    after = read_rows(tmp_path / "s.csv", rows)
    assert after.layout == before.layout
    assert after.data.x[:-1].tobytes() == before.data.x[:-1].tobytes()


VALUES: tuple[object, ...] = (7, 1.5, -0.0, True, None, "high", "3", Decimal("1.5"), b"x", float("nan"), 2**60, [1.0])


@pytest.mark.parametrize("value", VALUES, ids=str)
@pytest.mark.parametrize(
    ("column", "rest"), [("a", [1, 2]), ("a", [0.5, 2.0]), ("a", [True, False]), ("label", [1, 2]), ("label", [True, False])]
)
def test_one_cell_of_a_parquet_file_does_neither(tmp_path: Path, column: str, rest: list[Any], value: object) -> None:
    """The file is written with the type that fits all its cells, as pandas does; text where no other fits."""

    def read(cell: object) -> Shard:
        cells = [*rest, cell]
        try:
            found = arrow.array(cells)
        except (arrow.ArrowInvalid, arrow.ArrowTypeError):
            found = arrow.array([None if each is None else str(each) for each in cells])
        table = {"id": [1, 2, 3], "b": [1, 2, 3], "a": [0, 1, 2], "label": [0, 1, 1]} | {column: found}
        parquet.write_table(arrow.table(table), tmp_path / "s.parquet")
        return read_shard(str(tmp_path / "s.parquet"), Columns())

    before = read(rest[0])
    try:
        after = read(value)
    except PartitionError:
        return
    assert [facts(after, each) for each in (0, 1)] == [facts(before, each) for each in (0, 1)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("id,a,b,label\n41,1,high41,0\n2,1,2,0\n", r"input 'b' must be a number in every record; 1 of 2 cells are none"),
        ("id,a,b,label\n1,1,,0\n2,1,2,0\n", r"input 'b' must be there in every record; 1 of 2 cells are empty"),
        ("id,a,label\n1,1,0\n", r"no column 'b', which is an input"),
        ("id,a,b,label\n1,1,2,0\n2,1,2,u41\n", r"label 'label' must hold whole class numbers; 1 of 2 are neither"),
        ("id,a,b,label\n41,1\n2,1,2,0\n3,1,2,0,4141\n", r"the 4 cells of the header; 2 have more or fewer"),
        ("41,1,2,0\n4141,1,2,0\n", r"no column 'id'\. The first line must name the columns"),
        ("id,a,b,a,label\n1,1,2,3,0\n", r"every column must have a name of its own; a stands there more than once"),
        ("", r"its first line, and no more, must name the columns"),
        ('"id\na",a,b,label\n1,1,2,0\n', r"its first line, and no more, must name the columns"),
        (
            'id,a,b,label,note\n1,1,2,0,"41\n2,1,2,0,\n3,1,2,0,x\n',
            r"there are 3 lines with 1 records\. A quotation mark is not closed",
        ),
        ('id,a,b,label,note\n1,1,2,0,"41\n\n2,1,2,0,"\n3,1,2,0,x\n', r"there are 3 lines with 2 records"),
        ('id,x,a,b,label\n1,0,"41,1,2\n2,1,x",3,4\n3,1,2,3,1\n', r"there are 3 lines with 2 records"),
        ("id,ann,sick,true\n1,2,3,4\n", r"no column 'label'\. The first line must name the columns"),
        ("id,a,b,label\n", r"a file without rows"),
    ],
)
def test_what_is_wrong_with_a_csv_is_told_without_a_value(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "s.csv").write_text(text)
    with pytest.raises(PartitionError, match=message) as caught:
        read_shard(str(tmp_path / "s.csv"), Columns(features=("a", "b")))
    assert "41" not in str(caught.value).replace(str(tmp_path), "")


def test_errors_name_the_settings_of_recipes_and_of_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "s.csv").write_text("nr,a,label\n1,2,0\n")
    with pytest.raises(PartitionError, match=r"data\.id, .* in a recipe; --id, .* on the command line; Columns\(id=…"):
        read_shard(str(tmp_path / "s.csv"), Columns())
    (tmp_path / "s.csv").write_text("id,a,note,label\n1,2,calm,0\n")
    with pytest.raises(PartitionError, match=r"'note' .* data\.inputs in a recipe, --inputs on the command line"):
        read_shard(str(tmp_path / "s.csv"), Columns())
    assert read_shard(str(tmp_path / "s.csv"), Columns(features=("a",))).features == ("a",)


@pytest.mark.parametrize("name", ["", "Unnamed: 0", "__index_level_0__"])
def test_the_number_of_a_row_is_no_input(tmp_path: Path, name: str) -> None:
    """pandas writes it; one record added above would change the inputs of all below."""
    rows = {name: [0, 1], "id": ["x", "y"], "a": [1.0, 2.0], "label": [0, 1]}
    parquet.write_table(arrow.table(rows), tmp_path / "s.parquet")
    (tmp_path / "s.csv").write_text(
        "\n".join(",".join(map(str, row)) for row in [tuple(rows), *zip(*rows.values(), strict=True)])
    )
    for file in ("s.csv", "s.parquet"):
        with pytest.raises(PartitionError, match="looks like the number of the row"):
            read_shard(str(tmp_path / file), Columns())
        assert read_shard(str(tmp_path / file), Columns(features=("a",))).data.x.tolist() == [[1.0], [2.0]]


def test_empty_lines_and_any_ends_of_lines_are_no_records(tmp_path: Path) -> None:
    (tmp_path / "s.csv").write_bytes(b'\xef\xbb\xbfid,a,label\r\n1,2,0\r\n\r\n"2","3",1\n\n3,4,0')
    assert read_shard(str(tmp_path / "s.csv"), Columns()).data.x.tolist() == [[2.0], [3.0], [4.0]]


def test_decimals_are_numbers(tmp_path: Path) -> None:
    table = arrow.table({"id": ["x", "y"], "w": arrow.array([Decimal("1.50"), Decimal("2.25")]), "label": [0, 1]})
    parquet.write_table(table, tmp_path / "s.parquet")
    assert read_shard(str(tmp_path / "s.parquet"), Columns()).data.x.tolist() == [[1.5], [2.25]]


@pytest.mark.parametrize("column", ["id", "label", "a"])
def test_cells_that_python_cannot_hold_are_not_quoted(tmp_path: Path, column: str) -> None:
    moments = arrow.array([1_600_000_000_123_456_789, 41], arrow.timestamp("ns"))
    broken = arrow.Array.from_buffers(arrow.string(), 2, arrow.array(["41", "aa"]).buffers())
    broken = arrow.Array.from_buffers(arrow.string(), 2, [None, broken.buffers()[1], arrow.py_buffer(b"4\xff\xfe1")])
    for cells in (moments, broken):
        parquet.write_table(
            arrow.table({"id": ["x", "y"], "a": [1, 2], "label": [0, 1]} | {column: cells}), tmp_path / "s.parquet"
        )
        with pytest.raises(PartitionError) as caught:
            read_shard(str(tmp_path / "s.parquet"), Columns())
        assert "41" not in str(caught.value).replace(str(tmp_path), "")
        assert "1600000000" not in str(caught.value)


def test_a_path_is_no_chain_of_urls(tmp_path: Path) -> None:
    (tmp_path / "a::b.csv").write_text("id,a,label\n1,2,0\n")
    assert len(read_shard(str(tmp_path / "a::b.csv"), Columns()).data) == 1


def test_inputs_are_no_names_of_arrays(tmp_path: Path) -> None:
    np.savez(tmp_path / "s.npz", x=np.zeros((2, 1)), y=[0, 1], ids=[1, 2])
    with pytest.raises(PartitionError, match="inputs name columns of tables"):
        read_shard(str(tmp_path / "s.npz"), Columns(features=("a",)))


@pytest.mark.parametrize("dtype", [object, str])
def test_labels_in_words(dtype: Any) -> None:
    words = np.array(["sick", "well", "1", "0.0", " sick "], dtype=dtype).tolist()
    assert class_numbers(words, ["well", "sick"], "y").tolist() == [1, 0, 1, 0, 1]
    assert class_numbers(["true", "FALSE", True], [], "y").tolist() == [1, 0, 1]
    assert class_numbers(["true", "False", True], ["true", "false"], "y").tolist() == [0, 1, 0], "by name, where there is one"
    assert class_numbers([3, "8", 0, 1.0], ["3", "8"], "y").tolist() == [0, 1, 0, 1]


@pytest.mark.parametrize("label", ["Sick", "", None, 0.5, float("nan"), "nan", float("inf"), b"sick", [1], 1e300, "0_1", "١"])
def test_a_label_that_is_none_is_counted_and_not_quoted(label: object) -> None:
    with pytest.raises(
        PartitionError, match=r"whole class numbers, or names of data\.classes \(well, sick\); 1 of 2 are"
    ) as caught:
        class_numbers(["well", label], ["well", "sick"], "y")
    assert "Sick" not in str(caught.value)


def test_a_class_must_not_have_the_number_of_another_as_its_name() -> None:
    with pytest.raises(ParameterError, match="'1' is the name of class 0, but a label 1 would mean class 1"):
        Columns(classes=("1", "0"))
    assert Columns(classes=("0", "1")).classes == ("0", "1")


def test_labels_in_words_in_arrays(tmp_path: Path) -> None:
    np.savez(tmp_path / "s.npz", x=np.zeros((2, 1)), y=np.array(["sick", "well"]), ids=[1, 2])
    assert read_shard(str(tmp_path / "s.npz"), WARD).data.y.tolist() == [1, 0]
    with pytest.raises(PartitionError, match="whole class numbers; 2 of 2 are neither"):
        read_shard(str(tmp_path / "s.npz"), Columns())
