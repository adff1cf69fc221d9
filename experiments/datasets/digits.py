"""scikit-learn's embedded digits: no files, no download."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from pate.digests import keyed_place
from pate.experiments.datasets.base import Benchmark, HiddenLabels, Split, TestSet
from pate.extras import require
from pate.teachers import PrivateData


@dataclass(frozen=True)
class Digits(Benchmark):
    """1,797 digits of 8 x 8 pixels, float32 in 0..1: about 1,000 private, 400 public, 400 for the test."""

    name: ClassVar[str] = "digits"
    needs_files: ClassVar[bool] = False

    def load(self, root: Path) -> Split:
        found = require("sklearn.datasets", "train").load_digits()
        # Pixels are 0..16 by the definition of the data set: a declared range, not one learned from private data.
        x, y = (found.images / 16).astype(np.float32), found.target.astype(np.int64)
        place = keyed_place(np.arange(len(y)), "digits-split", 18)
        private, public, test = place < 10, (place >= 10) & (place < 14), place >= 14
        return Split(
            name=self.name,
            protocol="by a hash of the row number",
            private=PrivateData(x[private], y[private], ids=np.flatnonzero(private), name=self.name),
            public_x=x[public],
            test=TestSet(lambda: (x[test], y[test])),
            public_labels=HiddenLabels(lambda: y[public]),
            class_names=tuple("0123456789"),
            test_is_public=True,
        )
