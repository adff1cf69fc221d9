"""The one protocol: checks, fallbacks, files. Tried with the cheapest student and with one of a user's own."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from student_cases import released, rings

from pate.errors import ParameterError, PateError, ReferenceNotFound, StudentError
from pate.release import ABSTAIN
from pate.student.answers import Answers
from pate.student.base import OneClassWarning, Student
from pate.student.diary import Diary
from pate.student.graph.spreading_student import Spreading
from pate.student.presets import PRESETS, preset_settings, presets_of
from pate.student.registry import BUILT_IN, known_students, student


class NearestAnswer(Student):
    """A student as a user would write it: the label of the nearest answered record."""

    def __init__(self, power: float = 2.0, seed: int = 0) -> None:
        self.power = power
        self.seed = seed

    def _fit(self, x: NDArray[Any], answers: Answers, diary: Diary) -> None:
        self._points, self._labels, self._classes = x[answers.rows], answers.labels, answers.n_classes

    def _probabilities(self, x: NDArray[Any]) -> NDArray[np.floating]:
        far = (np.abs(x[:, None] - self._points[None]) ** self.power).sum(axis=2)
        return np.eye(self._classes)[self._labels[far.argmin(axis=1)]]

    def _save(self, folder: Path) -> None:
        np.savez(folder / "points.npz", points=self._points, labels=self._labels, classes=self._classes)

    def _load(self, folder: Path) -> None:
        with np.load(folder / "points.npz") as arrays:
            self._points, self._labels, self._classes = arrays["points"], arrays["labels"], int(arrays["classes"])


X, Y = rings(60)
ASKED = np.arange(12)


def test_a_student_of_ones_own_has_the_whole_protocol(tmp_path: Path) -> None:
    mine = NearestAnswer(power=1.0).fit(X, released(Y[ASKED], 2), ASKED)
    assert mine.score(X[ASKED], Y[ASKED]) == 1.0
    mine.save(tmp_path / "mine.zip")
    name = f"{NearestAnswer.__module__}:NearestAnswer"
    with pytest.raises(StudentError, match="whose import runs code"):
        Student.load(tmp_path / "mine.zip")
    again = Student.load(tmp_path / "mine.zip", allow=[name])
    assert isinstance(again, NearestAnswer)
    assert again.power == 1.0
    np.testing.assert_array_equal(again.predict_proba(X), mine.predict_proba(X))
    assert again.record == json.loads(json.dumps(mine.record))


def test_the_record_says_what_the_student_was_made_from() -> None:
    labels = Y[ASKED].copy()
    labels[0] = ABSTAIN
    record = NearestAnswer(seed=3).fit(X, released(labels, 2), ASKED).record
    assert (record["asked"], record["answered"], record["public_records"]) == (12, 11, 60)
    assert record["stamps"] == ["simulation, not private"]
    assert record["mechanisms"] == [{"name": "gnmax", "sigma": 10.0, "mode": "simulation"}]
    assert "numpy" in record["versions"]


def test_one_class_only_becomes_a_constant_with_a_warning(tmp_path: Path) -> None:
    with pytest.warns(OneClassWarning, match="All 12 answers name class 1 of 3"):
        constant = Spreading().fit(X, released(np.ones(12), 3), ASKED)
    constant.save(tmp_path / "one.zip")
    for each in (constant, Student.load(tmp_path / "one.zip")):
        np.testing.assert_array_equal(each.predict_proba(X[:2]), [[0, 1, 0], [0, 1, 0]])


def test_asked_before_it_has_learnt() -> None:
    with pytest.raises(StudentError, match="not fitted"):
        Spreading().predict(X)
    with pytest.raises(StudentError, match="not fitted"):
        Spreading().save("nowhere.zip")


def test_a_failed_fit_leaves_no_half_fitted_student() -> None:
    mine = NearestAnswer().fit(X, released(Y[ASKED], 2), ASKED)
    mine._fit = None  # type: ignore[assignment,method-assign]
    with pytest.raises(TypeError):
        mine.fit(X, released(Y[ASKED], 2), ASKED)
    with pytest.raises(StudentError, match="not fitted"):
        mine.predict(X)


def test_bad_records_are_refused() -> None:
    release = released(Y[ASKED], 2)
    with pytest.raises(ParameterError, match="NaN"):
        NearestAnswer().fit(np.where(X > 2, np.nan, X), release, ASKED)
    with pytest.raises(ParameterError, match="at least one record"):
        NearestAnswer().fit(X[:0], release, ASKED)
    mine = NearestAnswer().fit(X, release, ASKED)
    with pytest.raises(StudentError, match="finite"):
        mine.predict(X * np.inf)
    with pytest.raises(StudentError, match=r"records of shape \(2,\)"):
        mine.predict(X[:, :1])
    with pytest.raises(StudentError, match="label for each of 60"):
        mine.score(X, Y[:5])
    assert mine.predict_proba(X[:0]).shape == (0, 2)
    with pytest.raises(ParameterError, match="seed"):
        NearestAnswer(seed=-1).fit(X, release, ASKED)


def test_files_of_others_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "student.zip"
    with pytest.raises(FileNotFoundError):
        Student.load(path)
    path.write_bytes(b"not a zip")
    with pytest.raises(StudentError, match="holds no student"):
        Student.load(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("../evil", b"x")
    with pytest.raises(StudentError, match="no plain file name"):
        Student.load(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("student.json", json.dumps({"format": 99}))
    with pytest.raises(StudentError, match="format 99"):
        Student.load(path)


def test_students_are_found_by_name() -> None:
    assert student("spreading", neighbours=4).settings()["neighbours"] == 4
    assert known_students().keys() == BUILT_IN.keys()
    assert all(line.endswith(".") or line.endswith(":") or line for line in known_students().values())
    with pytest.raises(ReferenceNotFound, match="did you mean 'spreading'"):
        student("spreding")
    with pytest.raises(PateError, match="unknown parameter 'neighbors'"):
        student("spreading", neighbors=4)
    with pytest.raises(StudentError, match="has no preset 'mnits'"):
        student("propagation", preset="mnits")


def test_every_preset_makes_a_student() -> None:
    for name in BUILT_IN:
        for preset in presets_of(name):
            made = student(name, preset=preset, seed=5)
            assert made.seed == 5
            assert {key: made.settings()[key] for key in preset_settings(name, preset)}.keys() == PRESETS[name][preset].keys()


@pytest.mark.parametrize("settings", [{"alpha": 1.0}, {"wrong": 0.5}, {"neighbours": 0}, {"features": {"names": "hog"}}])
def test_wrong_settings_of_spreading(settings: dict[str, Any]) -> None:
    with pytest.raises(PateError):
        Spreading(**settings).fit(X, released(Y[ASKED], 2), ASKED)
