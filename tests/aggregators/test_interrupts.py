"""Ctrl-C between a charge and its answers: it waits for them, and then takes effect."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pate.aggregators import GNMax, ask, interrupts
from pate.aggregators.asking import open_reservations
from pate.aggregators.interrupts import uninterrupted
from pate.errors import BudgetExceeded
from pate.ledger import Budget, Ledger, faultpoints
from pate.noise import Noise
from pate.release import Release
from pate.votes import Votes

VOTES = Votes([[40, 10], [25, 25]] * 20, n_teachers=50)


@pytest.fixture(autouse=True)
def _handlers() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


class Impatient(GNMax):
    """Whose user presses Ctrl-C while noise is drawn."""

    def release(self, votes: Votes, noise: Noise) -> Release:
        signal.raise_signal(signal.SIGINT)
        return super().release(votes, noise)


def test_answers_are_kept_and_settled_before_it_stops(tmp_path: Path) -> None:
    kept: list[Release] = []
    with Ledger.open(tmp_path / "ledger.db", "data", Budget(8.0, 1e-5)) as ledger:
        with pytest.raises(KeyboardInterrupt):
            ask(Impatient(20.0), VOTES, ledger, keep=kept.append)
        assert len(kept) == 1
        assert [entry.kind for entry in ledger.entries()] == ["open", "reserve", "settle"]
        assert open_reservations(ledger) == ""


@pytest.mark.parametrize("point", ["transaction begun", "row inserted", "row committed", "head file renamed"])
def test_inside_the_charge_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str) -> None:
    kept: list[Release] = []
    with Ledger.open(tmp_path / "ledger.db", "data", Budget(8.0, 1e-5)) as ledger:
        monkeypatch.setattr(faultpoints, "reached", lambda what: signal.raise_signal(signal.SIGINT) if what == point else None)
        with pytest.raises(KeyboardInterrupt):
            ask(GNMax(20.0), VOTES, ledger, keep=kept.append)
        monkeypatch.undo()
        assert len(kept) == 1
        assert ledger.verify().pending == 0


def test_blocks_inside_one_another_stop_at_the_end_of_the_outer_one() -> None:
    reached = []
    with pytest.raises(KeyboardInterrupt), uninterrupted():  # noqa: PT012
        with uninterrupted():
            signal.raise_signal(signal.SIGINT)
        reached.append("outer")
    assert reached == ["outer"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_ctrl_c_while_the_handlers_are_put_back_leaves_none_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    put, others = signal.signal, signal.getsignal(signal.SIGTERM)

    def interrupted(number: int, handler: Any) -> Any:
        before = put(number, handler)
        if handler is signal.default_int_handler:
            signal.raise_signal(signal.SIGINT)
        return before

    with pytest.raises(KeyboardInterrupt), uninterrupted():
        monkeypatch.setattr(interrupts.signal, "signal", interrupted)
    monkeypatch.undo()
    assert signal.getsignal(signal.SIGTERM) is others
    with pytest.raises(KeyboardInterrupt), uninterrupted():
        signal.raise_signal(signal.SIGINT)


def test_somebody_else_s_handler_is_called_at_the_end_and_what_is_ignored_stays_so() -> None:
    called: list[Any] = []
    signal.signal(signal.SIGTERM, lambda number, frame: called.append(number))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with uninterrupted():
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGINT)
        assert called == []
    assert called == [signal.SIGTERM]
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_asked_again_after_a_while_it_stops_at_once(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """An aggregator may hang."""
    times = iter((0.0, 3.0, interrupts.PATIENCE + 1))
    monkeypatch.setattr(interrupts.time, "monotonic", lambda: next(times))
    passed = []
    with pytest.raises(KeyboardInterrupt), uninterrupted():  # noqa: PT012  (which of them stops is what is of interest)
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        passed.append("two")
        signal.raise_signal(signal.SIGINT)
        passed.append("three")
    assert passed == ["two"]
    told = capfd.readouterr().err
    assert told.count("finished first") == 1
    assert "the charge stays" in told


def test_in_another_thread_there_is_nothing_to_do() -> None:
    done = []

    def work() -> None:
        with uninterrupted():
            done.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done == [signal.default_int_handler]


class Killed(BaseException):
    """As kill -9, for those who look at the ledger only."""


class Dying(GNMax):
    def release(self, votes: Votes, noise: Noise) -> Release:
        raise Killed


def test_a_refusal_says_what_is_held_for_answers_that_nobody_has(tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "ledger.db", "data", Budget(2.0, 1e-5)) as ledger:
        with pytest.raises(BudgetExceeded) as refused:
            ask(GNMax(1.0), VOTES, ledger)
        assert "never settled" not in str(refused.value)
        with pytest.raises(Killed):
            ask(Dying(20.0), VOTES, ledger)
        with pytest.raises(BudgetExceeded, match=r"1 reservation \(row 2 of .*\), \d+% of the budget, was never settled.*lost"):
            ask(GNMax(1.0), VOTES, ledger)
