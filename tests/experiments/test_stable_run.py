"""A recipe whose aggregator has a slack: from data to result, and refused in time where its budget has none."""

from __future__ import annotations

from pathlib import Path

import pytest
from pipeline_cases import tiny

from pate.aggregators import StableMax
from pate.errors import BudgetExceeded, PateError
from pate.execution import Serial
from pate.experiments.pipeline.launch import run
from pate.experiments.recipes.reading import check_recipe

for package in ("sklearn", "matplotlib", "jinja2"):
    pytest.importorskip(package, reason=f"{package} is not installed (extras 'train' and 'plot')")


pytestmark = pytest.mark.usefixtures("own_home")


def recipe(slack: float, **aggregator: object) -> dict[str, object]:
    tables = tiny(privacy={"epsilon": 40.0, "delta": 0.1, "slack": slack})
    tables["aggregator"] = aggregator
    return tables


def test_a_run_with_stable_max(tmp_path: Path) -> None:
    result = run(recipe(0.05, name="stable-max", scale=1.0, delta=0.001), out=tmp_path, executor=Serial(), show="none")
    privacy = result.privacy
    assert privacy.mechanism["aggregator"] == "stable-max"
    assert 0 < privacy.data_dependent <= privacy.data_independent <= 40
    assert 0 < privacy.answered <= privacy.asked == 8
    assert privacy.spent <= 40


def test_a_run_with_a_sparse_vector(tmp_path: Path) -> None:
    mechanism = {"name": "sparse-vector", "threshold_scale": 0.6, "query_scale": 0.6, "delta": 0.01, "refusals": 2}
    result = run(recipe(0.05, **mechanism), out=tmp_path, executor=Serial(), show="none")
    assert result.privacy.data_dependent == result.privacy.data_independent <= 40
    assert result.privacy.asked == 8


def test_a_budget_without_slack_is_noticed_before_anything_is_trained(tmp_path: Path) -> None:
    with pytest.raises(BudgetExceeded, match="nothing of delta is set aside"):
        run(recipe(0.0, name="stable-max", scale=1.0, delta=0.001), out=tmp_path, executor=Serial(), show="none")
    assert not list(tmp_path.rglob("release.json"))


def test_a_slack_is_checked_as_a_share_of_delta() -> None:
    with pytest.raises(PateError, match="share of its delta"):
        check_recipe(recipe(0.2, name="stable-max", scale=StableMax(1.0, 0.001).scale, delta=0.001))
