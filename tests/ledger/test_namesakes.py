"""Data that grew or shrank have another fingerprint, and so another budget: whoever begins it is told of the first."""

from __future__ import annotations

import sqlite3
import warnings
from contextlib import closing
from pathlib import Path

import pytest

from pate.ledger import Budget, Ledger
from pate.ledger.namesakes import SecondBudgetWarning
from pate.privacy.curve import RdpCurve

ONE, TWO, OTHER = "ward-0123456789abcdef", "ward-fedcba9876543210", "ward-2-fedcba9876543210"
BUDGET = Budget(2.0, 1e-5)
COST = RdpCurve.of(lambda orders: orders / 400.0)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    with Ledger.open(tmp_path / "ledger.db", ONE, BUDGET) as ledger:
        ledger.charge(COST, {})
    return tmp_path / "ledger.db"


def test_a_second_budget_of_the_same_name_is_told_until_it_is_spent_from(place: Path) -> None:
    with Ledger.open(place, ONE) as first:
        spent = first.spent().epsilon
    told = f"'ward' has other records.* budget of its own, beside one with epsilon {spent:.4g} spent of 2"
    for _ in range(2):
        with pytest.warns(SecondBudgetWarning, match=told) as caught:
            ledger = Ledger.open(place, TWO, BUDGET)
        assert not any(each[-16:] in str(caught[0].message) for each in (ONE, TWO)), "a log must not tell who is in the data"
        assert ledger.remaining().fraction == 1.0, "told, and not refused"
    ledger.charge(COST, {})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Ledger.open(place, TWO, BUDGET).close()
        Ledger.open(place, ONE, BUDGET).close()


def test_a_damaged_one_is_told_and_stops_nobody_else(place: Path) -> None:
    with closing(sqlite3.connect(place)) as connection, connection:
        (trigger,) = connection.execute("SELECT sql FROM sqlite_master WHERE name = 'pate_ledger_no_update'").fetchone()
        connection.execute("DROP TRIGGER pate_ledger_no_update")
        connection.execute("UPDATE pate_ledger SET payload = replace(payload, '1', '2') WHERE sequence = 1")
        connection.execute(trigger)
    with pytest.warns(SecondBudgetWarning, match="beside one whose rows cannot be read"):
        Ledger.open(place, TWO, BUDGET).close()


def test_other_names_and_budgets_that_nobody_spent_from_are_not_told(tmp_path: Path, place: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for name in (OTHER, "ward", "my-data", f"{TWO}0"):
            Ledger.open(place, name, BUDGET).close()
        Ledger.open(tmp_path / "new.db", ONE, BUDGET).close()
        Ledger.open(tmp_path / "new.db", TWO, BUDGET).close()
