"""Teacher families by name, and back."""

from __future__ import annotations

import importlib.metadata
import json
import subprocess
import sys

import pytest
from check_family_cases import CASES, Case, NearestMean

from pate.errors import ParameterError, ReferenceNotFound
from pate.references import load_reference
from pate.teachers.registry import BUILT_IN, describe, family_name, from_description, known_families, teacher_family
from pate.teachers.sklearn_teachers import ForestTeachers, KNNTeachers, SklearnTeachers
from pate.testing import check_family


def case_id(case: Case) -> str:
    return f"{case[0]} {json.dumps(case[1])[:60]}"


@pytest.mark.parametrize("case", CASES, ids=case_id)
def test_every_family_keeps_the_contract(case: Case) -> None:
    name, settings, shape = case
    check_family(teacher_family(name, settings), shape=shape)


def test_every_built_in_has_a_case() -> None:
    assert set(BUILT_IN) <= {name for name, _, _ in CASES}


@pytest.mark.parametrize("case", CASES, ids=case_id)
def test_a_description_makes_an_equal_family(case: Case) -> None:
    name, settings, _ = case
    family = teacher_family(name, settings)
    description = json.loads(json.dumps(describe(family)))
    assert type(from_description(description)) is type(family)
    assert describe(from_description(description)) == description
    assert description["family"] == family_name(family)
    assert description["family"] == (name if name in BUILT_IN else "sklearn")


def test_a_class_with_fit_and_predict_is_wrapped() -> None:
    family = teacher_family("check_family_cases:NearestMean", {"power": 1.0})
    assert isinstance(family, SklearnTeachers)
    assert (family.estimator, family.parameters) == ("check_family_cases:NearestMean", {"power": 1.0})
    assert load_reference("check_family_cases:NearestMean") is NearestMean


def test_a_reference_to_a_family() -> None:
    family = teacher_family("pate.teachers.sklearn_teachers:ForestTeachers", {"n_estimators": 7})
    assert isinstance(family, ForestTeachers)
    assert describe(family)["family"] == "forest"


def test_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    point = importlib.metadata.EntryPoint("mine", "pate.teachers.sklearn_teachers:KNNTeachers", "pate.teachers")
    monkeypatch.setattr("pate.references.entry_points", lambda group: [point] if group == "pate.teachers" else [])
    family = teacher_family("mine", {"n_neighbors": 3})
    assert isinstance(family, KNNTeachers)
    assert family.n_neighbors == 3


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("forst", "did you mean 'forest'"),
        ("nothing_like_it", "Known: boosting, cnn, forest"),
        ("no_such_package.module:Thing", "No module named 'no_such_package'"),
        ("sklearn.tree:DecisionTreeClasifier", "did you mean 'DecisionTreeClassifier'"),
        ("pate.votes:Votes", "or a class with fit and predict"),
        ("pate.teachers.registry:describe", "or a class with fit and predict"),
    ],
)
def test_a_wrong_name_is_explained(name: str, message: str) -> None:
    with pytest.raises(ReferenceNotFound, match=message):
        teacher_family(name)


def test_wrong_settings_are_named() -> None:
    with pytest.raises(ParameterError, match=r"unknown parameter 'n_estimator' \(did you mean 'n_estimators'\?\)"):
        teacher_family("forest", {"n_estimator": 3})
    with pytest.raises(ParameterError, match="has no parameter 'depth'"):
        teacher_family("sklearn.tree:DecisionTreeClassifier", {"depth": 3})


def test_every_family_has_a_line_of_help_which_is_its_own() -> None:
    lines = known_families()
    assert list(lines) == list(BUILT_IN)
    for name, line in lines.items():
        assert line
        assert line == (load_reference(BUILT_IN[name]).__doc__ or "").partition("\n")[0]


@pytest.mark.parametrize("code", ["known_families()", "teacher_family('logistic')", "teacher_family('ridge')"])
def test_what_is_not_needed_is_not_imported(code: str) -> None:
    heavy = "[name for name in ('torch', 'sklearn') if name in sys.modules]"
    program = f"import sys; from pate.teachers.registry import *; {code}; print({heavy})"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
