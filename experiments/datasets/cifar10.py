"""CIFAR-10: small photographs of ten kinds of things (Krizhevsky 2009)."""

from __future__ import annotations

import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from pate.arrays import IntArray
from pate.errors import DataError
from pate.experiments.datasets.base import Benchmark, HiddenLabels, Split, TestSet
from pate.experiments.datasets.files import KnownFile
from pate.experiments.datasets.pictures import unit_pixels
from pate.features.base import Float32Array
from pate.teachers import PrivateData

# The binary version: the Python version is pickled, and whoever can change a pickle can run code. MD5 as its page states it.
ARCHIVE = KnownFile("CIFAR10/cifar-10-binary.tar.gz", None, None, md5="c32a1d4ab5d03f1284b67883e8d87530")
TRAIN = tuple(f"cifar-10-batches-bin/data_batch_{number}.bin" for number in range(1, 6))
TEST = ("cifar-10-batches-bin/test_batch.bin",)
PUBLIC = 10_000
CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
_RECORD = 1 + 3 * 32 * 32  # the label, then red, green and blue


@dataclass(frozen=True)
class CIFAR10(Benchmark):
    """Photographs, 3 x 32 x 32, float32 in 0..1: 40,000 private, the last 10,000 training pictures public, full test set."""

    name: ClassVar[str] = "cifar10"
    files: ClassVar[tuple[KnownFile, ...]] = (ARCHIVE,)

    def load(self, root: Path) -> Split:
        path = ARCHIVE.checked(root)
        x, y = read(path, TRAIN)
        return Split(
            name=self.name,
            protocol=f"{PUBLIC:,} of train public",
            private=PrivateData(x[:-PUBLIC], y[:-PUBLIC], ids=np.arange(len(y) - PUBLIC), name=self.name),
            public_x=x[-PUBLIC:],
            test=TestSet(lambda: read(path, TEST)),
            public_labels=HiddenLabels(lambda: y[-PUBLIC:]),
            class_names=CLASSES,
            test_is_public=True,
        )


def read(path: Path, members: tuple[str, ...]) -> tuple[Float32Array, IntArray]:
    """Pictures float32[record, 3, 32, 32] and labels int64[record] of some files in the archive."""
    try:
        with tarfile.open(path) as archive:
            raw = b"".join(file.read() for file in map(archive.extractfile, members) if file is not None)
    except (tarfile.TarError, KeyError, EOFError, OSError) as error:
        raise DataError(f"{path} must be an archive with {members[0]}: {error}. Fetch the original again.") from error
    if not raw or len(raw) % _RECORD:
        raise DataError(f"{path}: {members[0]} must hold records of {_RECORD} bytes, found {len(raw)} bytes.")
    table = np.frombuffer(raw, dtype=np.uint8).reshape(-1, _RECORD)
    return unit_pixels(table[:, 1:].reshape(-1, 3, 32, 32)), table[:, 0].astype(np.int64)
