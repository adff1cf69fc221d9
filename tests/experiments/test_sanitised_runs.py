"""A run whose recipe asks for a sanitised epsilon: paid for beside its answers, found again, and told in its reports."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from killed_runs import go, killed
from pipeline_cases import tiny

from pate.aggregators import GNMax
from pate.errors import BudgetExceeded, RecipeError
from pate.experiments.recipes.reading import check_recipe
from pate.experiments.reports.page import render
from pate.experiments.reports.writing import write_all
from pate.experiments.results import Result
from pate.experiments.sanitised_release import recorded
from pate.experiments.sanitising import Sanitiser
from pate.ledger import Budget, Ledger
from pate.privacy.curve import RdpCurve
from pate.release import Electorate

for package in ("sklearn", "matplotlib", "jinja2"):
    pytest.importorskip(package, reason=f"{package} is not installed (extras 'train' and 'plot')")


pytestmark = pytest.mark.usefixtures("own_home")


def sanitised(source: str = "PublicWard", **privacy: Any) -> dict[str, Any]:
    return tiny(source, privacy={"epsilon": 30.0, "sanitise": True, **privacy})


def in_home(tmp_path: Path) -> Ledger:
    place = tmp_path / "home" / "ledger.db"
    (fingerprint,) = Ledger.datasets(place)
    return Ledger.open(place, fingerprint)


def test_a_simulation(tmp_path: Path) -> None:
    done = go(tmp_path, sanitised())
    privacy = done.result.privacy
    told = privacy.sanitising
    assert told is not None
    assert privacy.sanitised == told.epsilon
    assert told.stamp == "simulation, not private"
    assert told.answers_independent == pytest.approx(privacy.data_independent)
    assert privacy.spent > privacy.data_independent
    assert any("sanitised" in row["memo"] for row in json.loads((done.folder / "ledger.json").read_text()))
    again = go(tmp_path, sanitised())
    assert again.result.privacy.sanitising == told
    assert again.result.privacy.spent == privacy.spent
    public = done.result.public()
    assert public.privacy.sanitising == told
    assert public.privacy.data_dependent is None
    assert "epsilon, sanitised" in done.result.rows()
    page = render(public, "", [], {})
    assert f"ε = {told.epsilon:.4g}</b>" in page, "the page tells the sanitised epsilon too, so that is what all of it costs"
    assert f"= {math.exp(told.epsilon):.4g}," in page
    assert "may be published" not in done.result.rows()["epsilon, data-independent"]


def test_without_the_option_nothing_is_drawn(tmp_path: Path) -> None:
    done = go(tmp_path, sanitised(sanitise=False))
    assert done.result.privacy.sanitised is None
    assert done.result.privacy.sanitising is None
    assert done.result.privacy.spent == pytest.approx(done.result.privacy.data_independent, rel=1e-6)


def test_a_release_is_charged_once_and_found_by_later_runs(tmp_path: Path) -> None:
    first = go(tmp_path, sanitised("Ward"))
    assert first.result.privacy.sanitising is not None
    assert first.result.privacy.sanitising.stamp == "noise from the operating system"
    other = go(tmp_path, {**sanitised("Ward"), "title": "same question"})
    assert other.result.privacy.sanitising == first.result.privacy.sanitising
    with in_home(tmp_path) as ledger:
        assert [each.epsilon for each in recorded(ledger)] == [first.result.privacy.sanitised]
        assert len([row for row in ledger.entries() if row.kind == "reserve"]) == 2  # answers, and this


def test_answers_there_are_not_asked_again_for_it(tmp_path: Path) -> None:
    go(tmp_path, sanitised("Ward", sanitise=False))
    done = go(tmp_path, sanitised("Ward"))
    assert done.result.privacy.sanitised is not None
    with in_home(tmp_path) as ledger:
        assert len([row for row in ledger.entries() if row.kind == "reserve"]) == 2


def test_the_report_tells_it_with_its_spread(tmp_path: Path) -> None:
    done = go(tmp_path, sanitised())
    told = done.result.privacy.sanitising
    assert told is not None
    write_all(done.result, done.folder)
    page = (done.folder / "report-public.html").read_text()
    assert "One standard deviation of its noise" in page
    assert "not drawn" not in page
    assert Result.read(done.folder / "result-public.json").privacy.sanitising == told


def test_a_budget_for_the_answers_alone_refuses_before_training(tmp_path: Path) -> None:
    # Votes enough that the rule spends something on the release.
    larger = {
        "teachers": {"model": "ridge", "count": 60},
        "queries": {"count": 60},
        "aggregator": {"name": "gnmax", "sigma": 8.0},
    }
    electorate = Electorate(60, 3)
    alone = 60 * RdpCurve.of(lambda orders: GNMax(8.0).rdp_ahead(electorate, orders))
    budget = next(e for e in np.arange(1.0, 30.0, 0.02) if Budget(e, 1e-5).queries_affordable(alone))
    release = Sanitiser.plan(GNMax(8.0), electorate, 60, 1e-5).curve
    assert not Budget(budget, 1e-5).queries_affordable(alone + release)
    with pytest.raises(BudgetExceeded):
        go(tmp_path / "both", {**sanitised(epsilon=float(budget)), **larger})
    assert not list((tmp_path / "both").rglob("votes*"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"queries": {"rounds": 2}}, "in view of answers"),
        ({"aggregator": {"name": "gnmax", "sigma": "auto"}}, "leaves nothing of the budget"),
        ({"aggregator": {"name": "noisy-histogram", "sigma": 30.0}}, "no sanitised epsilon is known"),
        (
            {"aggregator": {"name": "confident-gnmax", "threshold": 5.0, "sigma1": 4.0, "sigma2": 3.0, "charging": "realised"}},
            "no sanitised epsilon is known",
        ),
    ],
)
def test_recipes_that_cannot_have_one_are_refused(changes: dict[str, Any], message: str) -> None:
    tables = {**sanitised(), **{name: {**sanitised().get(name, {}), **table} for name, table in changes.items()}}
    if "aggregator" in changes:
        tables["aggregator"] = changes["aggregator"]
    with pytest.raises(RecipeError, match=message):
        check_recipe(tables)


def test_partial_votes_have_none(tmp_path: Path) -> None:
    tables = {**sanitised(), "teachers": {"model": "nearest"}, "aggregator": {"name": "gnmax", "sigma": 3.0}}
    with pytest.raises(RecipeError, match="nothing to sanitise"):
        check_recipe(tables)


@pytest.mark.slow
def test_killed_anywhere_it_is_never_drawn_unpaid(tmp_path: Path) -> None:
    """Every event of a release, one run each: what a run tells in the end is what the ledger recorded and was paid for."""
    die_at, alive = 1, True
    while alive:
        out = tmp_path / f"at {die_at}"
        alive = killed(out, sanitised("Ward"), die_at)
        done = go(out, sanitised("Ward"))
        with in_home(tmp_path) as ledger:
            values = recorded(ledger)
            charges = [row for row in ledger.entries() if (row.key or "").startswith("sanitised epsilon")]
            assert len(values) <= len(charges)
            assert done.result.privacy.sanitised in [each.epsilon for each in values]
        (tmp_path / "home" / "ledger.db").unlink()
        for beside in (tmp_path / "home").glob("ledger.db*"):
            beside.unlink()
        die_at += 9
