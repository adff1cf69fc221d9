"""Any scikit-learn classifier as a teacher: parameters, label skew, warnings, files."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pate.arrays import IntArray
from pate.errors import MissingExtra, ParameterError, ReferenceNotFound, TeacherError
from pate.teachers.family import Part
from pate.teachers.sklearn_teachers import (
    BoostingTeachers,
    EstimatorTeachers,
    ForestTeachers,
    KNNTeachers,
    SklearnLogisticTeachers,
    SklearnTeachers,
    foreign_types,
)

PRESETS: list[EstimatorTeachers] = [
    ForestTeachers(n_estimators=10),
    BoostingTeachers(max_iter=10),
    SklearnLogisticTeachers(),
    KNNTeachers(),
]
OWN = "check_family_cases:"


def make_part(labels: Any, shape: tuple[int, ...] = (6,), seed: int = 3, spread: float = 0.3) -> Part:
    """Records around a corner for each class: easy to learn."""
    y = np.array(labels, dtype=np.int64)
    corners = 3 * np.eye(10, int(np.prod(shape)))[y].reshape(len(y), *shape)
    return Part(0, (corners + spread * np.random.default_rng(seed).normal(size=corners.shape)).astype(np.float32), y, seed)


def votes(family: EstimatorTeachers, part: Part, x: Any) -> IntArray:
    return family.predict(family.fit(part, 10), x, 10)


@pytest.mark.parametrize("family", PRESETS, ids=repr)
def test_presets_learn_classes_that_are_not_the_first_ones_from_pictures(family: EstimatorTeachers) -> None:
    part = make_part(np.tile([1, 3, 4], 20), (2, 3))
    fresh = make_part(np.tile([1, 3, 4], 50), (2, 3), seed=8)
    assert (votes(family, part, fresh.x) == fresh.y).mean() > 0.95


@pytest.mark.parametrize("family", PRESETS, ids=repr)
def test_presets_bear_few_records_and_a_class_with_one(family: EstimatorTeachers) -> None:
    for labels in ([2, 5], [2, 2, 5], [5] * 30 + [2] * 29 + [1]):
        part = make_part(labels)
        assert set(votes(family, part, part.x)) <= set(labels)


@pytest.mark.parametrize("labels", [[7] * 5, [7]], ids=["one class", "one record"])
def test_one_class_needs_no_estimator(labels: list[int], tmp_path: Path) -> None:
    family = SklearnTeachers(OWN + "NeverFitted")
    model = family.fit(make_part(labels), 10)
    family.save(model, tmp_path / "model.skops")
    for each in (model, family.load(tmp_path / "model.skops")):
        assert family.predict(each, np.zeros((4, 6)), 10).tolist() == [7] * 4


def test_no_record_is_an_error() -> None:
    with pytest.raises(TeacherError, match="at least one record"):
        KNNTeachers().fit(make_part([]), 10)


def test_boosting_takes_missing_values() -> None:
    part = make_part(np.tile([0, 1], 30))
    holes = np.where(np.random.default_rng(0).random(part.x.shape) < 0.1, np.nan, part.x)
    assert (votes(BoostingTeachers(), Part(0, holes, part.y, 0), part.x) == part.y).mean() > 0.9


def test_the_seed_comes_from_the_part_and_may_be_large() -> None:
    family = ForestTeachers(n_estimators=3)
    labels, queries = np.tile([0, 1, 2], 10), make_part(np.zeros(400), seed=9, spread=3).x
    first, again, other = (votes(family, Part(0, *data(labels), seed), queries) for seed in (2**63 + 1, 2**63 + 1, 2))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def data(labels: Any) -> tuple[Any, IntArray]:
    part = make_part(labels, spread=2)
    return part.x, part.y


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [({}, (3, 1)), ({"random_state": None}, (3, 1)), ({"random_state": 11, "n_jobs": 2}, (11, 2))],
)
def test_seed_and_threads_unless_given(parameters: dict[str, Any], expected: tuple[int, int]) -> None:
    estimator = SklearnTeachers(OWN + "Seeded", parameters).fit(make_part([0, 1], seed=3), 10).estimator
    assert estimator is not None
    assert (estimator.random_state, estimator.n_jobs) == expected


def test_a_forest_uses_one_thread() -> None:
    model = ForestTeachers(n_estimators=2).fit(make_part([0, 1]), 10)
    assert model.estimator is not None
    assert model.estimator.n_jobs is None  # one, in scikit-learn's words


def test_both_spellings_of_a_path_name_one_class() -> None:
    part = make_part(np.tile([0, 1], 5))
    for path in ("sklearn.naive_bayes.GaussianNB", "sklearn.naive_bayes:GaussianNB"):
        assert votes(SklearnTeachers(path), part, part.x).tolist() == part.y.tolist()


def test_what_an_estimator_warns_of_is_kept_not_shown(tmp_path: Path) -> None:
    family = SklearnTeachers("sklearn.linear_model.LogisticRegression", {"max_iter": 1})
    model = family.fit(make_part(np.tile([0, 1, 2], 10)), 10)  # warnings are errors in these tests
    assert [each.partition(":")[0] for each in model.warnings] == ["ConvergenceWarning"]
    family.save(model, tmp_path / "model.skops")
    assert family.load(tmp_path / "model.skops").warnings == model.warnings


def test_a_scaler_is_fitted_on_the_own_part() -> None:
    part = make_part(np.tile([0, 1], 10))
    family = SklearnTeachers(
        {
            "pipeline": [
                ["sklearn.preprocessing.StandardScaler", {}],
                ["sklearn.neighbors.KNeighborsClassifier", {"n_neighbors": 1}],
            ]
        }
    )
    model = family.fit(part, 10)
    assert model.estimator is not None
    np.testing.assert_allclose(model.estimator[0].mean_, part.x.mean(axis=0), rtol=1e-5)
    assert family.predict(model, part.x, 10).tolist() == part.y.tolist()


def test_votes_in_a_column_of_floats_are_taken() -> None:
    part = make_part([4, 6, 4, 6])
    assert votes(SklearnTeachers(OWN + "Column"), part, part.x).tolist() == [4, 6, 4, 6]


def test_votes_that_are_no_classes_are_refused() -> None:
    part = make_part([4, 6, 4, 6])
    with pytest.raises(TeacherError, match="must be class numbers"):
        votes(SklearnTeachers(OWN + "Fractions"), part, part.x)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("sklearn.linear_model.LogisticRegression", {"maxiter": 5}), r"no parameter 'maxiter' \(did you mean 'max_iter'\?\)"),
        (("sklearn.ensemble.VotingClassifier",), "needs the parameter 'estimators'"),
        (("sklearn.linear_model.Ridge",), "must be a classifier"),
        (("sklearn.cluster.KMeans",), "must be a classifier"),
        (("sklearn.ensemble.IsolationForest",), "must be a classifier"),
        (("sklearn.preprocessing.StandardScaler",), "has no predict"),
        (("sklearn.svm.SVC", {"C": np.float64(1) * np.ones(1)}), "must be JSON"),
        (("sklearn.svm.SVC", {"C": float("nan")}), "must be JSON"),
        (("sklearn.svm.SVC", {}, "pickle"), "storage must be"),
        (({"pipeline": []},), "estimator must be"),
        (({"pipe": [["sklearn.svm.SVC", {}]]},), "estimator must be"),
        (({"pipeline": [["sklearn.svm.SVC"]]},), "estimator must be"),
        (({"pipeline": [["sklearn.svm.SVC", {}]]}, {"C": 1}), "estimator must be"),
        (({"pipeline": [["sklearn.svm.SVC", {}], ["sklearn.svm.SVC", {}]]},), "has no transform"),
        (
            ({"pipeline": [["sklearn.decomposition.PCA", {"n": 1}], ["sklearn.svm.SVC", {"c": 1}]]},),
            "no parameter 'n'.*no parameter 'c'",
        ),
    ],
)
def test_a_wrong_recipe_is_refused_before_anything_runs(arguments: Any, message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        SklearnTeachers(*arguments)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("sklearn.linear_model.LogisticRegresion", "did you mean 'LogisticRegression'"),
        ("sklearn.nothing.Here", "No module named 'sklearn.nothing'"),
        ("LogisticRegression", "must look like"),
        ("numpy.sort", "must be a class"),
    ],
)
def test_a_wrong_path_is_explained(path: str, message: str) -> None:
    with pytest.raises(ReferenceNotFound, match=message):
        SklearnTeachers(path)


def test_without_scikit_learn_there_is_a_hint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(MissingExtra, match="sklearn is not installed"):
        SklearnTeachers("sklearn.svm.SVC")


def test_a_class_that_takes_anything_gets_anything() -> None:
    model = SklearnTeachers(OWN + "KeepsWhatItGets", {"depth": 3}).fit(make_part([0, 1]), 10)
    assert model.estimator is not None
    assert model.estimator.parameters == {"depth": 3}


@pytest.mark.parametrize(
    "family",
    [
        *PRESETS,
        SklearnTeachers("sklearn.ensemble.GradientBoostingClassifier", {"n_estimators": 4}),
        SklearnTeachers("sklearn.neural_network.MLPClassifier", {"max_iter": 20}),
        SklearnTeachers(OWN + "NearestMean"),
        SklearnTeachers(OWN + "HoldsAQueue", storage="joblib"),
    ],
    ids=repr,
)
def test_a_loaded_model_votes_as_before(family: EstimatorTeachers, tmp_path: Path) -> None:
    model = family.fit(make_part(np.tile([1, 3, 8], 20), spread=2), 10)
    queries = make_part(np.zeros(500), seed=9, spread=3).x
    path = tmp_path / f"model{family.suffix}"
    family.save(model, path)
    assert np.array_equal(family.predict(family.load(path), queries, 10), family.predict(model, queries, 10))


def test_only_joblib_needs_trust() -> None:
    skops, joblib = (SklearnTeachers("sklearn.svm.SVC", storage=storage) for storage in ("skops", "joblib"))
    assert (skops.suffix, skops.trust_note) == (".skops", "")
    assert joblib.suffix == ".joblib"
    assert "runs code" in joblib.trust_note


def test_a_file_with_foreign_types_is_not_loaded(tmp_path: Path) -> None:
    own = SklearnTeachers(OWN + "NearestMean")
    own.save(own.fit(make_part([0, 1]), 10), tmp_path / "model.skops")
    with pytest.raises(TeacherError, match=r"check_family_cases\.NearestMean.*do not load it"):
        KNNTeachers().load(tmp_path / "model.skops")


def test_a_file_that_would_call_a_function_is_not_loaded(tmp_path: Path) -> None:
    from sklearn.preprocessing import FunctionTransformer
    from skops.io import dump

    trap = FunctionTransformer(np.load, kw_args={"allow_pickle": True})
    dump({"estimator": trap, "classes": np.arange(2), "warnings": []}, tmp_path / "model.skops")
    with pytest.raises(TeacherError, match="numpy"):
        KNNTeachers().load(tmp_path / "model.skops")


def test_which_types_are_foreign() -> None:
    names = ["sklearn.tree._tree.Tree", "numpy.load", "scipy.nothing.There", "posix.system", "mine.Model", "mineral.Model"]
    assert foreign_types(names, own={"mine"}) == [
        "numpy.load",
        "scipy.nothing.There",
        "posix.system",
        "mineral.Model",
    ]


@pytest.mark.parametrize(
    ("estimator", "found"),
    [("HoldsAQueue", "deque"), ("HoldsAPattern", "Pattern"), ("HoldsAGenerator", "cannot be written by skops")],
)
def test_what_skops_would_lose_is_refused_when_it_is_saved(estimator: str, found: str, tmp_path: Path) -> None:
    """skops writes a deque or a pattern without complaint and reads an empty one, or nothing at all."""
    family = SklearnTeachers(OWN + estimator)
    with pytest.raises(TeacherError, match=rf"(?s){found}.*storage='joblib'"):
        family.save(family.fit(make_part([0, 1]), 10), tmp_path / "model.skops")
