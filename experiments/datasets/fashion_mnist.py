"""Fashion-MNIST: pictures of clothing (Xiao, Rasul, Vollgraf 2017, arXiv:1708.07747)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from pate.experiments.datasets.base import Benchmark, Split
from pate.experiments.datasets.files import KnownFile
from pate.experiments.datasets.pictures import PictureFiles

FILES = PictureFiles(
    train_images=KnownFile(
        "FashionMNIST/raw/train-images-idx3-ubyte",
        47_040_016,
        "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
    ),
    train_labels=KnownFile(
        "FashionMNIST/raw/train-labels-idx1-ubyte", 60_008, "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9"
    ),
    test_images=KnownFile(
        "FashionMNIST/raw/t10k-images-idx3-ubyte", 7_840_016, "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b"
    ),
    test_labels=KnownFile(
        "FashionMNIST/raw/t10k-labels-idx1-ubyte", 10_008, "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34"
    ),
)

CLASSES = ("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot")


@dataclass(frozen=True)
class FashionMNIST(Benchmark):
    """Clothing, 28 x 28 pixels, float32 in 0..1: 50,000 private, the last 10,000 training pictures public, full test set."""

    name: ClassVar[str] = "fashion-mnist"
    files: ClassVar[tuple[KnownFile, ...]] = FILES.all

    def load(self, root: Path) -> Split:
        return FILES.public_from_train(root, self.name, CLASSES, 10_000, "10,000 of train public")
