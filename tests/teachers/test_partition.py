"""Partitions: every record in one part, its place a matter of its own id, and every breach refused."""

from __future__ import annotations

import hashlib
import json
import pickle
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from pate.digests import id_keys, identity_bytes, keyed_place, row_digests
from pate.errors import ParameterError, PartitionError
from pate.execution import ANYWHERE, Placement
from pate.features.checks import Overlap
from pate.teachers import partition as partition_module
from pate.teachers.data import PrivateData
from pate.teachers.partition import Partition
from pate.teachers.partition_checks import check_manifest, check_no_copies, differing_teachers

ids_of_all_kinds = st.lists(
    st.integers() | st.text("abcdef", min_size=1) | st.binary(min_size=1), min_size=1, max_size=40, unique_by=identity_bytes
)
teacher_counts = st.integers(1, 12)
salts = st.text(st.characters(codec="utf-8"), max_size=5)


def content_of(identity: Any) -> list[float]:
    """Inputs that belong to the id, and to no other."""
    return [float(byte) for byte in hashlib.blake2b(identity_bytes(identity), digest_size=8).digest()]


def data_of(ids: Any, **options: Any) -> PrivateData:
    return PrivateData([content_of(item) for item in ids], [len(identity_bytes(item)) % 3 for item in ids], ids, **options)


def loaded(partition: Partition, teacher: int) -> list[NDArray[Any]]:
    return list(partition.loader(teacher).load(partition.shared()))


def same_parts(one: Partition, other: Partition) -> list[bool]:
    """Whether each teacher learns from the same arrays, bit for bit and in the same order."""
    return [
        all(a.tobytes() == b.tobytes() and a.dtype == b.dtype for a, b in zip(loaded(one, t), loaded(other, t), strict=True))
        for t in range(one.n_teachers)
    ]


@pytest.fixture
def ward() -> PrivateData:
    rng = np.random.default_rng(5)
    return PrivateData(rng.normal(size=(60, 3)), rng.integers(0, 3, 60), [f"p{row}" for row in range(60)], name="ward")


# ---- by hash


@given(ids_of_all_kinds, teacher_counts, salts)
def test_parts_are_disjoint_and_complete(ids: list[Any], n_teachers: int, salt: str) -> None:
    partition = Partition.by_hash(data_of(ids), n_teachers, salt=salt, allow_empty=True)
    rows = [partition.loader(teacher).rows for teacher in range(n_teachers)]
    assert sorted(np.concatenate(rows).tolist()) == list(range(len(ids)))
    assert partition.sizes.tolist() == [len(part) for part in rows]
    assert partition.teacher_of.tolist() == keyed_place(ids, salt, n_teachers).tolist()


@given(ids_of_all_kinds, teacher_counts, salts, st.randoms(use_true_random=False))
def test_no_place_and_no_order_depends_on_other_records(ids: list[Any], n_teachers: int, salt: str, random: Any) -> None:
    whole = Partition.by_hash(data_of(ids), n_teachers, salt=salt, allow_empty=True)
    some = random.sample(ids, random.randint(1, len(ids)))  # another order, and others are gone
    fewer = Partition.by_hash(data_of(some), n_teachers, salt=salt, allow_empty=True)
    place = dict(zip(map(identity_bytes, ids), whole.teacher_of.tolist(), strict=True))
    assert fewer.teacher_of.tolist() == [place[identity_bytes(identity)] for identity in some]
    touched = {place[identity_bytes(identity)] for identity in ids if identity not in some}
    for teacher, same in enumerate(same_parts(whole, fewer)):
        assert same == (teacher not in touched)


@given(ids_of_all_kinds.filter(lambda ids: len(ids) > 1), teacher_counts)
def test_one_change_of_the_data_changes_one_teacher(ids: list[Any], n_teachers: int) -> None:
    data = data_of(ids[1:])
    before = Partition.by_hash(data, n_teachers, salt="s", allow_empty=True)
    added = Partition.by_hash(data_of(ids), n_teachers, salt="s", allow_empty=True)
    assert same_parts(before, added).count(False) == 1  # added; seen the other way round: removed
    x = np.array(data.x)
    x[0] += 1
    replaced = Partition.by_hash(data.with_inputs(x), n_teachers, salt="s", allow_empty=True)
    assert same_parts(before, replaced).count(False) == 1
    another_id = Partition.by_hash(data_of([ids[0], *ids[2:]]), n_teachers, salt="s", allow_empty=True)
    assert same_parts(before, another_id).count(False) <= 2  # a removal and an addition


@given(ids_of_all_kinds, st.data(), teacher_counts, salts)
def test_users_stay_together(users: list[Any], draw: st.DataObject, n_teachers: int, salt: str) -> None:
    of_records = [*users, *draw.draw(st.lists(st.sampled_from(users), max_size=30))]
    data = data_of([f"row {row}" for row in range(len(of_records))], group_by=of_records)
    partition = Partition.by_hash(data, n_teachers, salt=salt, allow_empty=True)
    assert partition.unit == "user"
    assert partition.teacher_of.tolist() == keyed_place(of_records, salt, n_teachers).tolist()
    assert sum(part["units"] for part in partition.manifest()["teachers"]) == len(users)
    # keys are of the records' own ids: they decide who is held out, record by record
    assert partition.shared()["keys"].tolist() == id_keys(data.record_ids, salt).tolist()


@given(ids_of_all_kinds, teacher_counts, salts)
def test_the_fingerprint_does_not_know_the_split(ids: list[Any], n_teachers: int, salt: str) -> None:
    data = data_of(ids)
    partition = Partition.by_hash(data, n_teachers, salt=salt, allow_empty=True)
    assert partition.fingerprint == data.fingerprint == Partition.from_rows(data, [range(len(ids))]).fingerprint


@pytest.mark.parametrize("grouped", [False, True])
def test_parts_are_equally_likely(grouped: bool) -> None:
    """Chi-square over 100 teachers, n = 20,000 units. The false-alarm rate for a new hash is 1e-6; hash and ids are fixed."""
    n = 20_000
    users = [f"user {row}" for row in range(n)] if grouped else None
    data = PrivateData(np.arange(n)[:, None], np.zeros(n, dtype=int), np.arange(n), group_by=users)
    assert stats.chisquare(Partition.by_hash(data, 100, salt="2026").sizes).pvalue > 1e-6


def test_records_of_one_key_are_ordered_by_id(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition_module, "id_keys", lambda ids, salt: np.zeros(len(ids), dtype=np.uint64))
    for ids in (["d", "b", "a", "c"], ["a", "c", "d", "b"]):
        partition = Partition.by_hash(data_of(ids), 1, salt="s")
        assert [ids[row] for row in partition.loader(0).rows] == ["a", "b", "c", "d"]


def test_rows_are_ordered_by_key(ward: PrivateData) -> None:
    partition = Partition.by_hash(ward, 3, salt="s")
    for teacher in range(3):
        _, _, keys = loaded(partition, teacher)
        assert (np.diff(keys.astype(object)) > 0).all()


@pytest.mark.parametrize("n_teachers", [0, -1, 2.0, True])
def test_a_wrong_number_of_teachers_is_refused(ward: PrivateData, n_teachers: Any) -> None:
    with pytest.raises(ParameterError, match="n_teachers must be a whole number of at least 1"):
        Partition.by_hash(ward, n_teachers, salt="s")


def test_more_teachers_than_units_are_refused(ward: PrivateData) -> None:
    with pytest.raises(PartitionError, match=r"61 teachers are more than there are records \(60\).*fewer teachers"):
        Partition.by_hash(ward, 61, salt="s")
    users = PrivateData(ward.x, ward.y, range(60), group_by=[row % 6 for row in range(60)])
    with pytest.raises(PartitionError, match=r"7 teachers are more than there are users \(6\)"):
        Partition.by_hash(users, 7, salt="s")
    assert Partition.by_hash(ward, 61, salt="s", allow_empty=True).n_teachers == 61


def test_empty_teachers_are_refused_and_named(ward: PrivateData) -> None:
    empty = sorted(set(range(50)) - set(keyed_place(ward.record_ids, "s", 50).tolist()))
    shown = ", ".join(map(str, empty[:20]))
    with pytest.raises(PartitionError, match=f"{len(empty)} of 50 teachers have no record: {shown}.*allow_empty=True"):
        Partition.by_hash(ward, 50, salt="s")
    partition = Partition.by_hash(ward, 50, salt="s", allow_empty=True)
    x, y, keys = loaded(partition, empty[0])
    assert (x.shape, y.shape, keys.shape) == ((0, 3), (0,), (0,))
    assert partition.manifest()["teachers"][empty[0]]["records"] == 0


def test_a_long_list_of_teachers_is_cut(ward: PrivateData) -> None:
    with pytest.raises(PartitionError, match=r"40 of 60 teachers have no record: 20, .*, 39 and 20 more"):
        Partition.from_rows(ward, [*np.arange(60).reshape(20, 3), *([[]] * 40)])


def test_a_salt_is_text(ward: PrivateData) -> None:
    with pytest.raises(ParameterError, match="salt must be a string"):
        Partition.by_hash(ward, 2, salt=7)  # type: ignore[arg-type]


# ---- by silo

SILOS = ["north"] * 30 + ["south"] * 20 + ["east"] * 10


def test_each_silo_is_a_teacher_by_the_order_of_names(ward: PrivateData) -> None:
    partition = Partition.by_silo(ward, SILOS)
    assert partition.n_teachers == 3
    assert partition.sizes.tolist() == [10, 30, 20]
    assert partition.manifest()["silos"] == {"east": [0], "north": [1], "south": [2]}


def test_a_silo_may_hold_several_teachers_by_hash(ward: PrivateData) -> None:
    partition = Partition.by_silo(ward, SILOS, teachers_per_silo={"south": 2, "north": 3, "east": 1}, salt="s")
    first, count = {"east": 0, "north": 1, "south": 4}, {"east": 1, "north": 3, "south": 2}
    keys = id_keys(ward.record_ids, "s").tolist()
    assert partition.teacher_of.tolist() == [first[silo] + key % count[silo] for silo, key in zip(SILOS, keys, strict=True)]
    assert Partition.by_silo(ward, SILOS, teachers_per_silo=2).n_teachers == 6


def test_a_silo_without_data_keeps_its_teachers(ward: PrivateData) -> None:
    teachers = {"north": 1, "south": 1, "east": 1, "lost": 2}
    with pytest.raises(PartitionError, match="2 of 5 teachers have no record: 1, 2"):
        Partition.by_silo(ward, SILOS, teachers_per_silo=teachers)
    partition = Partition.by_silo(ward, SILOS, teachers_per_silo=teachers, allow_empty=True)
    assert partition.sizes.tolist() == [10, 0, 0, 30, 20]


def test_teachers_run_where_their_silo_lies(ward: PrivateData) -> None:
    north = Placement(labels={"silo": "north"})
    partition = Partition.by_silo(ward, SILOS, teachers_per_silo=2, placements={"north": north}, allow_empty=True)
    assert [partition.placement(teacher) for teacher in range(6)] == [ANYWHERE, ANYWHERE, north, north, ANYWHERE, ANYWHERE]
    assert Partition.by_hash(ward, 2, salt="s").placement(1) == ANYWHERE


def test_a_user_in_two_silos_is_refused(ward: PrivateData) -> None:
    users = PrivateData(ward.x, ward.y, range(60), group_by=[row // 4 for row in range(60)])
    with pytest.raises(PartitionError, match="with one silo; 2 of 15 users are with several"):
        Partition.by_silo(users, SILOS)  # a user has rows 28 to 31, another 48 to 51
    assert Partition.by_silo(users, ["a"] * 32 + ["b"] * 28, teachers_per_silo=2, allow_empty=True).n_teachers == 4


@pytest.mark.parametrize(
    ("silos", "options", "message"),
    [
        (SILOS[:-1], {}, "silo of each of 60 records, got 59"),
        ([*SILOS[:-1], None], {}, "silos: every record needs one; 1 of 60 are missing"),
        (SILOS, {"teachers_per_silo": {"north": 1, "east": 1}}, "1 silos of the data are not in it"),
        ([7] * 60, {"teachers_per_silo": {7: 1, "7": 1}}, "names a silo twice"),
        (SILOS, {"placements": {"nroth": ANYWHERE}}, "1 of 1 are none of them"),
        ([1] * 60, {"teachers_per_silo": 70}, "70 teachers are more than there are records"),
    ],
)
def test_wrong_silos_are_refused(ward: PrivateData, silos: Any, options: Mapping[str, Any], message: str) -> None:
    with pytest.raises(PartitionError, match=message):
        Partition.by_silo(ward, silos, **options)


@pytest.mark.parametrize("count", [0, 1.5, {"north": 1, "south": 0, "east": 1}])
def test_a_wrong_number_of_teachers_per_silo_is_refused(ward: PrivateData, count: Any) -> None:
    with pytest.raises(ParameterError, match="teachers_per_silo must be a whole number of at least 1"):
        Partition.by_silo(ward, SILOS, teachers_per_silo=count)


# ---- from rows


def test_a_given_assignment_is_kept(ward: PrivateData) -> None:
    partition = Partition.from_rows(ward, np.arange(60).reshape(6, 10))
    assert partition.teacher_of.tolist() == [row // 10 for row in range(60)]
    assert "caller's promise" in partition.manifest()["neighbours"]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "at least one part"),
        ([range(30), range(29, 60)], "1 of 60 records are used more than once"),
        ([range(60), range(60)], "60 of 60 .*, and 1 of 2 parts are copies of another part"),
        ([[*range(59), 58], [59]], "and 1 of 2 parts repeat a record of their own"),
        ([range(30), range(31, 59)], "2 of 60 are in none"),
        ([range(60), []], "1 of 2 teachers have no record: 1"),
        ([range(60), [60, 61]], r"Part 1: row numbers must lie in 0\.\.59; 2 lie outside"),
        ([range(60), [-1]], "1 lie outside"),
        ([np.ones(60, dtype=bool)], "numpy.flatnonzero"),
        ([np.arange(60.0)], "Part 0 must be an array of row numbers, got float64"),
        (range(60), "Part 0 must be an array of row numbers"),
    ],
)
def test_wrong_rows_are_refused(ward: PrivateData, rows: Any, message: str) -> None:
    with pytest.raises(PartitionError, match=message):
        Partition.from_rows(ward, rows)


def test_a_user_in_two_parts_is_refused(ward: PrivateData) -> None:
    users = PrivateData(ward.x, ward.y, range(60), group_by=[row // 4 for row in range(60)])
    with pytest.raises(PartitionError, match="with one teacher; 2 of 15 users are with several"):
        Partition.from_rows(users, [range(30), range(30, 45), range(45, 60)])


# ---- copies


def test_two_teachers_with_the_same_contents_are_refused() -> None:
    x = np.array([[1.0], [2.0], [3.0], [2.0], [1.0], [9.0]])
    data = PrivateData(x, [0, 1, 0, 1, 0, 1], range(6))
    with pytest.raises(PartitionError, match="2 teachers hold the same 2 records under other ids: 0, 2"):
        Partition.from_rows(data, [[0, 1], [2, 5], [3, 4]])
    other_label = PrivateData(x, [0, 1, 0, 1, 1, 1], range(6))
    assert Partition.from_rows(other_label, [[0, 1], [2, 5], [3, 4]]).n_teachers == 3


def test_equal_records_of_different_people_are_fine() -> None:
    data = PrivateData(np.zeros((6, 1)), np.zeros(6, dtype=int), range(6))
    assert Partition.from_rows(data, [[0], [1], [2], [3, 4, 5]]).n_teachers == 4  # parts of one record, and equal rows in one
    twins = PrivateData([[0.0], [0.0], [1.0]], [0, 0, 0], range(3))
    assert Partition.from_rows(twins, [[0], [1], [2]]).n_teachers == 3
    # Parts of common records that others have too may be equal by chance.
    assert Partition.from_rows(data, [[0, 1], [2, 3], [4], [5]]).n_teachers == 4
    pairs = PrivateData([[0.0], [7.0], [0.0], [7.0], [0.0]], np.zeros(5, dtype=int), range(5))
    assert Partition.from_rows(pairs, [[0, 1], [2, 3], [4]]).n_teachers == 3  # one rare twin beside common records


def test_copies_are_found_among_all_teachers() -> None:
    digests = row_digests(np.tile(np.arange(5.0), 4)[:, None])
    with pytest.raises(PartitionError, match="4 teachers hold the same 5 records under other ids: 0, 1, 2, 3"):
        check_no_copies(digests, np.arange(20).reshape(4, 5))


# ---- what goes to workers, and what is written down


def test_loaders_are_small() -> None:
    for n, dtype in ((256, np.uint8), (257, np.uint16), (70_000, np.uint32)):
        data = PrivateData(np.arange(n)[:, None], np.zeros(n, dtype=int), range(n))
        loader = Partition.by_hash(data, 2, salt="s").loader(0)
        assert loader.rows.dtype == dtype
        assert len(pickle.dumps(loader)) < loader.rows.nbytes + 500


def test_shared_arrays_are_those_of_the_data(ward: PrivateData) -> None:
    partition = Partition.by_hash(ward, 4, salt="s")
    shared = partition.shared()
    assert partition.data is ward
    assert shared["x"] is ward.x
    assert shared["y"] is ward.y
    assert shared["keys"].tolist() == id_keys(ward.record_ids, "s").tolist()
    for array in (*shared.values(), partition.sizes, partition.teacher_of):
        assert not array.flags.writeable


@pytest.mark.parametrize("teacher", [-1, 4])
def test_a_teacher_that_is_not_there_is_refused(ward: PrivateData, teacher: int) -> None:
    partition = Partition.by_hash(ward, 4, salt="s")
    for ask in (partition.loader, partition.content_hash):
        with pytest.raises(ParameterError, match=r"0\.\.3, got"):
            ask(teacher)


def test_nothing_private_is_printed(ward: PrivateData) -> None:
    partition = Partition.by_hash(ward, 4, salt="s")
    assert repr(partition) == "Partition(4 teachers by hash, 60 records, unit record)"
    assert repr(partition.loader(0)) == "RowsLoader()"


def test_the_manifest_says_what_was_split_and_how(ward: PrivateData) -> None:
    partition = Partition.by_hash(ward, 4, salt="spring")
    manifest = json.loads(json.dumps(partition.manifest()))
    teachers = manifest.pop("teachers")
    neighbours = manifest.pop("neighbours")
    assert manifest == {
        "format": 1,
        "private": True,
        "method": "hash",
        "salt": "spring",
        "unit": "record",
        "fingerprint": ward.fingerprint,
        "n_teachers": 4,
        "n_records": 60,
        "n_units": 60,
        "record_shape": list(ward.x.shape[1:]),
    }
    assert "one record" in neighbours
    assert "another id is two changes" in neighbours
    assert [part["records"] for part in teachers] == partition.sizes.tolist() == [part["units"] for part in teachers]
    assert [part["content"] for part in teachers] == [partition.content_hash(teacher) for teacher in range(4)]


@given(st.integers(0, 59), st.integers(0, 2), st.floats(-1e6, 1e6, allow_subnormal=False), st.randoms(use_true_random=False))
def test_a_changed_value_changes_the_hash_of_its_teacher_alone(row: int, column: int, value: float, random: Any) -> None:
    x = np.random.default_rng(5).normal(size=(60, 3))
    y, ids = np.arange(60) % 3, [f"p{number}" for number in range(60)]
    before = Partition.by_hash(PrivateData(x, y, ids), 4, salt="s")
    changed = x.copy()
    changed[row, column] = value
    order = random.sample(range(60), 60)
    after = Partition.by_hash(PrivateData(changed[order], y[order], [ids[place] for place in order]), 4, salt="s")
    teacher = int(before.teacher_of[row])
    assert differing_teachers(before.manifest(), after) == ([] if value == x[row, column] else [teacher])


def test_a_changed_label_or_id_changes_the_hash(ward: PrivateData) -> None:
    before = Partition.from_rows(ward, np.arange(60).reshape(6, 10)).manifest()
    y = np.array(ward.y)
    y[25] += 1
    relabelled = PrivateData(ward.x, y, ward.record_ids, name="ward")
    assert differing_teachers(before, Partition.from_rows(relabelled, np.arange(60).reshape(6, 10))) == [2]
    renamed = PrivateData(ward.x, ward.y, [*ward.record_ids[:35], "new", *ward.record_ids[36:]], name="ward")
    assert differing_teachers(before, Partition.from_rows(renamed, np.arange(60).reshape(6, 10))) == [3]


def test_a_manifest_is_checked_against_the_data(ward: PrivateData) -> None:
    partition = Partition.by_hash(ward, 4, salt="s")
    manifest = json.loads(json.dumps(partition.manifest()))
    check_manifest(manifest, partition)
    x = np.array(ward.x)
    x[[7, 20]] += 1e-9  # beyond what float32 tells apart
    teachers = sorted({int(partition.teacher_of[row]) for row in (7, 20)})
    shown = ", ".join(map(str, teachers))
    with pytest.raises(PartitionError, match=f"manifest: {len(teachers)} teachers have other records: {shown}. Use the data"):
        check_manifest(manifest, Partition.by_hash(ward.with_inputs(x), 4, salt="s"))
    with pytest.raises(PartitionError, match="salt was 's' and is 't'; 4 teachers have other records: 0, 1, 2, 3"):
        check_manifest(manifest, Partition.by_hash(ward, 4, salt="t"))
    with pytest.raises(PartitionError, match=r"n_teachers was 4 and is 6; 6 teachers"):
        check_manifest(manifest, Partition.by_hash(ward, 6, salt="s"))
    with pytest.raises(PartitionError, match="format was 0 and is 1"):
        check_manifest({**manifest, "format": 0}, partition)


def test_overlap_is_that_of_the_inputs_whatever_their_type_and_labels() -> None:
    x = np.arange(8, dtype=np.uint8)[:, None]
    data = PrivateData(x, np.arange(8) % 2, range(8))
    for whose in (data, Partition.by_hash(data, 2, salt="s")):
        assert whose.overlap(row_digests(x.astype(np.float64))) == Overlap(1.0, 1.0)
        assert whose.overlap(row_digests(np.array([[0.0], [1.0], [77.0], [78.0]]))) == Overlap(2 / 8, 2 / 4)
        assert whose.overlap(row_digests(np.zeros((0, 1)))) == Overlap(0.0, 0.0)
