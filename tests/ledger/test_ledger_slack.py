"""A share of delta for mechanisms whose cost may fail to hold: set aside once, spent exactly, refused in words."""

from __future__ import annotations

import json
import math
import sqlite3
from contextlib import closing
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ledger_worker import BUDGET, QUERY
from typer.testing import CliRunner

from pate.cli import app
from pate.errors import BudgetExceeded, LedgerError, ParameterError
from pate.ledger import Budget, Ledger
from pate.ledger.chain import FORMAT, FORMAT_WITH_SLACK, Chain, Row, canonical
from pate.ledger.records import curve_of
from pate.ledger.sqlite import SCHEMA, rebuild_head
from pate.ledger.store import TABLE
from pate.ledger.units import SLACK_BITS, float_up
from pate.privacy.curve import DEFAULT_ORDERS, RdpCurve

WITH_SLACK = Budget(3.0, 1e-5, slack=4e-6)
LOOSE = RdpCurve(DEFAULT_ORDERS, QUERY.values, 1e-8)


@pytest.fixture
def ledger(place: str, fingerprint: str) -> Ledger:
    return Ledger.open(place, fingerprint, WITH_SLACK)


@given(st.floats(0.5, 10), st.floats(1e-9, 0.1), st.floats(0, 0.999))
def test_slack_and_the_rest_never_exceed_delta(epsilon: float, delta: float, share: float) -> None:
    budget = Budget(epsilon, delta, slack=delta * share)
    assert Fraction(float_up(budget.slack_units, SLACK_BITS)) + Fraction(budget.rdp_delta) <= Fraction(budget.delta)
    # All of it spent: the mechanism at the cap with the whole slack keeps the promise.
    values = np.full(DEFAULT_ORDERS.size, math.inf)
    values[budget.order_index] = budget.cap
    assert RdpCurve(DEFAULT_ORDERS, values, float_up(budget.slack_units, SLACK_BITS)).epsilon(delta).epsilon <= epsilon


def test_a_slack_makes_the_cap_smaller() -> None:
    assert WITH_SLACK.cap < Budget(3.0, 1e-5, order=WITH_SLACK.order).cap
    assert Budget(3.0, 1e-5, slack=0.0) == BUDGET
    assert repr(Budget(1.0, 1e-5, slack=2e-6)).endswith("slack=2e-06)")


@pytest.mark.parametrize("slack", [-1e-9, 1e-5, 2e-5, math.nan])
def test_a_slack_is_a_share_of_delta(slack: float) -> None:
    with pytest.raises(ParameterError, match="slack is a share of its delta"):
        Budget(1.0, 1e-5, slack=slack)


def test_slacks_are_spent_until_they_are_used_up(ledger: Ledger) -> None:
    # 400 times 1e-8 is all of 4e-6, though neither number is exact in binary.
    assert ledger.affordable(LOOSE) == min(400, WITH_SLACK.queries_affordable(QUERY)) == WITH_SLACK.queries_affordable(LOOSE)
    free = RdpCurve(DEFAULT_ORDERS, np.zeros(DEFAULT_ORDERS.size), 1e-8)
    ledger.charge(400 * free, {})
    assert ledger.spent_curve().slack >= 4e-6
    assert ledger.remaining().slack < 1e-12
    with pytest.raises(BudgetExceeded, match="of the 4e-06 set aside"):
        ledger.charge(free, {})
    ledger.charge(QUERY, {})  # what needs no slack still fits
    assert ledger.verify().rows == 3


def test_both_kinds_of_cost_are_one_total(ledger: Ledger) -> None:
    ledger.charge(100 * LOOSE + 5 * QUERY, {})
    ledger.charge(10 * QUERY, {})
    total = 100 * LOOSE + 15 * QUERY
    spent = ledger.spent_curve()
    assert (spent.values >= total.values).all()
    assert total.slack <= spent.slack <= total.slack * (1 + 1e-12)
    assert ledger.spent().epsilon >= total.epsilon(1e-5).epsilon
    assert ledger.spent().epsilon == pytest.approx(total.epsilon(1e-5).epsilon, rel=1e-6)


def test_settling_gives_slack_back_and_never_takes_more(ledger: Ledger) -> None:
    paid = ledger.reserve(100 * LOOSE, {})
    assert ledger.remaining().slack == pytest.approx(3e-6)
    ledger.settle(paid, 50 * LOOSE, {})
    assert ledger.remaining().slack == pytest.approx(3.5e-6)
    again = ledger.reserve(10 * LOOSE, {})
    with pytest.raises(LedgerError, match="realised slack exceeds"):
        ledger.settle(again, RdpCurve(DEFAULT_ORDERS, QUERY.values, 2e-7), {})
    assert ledger.verify().pending == 1


def test_a_retry_is_the_same_request_only_with_the_same_slack(ledger: Ledger) -> None:
    ledger.charge(LOOSE, {}, key="one")
    assert ledger.charge(LOOSE, {}, key="one").repeated
    with pytest.raises(LedgerError, match="belongs to another request"):
        ledger.charge(RdpCurve(DEFAULT_ORDERS, QUERY.values, 2e-8), {}, key="one")


def test_it_is_read_back_and_fixed(ledger: Ledger, place: str, fingerprint: str) -> None:
    ledger.charge(LOOSE, {})
    ledger.close()
    with Ledger.open(place, fingerprint) as again:
        assert again.budget == WITH_SLACK
        assert again.entries()[1].cost is not None
        assert again.entries()[1].cost.slack == pytest.approx(1e-8)
        assert again.verify().rows == 2
        assert json.loads(again.rows()[0].payload)["format"] == FORMAT_WITH_SLACK
    with pytest.raises(LedgerError, match="fixed for ever"):
        Ledger.open(place, fingerprint, Budget(3.0, 1e-5))


def test_a_budget_without_slack_says_how_to_get_one(place: str, fingerprint: str) -> None:
    with Ledger.open(place, fingerprint, BUDGET) as ledger:
        with pytest.raises(BudgetExceeded, match=r"nothing of delta is set aside.*slack=\.\.\..*--slack"):
            ledger.reserve(LOOSE, {})
        with pytest.raises(BudgetExceeded):
            ledger.afford(LOOSE)
        assert ledger.verify().rows == 1
        ledger.charge(QUERY, {})
        written = [json.loads(row.payload) for row in ledger.rows()]
    # As every ledger so far: not a byte more.
    assert written[0]["format"] == FORMAT
    assert all("slack" not in payload for payload in written)


def test_a_ledger_from_before_there_was_slack_is_read_as_ever(tmp_path: Path) -> None:
    """Rows that the version before wrote: every hash follows, retries are recognised, and slack is 0."""
    document = json.loads(Path(__file__).with_name("ledger_before_slack.json").read_text())
    fingerprint, chain = document["fingerprint"], Chain(document["fingerprint"])
    for row in document["rows"]:
        chain.extend(Row(fingerprint, row["sequence"], row["kind"], canonical(row["payload"]), row["hash"]))
    assert (chain.slack, chain.opened().budget) == (0, BUDGET)
    assert len(chain.pending) == 1
    assert curve_of(chain.total).epsilon(1e-5).epsilon == document["spent"]
    # The same in a file, and one of the requests again under its key.
    with closing(sqlite3.connect(tmp_path / "rows.db", isolation_level=None)) as database:
        for statement in SCHEMA.values():
            database.execute(statement)
        for row in document["rows"]:
            values = (fingerprint, row["sequence"], row["kind"], canonical(row["payload"]), row["hash"])
            database.execute(f"INSERT INTO {TABLE} VALUES (?, ?, ?, ?, ?)", values)
    rebuild_head(tmp_path / "rows.db")
    with Ledger.open(tmp_path / "rows.db", fingerprint) as ledger:
        assert ledger.charge(2 * QUERY, {"aggregator": "gnmax"}, key="two").repeated
        assert ledger.verify().rows == len(document["rows"])


def test_an_older_program_would_refuse_it() -> None:
    """Older versions take only their own format, and would overlook a slack: the name of the format is not theirs."""
    assert FORMAT_WITH_SLACK != FORMAT == "pate-ledger-1"


def test_the_command_shows_it(ledger: Ledger, place: str, fingerprint: str) -> None:
    ledger.charge(100 * LOOSE, {})
    ledger.close()
    shown = CliRunner().invoke(app, ["ledger", "show", place, "--dataset", fingerprint, "--json"])
    facts = json.loads(shown.output)["datasets"][0]
    assert facts["budget"]["slack"] == 4e-6
    assert facts["spent"]["slack"] == pytest.approx(1e-6)
    assert facts["remaining"]["slack"] == pytest.approx(3e-6)
    table = CliRunner().invoke(app, ["ledger", "show", place, "--dataset", fingerprint]).output
    assert "slack" in table
    lines = CliRunner().invoke(app, ["ledger", "export", place, "--dataset", fingerprint, "--csv"]).output.splitlines()
    assert lines[0].endswith(",slack")
    assert float(lines[2].rsplit(",", 1)[1]) == pytest.approx(1e-6)
