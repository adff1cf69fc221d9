"""Small runs for tests: made-up wards, benchmark and private, and a recipe that takes a moment."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from pate.experiments.datasets import HiddenLabels, Split, TestSet
from pate.experiments.datasets.base import DatasetSource
from pate.teachers import PrivateData


@dataclass(frozen=True)
class Ward(DatasetSource):
    """Three kinds of patients, well apart. Private: a run on it is a release."""

    needs_files: ClassVar[bool] = False
    shift: float = 0.0

    def load(self, root: Path) -> Split:
        rng = np.random.default_rng(7)
        y = rng.integers(0, 3, 520)
        x = (rng.normal(size=(520, 4)) + 4 * np.eye(4)[y] + self.shift).astype(np.float32)
        return Split(
            name="ward",
            protocol="made up",
            private=PrivateData(x[:300], y[:300], ids=[f"patient {row}" for row in range(300)], name="ward"),
            public_x=x[300:420],
            test=TestSet(lambda: (x[420:], y[420:])),
            public_labels=HiddenLabels(lambda: y[300:420]),
            class_names=("a", "b", "c"),
        )


@dataclass(frozen=True)
class PublicWard(Ward):
    """The same, as a public benchmark: a run on it is a simulation."""

    @property
    def benchmark(self) -> bool:
        return True


@dataclass(frozen=True)
class GroupedWard(PublicWard):
    """The same, three records for each patient."""

    def load(self, root: Path) -> Split:
        split = super().load(root)
        private, patients = split.private, [f"patient {row // 3}" for row in range(300)]
        people = PrivateData(private.x, private.y, ids=list(range(300)), group_by=patients, name="ward")
        return replace(split, private=people)


def tiny(source: str = "PublicWard", **changes: Any) -> dict[str, Any]:
    """Tables of a recipe; a table in ``changes`` is merged into the one that is there."""
    tables: dict[str, Any] = {
        "title": "tiny",
        "data": {"source": f"pipeline_cases:{source}"},
        "teachers": {"model": "ridge", "count": 10},
        "queries": {"count": 8},
        "aggregator": {"name": "gnmax", "sigma": 3.0},
        "privacy": {"epsilon": 8.0},
        "student": {"model": "spreading"},
    }
    for name, value in changes.items():
        tables[name] = {**tables.get(name, {}), **value} if isinstance(value, dict) else value
    return tables
