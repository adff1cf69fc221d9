"""One student on one data set with one kind of labels and one seed: fitted, timed, and only then tested."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from pate.errors import PateError
from pate.execution.base import Shared
from pate.experiments.bench.student_questions import Subject, from_json
from pate.experiments.datasets import Split
from pate.experiments.evaluation import evaluate
from pate.student.base import Student
from pate.student.presets import presets_of
from pate.student.registry import student

_CACHE = "PATE_CACHE"
_QUICK = {"steps": 40, "epochs": 1, "rounds": 2}
"""At most so much of whatever of this a student or its features have, for a smoke test."""


@dataclass(frozen=True)
class Cell:
    """One cell of the table.

    queries, release: of :func:`pate.experiments.bench.student_questions.ask`.
    folder: where its student keeps the features that it fits on public data, for its other cells.
    """

    subject: Subject
    student: str
    labels: str
    queries: tuple[int, ...]
    release: dict[str, Any]
    folder: str

    @property
    def key(self) -> str:
        quick = ", quick" if self.subject.quick else ""
        return f"{self.subject.dataset}, {self.labels}, {self.student}, seed {self.subject.seed}{quick}"


def learner(name: str, subject: Subject) -> Student:
    """The student with its preset for the data set, its defaults where it has none."""
    preset = subject.dataset if subject.dataset in presets_of(name) else None
    found = student(name, preset=preset, **subject.problem.settings.get(name, {}), seed=subject.seed)
    if not subject.quick:
        return found
    settings = _fewer(found.settings())
    if settings.get("features") in ("auto", "contrastive") and subject.problem.features == "contrastive":
        settings["features"] = subject.features  # as short as those for the queries
    return student(name, **settings)


def _fewer(settings: Any) -> Any:
    """The same settings with less work, at any depth."""
    if isinstance(settings, Mapping):
        return {
            key: min(_QUICK[key], value) if key in _QUICK and isinstance(value, int) else _fewer(value)
            for key, value in settings.items()
        }
    return [_fewer(each) for each in settings] if isinstance(settings, list) else settings


def run_cell(cell: Cell, shared: Shared) -> dict[str, Any]:
    """The row of one cell: JSON values. What a student raises on purpose is its result, and the others go on."""
    split = cell.subject.load()
    fresh = learner(cell.student, cell.subject)
    with own_cache(cell.folder):
        try:
            fitted = fresh.fit(split.public_x, from_json(cell.release), np.array(cell.queries), show="none")
        except PateError as error:
            return {"error": str(error)}
    before = fitted.record["pretraining_seconds"]
    times = {"pretraining_seconds": before, "fit_seconds": fitted.record["seconds"] - before}
    return {"error": None, **times, **tested(fitted, split)}


@contextmanager
def own_cache(folder: str) -> Iterator[None]:
    """Inside the block fitted features are kept in ``folder``: a benchmark must not find done what it is to measure."""
    before = os.environ.get(_CACHE)
    os.environ[_CACHE] = folder
    try:
        yield
    finally:
        if before is None:
            del os.environ[_CACHE]
        else:
            os.environ[_CACHE] = before


def tested(fitted: Student, split: Split) -> dict[str, Any]:
    """The one look at the test split: everything is decided by now."""
    assert split.test is not None  # every benchmark has one
    found, _, _ = evaluate(fitted, split.test, split.n_classes)
    return found.model_dump(include={"accuracy", "majority", "auc", "tested"})
