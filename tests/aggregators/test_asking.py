"""From votes to a paid release."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pate.aggregators import ConfidentGNMax, GNMax, ask, curve_ahead, curve_bound
from pate.errors import BudgetExceeded
from pate.ledger import Budget, Ledger
from pate.noise import Noise, SimulatedNoise
from pate.release import Release
from pate.votes import Votes

VOTES = Votes([[40, 10], [25, 25]] * 20, n_teachers=50)


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger.open(tmp_path / "ledger.db", "data", Budget(epsilon=8.0, delta=1e-5))


def test_a_release_is_charged_its_worst_case(ledger: Ledger) -> None:
    release = ask(GNMax(20.0), VOTES, ledger)
    assert release.mode == "release"
    expected = curve_ahead(GNMax(20.0), VOTES.electorate, len(VOTES)).values
    spent = ledger.spent_curve().values
    assert (spent >= expected).all()
    assert spent == pytest.approx(expected, rel=1e-6)


def test_realised_charging_gives_back_what_abstentions_did_not_cost(ledger: Ledger) -> None:
    aggregator = ConfidentGNMax(40, 10.0, 20.0, charging="realised")
    release = ask(aggregator, VOTES, ledger, SimulatedNoise(1))
    assert 0 < release.answered.sum() < len(VOTES)
    spent = ledger.spent_curve().values
    assert spent == pytest.approx(curve_bound(aggregator, release).values, rel=1e-6)
    assert (spent < curve_ahead(aggregator, VOTES.electorate, len(VOTES)).values).all()


class CountingNoise(SimulatedNoise):
    drawn = 0

    def words(self, size: int) -> np.ndarray:
        self.drawn += size
        return super().words(size)


def test_beyond_the_budget_no_noise_is_drawn(tmp_path: Path) -> None:
    noise = CountingNoise(1)
    with Ledger.open(tmp_path / "small.db", "data", Budget(epsilon=0.5, delta=1e-5)) as small:
        with pytest.raises(BudgetExceeded):
            ask(GNMax(2.0), VOTES, small, noise)
        assert noise.drawn == 0
        assert small.spent(1e-5).epsilon == 0


class FailingGNMax(GNMax):
    """Draws its noise, then dies: the case in which an answer is lost and the charge stays."""

    def release(self, votes: Votes, noise: Noise) -> Release:
        super().release(votes, noise)
        raise RuntimeError("lost")


def test_a_failure_after_the_reservation_keeps_the_charge(ledger: Ledger) -> None:
    with pytest.raises(RuntimeError, match="lost"):
        ask(FailingGNMax(20.0), VOTES, ledger)
    assert (ledger.spent_curve().values >= curve_ahead(GNMax(20.0), VOTES.electorate, len(VOTES)).values).all()


def test_refusals_do_not_depend_on_votes(tmp_path: Path) -> None:
    """Two very different vote tables are refused after the same number of batches."""
    refused_at = []
    for row in ([50, 0], [25, 25]):
        with Ledger.open(tmp_path / f"{row[0]}.db", "data", Budget(epsilon=2.0, delta=1e-5)) as ledger:
            for batch in range(1000):
                try:
                    ask(ConfidentGNMax(40, 10.0, 20.0), Votes([row] * 3, n_teachers=50), ledger, SimulatedNoise(batch))
                except BudgetExceeded:
                    refused_at.append(batch)
                    break
    assert len(refused_at) == 2
    assert refused_at[0] == refused_at[1] > 0


def test_a_memo_is_recorded_but_overwrites_nothing(ledger: Ledger) -> None:
    ask(GNMax(20.0), VOTES, ledger, SimulatedNoise(1), memo={"mode": "release", "sigma": 1000.0, "run": "first"})
    memo = next(entry.memo for entry in ledger.entries() if entry.kind == "reserve")
    assert (memo["mode"], memo["sigma"], memo["run"]) == ("simulation", 20.0, "first")
