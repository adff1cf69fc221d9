"""What fails around the service: teachers, noise, the disk. A charge may stand without an answer, never the reverse."""

from __future__ import annotations

import shutil
import threading
import time
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest
from desk_cases import GNMAX, PLENTY, TestPool, opened, pool_votes, reservations

from pate.aggregators import GNMax, curve_ahead
from pate.aggregators.service import desk
from pate.errors import BudgetExceeded, ExecutionError, LedgerError
from pate.ledger import faultpoints
from pate.ledger.budget import cost_units
from pate.noise import Noise
from pate.release import Release
from pate.votes import Votes


def test_teachers_that_fail_cost_nothing_and_say_nothing(tmp_path: Path) -> None:
    source = TestPool()
    with opened(tmp_path, source) as service:
        source.failing = True
        with pytest.raises(ExecutionError) as caught:
            service.ask("ann", "1", [0, 1])
        assert "canary" not in str(caught.value)
        assert "90" not in str(caught.value)
        assert reservations(service) == []
        source.failing = False
        assert len(service.ask("ann", "1", [0, 1])) == 2
        assert service.trouble is None


@dataclass(frozen=True, repr=False)
class FailsOnce(GNMax):
    """Fails while it draws noise, the first time."""

    failed: ClassVar[list[bool]] = []

    def release(self, votes: Votes, noise: Noise) -> Release:
        if not self.failed:
            self.failed.append(True)
            super().release(votes, noise)
            raise RuntimeError("canary 90")
        return super().release(votes, noise)


def test_a_failure_after_reserving_stays_charged(tmp_path: Path) -> None:
    FailsOnce.failed.clear()
    with opened(tmp_path, aggregator=FailsOnce(20.0), budget=PLENTY) as service:
        with pytest.raises(ExecutionError) as caught:
            service.ask("ann", "1", [0, 1])
        assert "canary" not in str(caught.value)
        assert len(service.ask("ann", "1", [0, 1])) == 2
        assert reservations(service) == [2, 2]  # noise was drawn twice, so it is paid for twice
        assert service.verify()["open_reservations"] == 1
        twice = cost_units(curve_ahead(GNMAX, pool_votes(1).electorate, 2))
        assert service.ledger._chain.totals == [2 * each for each in twice]


def test_a_disk_that_is_full_at_the_commit_of_answers_lets_none_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite itself says that it is full: the pages that the database may have are used up while noise is drawn."""
    with opened(tmp_path, TestPool(2000), budget=PLENTY, aggregator=GNMax(200.0)) as service:
        full = [True]

        def reached(step: str) -> None:
            if step == "noise drawn" and full.pop():
                with service.ledger._store._engine.connect() as connection:
                    connection.exec_driver_sql("PRAGMA max_page_count = 1")  # as many as it has now

        monkeypatch.setattr(faultpoints, "reached", lambda step: reached(step) if full else None)
        with pytest.raises(ExecutionError, match="LedgerError"):
            service.ask("ann", "1", list(range(1000)))
        assert service.book.answers == {}
        assert service.trouble is None
        assert len(service.ask("ann", "1", list(range(1000)))) == 1000
        assert reservations(service) == [1000, 1000]
        assert service.verify()["open_reservations"] == 1


def test_a_book_that_cannot_be_read_again_stops_the_service_until_it_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else an empty book would forget quotas and keys, and pay again for what was answered."""
    source = TestPool()
    with opened(tmp_path, source) as service:
        first = service.ask("ann", "1", [0, 1])
        with monkeypatch.context() as patch:
            patch.setattr(service.book, "_read", lambda _: (_ for _ in ()).throw(LedgerError("no disk")))
            source.failing = True
            for key in "23":
                with pytest.raises(ExecutionError):
                    service.ask("ann", key, [5])
                assert service.trouble is not None
                source.failing = False
            assert reservations(service) == [2]
        assert service.ask("bob", "1", [0, 1]) == first
        assert service.trouble is None
        assert reservations(service) == [2]


def test_a_service_that_nobody_asks_while_it_is_not_ready_gets_ready_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who sends requests where /readyz says so would never send one again."""
    monkeypatch.setattr(desk, "_TRY_AGAIN", 0.02)
    source = TestPool()
    with opened(tmp_path, source) as service:
        with monkeypatch.context() as patch:
            patch.setattr(service.book, "_read", lambda _: (_ for _ in ()).throw(LedgerError("no disk")))
            source.failing = True
            with pytest.raises(ExecutionError):
                service.ask("ann", "1", [0])
            assert service.trouble is not None
            time.sleep(0.1)
            assert service.trouble is not None
        source.failing = False
        end = time.monotonic() + 10
        while service.trouble is not None:
            assert time.monotonic() < end
            time.sleep(0.01)
        assert len(service.ask("ann", "1", [0])) == 1


def test_closing_answers_what_waits_and_takes_no_more(tmp_path: Path) -> None:
    source = TestPool()
    service = opened(tmp_path, source)
    source.go.clear()
    source.held.clear()
    futures: list[Future[list[int]]] = [service.submit("ann", "0", [0])]
    assert source.held.wait(60)
    futures.append(service.submit("ann", "1", [1]))
    closing = threading.Thread(target=service.close)
    closing.start()
    while not service._line.closing:
        closing.join(0.01)
    with pytest.raises(ExecutionError):
        service.submit("ann", "2", [2])
    source.go.set()
    closing.join(10)
    assert all(len(future.result(0)) == 1 for future in futures)


def test_a_database_that_was_put_back_never_forgets_a_charge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The head file claims every reservation before noise is drawn on it. A settlement that it does not claim yet may be
    lost with a database that was put back, and then the worst case is charged, and a new answer is paid for anew."""
    live, copies = tmp_path / "live", tmp_path / "copies"
    live.mkdir()

    def keep(step: str) -> None:
        if step in ("transaction begun", "noise drawn", "answers committed"):
            shutil.copytree(live, copies / step, dirs_exist_ok=True)

    with opened(live, questions=4) as service:
        service.ask("ann", "1", [0])
        while service._unconfirmed:  # at rest all is claimed
            time.sleep(0.01)
        before = tmp_path / "before"
        shutil.copytree(live, before)
        monkeypatch.setattr(faultpoints, "reached", keep)
        service.ask("ann", "2", [1, 2])
        monkeypatch.undo()
    late = copies / "answers committed"
    for place in (before, copies / "noise drawn"):
        shutil.copy(late / "ledger.db.head", place / "ledger.db.head")
    with pytest.raises(LedgerError, match="cut or replaced by an older copy"):
        opened(before, questions=4)  # the reservation is claimed, and missing
    with opened(copies / "noise drawn", questions=4) as service:
        assert service.verify()["open_reservations"] == 1
        assert reservations(service) == [1, 2]
        service.ask("ann", "3", [3])
        with pytest.raises(BudgetExceeded):  # though only two answers are known
            service.ask("ann", "2", [1, 2])
    with opened(late, questions=4) as service:
        assert service.verify()["open_reservations"] == 0
        assert service.book.answered == 3
