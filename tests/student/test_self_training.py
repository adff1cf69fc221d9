"""Self-training learns from public records what a few labels cannot say."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from student_cases import released, rings

from pate.arrays import FloatArray, IntArray
from pate.errors import ParameterError, StudentError
from pate.student.base import Student
from pate.student.tabular.self_training import SelfTraining, pseudo_labels

SEEDS = range(3)
Problem = Callable[[int, int], tuple[FloatArray, IntArray]]


def lop_sided(n: int, seed: int) -> tuple[FloatArray, IntArray]:
    """Two long clouds side by side [n, 2], a fifth of the records in the second."""
    random = np.random.default_rng(seed)
    y = (random.uniform(size=n) < 0.2).astype(np.int64)
    return np.stack([random.normal(0, 3, n) + 1.5 * y, random.normal(0, 0.5, n) + 2.5 * y], axis=1), y


def mean_score(problem: Problem, asked: int, **settings: Any) -> float:
    found = []
    for seed in SEEDS:
        x, y = problem(600, seed)
        queries = np.random.default_rng(seed).choice(len(x), asked, replace=False)
        made = SelfTraining(**settings).fit(x, released(y[queries], 2), queries, show="none")
        found.append(made.score(x, y))
    return float(np.mean(found))


def test_rounds_help_where_classes_are_clouds() -> None:
    alone, trained = (mean_score(lop_sided, 15, base="logistic", parameters={"C": 0.1}, rounds=rounds) for rounds in (0, 8))
    assert trained > alone + 0.01


@pytest.mark.parametrize(
    ("base", "parameters"),
    [
        ("boosting", {"max_iter": 20}),
        ("forest", {"n_estimators": 20}),
        ("mlp", {"max_iter": 200}),
        ("sklearn.neighbors:KNeighborsClassifier", {"n_neighbors": 5}),  # takes no weights
    ],
)
def test_spreading_first_helps_where_classes_are_winding(base: str, parameters: dict[str, object]) -> None:
    # The same three problems and answers for both.
    alone, spread = (
        mean_score(rings, 16, base=base, parameters=parameters, start=start, rounds=0) for start in ("labels", "spreading")
    )
    assert spread > 0.95
    assert spread > alone + 0.05


def test_pseudo_labels_keep_the_answers_shares_and_never_make_them_equal_unasked() -> None:
    random = np.random.default_rng(0)
    first = np.clip(random.normal(0.75, 0.15, 4000), 0, 1)  # nearly all look like class 0
    probabilities = np.stack([first, 1 - first], axis=1)
    for wanted in (0.5, 0.8):
        rows, labels, weights = pseudo_labels(probabilities, 0.5, np.array([wanted, 1 - wanted]))
        assert (labels == 0).mean() == pytest.approx(wanted, abs=0.001)
        assert len(rows) == pytest.approx(2000, abs=1)
        assert np.all((weights >= 0) & (weights <= 1))
    free = pseudo_labels(probabilities, 1.0, None)[1]
    assert np.array_equal(free, probabilities.argmax(axis=1))


def test_it_stops_when_nothing_changes() -> None:
    x, y = lop_sided(300, 0)
    x[:, 1] *= 4  # clearly apart
    made = SelfTraining(base="logistic", rounds=50).fit(x, released(y[:60], 2), np.arange(60), show="none")
    history = made.record["history"]
    assert len(history) < 40
    assert history[-1]["changed"] == 0


def test_a_class_that_was_never_answered_is_never_said() -> None:
    x, y = lop_sided(200, 0)
    made = SelfTraining(base="forest", parameters={"n_estimators": 5}, rounds=1)
    proba = made.fit(x, released(y[:40] * 2, 4), np.arange(40), show="none").predict_proba(x)
    assert proba.shape == (200, 4)
    assert np.all(proba[:, [1, 3]] == 0)


@pytest.mark.parametrize("base", ["boosting", "forest", "mlp"])
def test_it_is_the_same_again_and_from_a_file(base: str, tmp_path: Path) -> None:
    x, y = rings(200, 0)
    parameters = {"boosting": {"max_iter": 3}, "forest": {"n_estimators": 5}, "mlp": {"max_iter": 10}}[base]
    first, second = (
        SelfTraining(base=base, parameters=parameters, start="spreading", rounds=1, seed=3).fit(
            x, released(y[:20], 2), np.arange(20), show="none"
        )
        for _ in range(2)
    )
    first.save(tmp_path / "student")
    expected = first.predict_proba(x)
    assert np.array_equal(second.predict_proba(x), expected)
    assert np.array_equal(Student.load(tmp_path / "student").predict_proba(x), expected)


def test_a_file_with_a_class_of_a_stranger_s_package_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "strange_models.py").write_text(
        "from sklearn.linear_model import LogisticRegression\nclass Mine(LogisticRegression):\n    pass\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    x, y = lop_sided(100, 0)
    made = SelfTraining(base="strange_models:Mine", rounds=1).fit(x, released(y[:30], 2), np.arange(30), show="none")
    made.save(tmp_path / "student")
    with pytest.raises(StudentError, match="whose import runs code"):
        Student.load(tmp_path / "student")
    loaded = Student.load(tmp_path / "student", allow=["strange_models:Mine"])
    assert np.array_equal(loaded.predict(x), made.predict(x))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"base": "boostin"}, "did you mean 'boosting'"),
        ({"start": "graph"}, "must be one of labels, spreading, got 'graph'"),
        ({"adopt": 0}, "above 0 and at most 1, got 0"),
        ({"wrong": 0.5}, "below 0.5, got 0.5"),
        ({"rounds": -1}, "at least 0, got -1"),
    ],
)
def test_bad_settings_are_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises((StudentError, ParameterError), match=message):
        SelfTraining(**settings)  # type: ignore[arg-type]


def test_a_base_that_is_no_classifier_or_lacks_a_parameter_is_refused() -> None:
    x, y = lop_sided(50, 0)
    with pytest.raises(StudentError, match="has no predict_proba"):
        SelfTraining(base="sklearn.svm:LinearSVC").fit(x, released(y, 2), show="none")
    with pytest.raises(ParameterError, match="unknown parameter 'n_estimator'"):
        SelfTraining(base="forest", parameters={"n_estimator": 3}).fit(x, released(y, 2), show="none")
