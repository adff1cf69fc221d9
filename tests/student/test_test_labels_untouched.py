"""The test split is read once, at the end: no student's path from public data to predictions touches a test label."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from pate.arrays import IntArray
from pate.experiments.bench import student_cells
from pate.experiments.bench.student_cells import Cell, learner, run_cell
from pate.experiments.bench.student_questions import Subject, ask, from_json
from pate.experiments.datasets import HiddenLabels, Split, TestSet, load
from pate.student.base import Student
from pate.student.registry import BUILT_IN

SUBJECT = Subject("digits", seed=0, noises=(0.0, 0.1), root=None, quick=True)


class Touched(Exception):
    """Somebody looked at what nobody may look at."""


class Untouchable:
    """Labels of which every use raises until they are released. No array: numpy's C code would read one without asking."""

    def __init__(self, y: IntArray) -> None:
        self._y = y
        self.released = False

    def _use(self, how: str) -> IntArray:
        if not self.released:
            raise Touched(how)
        return self._y

    def __getattr__(self, name: str) -> Any:
        return getattr(self._use(name), name)

    def __len__(self) -> int:
        return len(self._use("len"))

    def __getitem__(self, key: Any) -> Any:
        return self._use("[]")[key]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._use("iter"))

    def __eq__(self, other: object) -> Any:
        return self._use("==") == other

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> IntArray:
        return np.array(self._use("array"), dtype=dtype)


@pytest.fixture
def labels() -> Untouchable:
    """The test labels of the digits, under guard."""
    return Untouchable(load("digits").test.open()[1])


def guarded_split(y: Untouchable, diary: list[str]) -> Split:
    """The digits with guarded test labels; opening the test set is written down and lifts the guard."""
    split = load("digits")
    x, _ = load("digits").test.open()

    def read() -> tuple[Any, Any]:
        diary.append("test opened")
        y.released = True
        return x, y

    return dataclasses.replace(split, test=TestSet(read))


@pytest.fixture(scope="module")
def questions() -> dict[str, Any]:
    return ask(SUBJECT, {})


def test_the_guard_notices(labels: Untouchable) -> None:
    """Whatever one does with labels: compare, count, index, copy, score."""
    uses: tuple[Callable[[], Any], ...] = (
        *(lambda: labels == 3, lambda: labels[0], lambda: len(labels), lambda: list(labels), lambda: labels.mean()),
        *(lambda: np.asarray(labels), lambda: np.bincount(labels), lambda: np.zeros(406) == labels),
    )
    for use in uses:
        with pytest.raises(Touched):
            use()
    labels.released = True
    assert len(labels) == 406
    assert np.bincount(labels).sum() == 406


@pytest.mark.parametrize("name", BUILT_IN)
def test_every_student_learns_without_the_test_split(
    name: str, labels: Untouchable, questions: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    """A whole cell of the benchmark: the guard is lifted by the scoring, after fit has ended, and by nothing else."""
    diary: list[str] = []
    fit = Student.fit

    def watched(self: Student, *arguments: Any, **options: Any) -> Student:
        diary.append("fit begins")
        fitted = fit(self, *arguments, **options)
        diary.append("fit ended")
        return fitted

    monkeypatch.setattr(Student, "fit", watched)
    monkeypatch.setitem(student_cells._QUICK, "steps", 4)
    monkeypatch.setattr(Subject, "load", lambda self: guarded_split(labels, diary))
    release = questions["releases"]["10% wrong"]
    if name == "proportions":  # learns from records that vote once each, on their nearest query
        release = {**release, "electorate": {**release["electorate"], "participation": 1}}
    row = run_cell(Cell(SUBJECT, name, "10% wrong", tuple(questions["queries"]), release, str(tmp_path)), {})
    assert row["error"] is None
    assert diary == ["fit begins", "fit ended", "test opened"]
    assert row["tested"] == 406


def test_a_student_that_fails_leaves_the_test_split_closed(labels: Untouchable, monkeypatch: pytest.MonkeyPatch) -> None:
    diary: list[str] = []
    monkeypatch.setattr(Subject, "load", lambda self: guarded_split(labels, diary))
    silent = {"labels": [-1, -1], "electorate": {"n_teachers": 1, "n_classes": 10}, "mechanism": {}}
    row = run_cell(Cell(SUBJECT, "supervised", "right", (0, 1), silent, ""), {})
    assert "all 2 queries were declined" in row["error"]
    assert diary == []


def test_choosing_and_answering_queries_touches_no_test_label(labels: Untouchable, monkeypatch: pytest.MonkeyPatch) -> None:
    diary: list[str] = []
    split = guarded_split(labels, diary)
    asked = HiddenLabels(lambda: load("digits").public_labels.of(np.arange(len(split.public_x))))
    split = dataclasses.replace(split, public_labels=asked)
    monkeypatch.setattr(Subject, "load", lambda self: split)
    found = ask(SUBJECT, {})
    assert diary == []
    assert asked.asked == len(found["queries"]) == SUBJECT.problem.queries, "the true labels of the queries, and no others"


def test_fit_has_no_door_for_test_data() -> None:
    """What a student may be given has names, and none of them is a test set, a label array or free-form."""
    assert list(inspect.signature(Student.fit).parameters) == ["self", "x_public", "release", "queries", "show"]
    assert list(inspect.signature(Student._fit).parameters) == ["self", "x", "answers", "diary"]
    for name in BUILT_IN:
        kind = type(learner(name, SUBJECT))
        assert kind.fit is Student.fit, f"{name} must not have a fit of its own"
        kinds = {each.kind for each in inspect.signature(kind._fit).parameters.values()}
        assert kinds == {inspect.Parameter.POSITIONAL_OR_KEYWORD}
        assert not {"test", "y", "labels", "x_test", "y_test"} & set(inspect.signature(kind).parameters)


def test_a_release_is_what_the_cell_hands_over(questions: dict[str, Any]) -> None:
    """Noisy labels of the queries, marked as simulated; 4 of 40 are wrong at 10%, and none where none should be."""
    right, wrong = (from_json(questions["releases"][name]) for name in ("right", "10% wrong"))
    assert right.stamp == wrong.stamp == "simulation, not private"
    truth = load("digits").public_labels.of(questions["queries"])
    assert (right.labels == truth).all()
    assert int((wrong.labels != truth).sum()) == 4
