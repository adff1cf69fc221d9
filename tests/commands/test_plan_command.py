"""``pate plan`` counts what a ledger would allow."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pate.aggregators import ask, make_aggregator
from pate.errors import BudgetExceeded
from pate.ledger import Budget, Ledger
from pate.noise import SimulatedNoise
from pate.votes import Votes

Pate = Callable[..., Any]
NAMES = ("gnmax", "lnmax", "confident-gnmax", "noisy-histogram")


@pytest.mark.parametrize("name", NAMES)
def test_more_noise_buys_more_queries(pate: Pate, name: str) -> None:
    plans = pate("plan", "--epsilon", 1, "--delta", 1e-5, "--teachers", 250, "--aggregator", name, "--json").json["plans"]
    bought = [each["queries"] for each in plans]
    assert len(bought) >= 6
    assert bought == sorted(bought)
    assert all(each["epsilon"] <= 1 for each in plans)
    assert all(earlier["lead"] < later["lead"] for earlier, later in itertools.pairwise(plans))


@pytest.mark.parametrize("name", NAMES)
def test_the_ledger_allows_exactly_the_planned_queries(pate: Pate, tmp_path: Path, name: str) -> None:
    row = pate("plan", "--epsilon", 2, "--teachers", 20, "--classes", 2, "-a", name, "--json").json["plans"][-1]
    settings = {key: value for key, value in row["aggregator"].items() if key != "aggregator"}
    aggregator, n = make_aggregator(name, settings), row["queries"]
    assert n > 0
    with Ledger.open(tmp_path / "ledger.db", "data", Budget(2.0, 1e-5)) as ledger:
        ask(aggregator, Votes([[20, 0]] * n, n_teachers=20), ledger, SimulatedNoise(1))
        with pytest.raises(BudgetExceeded):
            ask(aggregator, Votes([[20, 0]], n_teachers=20), ledger, SimulatedNoise(2))


def test_a_given_setting_is_not_swept(pate: Pate) -> None:
    plans = pate("plan", "--epsilon", 1, "--teachers", 250, "--set", "sigma=40", "--json").json["plans"]
    assert [each["aggregator"] for each in plans] == [{"aggregator": "gnmax", "sigma": 40}]


def test_partial_votes_buy_batches(pate: Pate) -> None:
    ran = pate("plan", "--epsilon", 0.1, "--teachers", 50000, "--participation", 1, "--set", "sigma=91")
    assert ran.code == 0
    assert "batches" in ran.out


def test_table_and_errors(pate: Pate) -> None:
    assert "lead needed" in pate("plan", "--epsilon", 1, "--teachers", 250).out
    refused = pate("plan", "--epsilon", -1, "--teachers", 250)
    assert refused.code == 2
    assert "epsilon must be" in refused.err
