"""SVHN: house numbers photographed in the street (Netzer et al. 2011)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
from scipy.io import loadmat

from pate.arrays import IntArray
from pate.errors import DataError
from pate.experiments.datasets.base import Benchmark, HiddenLabels, Split, TestSet
from pate.experiments.datasets.files import KnownFile
from pate.experiments.datasets.pictures import unit_pixels
from pate.features.base import Float32Array
from pate.teachers import PrivateData

# The publisher states no SHA-256; these MD5 sums are the ones that torchvision checks.
TRAIN = KnownFile("SVHN/train_32x32.mat", None, None, md5="e26dedcc434d2e4c54c9b2d4a06d8373")
TEST = KnownFile("SVHN/test_32x32.mat", None, None, md5="eb5a983be6a315427106f1b164d9cef3")
PUBLIC = 10_000


@dataclass(frozen=True)
class SVHN(Benchmark):
    """House numbers, 3 x 32 x 32, float32 in 0..1: the training pictures private, the first 10,000 test pictures public."""

    name: ClassVar[str] = "svhn"
    files: ClassVar[tuple[KnownFile, ...]] = (TRAIN, TEST)

    def load(self, root: Path) -> Split:
        x, y = read(TRAIN.checked(root))
        other_x, other_y = read(TEST.checked(root))
        return Split(
            name=self.name,
            protocol=f"train private, the first {PUBLIC:,} of test public",
            private=PrivateData(x, y, ids=np.arange(len(y)), name=self.name),
            public_x=other_x[:PUBLIC],
            test=TestSet(lambda: (other_x[PUBLIC:], other_y[PUBLIC:])),
            public_labels=HiddenLabels(lambda: other_y[:PUBLIC]),
            class_names=tuple("0123456789"),
            test_is_public=True,
        )


def read(path: Path) -> tuple[Float32Array, IntArray]:
    """Pictures float32[record, 3, 32, 32] and labels int64[record] of a MATLAB file with X[32, 32, 3, record] and y."""
    try:
        found = loadmat(str(path))
        pictures, labels = found["X"], found["y"].ravel()
    except Exception as error:  # scipy raises by where the damage is
        raise DataError(f"{path} must be a MATLAB file with X and y ({type(error).__name__}). Fetch it again.") from error
    if pictures.ndim != 4 or pictures.shape[:3] != (32, 32, 3) or len(labels) != pictures.shape[3]:
        raise DataError(f"{path}: X must have the shape (32, 32, 3, records), got {pictures.shape} and {len(labels)} labels.")
    # The digit 0 is called 10 there.
    return unit_pixels(np.ascontiguousarray(pictures.transpose(3, 2, 0, 1))), labels.astype(np.int64) % 10
