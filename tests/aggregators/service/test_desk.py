"""The service without HTTP: paid before noise, answered once, one budget for all, whatever fails in between."""

from __future__ import annotations

import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from desk_cases import GNMAX, PLENTY, TestPool, budget_for, opened, reservations
from ledger_places import postgres_url

from pate.aggregators import Aggregator, ConfidentGNMax, GNMax, curve_ahead, curve_bound
from pate.aggregators.service.desk import Service
from pate.aggregators.service.sources import Pool
from pate.errors import BudgetExceeded, KeyConflict, LedgerError, QueryError, QuotaExceeded
from pate.ledger import faultpoints
from pate.ledger.head import head_path, read_claims
from pate.noise import OSNoise, SimulatedNoise
from pate.release import Release
from pate.votes import Votes


class TellingNoise(OSNoise):
    def __init__(self, told: list[str]) -> None:
        super().__init__()
        self._told = told

    def words(self, size: int) -> Any:
        self._told.append("noise")
        return super().words(size)


def test_the_order_of_operations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    source = TestPool()
    with opened(tmp_path, source, noise=TellingNoise(told)) as service:
        source.told = told.append
        monkeypatch.setattr(faultpoints, "reached", told.append)
        future = service.submit("ann", "1", [0, 1])
        future.add_done_callback(lambda _: told.append("answered"))
        future.result()
        (answered,) = (place for place, what in enumerate(told) if what == "answered")
    steps = [what for what in told[: answered + 1] if what != "transaction begun"]
    kept = list(dict.fromkeys(what for what in steps if what in {"votes collected", "reserved", "noise", "noise drawn"}))
    assert kept == ["votes collected", "reserved", "noise", "noise drawn"]
    reserved, drawn, first_noise = steps.index("reserved"), steps.index("noise drawn"), steps.index("noise")
    durable = ["row inserted", "row committed", "head file written", "head file renamed", "head confirmed", "reserved"]
    assert steps[reserved - 5 : reserved + 1] == durable
    assert reserved < first_noise
    assert "noise" not in steps[drawn:]
    assert steps[drawn + 1 :] == ["budget checked", "row inserted", "row committed", "answers committed", "answered"]


def test_the_head_file_claims_the_reservation_before_noise_and_all_at_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    head, claimed = head_path(tmp_path / "ledger.db"), []

    def reached(step: str) -> None:
        if step == "reserved":
            claimed.append((read_claims(head) or {})["ward"].sequence)

    monkeypatch.setattr(faultpoints, "reached", reached)
    with opened(tmp_path) as service:
        service.ask("ann", "1", [0])
        service.ask("ann", "2", [1])
    assert claimed == [2, 4]  # the open row, then reserve, settle, reserve
    assert (read_claims(head) or {})["ward"].sequence == 5


def test_requests_that_wait_are_paid_for_together(tmp_path: Path) -> None:
    source = TestPool()
    with opened(tmp_path, source) as service:
        source.go.clear()
        source.held.clear()
        futures = [service.submit("ann", "0", [0])]
        assert source.held.wait(60)
        futures += [service.submit(f"client {i % 3}", f"{i}", [i, i + 1]) for i in range(1, 9)]
        source.go.set()
        answers = [future.result(10) for future in futures]
        assert reservations(service) == [1, 9]
        assert all(answers[i][1] == answers[i + 1][0] for i in range(1, 8))
        service.verify()


def test_who_hung_up_before_is_neither_served_nor_in_the_way(tmp_path: Path) -> None:
    source = TestPool()
    with opened(tmp_path, source) as service:
        source.go.clear()
        source.held.clear()
        first = service.submit("ann", "0", [0])
        assert source.held.wait(60)
        gone, stays = service.submit("bob", "1", [1, 2, 3]), service.submit("ann", "2", [4])
        assert gone.cancel()
        assert not first.cancel()
        source.go.set()
        assert len(first.result(10)) == len(stays.result(10)) == 1
        assert reservations(service) == [1, 1]
        assert service.book.answered == 2


def test_a_key_belongs_to_one_request(tmp_path: Path) -> None:
    source = TestPool()
    with opened(tmp_path, source) as service:
        first = service.ask("ann", "1", [0, 1])
        assert all(service.ask("ann", "1", [0, 1]) == first for _ in range(1000))
        for other in ([0], [1, 0], [0, 1, 2], [0, 1, 1]):
            with pytest.raises(KeyConflict):
                service.ask("ann", "1", other)
        assert service.ask("bob", "1", [1]) == first[1:]  # a key is each client's own
        assert reservations(service) == [2]
        source.go.clear()
        source.held.clear()
        waits = service.submit("ann", "2", [5])
        assert source.held.wait(60)
        same, twin, other_one = (service.submit("ann", "3", ids) for ids in ([6], [6], [7]))  # conflict inside one group
        source.go.set()
        assert waits.result(10) is not None
        assert same.result(10) == twin.result(10)
        with pytest.raises(KeyConflict):
            other_one.result(10)
        assert reservations(service) == [2, 1, 1]


def test_quotas_are_each_client_s_own_and_repeats_are_free(tmp_path: Path) -> None:
    with opened(tmp_path, quotas={"ann": 3, "nobody": 0}) as service:
        service.ask("ann", "1", [0, 1])
        service.ask("bob", "1", [2, 3, 4, 5])
        with pytest.raises(QuotaExceeded):
            service.ask("ann", "2", [6, 7])
        assert service.ask("ann", "3", [0, 1, 2, 3, 4, 5, 6, 6])  # all known but one
        assert service.ask("nobody", "1", [0, 6])
        with pytest.raises(QuotaExceeded):
            service.ask("nobody", "2", [8])
        assert service.book.paid == {"ann": 3, "bob": 4}
    with opened(tmp_path, quotas={"ann": 3}) as service, pytest.raises(QuotaExceeded):  # restarts forget nothing
        service.ask("ann", "4", [9])


def test_who_is_refused_by_the_budget_takes_no_quota_and_no_key(tmp_path: Path) -> None:
    """In a group, too: as if the requests had come one after the other."""
    source = TestPool()
    with opened(tmp_path, source, questions=4, quotas={"ann": 5}) as service:
        source.go.clear()
        source.held.clear()
        first = service.submit("bob", "0", [0])
        assert source.held.wait(60)
        too_much = service.submit("ann", "1", [1, 2, 3, 4])
        within = service.submit("ann", "2", [5, 6])
        same_key = service.submit("ann", "1", [7])
        source.go.set()
        assert len(first.result(10)) == 1
        with pytest.raises(BudgetExceeded):
            too_much.result(10)
        assert len(within.result(10)) == 2
        assert len(same_key.result(10)) == 1
        assert reservations(service) == [1, 2, 1]
        assert service.refused == 1


def test_many_accounts_have_one_budget(tmp_path: Path) -> None:
    with opened(tmp_path, questions=10) as service:
        answered = 0
        for question in range(20):
            try:
                answered += len(service.ask(f"account {question}", "1", [question]))
            except BudgetExceeded:
                continue
        assert answered == 10 == service.book.answered
        assert service.refused == 10


def test_at_the_edge_of_the_budget_many_at_once_spend_it_exactly(tmp_path: Path) -> None:
    """64 threads, each two questions of its own and one of its neighbour's; the budget covers 50."""
    source = TestPool(200)
    with opened(tmp_path, source, questions=50) as service:
        start = threading.Barrier(64)

        def client(number: int) -> dict[int, int]:
            got: dict[int, int] = {}
            start.wait()
            for question in (2 * number, 2 * number + 1, (2 * number + 2) % 128):
                try:
                    (label,) = service.ask(f"client {number}", f"q{question}", [question])
                except BudgetExceeded:
                    continue
                got[question] = label
            return got

        with ThreadPoolExecutor(64) as threads:
            found = list(threads.map(client, range(64)))
        answers: dict[int, set[int]] = {}
        for each in found:
            for question, label in each.items():
                answers.setdefault(question, set()).add(label)
        assert all(len(labels) == 1 for labels in answers.values())
        assert len(answers) == 50 == len(service.book.answers) == sum(reservations(service))
        assert service.ledger._chain.spent <= service.ledger.budget.cap_units
        with pytest.raises(BudgetExceeded):
            service.ask("late", "1", [199])
        assert service.verify()["open_reservations"] == 0


def test_neighbouring_votes_are_accepted_and_refused_alike(tmp_path: Path) -> None:
    """Two vote tables that differ in one teacher: which requests are refused, and in what words, is the same."""
    random = np.random.default_rng(20_250_101)
    requests = [
        (f"client {random.integers(3)}", f"{i}", random.integers(0, 40, random.integers(1, 6)).tolist()) for i in range(60)
    ]
    outcomes: list[list[str]] = []
    for shift in (0, 1):
        folder = tmp_path / str(shift)
        folder.mkdir()
        with opened(folder, TestPool(shift=shift), questions=25, quotas={"client 1": 8}) as service:
            told = []
            for request in requests:
                try:
                    told.append(f"{len(service.ask(*request))} answers")
                except BudgetExceeded as error:
                    told.append(f"{type(error).__name__}: {error}")
            outcomes.append(told)
    assert outcomes[0] == outcomes[1]
    assert {told.split(":")[0] for told in outcomes[0]} >= {"BudgetExceeded", "QuotaExceeded", "3 answers"}


def test_a_known_answer_costs_nothing_after_a_restart_too(tmp_path: Path) -> None:
    with opened(tmp_path, questions=5) as service:
        first = service.ask("ann", "1", [0, 1, 2, 3, 4])
        spent = service.ledger._chain.spent
    for restart in range(3):
        with opened(tmp_path, TestPool(shift=restart), questions=5) as service:
            assert service.ask("bob", f"{restart}", [4, 3, 2, 1, 0]) == first[::-1]
            assert service.ask("ann", "1", [0, 1, 2, 3, 4]) == first
            with pytest.raises(KeyConflict):
                service.ask("ann", "1", [0])
            assert service.ledger._chain.spent == spent
            assert service.verify()["answers"] == 5


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "ledger.db") if request.param == "sqlite" else postgres_url()


def test_what_another_mechanism_answered_is_no_answer_of_this_one(tmp_path: Path) -> None:
    """It had another cost than the one that now goes with it. The first one's answers are still there when it comes back."""
    with opened(tmp_path, budget=PLENTY) as service:
        first = service.ask("ann", "1", [0, 1, 2])
    with opened(tmp_path, budget=PLENTY, aggregator=GNMax(200.0), quotas={"ann": 5}) as service:
        with pytest.raises(KeyConflict):
            service.ask("ann", "1", [0, 1, 2])  # else one key would have two answers
        service.ask("ann", "2", [0, 1])
        with pytest.raises(QuotaExceeded):
            service.ask("ann", "3", [2])
        assert reservations(service) == [3, 2]
        service.verify()
    for _ in range(2):
        with opened(tmp_path, budget=PLENTY, aggregator=GNMax(200.0)) as service:
            service.ask("ann", "2", [0, 1])
            service.ask("bob", "1", [1])
    with opened(tmp_path, TestPool(41), budget=PLENTY) as service:  # another pool
        service.ask("bob", "2", [0])
        assert reservations(service) == [3, 2, 1]
    with opened(tmp_path, budget=PLENTY, aggregator=GNMax(20)) as service:
        assert service.ask("ann", "1", [0, 1, 2]) == first
        assert service.ask("bob", "3", [2, 1, 0]) == first[::-1]
        assert reservations(service) == [3, 2, 1]


def test_requests_that_memory_no_longer_holds_are_found_on_disk(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pate.aggregators.service.book._MOST_REQUESTS", 3)
    source = TestPool(fingerprint=f"ward {uuid.uuid4()}")
    for _ in range(2):  # the second time it is read from the disk, and not all of it
        with Service(GNMAX, source, place, budget_for(30)) as service:
            first = [service.ask(f"client {i % 2}", f"{i}'\"%s?", [i, i + 1]) for i in range(10)]
            assert len(service.book._requests) == 3
            assert [service.ask(f"client {i % 2}", f"{i}'\"%s?", [i, i + 1]) for i in range(10)] == first
            for i in range(10):
                with pytest.raises(KeyConflict):
                    service.ask(f"client {i % 2}", f"{i}'\"%s?", [i])
            assert [row["client"] for row in service.owner_facts()["clients"]] == ["client 0", "client 1"]
            assert sum(reservations(service)) == 11


def test_a_second_service_is_refused(place: str) -> None:
    name, other, budget = f"ward {uuid.uuid4()}", f"clinic {uuid.uuid4()}", budget_for(9)
    with Service(GNMAX, TestPool(fingerprint=name), place, budget) as service:
        first = service.ask("ann", "1", [0, 1])
        with pytest.raises(LedgerError, match="Another service"):
            Service(GNMAX, TestPool(fingerprint=name), place, budget)
        with Service(GNMAX, TestPool(fingerprint=other), place, budget) as neighbour:  # other data in the same database
            neighbour.ask("ann", "1", [0, 1, 2])
            assert service.ask("ann", "2", [1, 0]) == first[::-1]
            assert (service.book.answered, neighbour.book.answered) == (2, 3)
    with Service(GNMAX, TestPool(fingerprint=name), place, budget) as service:
        assert service.ask("ann", "1", [0, 1]) == first
        assert service.verify()["answers"] == 2


@pytest.mark.parametrize("charging", ["realised", "joint"])
def test_confident_answers_are_charged_as_it_says(tmp_path: Path, charging: Any) -> None:
    aggregator = ConfidentGNMax(75, 40.0, 15.0, charging)
    votes = Votes([[90, 10], [60, 40]] * 100, n_teachers=100)
    with Service(aggregator, Pool(votes, "ward"), tmp_path / "l.db", PLENTY, noise=SimulatedNoise(7)) as service:
        labels = np.array(service.ask("ann", "1", list(range(120))) + service.ask("ann", "2", list(range(120, 200))))
        parts = [Release(part, votes.electorate, aggregator.mechanism) for part in (labels[:120], labels[120:])]
        assert 40 < service.book.answered < 160
        worst = curve_ahead(aggregator, votes.electorate, 200).values
        claimed = sum(curve_bound(aggregator, part).values for part in parts)
        spent = service.ledger.spent_curve().values
        assert (spent >= claimed * (1 - 1e-12)).all()
        assert spent == pytest.approx(claimed, rel=1e-6)
        assert (spent < 0.9 * worst).all() if charging == "realised" else spent == pytest.approx(worst, rel=1e-6)


@pytest.mark.parametrize("queries", [[], [-1], [40], [True], ["0"], [0.0], [None], list(range(40)) * 51])
def test_what_cannot_be_asked(tmp_path: Path, queries: list[Any]) -> None:
    with opened(tmp_path) as service:
        for key, asked in (("1", queries), ("", [0]), ("x" * 201, [0]), ("a\nb", [0])):
            with pytest.raises(QueryError):
                service.ask("ann", key, asked)
        assert reservations(service) == []


def test_every_aggregator_of_the_house_is_served(tmp_path: Path) -> None:
    from pate.aggregators import LNMax

    each: Aggregator
    for number, each in enumerate((GNMax(30.0), LNMax(0.05), ConfidentGNMax(60, 20.0, 20.0))):
        with Service(each, TestPool(), tmp_path / f"{number}.db", PLENTY) as service:
            assert len(service.ask("ann", "1", [0, 1, 1])) == 3
            service.verify()


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE pate_answers SET label = 1 - label WHERE query = '0'",
        "DELETE FROM pate_answers WHERE query = '0'",
        "INSERT INTO pate_answers SELECT dataset, 'made up', label, reservation, client FROM pate_answers LIMIT 1",
    ],
)
def test_answers_changed_on_the_disk_are_noticed_while_it_runs(tmp_path: Path, change: str) -> None:
    with opened(tmp_path) as service:
        service.ask("ann", "1", [0, 1])
        assert service.verify()["answers"] == 2
        service.ledger.write_beside(lambda connection: connection.exec_driver_sql(change))
        with pytest.raises(LedgerError, match="vouches"):
            service.verify()
