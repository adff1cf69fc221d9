"""Reserving, settling, charging, refusing, repeating, on SQLite and PostgreSQL."""

from __future__ import annotations

import json
import multiprocessing
import os
import pickle
import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ledger_worker import BUDGET, QUERY
from sqlalchemy import create_engine, text

from pate.errors import BudgetExceeded, LedgerError, ParameterError
from pate.ledger import Budget, Ledger
from pate.ledger.budget import cost_units
from pate.privacy.curve import DEFAULT_ORDERS, RdpCurve

INDEX = BUDGET.order_index


@pytest.fixture
def ledger(place: str, fingerprint: str) -> Ledger:
    return Ledger.open(place, fingerprint, BUDGET)


def test_a_reservation_is_charged_in_full_until_it_is_settled(ledger: Ledger) -> None:
    assert ledger.spent() == (0.0, BUDGET.order)
    paid = ledger.reserve(10 * QUERY, {"mechanism": "gnmax", "queries": 10})
    assert not paid.repeated
    assert not paid.settled
    assert (ledger.spent_curve().values >= (10 * QUERY).values).all()
    ledger.settle(paid, 7 * QUERY, {"answered": 7})
    spent = ledger.spent_curve().values
    assert (spent >= (7 * QUERY).values).all()
    np.testing.assert_allclose(spent, (7 * QUERY).values, atol=1e-11)
    assert ledger.spent().epsilon == pytest.approx((7 * QUERY).epsilon(1e-5).epsilon, abs=1e-9)
    assert [entry.kind for entry in ledger.entries()] == ["open", "reserve", "settle"]
    assert ledger.entries()[2].settles == paid.sequence
    assert ledger.entries()[1].memo == {"mechanism": "gnmax", "queries": 10}


def test_a_charge_is_one_row_and_needs_no_settling(ledger: Ledger) -> None:
    paid = ledger.charge(QUERY, {})
    assert paid.settled
    assert ledger.verify().pending == 0
    with pytest.raises(LedgerError, match="no open reservation"):
        ledger.settle(paid, RdpCurve.zero(), {})


def test_what_does_not_fit_is_refused_and_costs_nothing(ledger: Ledger) -> None:
    number = BUDGET.queries_affordable(QUERY)
    ledger.afford(number * QUERY)
    for refuse in (
        lambda: ledger.afford((number + 1) * QUERY),
        lambda: ledger.reserve((number + 1) * QUERY, {}),
        lambda: ledger.charge(RdpCurve.of(np.full(DEFAULT_ORDERS.size, np.inf)), {}),
    ):
        with pytest.raises(BudgetExceeded, match=r"epsilon 3, delta 1e-05.*order 7.5"):
            refuse()
    assert ledger.verify().rows == 1
    ledger.charge(number * QUERY, {})
    with pytest.raises(BudgetExceeded):
        ledger.charge(QUERY, {})
    left = ledger.remaining()
    assert left.order == BUDGET.order
    assert 0 <= left.rdp < QUERY.values[INDEX]
    assert 0 <= left.fraction < 1 / number


def test_an_infinite_cost_at_another_order_is_kept_and_taken_off_again(ledger: Ledger) -> None:
    half = RdpCurve.of(np.where(DEFAULT_ORDERS > 100, np.inf, QUERY.values))
    paid = ledger.reserve(half, {})
    assert np.isinf(ledger.spent_curve().values[-1])
    assert np.isfinite(ledger.spent().epsilon)
    ledger.settle(paid, QUERY, {})
    assert ledger.spent_curve().values[-1] == pytest.approx(QUERY.values[-1], abs=1e-11)


def test_a_settlement_is_made_once_and_never_above_the_worst_case(ledger: Ledger) -> None:
    paid = ledger.reserve(2 * QUERY, {})
    dearer_at_one_order = RdpCurve.of(np.where(DEFAULT_ORDERS == 2, 1.0, QUERY.values))
    with pytest.raises(LedgerError, match=r"exceeds the reserved worst case of row 2 at 1 orders, the first is 2\."):
        ledger.settle(paid, dearer_at_one_order, {})
    ledger.settle(paid, QUERY, {})
    with pytest.raises(LedgerError, match="settled before"):
        ledger.settle(paid, QUERY, {})


def test_the_last_digits_of_a_float_sum_do_not_stop_a_settlement(ledger: Ledger) -> None:
    worst = RdpCurve.of(np.full(DEFAULT_ORDERS.size, 0.1))
    paid = ledger.reserve(worst, {})
    above, below = 0.1 + 1e-12, 0.1 - 1e-12
    ledger.settle(paid, RdpCurve.of(np.where(DEFAULT_ORDERS < 10, above, below)), {})
    assert ledger._chain.totals == list(cost_units(worst))


def test_a_reservation_belongs_to_its_data_set(ledger: Ledger, place: str, fingerprint: str) -> None:
    ledger.charge(QUERY, {})
    paid = ledger.reserve(QUERY, {})
    with Ledger.open(place, fingerprint + "-other", BUDGET) as other:
        other.reserve(QUERY, {})
        with pytest.raises(LedgerError, match="another ledger"):
            other.settle(paid, QUERY, {})
        assert other.verify().rows == 2
    assert set(Ledger.datasets(place)) >= {fingerprint, fingerprint + "-other"}


def test_a_key_makes_a_retry_safe(ledger: Ledger) -> None:
    first = ledger.reserve(QUERY, {"queries": 1}, key="request 1")
    for _ in range(20):
        again = ledger.reserve(QUERY, {"queries": 1}, key="request 1")
        assert (again.sequence, again.hash, again.repeated, again.settled) == (first.sequence, first.hash, True, False)
    ledger.settle(again, RdpCurve.zero(), {})
    assert ledger.reserve(QUERY, {"queries": 1}, key="request 1").settled
    assert ledger.verify().rows == 3
    for other in (
        lambda: ledger.reserve(2 * QUERY, {"queries": 1}, key="request 1"),
        lambda: ledger.reserve(QUERY, {"queries": 2}, key="request 1"),
        lambda: ledger.charge(QUERY, {"queries": 1}, key="request 1"),
    ):
        with pytest.raises(LedgerError, match="'request 1' belongs to another request"):
            other()


def test_a_key_is_known_to_other_processes_and_after_the_budget_is_gone(ledger: Ledger, place: str, fingerprint: str) -> None:
    everything = BUDGET.queries_affordable(QUERY) * QUERY
    first = ledger.charge(everything, {}, key="all")
    with Ledger.open(place, fingerprint) as other:
        assert other.charge(everything, {}, key="all").sequence == first.sequence
        with pytest.raises(BudgetExceeded):
            other.charge(everything, {}, key="more")


def test_one_budget_unit_and_relation_for_ever(ledger: Ledger, place: str, fingerprint: str) -> None:
    assert (ledger.unit, ledger.neighbours) == ("record", "replace")
    assert Ledger.open(place, fingerprint).budget == BUDGET
    assert Ledger.open(place, fingerprint, Budget(3.0, 1e-5), "record", neighbours="replace").budget == BUDGET
    for change in (
        {"budget": Budget(9.0, 1e-5)},
        {"budget": Budget(3.0, 1e-5, order=8.0)},
        {"unit": "user"},
        {"neighbours": "add-remove"},
    ):
        with pytest.raises(LedgerError, match=r"fixed for ever.*Give the recorded (budget|unit|neighbours), or leave"):
            Ledger.open(place, fingerprint, **change)  # type: ignore[arg-type]


def test_a_ledger_is_not_begun_by_accident(place: str, fingerprint: str, ledger: Ledger, tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match="begins with a budget"):
        Ledger.open(place, fingerprint + "-unknown")
    with pytest.raises(LedgerError, match="there is none"):
        Ledger.open(tmp_path / "nowhere.db", fingerprint)
    assert not list(tmp_path.glob("nowhere*"))


@pytest.mark.parametrize("fingerprint", ["", "a\nb", "\udc80", "x" * 513])
def test_fingerprints_are_short_printable_text(fingerprint: str, tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="fingerprint"):
        Ledger.open(tmp_path / "ledger.db", fingerprint, BUDGET)


def test_memos_are_small_public_json(ledger: Ledger) -> None:
    ledger.charge(QUERY, {"sigma": np.float64(40), "queries": np.int64(3), "nested": {"ü": [1, None, True]}})
    assert ledger.entries()[1].memo == {"sigma": 40.0, "queries": 3, "nested": {"ü": [1, None, True]}}
    for memo in ({"votes": np.zeros(3)}, {"x": float("nan")}, {"x": object()}, {"x": "y" * 20_000}):
        with pytest.raises(ParameterError, match="memo"):
            ledger.charge(QUERY, memo)
    with pytest.raises(ParameterError, match="DEFAULT_ORDERS"):
        ledger.charge(RdpCurve.zero([2.0]), {})
    with pytest.raises(ParameterError, match="key"):
        ledger.charge(QUERY, {}, key="")
    assert ledger.verify().rows == 2


def test_two_openings_see_each_other(ledger: Ledger, place: str, fingerprint: str) -> None:
    with Ledger.open(place, fingerprint) as other:
        ledger.charge(QUERY, {})
        other.charge(QUERY, {})
        assert ledger._chain.spent < other._chain.spent
        assert ledger.remaining() == other.remaining()
        assert ledger.verify() == other.verify()


def test_threads_share_one_ledger(ledger: Ledger) -> None:
    threads = [threading.Thread(target=lambda: [ledger.charge(QUERY, {}) for _ in range(5)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ledger.verify().rows == 21


def test_a_pickled_ledger_opens_the_same_record(ledger: Ledger) -> None:
    ledger.charge(QUERY, {})
    with pickle.loads(pickle.dumps(ledger)) as copy:
        copy.charge(QUERY, {})
        assert ledger.verify() == copy.verify()
    paid = pickle.loads(pickle.dumps(ledger.reserve(QUERY, {})))
    ledger.settle(paid, QUERY, {})


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_has_its_own_connection(ledger: Ledger) -> None:
    ledger.charge(QUERY, {})
    context = multiprocessing.get_context("fork")
    children = [context.Process(target=ledger.charge, args=(QUERY, {"child": child})) for child in range(3)]
    for child in children:
        child.start()
    ledger.charge(QUERY, {})
    for child in children:
        child.join(60)
    assert [child.exitcode for child in children] == [0, 0, 0]
    assert ledger.verify().rows == 6


def test_a_connection_from_an_unseen_fork_is_refused(ledger: Ledger) -> None:
    ledger._store._connected_in = os.getpid() + 1
    with pytest.raises(LedgerError, match="spawn"):
        ledger.remaining()


def test_the_database_refuses_changes(ledger: Ledger, place: str, fingerprint: str) -> None:
    ledger.charge(QUERY, {})
    engine = create_engine(place if "://" in place else f"sqlite:///{place}")
    for statement in (
        "UPDATE pate_ledger SET kind = 'open' WHERE dataset = :name",
        "DELETE FROM pate_ledger WHERE dataset = :name",
    ):
        with pytest.raises(Exception, match="append-only"), engine.begin() as connection:
            connection.execute(text(statement), {"name": fingerprint})
    engine.dispose()
    assert ledger.verify().rows == 2


def test_errors_never_show_a_password(tmp_path: Path) -> None:
    pytest.importorskip("psycopg")
    with pytest.raises(LedgerError) as caught:
        Ledger.open("postgresql+psycopg://user:secret@127.0.0.1:1/none", "data", BUDGET)
    assert "secret" not in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("place", ["mysql://host/name", "sqlite://", ":memory:", "nonsense://"])
def test_places_that_cannot_hold_a_ledger(place: str) -> None:
    with pytest.raises(LedgerError, match="ledger"):
        Ledger.open(place, "data", BUDGET)


STEP = st.tuples(st.sampled_from(["reserve", "settle", "charge"]), st.integers(0, 40), st.integers(0, 40))


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(STEP, max_size=8))
def test_any_sequence_adds_up_and_stays_within_the_budget(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int, int]]
) -> None:
    path = tmp_path_factory.mktemp("property") / "ledger.db"
    cost = {times: cost_units(times * QUERY)[INDEX] for times in range(41)}
    opened: list[tuple[object, int]] = []
    expected = 0
    with Ledger.open(path, "data", BUDGET) as ledger:
        for kind, times, fewer in steps:
            if kind == "settle":
                if opened:
                    paid, worst = opened.pop()
                    ledger.settle(paid, min(fewer, worst) * QUERY, {})  # type: ignore[arg-type]
                    expected += cost[min(fewer, worst)] - cost[worst]
            elif expected + cost[times] <= BUDGET.cap_units:
                paid = getattr(ledger, kind)(times * QUERY, {})
                expected += cost[times]
                if kind == "reserve":
                    opened.append((paid, times))
            else:
                with pytest.raises(BudgetExceeded):
                    getattr(ledger, kind)(times * QUERY, {})
        assert ledger._chain.spent == expected <= BUDGET.cap_units
        rows = [json.loads(row.payload) for row in ledger.rows()]
    with Ledger.open(path, "data") as again:
        assert again._chain.spent == expected
        assert [json.loads(row.payload) for row in again.rows()] == rows
