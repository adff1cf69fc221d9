"""Private data: what is taken, what is refused, and what its fingerprint depends on."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pate.digests import id_keys, identity_bytes
from pate.errors import ParameterError, PartitionError
from pate.teachers.data import PrivateData

X = np.array([[123.25, 1.0], [456.5, 2.0], [789.75, 3.0]])
Y = [0, 1, 0]
IDS = ["ann", "bob", "cy"]

people = st.lists(
    st.integers() | st.text("abcdef", min_size=1) | st.binary(min_size=1), min_size=1, max_size=30, unique_by=identity_bytes
)


def data_of(ids: Any, **options: Any) -> PrivateData:
    n = len(ids)
    return PrivateData(np.arange(n, dtype=float)[:, None], np.zeros(n, dtype=int), ids, **options)


def test_it_holds_what_was_given() -> None:
    data = PrivateData(X, Y, IDS)
    np.testing.assert_array_equal(data.x, X)
    assert data.y.tolist() == Y
    assert data.y.dtype == np.int64
    assert data.record_ids == (b"ann", b"bob", b"cy") == data.unit_ids
    assert data.unit_of.tolist() == [0, 1, 2]
    assert (data.unit, data.name, len(data)) == ("record", "data", 3)


def test_users_hold_several_records() -> None:
    data = PrivateData(X, Y, [1, 2, 3], group_by=["u", "v", "u"])
    assert data.unit == "user"
    assert data.unit_ids == (b"u", b"v")
    assert data.unit_of.tolist() == [0, 1, 0]


def test_it_is_never_printed() -> None:
    data = PrivateData(X, Y, IDS, group_by=["u", "v", "u"], name="ward")
    assert repr(data) == "PrivateData('ward', 3 records of shape (2,), unit user)"


def test_it_is_read_only() -> None:
    data = PrivateData(X, Y, IDS)
    for array in (data.x, data.y, data.unit_of):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 9
    with pytest.raises(AttributeError):
        data.x = X  # type: ignore[misc]
    with pytest.raises(AttributeError):
        data.other = 1  # type: ignore[attr-defined]
    X[0, 0] = X[0, 0]  # the caller's own array stays the caller's


@pytest.mark.parametrize("users", [None, ["u", "v", "u"]])
def test_it_survives_pickling_read_only(users: list[str] | None) -> None:
    data = PrivateData(X, Y, IDS, group_by=users, name="ward")
    again = pickle.loads(pickle.dumps(data))
    assert (again.fingerprint, again.record_ids, again.unit_ids) == (data.fingerprint, data.record_ids, data.unit_ids)
    assert again.unit_of.tolist() == data.unit_of.tolist()
    np.testing.assert_array_equal(again.x, data.x)
    assert not again.x.flags.writeable


@pytest.mark.parametrize(
    "ids",
    [
        [7, 8, 9],
        np.array([7, 8, 9], dtype=np.uint16),
        ["7", "8", "9"],
        np.array(["7", "8", "9"]),
        np.array([b"7", b"8", b"9"]),
        (7, "8", b"9"),
        np.array([np.int32(7), "8", b"9"], dtype=object),
        range(7, 10),
    ],
)
def test_every_spelling_of_ids_is_the_same_data(ids: Any) -> None:
    assert PrivateData(X, Y, ids).record_ids == (b"7", b"8", b"9")


@pytest.mark.parametrize(
    "missing",
    [None, float("nan"), np.float64("nan"), "", "  ", b"", "nan", "None", np.datetime64("NaT"), np.timedelta64("NaT")],
)
def test_a_record_or_user_without_id_is_refused(missing: Any) -> None:
    ids = ["ann", missing, "cy"]
    with pytest.raises(PartitionError, match=r"ids: every record needs one; 1 of 3 are missing"):
        PrivateData(X, Y, ids)
    with pytest.raises(PartitionError, match=r"group_by .*: every record needs one; 1 of 3 are missing"):
        PrivateData(X, Y, IDS, group_by=np.array(ids, dtype=object))


@pytest.mark.parametrize(
    "ids",
    [
        np.array([1.0, np.nan, np.nan]),
        np.array(["2026-01-01", "NaT", "NaT"], dtype="datetime64[ns]"),
        np.array(["ann", np.nan, np.nan]),  # numpy has made it the text "nan"
    ],
)
def test_missing_ids_are_found_in_arrays(ids: Any) -> None:
    with pytest.raises(PartitionError, match="2 of 3 are missing"):
        PrivateData(X, Y, ids)


class NAType:
    """As pandas' NA, which is known by its name: to compare with it gives itself, which is neither true nor false."""

    def __eq__(self, other: object) -> Any:
        return self

    def __bool__(self) -> bool:
        raise TypeError("boolean value of NA is ambiguous")

    __hash__ = None  # type: ignore[assignment]


def test_pandas_missing_values_are_missing() -> None:
    with pytest.raises(PartitionError, match="1 of 3 are missing"):
        PrivateData(X, Y, ["ann", NAType(), "cy"])


def test_no_ids_are_refused_with_the_reason() -> None:
    with pytest.raises(PartitionError, match=r"every record needs an id, got none.*must not depend on other records.*shuffle"):
        PrivateData(X, Y, None)


@pytest.mark.parametrize("ids", [["ann", "bob", "ann"], [7, "7", b"7"], np.array([1, 1, 2])])
def test_two_records_with_one_id_overlap(ids: Any) -> None:
    found = 2 if ids[0] == 7 else 1
    with pytest.raises(PartitionError, match=f"records overlap; {found} of 3 repeat"):
        PrivateData(X, Y, ids)


@pytest.mark.parametrize(
    ("bad", "kind"),
    [
        (1.5, "float"),
        (True, "bool"),
        (("a",), "tuple"),
        (np.datetime64("2026-01-01"), "datetime64"),
        (np.timedelta64(1, "s"), "timedelta64"),
    ],
)
def test_ids_of_other_kinds_are_refused(bad: Any, kind: str) -> None:
    with pytest.raises(PartitionError, match=f"must be whole numbers, strings or bytes, got {kind}"):
        PrivateData(X, Y, ["ann", bad, "cy"])


def test_dates_do_not_pass_for_numbers() -> None:
    with pytest.raises(PartitionError, match="got datetime64"):
        PrivateData(X, Y, np.arange(3).astype("datetime64[ns]"))


@pytest.mark.parametrize("ids", ["abc", 3, np.zeros((3, 1), dtype=int)])
def test_ids_that_are_no_list_are_refused(ids: Any) -> None:
    with pytest.raises(PartitionError, match=r"ids must be a list or array \[record\]"):
        PrivateData(X, Y, ids)


def test_broken_text_is_refused() -> None:
    with pytest.raises(PartitionError, match="valid text"):
        PrivateData(X, Y, ["ann", b"\xff".decode(errors="surrogateescape"), "cy"])


@pytest.mark.parametrize("part", ["x", "y", "ids", "group_by"])
def test_masked_arrays_are_refused(part: str) -> None:
    given: dict[str, Any] = {"x": X, "y": np.array(Y), "ids": np.arange(3), "group_by": np.arange(3)}
    given[part] = np.ma.masked_array(given[part])
    with pytest.raises(PartitionError, match=f"{part}.* must not be a masked array"):
        PrivateData(**given)


@pytest.mark.parametrize(
    ("x", "y", "ids", "found"), [(X[:2], Y, IDS, "2 x, 3 y, 3 ids"), (X, Y[:2], IDS, "3 x, 2 y"), (X, Y, IDS[:2], "2 ids")]
)
def test_unequal_lengths_are_refused(x: Any, y: Any, ids: Any, found: str) -> None:
    with pytest.raises(PartitionError, match=f"equally long, got .*{found}"):
        PrivateData(x, y, ids)


def test_users_of_other_length_are_refused() -> None:
    with pytest.raises(PartitionError, match="user of each of 3 records, got 2"):
        PrivateData(X, Y, IDS, group_by=["u", "v"])


@pytest.mark.parametrize(
    ("y", "message"),
    [
        ([0, 1, -1], "from 0 .*1 of 3 lie outside"),
        ([0.0, 0.5, float("nan")], "2 of 3 are not whole"),
        (["cat", "dog", "cat"], "public list"),
        ([[0], [1], [0]], r"\[record\]"),
        (np.array([0, 1, 2**63], dtype=np.uint64), "1 of 3 lie outside"),
    ],
)
def test_labels_that_are_no_class_numbers_are_refused(y: Any, message: str) -> None:
    with pytest.raises(PartitionError, match=message):
        PrivateData(X, y, IDS)


@pytest.mark.parametrize("y", [[0.0, 1.0, 0.0], np.array([0, 1, 0], dtype=np.uint8), [False, True, False]])
def test_whole_labels_of_any_kind_are_taken(y: Any) -> None:
    assert PrivateData(X, y, IDS).y.tolist() == Y


@pytest.mark.parametrize("x", [[[1.0], [float("inf")], [2.0]], [1.0, 2.0, 3.0], np.zeros((0, 2)), [["a"], ["b"], ["c"]]])
def test_inputs_that_are_no_finite_numbers_are_refused(x: Any) -> None:
    with pytest.raises(ParameterError, match="PrivateData 'ward'"):
        PrivateData(x, Y, IDS, name="ward")


@pytest.mark.parametrize("name", ["", "a\nb", "x" * 401, 7])
def test_a_name_must_fit_in_a_ledger(name: Any) -> None:
    with pytest.raises(PartitionError, match="name of private data"):
        PrivateData(X, Y, IDS, name=name)


@given(people, st.randoms(use_true_random=False))
def test_the_fingerprint_is_of_the_set_of_ids_and_the_name(ids: list[Any], random: Any) -> None:
    data = data_of(ids, name="ward")
    shuffled = random.sample(ids, len(ids))
    assert data_of(shuffled, name="ward").fingerprint == data.fingerprint
    assert data.with_inputs(np.ones((len(ids), 5))).fingerprint == data.fingerprint
    assert data_of(ids, name="other").fingerprint != data.fingerprint
    if len(ids) > 1:
        assert data_of(ids[1:], name="ward").fingerprint != data.fingerprint


@given(people, st.data())
def test_the_fingerprint_is_of_the_users_where_users_are_the_unit(users: list[Any], draw: st.DataObject) -> None:
    extra = draw.draw(st.lists(st.sampled_from(users), max_size=20))
    rows = [*users, *extra]
    grouped = data_of([f"row {row}" for row in range(len(rows))], group_by=rows)
    assert grouped.fingerprint == data_of(users).fingerprint
    assert len(grouped.unit_ids) == len(users)


def test_a_fingerprint_names_the_data_and_stays_as_it_is() -> None:
    """Frozen: another value would open a new ledger for data whose budget is spent."""
    assert data_of([1, 2, 3], name="ward").fingerprint == "ward-40b864de4930700d"


def test_other_inputs_belong_to_the_same_people() -> None:
    data = PrivateData(X, Y, IDS, group_by=["u", "v", "u"], name="ward")
    features = data.with_inputs(np.ones((3, 7), dtype=np.float32))
    assert features.x.shape == (3, 7)
    assert not features.x.flags.writeable
    assert (features.record_ids, features.unit, features.name) == (data.record_ids, "user", "ward")
    assert features.y.tolist() == Y
    assert data.x.shape == (3, 2)
    with pytest.raises(PartitionError, match="same 3 records, got 2"):
        data.with_inputs(np.ones((2, 7)))


def test_turns_are_hashes_of_the_records_own_ids() -> None:
    """Not of the row, the content, the user, or who else is there."""
    data = PrivateData(np.zeros((4, 1)), [0] * 4, ids=["a", "b", "c", "d"], group_by=[1, 1, 2, 2])
    other = PrivateData(np.ones((2, 1)), [1] * 2, ids=["c", "a"], group_by=[7, 7])
    assert len(set(data.turns.tolist())) == 4
    np.testing.assert_array_equal(other.turns, data.turns[[2, 0]])
    np.testing.assert_array_equal(data.turns, id_keys(["a", "b", "c", "d"], "pate.nearest"))
