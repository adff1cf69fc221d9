"""A user's own data: three kinds of files give one split, and what is wrong is named without a private value."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from doc_pages import DOCS, blocks, check_options, run
from own_cases import OPTIONS, load_from

from pate.errors import DataError, ParameterError
from pate.experiments.datasets import Split, TestSet, load
from pate.experiments.datasets.registry import source_named
from pate.teachers import PrivateData

TABLES = {"private": "private.csv", "public": "public.csv", "test": "test.csv"}
ARRAYS = {"private": "private.npz", "public": "public.npy", "test": "test.npz"}


def write_csv(path: Path, names: str, rows: Sequence[Sequence[object]]) -> None:
    path.write_text("\n".join([names, *(",".join(map(str, row)) for row in rows)]) + "\n")


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    write_csv(tmp_path / "private.csv", "id,a,b,label", [("007", 1, 2.5, 0), ("7", 3, 4.5, 1), ("x", 5, 6.5, 1)])
    write_csv(tmp_path / "public.csv", "b,label,a", [(20, "?", 10), (40, "?", 30)])
    write_csv(tmp_path / "test.csv", "a,b,label", [(0.5, 0.25, 1)])
    return tmp_path


def test_tables(tables: Path) -> None:
    split = load_from(tables, TABLES)
    assert split.private.x.tolist() == [[2.5, 1], [4.5, 3], [6.5, 5]], "inputs as the public file has them"
    assert split.private.record_ids == (b"007", b"7", b"x"), "ids stay text"
    assert split.public_x.tolist() == [[20, 10], [40, 30]], "columns by name, a label in the public file is ignored"
    assert split.public_x.dtype == split.private.x.dtype == np.float64, "whatever the values look like"
    assert (split.name, split.class_names, split.private.unit) == ("ward", ("well", "sick"), "record")
    assert split.public_labels is None
    assert not split.test_is_public
    assert split.test is not None
    x, y = split.test.open()
    assert (x.tolist(), y.tolist()) == ([[0.25, 0.5]], [1])


def test_tables_without_test_and_with_users_and_shape(tables: Path) -> None:
    rows = [(place, place // 2, 1.0, 2.0, 0) for place in range(4)]
    write_csv(tables / "private.csv", "id,who,a,b,label", rows)
    split = load_from(tables, TABLES | {"test": None}, group_by="who", inputs=["b", "a"], shape=[1, 2])  # type: ignore[dict-item]
    assert split.test is None
    assert split.private.unit == "user"
    assert len(split.private.unit_ids) == 2
    assert split.private.x[0].tolist() == [[2, 1]]
    assert split.public_x.shape == (2, 1, 2)
    assert split.public_x[0].tolist() == [[20, 10]]


def test_test_labels_are_read_when_the_test_is_opened(tables: Path) -> None:
    split = load_from(tables, TABLES)
    write_csv(tables / "test.csv", "a,b,label", [(0.5, 0.25, 0)])
    assert split.test is not None
    assert split.test.open()[1].tolist() == [0]


def test_parquet_with_lists(tmp_path: Path) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(
        arrow.table({"id": [1, 2], "x": [[1.0, 2.0], [3.0, 4.0]], "label": [0, 1]}), tmp_path / "private.parquet"
    )
    parquet.write_table(arrow.table({"x": [[5.0, 6.0]]}), tmp_path / "public.parquet")
    files = {"private": "private.parquet", "public": "public.parquet"}
    assert load_from(tmp_path, files).public_x.tolist() == [[5, 6]]
    parquet.write_table(arrow.table({"x": [[5.0, 6.0], [7.0]]}), tmp_path / "public.parquet")
    with pytest.raises(DataError, match=r"public\.parquet: the lists of 'x' must be equally long"):
        load_from(tmp_path, files)


def test_arrays(tmp_path: Path) -> None:
    x = np.arange(12, dtype=np.float32).reshape(3, 2, 2)
    np.savez(tmp_path / "private.npz", x=x, y=[0, 1, 1], ids=["a", "b", "c"])
    np.save(tmp_path / "public.npy", x[:2] + 100)
    np.savez(tmp_path / "test.npz", x=x[:1], y=[1])
    with pytest.raises(DataError, match=r"public\.npy: data\.inputs names columns of tables"):
        load_from(tmp_path, ARRAYS, inputs=["a"])
    split = load_from(tmp_path, ARRAYS, test_is_public=True)
    assert split.public_x.shape == (2, 2, 2)
    assert split.test_is_public
    assert split.test is not None
    assert split.test.open()[1].tolist() == [1]
    np.savez(tmp_path / "test.npz", x=x[:1])
    with pytest.raises(DataError, match=r"test\.npz: it must hold the arrays x and y, found x"):
        load_from(tmp_path, ARRAYS)
    np.save(tmp_path / "public.npy", x[:, 0])
    with pytest.raises(DataError, match=r"private\.npz: a record must have the shape \(2,\) of the public ones, got \(2, 2\)"):
        load_from(tmp_path, ARRAYS)
    np.save(tmp_path / "public.npy", x.reshape(3, 4))
    np.savez(tmp_path / "test.npz", x=x[:1], y=["sick"])
    split = load_from(tmp_path, ARRAYS, shape=[4, 1])
    assert split.private.x.shape[1:] == split.public_x.shape[1:] == (4, 1)
    assert split.test is not None
    assert (split.test.open()[0].shape, split.test.open("again")[1].tolist()) == ((1, 4, 1), [1])
    with pytest.raises(DataError, match=r"public\.npy: a record of shape \(4,\) does not fill data.shape, \(5,\)"):
        load_from(tmp_path, ARRAYS, shape=[5])
    np.save(tmp_path / "public.npy", np.full((1, 2, 2), np.nan))
    with pytest.raises(DataError, match=r"public\.npy: inputs must be finite"):
        load_from(tmp_path, ARRAYS)


BAD_TABLES: dict[str, tuple[str, str, str]] = {
    "label outside": ("private.csv", "id,a,b,label\n1,1,1,0\n2,1,1,41", r"labels must lie in 0\.\.1 \(data\.classes\)"),
    "label not whole": ("private.csv", "id,a,b,label\n1,1,1,0.41", "must hold whole class numbers"),
    "label is no class": (
        *("private.csv", "id,a,b,label\n1,1,1,u41\n2,1,1,sick"),
        r"must hold whole class numbers, or names of data\.classes \(well, sick\); 1 of 2 are neither",
    ),
    "one cell is text": (
        "private.csv",
        "id,a,b,label\n1,1,1,0\n2,1,u41,1",
        r"input 'b' must be a number .*; 1 of 2 cells are none",
    ),
    "ragged": (
        "private.csv",
        "id,a,b,label\n1,1,1,0\n41,1",
        "every record must have the 4 cells of the header; 1 have more or",
    ),
    "private lacks a column": (
        "private.csv",
        "id,aa,b,label\n1,1,1,0",
        r"private\.csv: there is no column 'a', which is an input",
    ),
    "no label": ("private.csv", "id,a,b,lable\n1,1,1,0", r"no column 'label' \(did you mean 'lable'\?\)"),
    "no id": ("private.csv", "a,b,label\n1,1,0", "no column 'id'"),
    "twice": ("private.csv", "id,a,b,label\n41,1,1,0\n41,1,1,0", "1 of 2 repeat another record's id"),
    "empty cell": (
        "private.csv",
        "id,a,b,label\n1,1,,0\n2,1,41,0",
        "'b' must be there in every record; 1 of 2 cells are empty",
    ),
    "no rows": ("private.csv", "id,a,b,label\n", "at least one record"),
    "public has another column": (
        *("public.csv", "a,bb\n1,2"),
        r"private\.csv: there is no column 'bb', which is an input \(did you mean 'b'\?\) .* data\.inputs in a recipe",
    ),
    "public has no numbers": ("public.csv", "a,b\nx,high", r"public\.csv: there must be a column of numbers"),
    "public has an empty column": ("public.csv", "a,b\n1,\n2,", r"public\.csv: column 'b' is an input only if"),
    "public is empty": ("public.csv", "a,b\n", r"public\.csv: .*at least one record"),
    "public has holes": (
        "public.csv",
        "a,b\n1,\n1,2",
        r"public\.csv: input 'b' must be there in every record; 1 of 2 cells are empty",
    ),
    "public is part text": (
        *("public.csv", "a,b\n1,high\n2,3"),
        r"public\.csv: column 'b' is an input only if it holds a number in every record, kept as one; 1 of 2 cells",
    ),
    "public has columns of no known kind": (
        *("public.csv", "a,b,c\n1,2,\n2,3,"),
        r"public\.csv: column 'c' is an input only if it holds a number in every record, kept as one; 0 of 2",
    ),
    "public is no table": ("public.csv", "", r"public\.csv: it cannot be read as \.csv"),
    "test lacks labels": ("test.csv", "a,b\n1,2", r"test\.csv: there is no column 'label'"),
}


@pytest.mark.parametrize("case", BAD_TABLES, ids=str)
def test_a_wrong_table_is_named_and_no_private_value_is(tables: Path, case: str) -> None:
    name, text, message = BAD_TABLES[case]
    (tables / name).write_text(text)
    with pytest.raises(DataError, match=message) as caught:
        load_from(tables, TABLES)
    assert "41" not in str(caught.value).replace(str(tables), "")


def test_inputs_are_those_of_the_public_file(tables: Path) -> None:
    """Whatever the private one holds: the header is all that counts of it, and it must fit."""
    write_csv(tables / "public.csv", "b,note,ward,id,a", [(20, "-", "north", "p1", 10), (40, "-", "south", "p2", 30)])
    for number, note in enumerate((3, "calm", "")):
        rows = [("1", 1, 2, "west", 0, 5), ("2", 3, 4, "east", 1, note)]
        write_csv(tables / "private.csv", "id,a,b,ward,label,note", rows)
        split = load_from(tables, TABLES)
        assert split.private.x.tolist() == [[2, 1], [4, 3]], number
        assert split.public_x.tolist() == [[20, 10], [40, 30]]
    write_csv(tables / "public.csv", "b,ward,id,a", [(20, "north", "p1", 10)])
    with pytest.raises(DataError, match=r"public\.csv: .* there is no column note in it, as there is in .*private\.csv"):
        load_from(tables, TABLES)
    assert load_from(tables, TABLES, inputs=["a", "b"]).private.x.tolist() == [[1, 2], [3, 4]]


def test_one_private_record_never_decides_how_another_is_read(tables: Path) -> None:
    rows: list[tuple[object, ...]] = [("007", 1, 2, 0), ("7", 3, 4, 1), ("x", 5, 6, 1)]

    def read() -> tuple[Any, ...]:
        write_csv(tables / "private.csv", "id,a,b,label", rows)
        split = load_from(tables, TABLES)
        return split.public_x.tobytes(), split.private.x.dtype, split.private.x[:2].tobytes(), split.private.y[:2].tolist()

    before = read()
    for last in [("8", 0.5, -6, "sick"), ("8", "-0", "1e3", "1.0"), ("", 1, 1, 1), ("8", "high", 1, 1), ("8", 1, "", 1)]:
        rows[2] = last
        try:
            assert read() == before
        except DataError:
            assert last[0] == "" or "high" in last or "" in last


@pytest.mark.parametrize("public", ["<f4", ">f4", "f8"])
@pytest.mark.parametrize("private", ["f4", "f8", "i8", "u1", "?"])
def test_private_arrays_have_the_type_of_the_public_ones(tmp_path: Path, private: str, public: str) -> None:
    """That of the private file is the one that fits all its values: a value of one record can change it."""
    x = np.array([[1, 0], [0, 1], [1, 1]], dtype=private)
    np.savez(tmp_path / "private.npz", x=x, y=[0, 1, 1], ids=["a", "b", "c"])
    np.save(tmp_path / "public.npy", np.ones((2, 2), dtype=public))
    split = load_from(tmp_path, {"private": "private.npz", "public": "public.npy"})
    assert split.private.x.dtype == np.dtype(public).newbyteorder("=")
    assert split.private.x.tolist() == x.tolist()


@pytest.mark.parametrize(("private", "public", "fits"), [("u1", "i8", True), ("i8", "u1", False), ("f4", "u1", False)])
def test_private_arrays_must_fit_the_type_of_the_public_ones(tmp_path: Path, private: str, public: str, fits: bool) -> None:
    np.savez(tmp_path / "private.npz", x=np.ones((2, 2), dtype=private), y=[0, 1], ids=["a", "b"])
    np.save(tmp_path / "public.npy", np.ones((2, 2), dtype=public))
    files = {"private": "private.npz", "public": "public.npy"}
    if fits:
        assert load_from(tmp_path, files).private.x.dtype == np.dtype(public)
        return
    with pytest.raises(DataError, match=r"private\.npz: inputs must be of the public ones' type, uint8, or fit into it; got"):
        load_from(tmp_path, files)


def test_a_private_value_too_large_for_the_public_type(tmp_path: Path) -> None:
    np.savez(tmp_path / "private.npz", x=[[1.0], [1e300]], y=[0, 1], ids=["a", "b"])
    np.save(tmp_path / "public.npy", np.ones((2, 1), dtype=np.float32))
    with pytest.raises(DataError, match=r"private\.npz: .*finite"):
        load_from(tmp_path, {"private": "private.npz", "public": "public.npy"})


def test_labels_in_words(tables: Path) -> None:
    rows = [("1", 1, 2.5, "sick"), ("2", 3, 4.5, "well"), ("3", 5, 6.5, "1"), ("4", 5, 6.5, "0")]
    write_csv(tables / "private.csv", "id,a,b,label", rows)
    write_csv(tables / "test.csv", "a,b,label", [(0.5, 0.25, "sick"), (0.5, 0.25, 0)])
    split = load_from(tables, TABLES)
    assert split.private.y.tolist() == [1, 0, 1, 0]
    assert split.test is not None
    assert split.test.open()[1].tolist() == [1, 0]
    with pytest.raises(DataError, match="whole class numbers; 2 of 4 are neither"):
        load_from(tables, TABLES, classes=2)


@pytest.mark.parametrize("classes", [[0, 1], [False, True], [0.0, 1.0]])
def test_classes_that_are_numbers(tables: Path, classes: list[Any]) -> None:
    assert load_from(tables, TABLES, classes=classes).private.y.tolist() == [0, 1, 1]


def test_a_public_date_is_no_input_whatever_its_digits(tables: Path) -> None:
    write_csv(tables / "private.csv", "id,a,b,t,label", [(1, 1, 2.5, "2020-01-01 10:00:00.123456789", 0), (2, 3, 4.5, "x", 1)])
    write_csv(tables / "public.csv", "a,b,t", [(10, 20, "2020-01-01 10:00:00.123456789"), (1, 2, "0000-01-01")])
    assert load_from(tables, TABLES).private.x.tolist() == [[1, 2.5], [3, 4.5]]


def test_test_labels_that_are_no_class_are_refused_when_opened(tables: Path) -> None:
    (tables / "test.csv").write_text("a,b,label\n1,2,ill")
    split = load_from(tables, TABLES)
    assert split.test is not None
    with pytest.raises(DataError, match="whole class number"):
        split.test.open()


def test_parts_must_exist_be_apart_and_of_one_kind(tables: Path) -> None:
    (tables / "folder").mkdir()
    (tables / "notes.txt").write_text("")
    (tables / "link.csv").symlink_to("private.csv")
    with pytest.raises(DataError, match=r"nowhere\.csv: there is no such file"):
        load_from(tables, TABLES | {"public": "nowhere.csv"})
    for other in ("private.csv", "folder/../private.csv", "link.csv"):
        with pytest.raises(DataError, match="must be apart"):
            load_from(tables, TABLES | {"public": other})
        with pytest.raises(DataError, match="must be apart"):
            load_from(tables, TABLES | {"test": other})
    with pytest.raises(DataError, match="of one kind, got pictures and tables"):
        load_from(tables, TABLES | {"public": "folder"})
    with pytest.raises(DataError, match=r"notes\.txt: data must be \.csv"):
        load_from(tables, TABLES | {"public": "notes.txt"})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"classes": 1}, "data.classes must be"),
        ({"classes": "ab"}, "data.classes must be"),
        ({"classes": ["a", "a"]}, "data.classes must be"),
        ({"classes": ["1", "0"]}, "'1' is the name of class 0"),
        ({"inputs": "a"}, "data.inputs must be a list of columns, got 'a'"),
        ({"shape": 4}, "data.shape must be"),
        ({"size": [28]}, r"data.size must be \[height, width\]"),
        ({"size": [28, 0]}, "data.size must be whole numbers"),
        ({"private": 3}, "data.private must be a path, got 3"),
        ({"lable": "y"}, r"unknown parameter 'lable' \(did you mean 'label'\?\)"),
    ],
)
def test_options_are_checked_before_anything_is_read(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        source_named("files", OPTIONS | TABLES | changes)


def test_own_records_are_private_unless_they_are_said_to_be_public(tables: Path) -> None:
    assert not source_named("files", OPTIONS | TABLES).benchmark
    assert source_named("files", OPTIONS | TABLES | {"is_benchmark": True}).benchmark
    assert source_named("digits", {}).benchmark
    assert load_from(tables, TABLES, is_benchmark=True).test_is_public


# Python objects ------------------------------------------------------------------------------------------------------------


def own_split(count: int = 2) -> Split:
    private = PrivateData(np.zeros((count, 1)), [0] * count, ids=np.arange(count), name="mine")
    return Split("mine", "made up", private, np.ones((1, 1)), TestSet(lambda: (np.ones((1, 1)), np.array([0]))), ("a", "b"))


def no_split() -> int:
    return 3


def test_a_function_is_a_source() -> None:
    assert len(load(f"{__name__}:own_split", count=3).private) == 3
    assert not source_named(f"{__name__}:own_split", {}).benchmark
    with pytest.raises(ParameterError, match=r"unexpected keyword argument 'cuont'. It takes count"):
        source_named(f"{__name__}:own_split", {"cuont": 3})
    with pytest.raises(DataError, match=r"no_split must give a .*Split, got int"):
        load(f"{__name__}:no_split")


# The page ------------------------------------------------------------------------------------------------------------------


def test_the_page_about_data_is_true(tmp_path: Path) -> None:
    page = DOCS / "data.md"
    check_options(page)
    (tmp_path / "my_data.py").write_text(next(block for block in blocks(page, "python") if block.startswith("# my_data.py")))
    (tmp_path / "program.py").write_text("\n".join(blocks(page, "python")))
    done = run(tmp_path, "-W", "error", "program.py")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "".join(blocks(page, "text"))
