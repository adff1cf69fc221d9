"""MNIST: handwritten digits (LeCun, Cortes, Burges)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from pate.errors import ParameterError
from pate.experiments.datasets.base import Benchmark, Split
from pate.experiments.datasets.files import KnownFile
from pate.experiments.datasets.pictures import PictureFiles

FILES = PictureFiles(
    train_images=KnownFile(
        "MNIST/raw/train-images-idx3-ubyte", 47_040_016, "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db"
    ),
    train_labels=KnownFile(
        "MNIST/raw/train-labels-idx1-ubyte", 60_008, "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5"
    ),
    test_images=KnownFile(
        "MNIST/raw/t10k-images-idx3-ubyte", 7_840_016, "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7"
    ),
    test_labels=KnownFile(
        "MNIST/raw/t10k-labels-idx1-ubyte", 10_008, "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2"
    ),
)


@dataclass(frozen=True)
class MNIST(Benchmark):
    """Handwritten digits, 28 x 28 pixels, float32 in 0..1.

    protocol: "A", the papers': all 60,000 training pictures private, the first 9,000 test pictures public, the last 1,000 for
    the test. "B": 50,000 private, the last 10,000 training pictures public, all 10,000 test pictures for the test.
    """

    name: ClassVar[str] = "mnist"
    files: ClassVar[tuple[KnownFile, ...]] = FILES.all
    protocol: str = "A"

    def __post_init__(self) -> None:
        if self.protocol not in ("A", "B"):
            raise ParameterError(f"mnist protocol must be A or B, got {self.protocol!r}.")

    def load(self, root: Path) -> Split:
        digits = tuple("0123456789")
        if self.protocol == "A":
            return FILES.public_from_test(root, self.name, digits, 9_000, "protocol A")
        return FILES.public_from_train(root, self.name, digits, 10_000, "protocol B")
