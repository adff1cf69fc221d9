"""``pate check`` of teacher families, and settings that are lists and objects."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pate.commands.settings import parse_settings, parse_shape
from pate.errors import ParameterError

pytest.importorskip("threadpoolctl", reason="threadpoolctl is not installed (extra 'train')")

Pate = Callable[..., Any]

BROKEN = """
import numpy as np
from pate.teachers import TeacherFamily

class Leaky(TeacherFamily):
    suffix = ".npy"

    def __init__(self, shift=0.0):
        self.shift = shift

    def fit(self, part, n_classes):
        means = np.full((n_classes, part.x[0].size), np.inf)
        for label in np.unique(part.y):
            means[label] = part.x[part.y == label].reshape(-1, part.x[0].size).mean(axis=0)
        return means

    def fit_batch(self, parts, n_classes):
        everybody = np.concatenate([part.x for part in parts]).mean()
        return [self.fit(part, n_classes) + everybody for part in parts]

    def predict(self, model, x, n_classes):
        return ((x.reshape(len(x), 1, -1) - model) ** 2).sum(axis=-1).argmin(axis=1)

    def save(self, model, path):
        np.save(path, model)

    def load(self, path):
        return np.load(path)

class NearestMean:
    def fit(self, x, y):
        self.means = np.array([x[y == label].mean(axis=0) for label in range(y.max() + 1)])
        return self

    def predict(self, x):
        return ((x[:, None] - self.means) ** 2).sum(axis=-1).argmin(axis=1)
"""


@pytest.fixture
def own_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "own_teachers.py").write_text(BROKEN)
    monkeypatch.syspath_prepend(str(tmp_path))
    return "own_teachers"


def test_a_built_in_family_passes(pate: Pate) -> None:
    ran = pate("check", "ridge", "--set", "penalty=0.5", "--classes", 3, "--shape", "2,5")
    assert ran.code == 0, ran.out + ran.err
    assert "RidgeTeachers(penalty=0.5): records of shape (2, 5), 3 classes" in ran.out
    assert "all 10 checks passed" in ran.out
    assert "evidence" not in ran.out


def test_a_family_whose_teachers_see_each_other_fails(pate: Pate, own_module: str) -> None:
    ran = pate("check", f"{own_module}:Leaky", "--json")
    assert ran.code == 1
    report = ran.json
    assert report["family"] == "Leaky(shift=0.0)"
    assert (report["passed"], report["classes"], report["shape"]) == (False, 4, [12])
    failed = {each["name"] for each in report["checks"] if not each["passed"]}
    assert "independence: other teachers" in failed
    assert "contract: pickle" not in failed
    assert "✗" in pate("check", f"{own_module}:Leaky").out


def test_any_class_with_fit_and_predict_is_a_family(pate: Pate, own_module: str) -> None:
    pytest.importorskip("skops", reason="skops is not installed (extra 'train')")
    ran = pate("check", f"{own_module}:NearestMean", "--json")
    assert ran.code == 0, ran.out + ran.err
    assert len(ran.json["checks"]) == 10


def test_an_aggregator_is_still_one(pate: Pate) -> None:
    report = pate("check", "gnmax", "-s", "sigma=10", "--teachers", 30, "--classes", 3, "--samples", 10_000, "--json").json
    assert (report["aggregator"], report["evidence"], report["passed"]) == ("GNMax(sigma=10)", "exact", True)
    assert (report["teachers"], report["classes"], report["samples"], report["false_alarm"]) == (30, 3, 10_000, 1e-6)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("ridg",), "did you mean 'ridge'?"),
        (("gnmaxx", "-s", "sigma=3"), "did you mean 'gnmax'?"),
        (
            ("nothing",),
            "interactive-gnmax, lnmax, noisy-histogram, sparse-vector, stable-max; teachers: boosting, cnn",
        ),
        (("no_such_module:Class",), "No module named 'no_such_module'"),
        (("os:getcwd",), "must be a subclass of"),
        (("ridge", "-s", "penalti=1"), "did you mean 'penalty'?"),
        (("ridge", "--teachers", 30, "--samples", 5), "--teachers and --samples cannot be used with a teacher family"),
        (("gnmax", "-s", "sigma=3", "--shape", "8"), "--shape cannot be used with an aggregator"),
        (("ridge", "--classes", 1), "n_classes must be"),
        (("ridge", "--shape", "8,"), "--shape must be whole numbers"),
    ],
)
def test_mistakes(pate: Pate, arguments: tuple[Any, ...], message: str) -> None:
    ran = pate("check", *arguments)
    assert ran.code == 2
    assert len(ran.err.strip().splitlines()) == 1
    assert message in ran.err


# Settings ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("[64, 32]", [64, 32]),
        ("[]", []),
        ('{"C": 10, "solver": "lbfgs"}', {"C": 10, "solver": "lbfgs"}),
        ('[["a:B", {"c": null}]]', [["a:B", {"c": None}]]),
        ('"40"', "40"),
        ("null", None),
        ("nullify", "nullify"),
    ],
)
def test_json_values(text: str, value: object) -> None:
    assert parse_settings([f"key={text}"]) == {"key": value}


def test_json_that_is_none_is_shown_with_all_else() -> None:
    with pytest.raises(ParameterError) as caught:
        parse_settings(["a=[1,", "b={1}", "c=[NaN]", "oops"], "--features-set")
    text = str(caught.value)
    assert text.startswith("--features-set must look like key=value")
    assert all(f"the value of {key!r} begins as JSON but is none" in text for key in "abc")
    assert "'oops'" in text


@pytest.mark.parametrize("text", ["", "0", "-1", "2,", "a", "2;3", "1.5"])
def test_shapes_that_are_none(text: str) -> None:
    with pytest.raises(ParameterError, match="whole numbers of at least 1"):
        parse_shape(text)
