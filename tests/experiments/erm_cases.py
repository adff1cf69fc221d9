"""Small runs of private ERM: made-up wards with two kinds of patients."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from pate.experiments.datasets import HiddenLabels, Split, TestSet
from pate.experiments.datasets.base import DatasetSource
from pate.teachers import PrivateData

PEOPLE = 900


@dataclass(frozen=True)
class Pair(DatasetSource):
    """Two kinds of patients, well apart. Private: a run on it is a release."""

    needs_files: ClassVar[bool] = False

    def load(self, root: Path) -> Split:
        rng = np.random.default_rng(7)
        y = rng.integers(0, 2, PEOPLE + 400)
        x = (rng.normal(size=(len(y), 4)) + 3 * np.eye(4)[y]).astype(np.float32)
        return Split(
            name="pair",
            protocol="made up",
            private=PrivateData(x[:PEOPLE], y[:PEOPLE], ids=[f"patient {row}" for row in range(PEOPLE)], name="pair"),
            public_x=x[PEOPLE : PEOPLE + 200],
            test=TestSet(lambda: (x[-200:], y[-200:])),
            public_labels=HiddenLabels(lambda: y[PEOPLE : PEOPLE + 200]),
            class_names=("a", "b"),
        )


@dataclass(frozen=True)
class PublicPair(Pair):
    """The same, as a public benchmark: a run on it is a simulation."""

    @property
    def benchmark(self) -> bool:
        return True


@dataclass(frozen=True)
class GroupedPair(PublicPair):
    """The same, three records for each patient."""

    def load(self, root: Path) -> Split:
        split = super().load(root)
        private, patients = split.private, [f"patient {row // 3}" for row in range(PEOPLE)]
        return replace(
            split, private=PrivateData(private.x, private.y, ids=list(range(PEOPLE)), group_by=patients, name="pair")
        )


def erm_tables(source: str = "PublicPair", **changes: Any) -> dict[str, Any]:
    """Tables of a recipe; those of ``erm`` are merged into the ones that are there. Of private data the number is declared."""
    erm: dict[str, Any] = {"model": "logistic", "data_norm": 5.0}
    if source == "Pair":
        erm["records"] = 1000
    return {
        "title": "tiny",
        "data": {"source": f"erm_cases:{source}"},
        "privacy": {"epsilon": 2.0},
        **changes,
        "erm": {**erm, **changes.get("erm", {})},
    }
