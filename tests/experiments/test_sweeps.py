"""Sweeps: what is tried, what is shared, and that every look at private votes is paid for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pipeline_cases import tiny

from pate.aggregators import curve_ahead, make_aggregator
from pate.errors import BudgetExceeded, ParameterError, RecipeError
from pate.execution import Serial
from pate.experiments.reports.sweep_plot import plot_sweep
from pate.experiments.sweeps import CHARGED, NO_DATA, PUBLIC_DATA, Request, Sweep, sweep
from pate.ledger import Ledger
from pate.release import Electorate

for package in ("sklearn", "matplotlib", "jinja2"):
    pytest.importorskip(package, reason=f"{package} is not installed (extras 'train' and 'plot')")


pytestmark = pytest.mark.usefixtures("own_home")


def tried(out: Path, tables: dict[str, Any], grid: dict[str, list[Any]], **more: Any) -> Sweep:
    return sweep(Request(tables, grid, {}, **more), out=out, executor=Serial(), show="none")


def test_every_combination_is_a_run_and_teachers_are_trained_once(tmp_path: Path) -> None:
    found = tried(tmp_path, tiny(), {"aggregator.sigma": [3, 4], "student.alpha": [0.5, 0.9]})
    assert [dict(trial.changes) for trial in found.trials] == [
        {"aggregator.sigma": sigma, "student.alpha": alpha} for sigma in (3, 4) for alpha in (0.5, 0.9)
    ]
    assert found.cost == PUBLIC_DATA
    assert found.spent is None
    assert all(trial.accuracy is not None and trial.error is None for trial in found.trials)
    assert len({trial.folder for trial in found.trials}) == 4
    assert len(list((tmp_path / "stages").glob("teachers-*"))) == 1
    assert found.trials[0].epsilon > found.trials[2].epsilon  # type: ignore[operator]
    assert json.loads((found.folder / "sweep.json").read_text()) == json.loads(json.dumps(found.to_json()))
    assert all(path.stat().st_size > 1000 for path in plot_sweep(found, tmp_path))


def test_seeds_follow_one_another(tmp_path: Path) -> None:
    found = tried(tmp_path, tiny(seed=5), {"aggregator.sigma": [3]}, seeds=2)
    assert [trial.seed for trial in found.trials] == [5, 6]
    assert all(path.exists() for path in plot_sweep(found, tmp_path))


def test_trials_on_private_votes_are_charged_each(tmp_path: Path) -> None:
    found = tried(tmp_path, tiny("Ward", privacy={"epsilon": 30.0}), {"aggregator.sigma": [3, 4], "student.alpha": [0.5, 0.9]})
    assert found.cost == CHARGED
    (fingerprint,) = Ledger.datasets(tmp_path / "home" / "ledger.db")
    with Ledger.open(tmp_path / "home" / "ledger.db", fingerprint) as ledger:
        paid = [entry for entry in ledger.entries() if entry.kind == "reserve"]
        assert len(paid) == 2, "two questions; another student asks nothing"
        assert found.spent == pytest.approx(ledger.spent().epsilon)
    again = tried(tmp_path, tiny("Ward", privacy={"epsilon": 30.0}), {"aggregator.sigma": [3, 4], "student.alpha": [0.5, 0.9]})
    assert again.spent == found.spent, "what is answered is found"


def test_a_sweep_beyond_the_budget_is_refused_before_its_first_trial(tmp_path: Path) -> None:
    with pytest.raises(BudgetExceeded, match=r"3 trials ask of private votes.*--simulate-votes"):
        tried(tmp_path, tiny("Ward", privacy={"epsilon": 8.0}), {"aggregator.sigma": [2, 3, 4]})
    assert not list((tmp_path / "stages").glob("*"))


def test_simulated_votes_touch_no_data_and_cost_nothing(tmp_path: Path) -> None:
    found = tried(tmp_path, tiny("Ward", teachers={"count": 100}), {"aggregator.sigma": [1, 200]}, teacher_accuracy=0.9)
    assert found.cost == NO_DATA
    assert not (tmp_path / "home").exists(), "no ledger was begun"
    little, much = found.trials
    assert little.labels_right == 1.0
    assert little.epsilon is not None
    assert much.epsilon is not None
    assert little.epsilon > much.epsilon
    with pytest.raises(ParameterError, match="above 0 and at most 1"):
        tried(tmp_path, tiny(), {"aggregator.sigma": [1]}, teacher_accuracy=1.5)


def test_a_grid_that_makes_no_recipe_is_told_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"with aggregator\.sgima=1: .*unknown parameter 'sgima'"):
        tried(tmp_path, tiny(), {"aggregator.sgima": [1]})
    with pytest.raises(RecipeError, match="seed"):
        tried(tmp_path, tiny(seed="abc"), {"aggregator.sigma": [5.0]})
    with pytest.raises(ParameterError, match="already says which seeds"):
        tried(tmp_path, tiny(), {"seed": [0, 1]}, seeds=2)
    with pytest.raises(ParameterError, match="needs something to vary"):
        tried(tmp_path, tiny(), {})
    assert not list(tmp_path.glob("*"))


def test_epsilon_of_simulated_votes_is_the_worst_case_also_where_less_is_charged(tmp_path: Path) -> None:
    """What is realised adds up to no claim, and depends on the answers."""
    settings = {"threshold": 60, "sigma1": 30.0, "sigma2": 20.0, "charging": "realised"}
    own = {**tiny(teachers={"count": 100}), "aggregator": {"name": "confident-gnmax", **settings}}
    (trial,) = tried(tmp_path, own, {"queries.count": [30]}, teacher_accuracy=0.6).trials
    assert trial.answered is not None
    assert 0 < trial.answered < 30, "so that less was realised"
    ahead = curve_ahead(make_aggregator("confident-gnmax", settings), Electorate(100, 3), 30)
    assert trial.epsilon == ahead.epsilon(1e-5).epsilon
