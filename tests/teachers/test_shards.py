from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pate.errors import PartitionError
from pate.teachers.storage.shards import Columns, read_shard

arrow = pytest.importorskip("pyarrow")
fsspec = pytest.importorskip("fsspec")

X = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], dtype=np.float32)
Y = np.array([0, 2, 1])
IDS = ["zoe", "yuri", "cy"]


def npz(path: Path, **changes: Any) -> str:
    arrays = {"x": X, "y": Y, "ids": np.array(IDS), **changes}
    np.savez(path, **{name: array for name, array in arrays.items() if array is not None})
    return str(path)


def parquet(path: Path, **changes: Any) -> str:
    columns = {"id": IDS, "label": Y, "a": X[:, 0], "b": X[:, 1], **changes}
    table = arrow.table({name: values for name, values in columns.items() if values is not None})
    arrow.parquet.write_table(table, path, row_group_size=2)
    return str(path)


@pytest.fixture(autouse=True)
def _parquet_module() -> None:
    pytest.importorskip("pyarrow.parquet")


def test_npz_is_read_as_stored(tmp_path: Path) -> None:
    shard = read_shard(npz(tmp_path / "s.npz"), Columns())
    assert shard.data.x.dtype == np.float32
    np.testing.assert_array_equal(shard.data.x, X)
    np.testing.assert_array_equal(shard.data.y, Y)
    assert shard.data.record_ids == (b"zoe", b"yuri", b"cy")
    assert shard.data.unit == "record"
    assert shard.layout == ("float32", (2,), ())


def test_layout_in_memory_does_not_depend_on_the_file(tmp_path: Path) -> None:
    """Sums over another memory order, or swapped bytes, would round differently."""
    shard = read_shard(npz(tmp_path / "s.npz", x=np.asfortranarray(X.astype(">f4"))), Columns())
    assert shard.data.x.flags.c_contiguous
    assert shard.data.x.dtype.isnative
    np.testing.assert_array_equal(shard.data.x, X)


@pytest.mark.parametrize("url", ["file://{}", "{}"])
def test_local_urls(tmp_path: Path, url: str) -> None:
    assert len(read_shard(url.format(npz(tmp_path / "s.npz")), Columns()).data) == 3


def test_memory_url(tmp_path: Path) -> None:
    fsspec.filesystem("memory").pipe("/shards/s.npz", Path(npz(tmp_path / "s.npz")).read_bytes())
    np.testing.assert_array_equal(read_shard("memory://shards/s.npz", Columns()).data.x, X)


def test_npz_with_users(tmp_path: Path) -> None:
    shard = read_shard(npz(tmp_path / "s.npz", groups=np.array([7, 8, 7])), Columns(group_by="groups"))
    assert shard.data.unit == "user"
    assert shard.data.unit_ids == (b"7", b"8")


def test_parquet_takes_all_other_columns_in_the_files_order(tmp_path: Path) -> None:
    shard = read_shard(parquet(tmp_path / "s.parquet", c=[True, False, True]), Columns())
    assert shard.layout == ("float64", (3,), ("a", "b", "c")), "whatever numbers the columns hold"
    np.testing.assert_array_equal(shard.data.x, np.column_stack([X, [1, 0, 1]]))
    assert shard.data.record_ids == (b"zoe", b"yuri", b"cy")


def test_parquet_with_named_columns(tmp_path: Path) -> None:
    url = parquet(
        tmp_path / "s.parquet", id=None, label=None, record=[1, 2, 3], disease=Y.astype(float), patient=[b"p", b"q", b"p"]
    )
    shard = read_shard(url, Columns(id="record", label="disease", group_by="patient", features=("b", "a")))
    assert shard.features == ("b", "a")
    np.testing.assert_array_equal(shard.data.x, X[:, ::-1])
    assert shard.data.y.dtype == np.int64
    assert shard.data.unit_ids == (b"p", b"q")


@pytest.mark.parametrize("kind", ["list", "fixed"])
def test_parquet_images_are_lists(tmp_path: Path, kind: str) -> None:
    pixels = np.arange(12, dtype=np.uint8).reshape(3, 4)
    lists = arrow.array(pixels.tolist(), type=arrow.list_(arrow.uint8(), 4 if kind == "fixed" else -1))
    url = parquet(tmp_path / "s.parquet", a=None, b=None, image=lists)
    shard = read_shard(url, Columns(shape=(2, 2)))
    assert shard.layout == ("uint8", (2, 2), ("image",))
    np.testing.assert_array_equal(shard.data.x, pixels.reshape(3, 2, 2))


def test_csv_keeps_ids_as_text(tmp_path: Path) -> None:
    """As numbers, 007 and 7 would be one person; and a column of whole numbers is float64 as in the next shard."""
    path = tmp_path / "s.csv"
    path.write_text("id,label,a,b\n007,0,1,2\n7,1,3,4.5\n")
    shard = read_shard(str(path), Columns())
    assert shard.data.record_ids == (b"007", b"7")
    np.testing.assert_array_equal(shard.data.x, [[1.0, 2.0], [3.0, 4.5]])
    assert shard.data.x.dtype == np.float64


@pytest.mark.parametrize(
    ("changes", "columns", "message"),
    [
        ({"ids": None}, Columns(), r"no array 'ids'"),
        ({"y": None, "labels": Y}, Columns(), r"no array 'y'"),
        ({}, Columns(group_by="user"), r"no array 'groups'"),
        ({"groups": np.arange(3)}, Columns(), r"has groups, but the unit is a record"),
        ({"ids": np.array(["zoe", "", "cy"])}, Columns(), r"1 of 3 are missing"),
        ({"ids": np.array(["zoe", "zoe", "cy"])}, Columns(), r"records overlap"),
        ({"ids": np.array([0.5, 1.5, 2.5])}, Columns(), r"whole numbers, strings or bytes"),
        ({"ids": np.arange(2)}, Columns(), r"equally long"),
        ({"y": np.array([0.0, 0.5, 1.0])}, Columns(), r"whole"),
        ({"y": np.array([0, -1, 1])}, Columns(), r"1 of 3 lie outside"),
        ({"x": np.array([["a"], ["b"], ["c"]])}, Columns(), r"numeric array"),
        ({"x": np.full((3, 2), np.nan)}, Columns(), r"NaN"),
        ({"x": X[:0], "y": Y[:0], "ids": np.array([], dtype=str)}, Columns(), r"at least one record"),
        ({"ids": np.array(IDS, dtype=object)}, Columns(), r"never unpickled"),
        ({}, Columns(shape=(3, 1)), r"does not fill the shape that was asked for, \(3, 1\)"),
    ],
)
def test_npz_errors(tmp_path: Path, changes: dict[str, Any], columns: Columns, message: str) -> None:
    with pytest.raises(PartitionError, match=message) as caught:
        read_shard(npz(tmp_path / "s.npz", **changes), columns)
    assert "s.npz" in str(caught.value)
    assert not any(identity in str(caught.value) for identity in ("zoe", "yuri"))


@pytest.mark.parametrize(
    ("changes", "columns", "message"),
    [
        ({}, Columns(id="ids"), r"no column 'ids' \(did you mean 'id'\?\) Found: id, label, a, b"),
        ({}, Columns(group_by="patient"), r"no column 'patient'"),
        ({}, Columns(features=("a", "bb")), r"no column 'bb', which is an input \(did you mean 'b'\?\) Found: id"),
        (
            {"c": ["x", "y", "z"]},
            Columns(features=("a", "c")),
            r"input 'c' must be a number in every record; 3 of 3 cells are none \(the column is read as string\)",
        ),
        ({}, Columns(features=("a", "label")), r"not id, label or group; got label"),
        ({"note": ["x", "2", "z"]}, Columns(), r"input 'note' must be a number in every record; 2 of 3 cells are none"),
        ({"day": np.array(["2024-01-01"] * 3, dtype="datetime64[s]")}, Columns(), r"input 'day' must be a number"),
        ({"a": None, "b": None}, Columns(), r"there are no inputs: no other columns among id, label"),
        ({"c": [[1], [2], [3]]}, Columns(), r"a column of lists must be the only input"),
        ({}, Columns(features=("a", "a")), r"a stands there more than once"),
        ({"a": None, "b": None, "c": [[1], [2, 3], [3]]}, Columns(), r"lists of 'c' must be equally long"),
        ({"a": [1.0, None, 2.0]}, Columns(), r"input 'a' must be there in every record; 1 of 3 cells are empty"),
        ({"id": ["zoe", None, "cy"]}, Columns(), r"ids: every record needs one; 1 of 3 are missing"),
        ({"user": [1, 2, None]}, Columns(group_by="user"), r"1 of 3 are missing"),
        ({"label": [0, None, 1]}, Columns(), r"whole class numbers"),
        ({"label": ["sick", "well", "sick"]}, Columns(), r"whole class numbers"),
        ({"id": [], "label": [], "a": [], "b": []}, Columns(), r"a file without rows"),
    ],
)
def test_parquet_errors(tmp_path: Path, changes: dict[str, Any], columns: Columns, message: str) -> None:
    with pytest.raises(PartitionError, match=message):
        read_shard(parquet(tmp_path / "s.parquet", **changes), columns)


def test_files_that_are_not_what_they_say(tmp_path: Path) -> None:
    for name in ("s.npz", "s.parquet"):
        (tmp_path / name).write_bytes(b"id,label\n")
        with pytest.raises(PartitionError, match="cannot be read as"):
            read_shard(str(tmp_path / name), Columns())
    (tmp_path / "s.csv").write_text("id,label,a\n1,2\n1,2,3,4\n")
    with pytest.raises(PartitionError, match=r"cannot be read as \.csv"):
        read_shard(str(tmp_path / "s.csv"), Columns())
    (tmp_path / "rows.csv").write_text("id,label,a\n")
    with pytest.raises(PartitionError, match="a file without rows"):
        read_shard(str(tmp_path / "rows.csv"), Columns())


def test_unknown_suffix_and_missing_file(tmp_path: Path) -> None:
    with pytest.raises(PartitionError, match=r"must be one of \.npz, \.parquet, \.csv; got '\.pkl'"):
        read_shard(str(tmp_path / "s.pkl"), Columns())
    with pytest.raises(PartitionError, match="no such file"):
        read_shard(str(tmp_path / "s.npz"), Columns())
