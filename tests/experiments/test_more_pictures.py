"""SVHN and CIFAR-10, on small files in their formats: the real ones are too large to have everywhere."""

from __future__ import annotations

import hashlib
import io
import tarfile
from pathlib import Path

import numpy as np
import pytest
from scipy.io import savemat

from pate.errors import DataError
from pate.experiments.datasets import cifar10, load, svhn
from pate.experiments.datasets.files import KnownFile


def known_by_md5(root: Path, path: str) -> KnownFile:
    return KnownFile(path, None, None, md5=hashlib.md5((root / path).read_bytes()).hexdigest())


def write_mat(root: Path, name: str, pictures: np.ndarray, labels: list[int]) -> KnownFile:
    """pictures: uint8[record, 3, 32, 32]."""
    (root / "SVHN").mkdir(exist_ok=True)
    savemat(root / "SVHN" / name, {"X": pictures.transpose(2, 3, 1, 0), "y": np.array(labels, dtype=np.uint8)[:, None]})
    return known_by_md5(root, f"SVHN/{name}")


def test_svhn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    train, test = (rng.integers(0, 256, (count, 3, 32, 32)).astype(np.uint8) for count in (4, 5))
    monkeypatch.setattr(svhn, "TRAIN", write_mat(tmp_path, "train_32x32.mat", train, [1, 10, 9, 10]))
    monkeypatch.setattr(svhn, "TEST", write_mat(tmp_path, "test_32x32.mat", test, [5, 10, 7, 8, 10]))
    monkeypatch.setattr(svhn, "PUBLIC", 3)
    split = load("svhn", tmp_path)
    np.testing.assert_array_equal(np.rint(split.private.x * 255), train)
    assert split.private.y.tolist() == [1, 0, 9, 0], "the digit 0 is called 10 in the file"
    np.testing.assert_array_equal(np.rint(split.public_x * 255), test[:3])
    assert split.public_labels is not None
    assert split.public_labels.of([0, 1, 2]).tolist() == [5, 0, 7]
    assert split.test is not None
    x, y = split.test.open()
    assert x.dtype == np.float32
    np.testing.assert_array_equal(np.rint(x * 255), test[3:])
    assert y.tolist() == [8, 0]


def test_what_is_not_svhn_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "SVHN").mkdir()
    place = tmp_path / "SVHN/train_32x32.mat"
    with pytest.raises(DataError, match=r"train_32x32\.mat does not exist. Fetch it with `pate data fetch`.*MD5 e26ded"):
        load("svhn", tmp_path)
    place.write_bytes(b"another file")
    with pytest.raises(DataError, match=r"must have the MD5 e26ded\w+, found \w{32}: changed or damaged"):
        load("svhn", tmp_path)
    with pytest.raises(DataError, match="must be a MATLAB file with X and y"):
        svhn.read(place)
    savemat(place, {"X": np.zeros((32, 32, 3, 2), dtype=np.uint8), "y": np.zeros((1, 1))})
    with pytest.raises(DataError, match=r"got \(32, 32, 3, 2\) and 1 labels"):
        svhn.read(place)


def test_svhn_is_known_as_torchvision_knows_it() -> None:
    published = pytest.importorskip("torchvision.datasets.svhn").SVHN.split_list
    assert [(file.path, file.md5) for file in (svhn.TRAIN, svhn.TEST)] == [
        (f"SVHN/{name}", md5) for _, name, md5 in (published["train"], published["test"])
    ]


def write_archive(root: Path, batches: dict[str, bytes]) -> KnownFile:
    (root / "CIFAR10").mkdir(exist_ok=True)
    with tarfile.open(root / cifar10.ARCHIVE.path, "w:gz") as archive:
        for name, content in batches.items():
            member = tarfile.TarInfo(f"cifar-10-batches-bin/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return known_by_md5(root, cifar10.ARCHIVE.path)


def batch(labels: list[int], pictures: np.ndarray) -> bytes:
    return b"".join(bytes([label]) + picture.tobytes() for label, picture in zip(labels, pictures, strict=True))


def test_cifar10(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pictures = np.random.default_rng(0).integers(0, 256, (12, 3, 32, 32)).astype(np.uint8)
    batches = {f"data_batch_{n + 1}.bin": batch([n, n + 5], pictures[2 * n : 2 * n + 2]) for n in range(5)}
    archive = write_archive(tmp_path, batches | {"test_batch.bin": batch([3, 4], pictures[10:])})
    monkeypatch.setattr(cifar10, "ARCHIVE", archive)
    monkeypatch.setattr(cifar10, "PUBLIC", 4)
    split = load("cifar10", tmp_path)
    assert split.private.x.dtype == np.float32
    np.testing.assert_array_equal(np.rint(split.private.x * 255), pictures[:6])
    assert split.private.y.tolist() == [0, 5, 1, 6, 2, 7]
    np.testing.assert_array_equal(np.rint(split.public_x * 255), pictures[6:10])
    assert split.public_labels is not None
    assert split.public_labels.of([0, 3]).tolist() == [3, 9]
    assert split.test is not None
    x, y = split.test.open()
    np.testing.assert_array_equal(np.rint(x * 255), pictures[10:])
    assert [split.class_names[label] for label in y] == ["cat", "deer"]


def test_what_is_not_cifar10_is_refused(tmp_path: Path) -> None:
    write_archive(tmp_path, {"data_batch_1.bin": b"too short"})
    place = tmp_path / cifar10.ARCHIVE.path
    with pytest.raises(DataError, match="must have the MD5 c32a1d4ab5d03f1284b67883e8d87530"):
        load("cifar10", tmp_path)
    with pytest.raises(DataError, match=r"must be an archive with .*test_batch\.bin"):
        cifar10.read(place, cifar10.TEST)
    with pytest.raises(DataError, match="must hold records of 3073 bytes, found 9 bytes"):
        cifar10.read(place, cifar10.TRAIN[:1])
    place.write_bytes(place.read_bytes()[:40])
    with pytest.raises(DataError, match="must be an archive"):
        cifar10.read(place, cifar10.TRAIN[:1])
