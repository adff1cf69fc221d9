"""Aggregators by name."""

from __future__ import annotations

import importlib.metadata

import pytest

from pate.aggregators import BUILT_IN, ConfidentGNMax, GNMax, aggregator_class, make_aggregator
from pate.errors import ParameterError, ReferenceNotFound


def test_built_in_names() -> None:
    assert set(BUILT_IN) == {
        *("lnmax", "gnmax", "confident-gnmax", "interactive-gnmax", "noisy-histogram", "stable-max", "sparse-vector")
    }
    assert make_aggregator("confident-gnmax", {"threshold": 200, "sigma1": 150, "sigma2": 40}) == ConfidentGNMax(200, 150, 40)


def test_reference_to_a_class() -> None:
    assert aggregator_class("pate.aggregators.noisy_max:GNMax") is GNMax


def test_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    point = importlib.metadata.EntryPoint("mine", "pate.aggregators.noisy_max:GNMax", "pate.aggregators")
    monkeypatch.setattr("pate.references.entry_points", lambda group: [point] if group == "pate.aggregators" else [])
    assert aggregator_class("mine") is GNMax


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("gnmx", "did you mean 'gnmax'"),
        ("nothing_like_it", "Known: confident-gnmax, gnmax"),
        ("no_such_package.module:Thing", "No module named 'no_such_package'"),
        ("pate.aggregators:GNMx", "did you mean 'GNMax'"),
        ("pate.votes:Votes", "must be a subclass"),
        ("pate.votes:", "must look like"),
    ],
)
def test_a_wrong_name_is_explained(name: str, message: str) -> None:
    with pytest.raises(ReferenceNotFound, match=message):
        aggregator_class(name)


def test_all_wrong_parameters_are_named_at_once() -> None:
    with pytest.raises(ParameterError, match=r"unknown parameter 'sigm' \(did you mean 'sigma'\?\); missing parameter 'sigma'"):
        make_aggregator("gnmax", {"sigm": 3})


def test_an_error_inside_a_users_module_is_not_swallowed(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    with open(f"{tmp_path}/users_module.py", "w") as file:
        file.write("import a_package_that_is_not_there\n")
    with pytest.raises(ModuleNotFoundError, match="a_package_that_is_not_there"):
        aggregator_class("users_module:Mine")
