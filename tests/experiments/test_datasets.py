"""Data sets: files are parsed and divided as the protocol says, and a wrong file is named before anything is learnt from it."""

from __future__ import annotations

import gzip
import hashlib
import os
import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from pate.errors import ParameterError
from pate.experiments.datasets import BUILT_IN, HiddenLabels, Split, TestSet, adult, diabetes, kddcup99, known_datasets, load
from pate.experiments.datasets import mnist as mnist_module
from pate.experiments.datasets.files import KnownFile, read_idx
from pate.experiments.datasets.pictures import PictureFiles
from pate.teachers import Partition

ROOT = os.environ.get("PATE_DATA")
needs_data = pytest.mark.skipif(not ROOT, reason="PATE_DATA does not name a directory with the data sets")


def write(root: Path, path: str, content: bytes) -> KnownFile:
    """A file, and what a source would know of it."""
    place = root / path
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(content)
    return KnownFile(path, len(content), hashlib.sha256(content).hexdigest())


def idx(array: np.ndarray) -> bytes:
    head = bytes([0, 0, 8, array.ndim]) + b"".join(size.to_bytes(4, "big") for size in array.shape)
    return head + array.astype(np.uint8).tobytes()


def small_mnist(root: Path) -> PictureFiles:
    """20 training and 10 test pictures; picture i has the grey level i (test: 100 + i) and the label i % 10."""
    files = []
    for name, count, start in (("train", 20, 0), ("t10k", 10, 100)):
        pictures = np.full((count, 28, 28), start + np.arange(count)[:, None, None])
        files += [
            write(root, f"MNIST/raw/{name}-images-idx3-ubyte", idx(pictures)),
            write(root, f"MNIST/raw/{name}-labels-idx1-ubyte", idx(np.arange(count) % 10)),
        ]
    return PictureFiles(*files)


def levels(x: np.ndarray) -> list[int]:
    return np.rint(x[:, 0, 0] * 255).astype(int).tolist()


def test_pictures_are_divided_by_protocol(tmp_path: Path) -> None:
    files = small_mnist(tmp_path)
    a = files.public_from_test(tmp_path, "mnist", "0123456789", 8, "A")
    assert levels(a.private.x) == list(range(20))
    assert levels(a.public_x) == list(range(100, 108))
    assert a.public_labels.of([7, 0]).tolist() == [7, 0]
    x, y = a.test.open()
    assert (levels(x), y.tolist()) == ([108, 109], [8, 9])
    b = files.public_from_train(tmp_path, "mnist", "0123456789", 5, "B")
    assert levels(b.private.x) == list(range(15))
    assert levels(b.public_x) == list(range(15, 20))
    assert b.public_labels.of(np.arange(5)).tolist() == [5, 6, 7, 8, 9]
    x, y = b.test.open()
    assert levels(x) == list(range(100, 110))
    assert x.dtype == b.public_x.dtype == np.float32
    assert b.private.record_ids == tuple(str(row).encode() for row in range(15)), "a record's id is its row in the file"


def test_test_labels_are_not_even_read_before_the_test_is_opened(tmp_path: Path) -> None:
    split = small_mnist(tmp_path).public_from_train(tmp_path, "mnist", "0123456789", 5, "B")
    (tmp_path / "MNIST/raw/t10k-labels-idx1-ubyte").unlink()
    with pytest.raises(FileNotFoundError):
        split.test.open()


def test_a_wrong_file_is_named_with_what_was_expected_and_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = small_mnist(tmp_path)
    monkeypatch.setattr(mnist_module, "FILES", files)
    place = tmp_path / files.train_images.path
    whole = place.read_bytes()
    place.write_bytes(whole[:-1])
    with pytest.raises(ParameterError, match=r"train-images-idx3-ubyte must have 15,696 bytes, found 15,695: truncated"):
        load("mnist", tmp_path)
    place.write_bytes(whole[:-1] + b"\x07")
    with pytest.raises(ParameterError, match=rf"SHA-256 {files.train_images.sha256}, found [0-9a-f]{{64}}: changed"):
        load("mnist", tmp_path)
    place.unlink()
    with pytest.raises(ParameterError, match=r"train-images-idx3-ubyte does not exist"):
        load("mnist", tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\x1f\x8b\x08\x00", "first bytes 1f8b0800. If it ends in .gz, unpack it"),
        (b"", "found first bytes none"),
        (idx(np.zeros((3, 2)))[:-1], "says that it holds 3 x 2 bytes, found 5"),
    ],
)
def test_what_is_no_idx_file_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    write(tmp_path, "file", content)
    with pytest.raises(ParameterError, match=message):
        read_idx(tmp_path / "file", 2)


# Tables --------------------------------------------------------------------------------------------------------------------

_PERSON = (
    "39, State-gov, 77516, Bachelors, 13, Never-married, Adm-clerical, Not-in-family, White, Male, 2174, 0, 40, Cuba, <=50K"
)
_UNKNOWN = "52, ?, 287927, HS-grad, 9, Married-civ-spouse, ?, Wife, White, Female, 15024, 0, 45, ?, >50K"


def test_adult_is_read_with_its_oddities(tmp_path: Path) -> None:
    write(tmp_path, "adult.test", f"|1x3 Cross validator\n{_PERSON}.\n{_UNKNOWN}.\n\n".encode())
    x, y = adult.read(tmp_path / "adult.test", 2, "compact")
    assert y.tolist() == [0, 1]
    # age, age², education, hours, gain, large gain, loss, married, male, professions, trades, manual, own company
    log = np.log1p([2174, 15024]) / np.log(100_000)
    np.testing.assert_allclose(x[0], [-1 / 15, 1 / 225, 1, 0, log[0], 0, 0, 0, 1, 0, 0, 0, 0], rtol=1e-5)
    np.testing.assert_allclose(x[1], [0.8, 0.64, -1 / 3, 5 / 12, log[1], 1, 0, 1, 0, 0, 0, 1, 0], rtol=1e-5)
    few, _ = adult.read(tmp_path / "adult.test", 2, "small")
    # age, education, hours, married, kind of work, capital, self-employed
    np.testing.assert_allclose(few, [[-0.3025, 1, 0, 0, 0, 0, 0], [-0.01, -1 / 3, 5 / 12, 1, -1, 4, 0]], rtol=1e-4, atol=1e-6)
    full, _ = adult.read(tmp_path / "adult.test", 2, "full")
    assert full.shape == (2, 50)
    assert full[:, 8:16].sum(axis=1).tolist() == [1, 0], "an unknown work class is none of the eight"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"{_PERSON}\n", "must hold 2 records, found 1"),
        (f"{_PERSON}\n39, State-gov\n", "record 1: expected 15 fields, found 2"),
        (f"{_PERSON}\n{_PERSON.replace('<=50K', '60K')}\n", "record 1: income must be one of <=50K, >50K, found '60K'"),
        (f"{_PERSON}\n{_PERSON.replace('39', 'old', 1)}\n", "age must be a number in every record"),
    ],
)
def test_a_table_that_is_not_adult_is_refused(tmp_path: Path, text: str, message: str) -> None:
    write(tmp_path, "adult.data", text.encode())
    with pytest.raises(ParameterError, match=message):
        adult.read(tmp_path / "adult.data", 2, "compact")


def _stay(patient: int, readmitted: str, **changes: str) -> str:
    plain = dict.fromkeys(diabetes.COLUMNS, "No") | {
        **dict.fromkeys(("race", "weight", "payer_code", "medical_specialty", "diag_2", "diag_3"), "?"),
        **dict.fromkeys((name for name in diabetes.COLUMNS if name.startswith(("num", "time"))), "1"),
        **dict.fromkeys((name for name in diabetes.COLUMNS if name.endswith("_id")), "1"),
        **{"gender": "Male", "age": "[70-80)", "diag_1": "250.83", "max_glu_serum": "None", "A1Cresult": ">7"},
        **{"patient_nbr": str(patient), "readmitted": readmitted},
    }
    return ",".join((plain | changes).values())


def _zipped(root: Path, lines: Sequence[str]) -> KnownFile:
    (root / "diabetes").mkdir(exist_ok=True)
    with zipfile.ZipFile(root / "diabetes/d.zip", "w") as archive:
        archive.writestr(diabetes.MEMBER, "\n".join([",".join(diabetes.COLUMNS), *lines]) + "\n")
    return write(root, "diabetes/d.zip", (root / "diabetes/d.zip").read_bytes())


def test_diabetes_is_divided_by_patient(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stays = [_stay(patient, "<30" if patient % 3 == 0 else "NO") for patient in range(40) for _ in range(2)]
    monkeypatch.setattr(diabetes, "ARCHIVE", _zipped(tmp_path, stays))
    monkeypatch.setattr(diabetes, "RECORDS", len(stays))
    split = load("diabetes", tmp_path)
    assert split.private.unit == "user"
    x, _ = split.test.open()
    assert len(split.private) + len(split.public_x) + len(x) == len(stays)
    assert len(split.private.unit_ids) * 2 == len(split.private), "both stays of a patient are on one side"
    patient_of = np.repeat(np.arange(40), 2)
    rows = [int(row) for row in split.private.record_ids]
    assert split.private.y.tolist() == (patient_of[rows] % 3 == 0).astype(int).tolist()
    parts = Partition.by_hash(split.private, 5, salt="t", allow_empty=True)
    assert parts.unit == "user"


def test_diagnoses_and_unknowns_of_diabetes(tmp_path: Path) -> None:
    known = _zipped(tmp_path, [_stay(1, "NO"), _stay(2, ">30", diag_1="428", discharge_disposition_id="11", race="Asian")])
    table = diabetes.read(known.checked(tmp_path), 2)
    x = diabetes.full(table)
    changed = np.flatnonzero(x[0] != x[1])
    assert len(changed) == 5, "one race more; home to dead; diabetes to circulatory"
    assert diabetes.labels(table).tolist() == [0, 0]
    compared = diabetes.small(table)
    assert compared.shape == (2, 11)
    assert np.flatnonzero(compared[0] != compared[1]).tolist() == [8], "dead"
    with pytest.raises(ParameterError, match="diabetes encoding must be one of small, full, got 'large'"):
        diabetes.Diabetes(encoding="large")
    write(tmp_path, "no.zip", b"PK no")
    with pytest.raises(ParameterError, match=r"must be a zip archive with dataset_diabetes/diabetic_data\.csv"):
        diabetes.read(tmp_path / "no.zip", 2)


def _connection(service: str = "http", count: int = 8, label: str = "normal.") -> str:
    row = dict.fromkeys(kddcup99.COLUMNS, "0") | {"protocol_type": "tcp", "service": service, "flag": "SF"}
    return ",".join((row | {"count": str(count), "label": label}).values())


def test_kddcup_copies_are_left_out_or_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [_connection(count=count, label="smurf." if count % 2 else "normal.") for count in range(50)] * 2
    known = write(tmp_path, "kdd.gz", gzip.compress(("\n".join(rows) + "\n").encode()))
    monkeypatch.setattr(kddcup99, "ARCHIVE", known)
    monkeypatch.setattr(kddcup99, "RECORDS", 100)
    once, all_of_them = load("kddcup99", tmp_path), load("kddcup99", tmp_path, deduplicate=False)
    for split, total in ((once, 50), (all_of_them, 100)):
        assert len(split.private) + len(split.public_x) + len(split.test.open()[0]) == total
        rows_of = np.array([int(row) for row in split.private.record_ids])
        assert split.private.y.tolist() == (rows_of % 50 % 2).tolist(), "0 is normal, 1 an attack"
        counts = np.rint(split.private.x[:, kddcup_column("count")] * 511)
        assert counts.tolist() == (rows_of % 50).tolist(), "an id is the row in the file"
    monkeypatch.setattr(kddcup99, "RECORDS", 101)
    with pytest.raises(ParameterError, match=r"kdd\.gz must hold 101 records, found 100"):
        load("kddcup99", tmp_path)


def kddcup_column(name: str) -> int:
    """Of a counter: after 3 protocols, 11 flags, 70 services and 14 amounts."""
    return 3 + 11 + 70 + 14 + ("count", "srv_count").index(name)


# Splits --------------------------------------------------------------------------------------------------------------------


def test_a_test_set_is_opened_once() -> None:
    reads = []
    test = TestSet(lambda: (reads.append(1) or np.zeros((3, 2)), np.array([0, 1, 1])))  # type: ignore[func-returns-value]
    assert repr(test) == "TestSet(not opened)"
    assert not reads
    assert test.open()[1].dtype == np.int64
    for again in (None, "", "  "):
        with pytest.raises(ParameterError, match="opened already"):
            test.open(again)
    assert reads == [1]
    test.open("a second student on the same split")
    assert test.openings == ("at the end", "again: a second student on the same split")
    with pytest.raises(ParameterError, match="3 records and 2 labels"):
        TestSet(lambda: (np.zeros((3, 2)), np.array([0, 1]))).open()


def test_hidden_labels_say_how_many_they_gave_out() -> None:
    labels = HiddenLabels(lambda: np.array([3, 1, 2], dtype=np.uint8))
    assert labels.of([2, 0]).tolist() == [2, 3]
    assert labels.asked == 2
    assert "3" not in repr(labels)


def test_a_missing_root_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("PATE_DATA", raising=False)
    with pytest.raises(ParameterError, match=r"Set the environment variable PATE_DATA, or give root="):
        load("mnist")
    with pytest.raises(ParameterError, match="root must be a directory"):
        load("mnist", tmp_path / "nowhere")
    monkeypatch.setenv("PATE_DATA", str(tmp_path))
    with pytest.raises(ParameterError, match=r"adult\.data does not exist"):
        load("adult")
    with pytest.raises(ParameterError, match=r"unknown parameter 'protocl' \(did you mean 'protocol'\?\)"):
        load("mnist", protocl="B")
    with pytest.raises(ParameterError, match="must be A or B, got 'C'"):
        load("adult", protocol="C")


def test_every_data_set_is_described() -> None:
    described = known_datasets()
    assert set(described) == set(BUILT_IN)
    assert all(described.values())


def parts_of(split: Split) -> tuple[int, int]:
    return len(split.private), len(split.public_x)


@needs_data
def test_the_real_pictures() -> None:
    a, b, fashion = load("mnist"), load("mnist", protocol="B"), load("fashion-mnist")
    assert (parts_of(a), parts_of(b), parts_of(fashion)) == ((60_000, 9_000), (50_000, 10_000), (50_000, 10_000))
    # The labels as the files' own documentation begins: 5 0 4 1 9 …; 7 2 1 0 4 …
    assert a.private.y[:5].tolist() == b.private.y[:5].tolist() == [5, 0, 4, 1, 9]
    assert a.public_labels.of(np.arange(5)).tolist() == [7, 2, 1, 0, 4]
    assert fashion.class_names[fashion.private.y[0]] == "Ankle boot"
    assert (len(a.test.open()[1]), len(b.test.open()[1])) == (1_000, 10_000)


@needs_data
def test_the_real_adult() -> None:
    a, b = load("adult", encoding="compact"), load("adult", protocol="B", encoding="full")
    assert (parts_of(a), parts_of(b)) == ((32_561, 10_854), (24_561, 8_000))
    assert a.private.y.sum() == 7_841, "24.08% of adult.data earn more than 50K"
    x, y = b.test.open()
    assert (x.shape, int(y.sum())) == ((16_281, 50), 3_846), "23.62% of adult.test"
    assert len(a.test.open()[1]) == 5_427


@needs_data
@pytest.mark.slow
def test_the_real_large_tables() -> None:
    stays, connections, copies = load("diabetes"), load("kddcup99"), load("kddcup99", deduplicate=False)
    total = len(stays.private) + len(stays.public_x) + len(stays.test.open()[1])
    assert total == 101_766
    assert len(connections.private) + len(connections.public_x) + len(connections.test.open()[1]) == 145_586
    assert copies.private.y.mean() == pytest.approx(0.803, abs=0.002)
