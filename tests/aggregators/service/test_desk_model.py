"""The service against a plain model of it: any sequence of requests, restarts and failures."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from desk_cases import GNMAX, TestPool, budget_for, opened
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from pate.errors import BudgetExceeded, ExecutionError, KeyConflict, PateError, QuotaExceeded
from pate.ledger import faultpoints

QUESTIONS, QUOTAS = 12, {"ann": 4, "bob": 100}
BUDGET = budget_for(QUESTIONS, GNMAX)
REACHED = faultpoints.reached
Request = tuple[str, str, tuple[int, ...]]


class ServiceModel(RuleBasedStateMachine):
    """asked: every request that was answered. answers: each question's one label. paid: questions charged, for good."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.asked: dict[tuple[str, str], tuple[int, ...]] = {}
        self.answers: dict[int, int] = {}
        self.payer: dict[int, str] = {}
        self.charged = 0
        self.source = TestPool(20)
        self.service = opened(self.folder, self.source, budget=BUDGET, quotas=QUOTAS)

    def new(self, ids: tuple[int, ...]) -> set[int]:
        return set(ids) - set(self.answers)

    def expected(self, client: str, key: str, ids: tuple[int, ...]) -> type[Exception] | None:
        if self.asked.get((client, key), ids) != ids:
            return KeyConflict
        new = self.new(ids)
        paid = sum(payer == client for payer in self.payer.values())
        if new and paid + len(new) > QUOTAS.get(client, QUESTIONS * 2):
            return QuotaExceeded
        return BudgetExceeded if self.charged + len(new) > QUESTIONS else None

    request = st.tuples(
        st.sampled_from(["ann", "bob", "carl"]),
        st.sampled_from("12345"),
        st.lists(st.integers(0, 19), min_size=1, max_size=4).map(tuple),
    )

    def tried(self, request: Request) -> list[int] | PateError:
        try:
            return self.service.ask(request[0], request[1], list(request[2]))
        except PateError as error:
            return error

    @rule(request=request)
    def ask(self, request: Request) -> None:
        refusal, told = self.expected(*request), self.tried(request)
        if isinstance(told, PateError):
            assert type(told) is refusal
            return
        assert refusal is None
        self.learn(*request, told)

    def learn(self, client: str, key: str, ids: tuple[int, ...], labels: list[int]) -> None:
        self.charged += len(self.new(ids))
        for question, label in zip(ids, labels, strict=True):
            self.payer.setdefault(question, client)
            assert self.answers.setdefault(question, label) == label
        self.asked[client, key] = ids

    @rule(request=request)
    def teachers_fail(self, request: Request) -> None:
        refusal, new = self.expected(*request), self.new(request[2])
        self.source.failing = True
        told = self.tried(request)
        self.source.failing = False
        if isinstance(told, PateError):
            assert type(told) is (refusal or ExecutionError)
            assert refusal or new
        else:
            assert not new  # nothing to ask the teachers
            self.learn(*request, told)

    @rule(request=request, step=st.sampled_from(["row inserted", "reserved", "noise drawn", "answers committed"]))
    def disk_fails(self, request: Request, step: str) -> None:
        """Where the failure comes after the reservation it stays charged; after the commit the answers are there."""
        client, key, ids = request
        if self.expected(*request) is not None or not self.new(ids):
            return
        drawn = len(self.new(ids))

        def reached(name: str) -> None:
            if name == step:
                faultpoints.reached = REACHED
                raise OSError("canary")

        faultpoints.reached = reached
        told = self.tried(request)
        faultpoints.reached = REACHED
        assert type(told) is ExecutionError
        assert "canary" not in str(told)
        if step == "answers committed":
            self.learn(client, key, ids, [self.service.book.answers[str(each)].label for each in ids])
        elif step != "row inserted":
            self.charged += drawn

    @rule()
    def restart(self) -> None:
        self.service.close()
        self.service = opened(self.folder, self.source, budget=BUDGET, quotas=QUOTAS)

    @precondition(lambda self: self.asked)
    @rule()
    def ask_all_again(self) -> None:
        for (client, key), ids in self.asked.items():
            assert self.service.ask(client, key, list(ids)) == [self.answers[each] for each in ids]

    @invariant()
    def books_agree(self) -> None:
        service = self.service
        assert {int(name): answer.label for name, answer in service.book.answers.items()} == self.answers
        chain = service.ledger._chain
        assert chain.spent <= BUDGET.cap_units
        assert sum(entry.memo["queries"] for entry in service.ledger.entries() if entry.kind == "reserve") == self.charged
        assert service.trouble is None

    def teardown(self) -> None:
        assert self.service.verify()["answers"] == len(self.answers)
        self.service.close()
        shutil.rmtree(self.folder)


ServiceModel.TestCase.settings = settings(max_examples=100, stateful_step_count=20, deadline=None)
TestServiceModel = ServiceModel.TestCase
