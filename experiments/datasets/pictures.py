"""What MNIST and Fashion-MNIST share: four IDX files of 28 x 28 pictures, in torchvision's layout."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pate.experiments.datasets.base import HiddenLabels, Split, TestSet
from pate.experiments.datasets.files import KnownFile, read_idx
from pate.features.base import Float32Array
from pate.teachers import PrivateData


@dataclass(frozen=True)
class PictureFiles:
    """The four files of one data set."""

    train_images: KnownFile
    train_labels: KnownFile
    test_images: KnownFile
    test_labels: KnownFile

    @property
    def all(self) -> tuple[KnownFile, ...]:
        return self.train_images, self.train_labels, self.test_images, self.test_labels

    def public_from_test(self, root: Path, name: str, classes: Sequence[str], n_public: int, protocol: str) -> Split:
        """All training pictures private; the first ``n_public`` test pictures public, the others for the test."""
        others = unit_pixels(read_idx(self.test_images.checked(root), 3))
        test_labels = self.test_labels.checked(root)
        return Split(
            name=name,
            protocol=protocol,
            private=self._private(root, name, slice(None)),
            public_x=others[:n_public],
            test=TestSet(lambda: (others[n_public:], read_idx(test_labels, 1)[n_public:])),
            public_labels=HiddenLabels(lambda: read_idx(test_labels, 1)[:n_public]),
            class_names=tuple(classes),
            test_is_public=True,
        )

    def public_from_train(self, root: Path, name: str, classes: Sequence[str], n_public: int, protocol: str) -> Split:
        """The last ``n_public`` training pictures public, the others private; all test pictures for the test."""
        train, train_labels = self.train_images.checked(root), self.train_labels.checked(root)
        test, test_labels = self.test_images.checked(root), self.test_labels.checked(root)
        return Split(
            name=name,
            protocol=protocol,
            private=self._private(root, name, slice(None, -n_public)),
            public_x=unit_pixels(read_idx(train, 3)[-n_public:]),
            test=TestSet(lambda: (unit_pixels(read_idx(test, 3)), read_idx(test_labels, 1))),
            public_labels=HiddenLabels(lambda: read_idx(train_labels, 1)[-n_public:]),
            class_names=tuple(classes),
            test_is_public=True,
        )

    def _private(self, root: Path, name: str, rows: slice) -> PrivateData:
        pictures = read_idx(self.train_images.checked(root), 3)[rows]
        labels = read_idx(self.train_labels.checked(root), 1)[rows]
        return PrivateData(unit_pixels(pictures), labels, ids=np.arange(len(labels)), name=name)


def unit_pixels(pictures: NDArray[np.uint8]) -> Float32Array:
    """Pixels 0..255, as their type declares, as float32 in 0..1: what features, teachers and students all take."""
    return pictures.astype(np.float32) / np.float32(255)
