"""kill -9 at every step, and at any moment: nothing released is ever unpaid, and the ledger stays sound."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ledger_places import postgres_url
from ledger_worker import BUDGET, CHEAP, OWN_STEPS, QUERY

from pate.ledger import Ledger, faultpoints
from pate.ledger.budget import cost_units
from pate.privacy.curve import RdpCurve


def check_paid(place: str, fingerprint: str, released: Path, query: RdpCurve = QUERY) -> int:
    """Everything released is charged, at least at its realised cost; the number of releases."""
    one, two = (cost_units(n * query)[BUDGET.order_index] for n in (1, 2))
    answers = [int(line) for line in released.read_text().split()] if released.exists() else []
    with Ledger.open(place, fingerprint, BUDGET) as ledger:
        ledger.verify()
        kinds = {entry.sequence: entry.kind for entry in ledger.entries()}
        assert all(kinds[sequence] == "reserve" for sequence in answers)
        reserved = sum(kind == "reserve" for kind in kinds.values())
        settled = sum(kind == "settle" for kind in kinds.values())
        # Two queries while open, one when settled: the sum is exact, and no lower than what was released.
        assert ledger._chain.spent == two * (reserved - settled) + one * settled >= one * len(answers)
        assert len(answers) <= reserved
        # The ledger goes on working.
        ledger.settle(ledger.reserve(2 * query, {}), query, {})
        ledger.verify()
    return len(answers)


@pytest.mark.parametrize("database", ["sqlite", "postgres"])
def test_killed_at_every_step(database: str, tmp_path: Path, run_worker: Callable[..., Any]) -> None:
    victims = run_worker("crash-matrix", tmp_path, "" if database == "sqlite" else postgres_url())
    assert all(os.WTERMSIG(victim["status"]) == signal.SIGKILL for victim in victims)
    steps = [step for step in (*faultpoints.APPEND_STEPS, *OWN_STEPS) if database == "sqlite" or "file" not in step]
    died_at = {victim["fingerprint"].removeprefix(f"{tmp_path.name}-").rsplit("-", 1)[0] for victim in victims}
    assert died_at == {step.replace(" ", "-") for step in steps}
    releases = [check_paid(victim["place"], victim["fingerprint"], Path(victim["released"])) for victim in victims]
    assert {0, 1, 2} <= set(releases)


@pytest.mark.parametrize("database", ["sqlite", "postgres"])
def test_killed_at_random_moments(database: str, tmp_path: Path, fingerprint: str, run_worker: Callable[..., Any]) -> None:
    place = str(tmp_path / "ledger.db") if database == "sqlite" else postgres_url()
    killed = run_worker("random-kills", place, fingerprint, tmp_path / "released", 30, 20_240_501)
    assert killed >= 15
    assert check_paid(place, fingerprint, tmp_path / "released", CHEAP) > 0


@pytest.mark.parametrize("racers", [2, 4])
def test_racing_processes_spend_the_budget_exactly(
    place: str, racers: int, tmp_path: Path, fingerprint: str, run_worker: Any
) -> None:
    released = tmp_path / "released"
    statuses = run_worker("race", place, fingerprint, released, racers)
    assert statuses == [0] * racers
    with Ledger.open(place, fingerprint) as ledger:
        ledger.verify()
        assert ledger._chain.spent <= BUDGET.cap_units
    # Equal costs: exactly as many charges as fit, each told to one process only.
    sequences = released.read_text().split()
    assert len(set(sequences)) == len(sequences) == BUDGET.queries_affordable(4 * QUERY)
