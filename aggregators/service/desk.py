"""The service without HTTP: every question is paid for before noise is drawn, and answered once."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import threading
from collections.abc import Container, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from types import TracebackType
from typing import Any

from pate.aggregators.base import Aggregator, curve_ahead, curve_bound
from pate.aggregators.service.book import Answer, AnswerBook, Written, answers_digest, request_digest
from pate.aggregators.service.groups import MOST_IN_GROUP, Line, Request, judged
from pate.aggregators.service.history import History
from pate.aggregators.service.lock import ServiceLock
from pate.aggregators.service.logs import log
from pate.aggregators.service.sources import VoteSource
from pate.errors import BudgetExceeded, ExecutionError, KeyConflict, PateError, QueryError
from pate.ledger import Budget, Ledger, faultpoints
from pate.noise import Noise, OSNoise
from pate.privacy.curve import RdpCurve

MOST_KEY = 200  # characters
_RECENT = 200  # rows of the ledger on the owner's page
_IDLE = 0.05  # seconds without a question, after which the ledger's head file is brought up to date
_TRY_AGAIN = 2.0  # seconds without a question, after which a service in trouble looks whether it is over


class Service:
    """Answers questions about private votes, one writer for one ledger.

    In this order: look for the key and for stored answers, check the client's quota and the budget, collect the votes, reserve
    the worst case on disk, draw noise, commit answers and realised cost in one transaction, answer. A crash at any point may
    lose an answer, never a charge. Requests that wait while the disk is written are paid for together.

    >>> import tempfile
    >>> from pate.aggregators import GNMax
    >>> from pate.aggregators.service.sources import Pool
    >>> from pate.votes import Votes
    >>> votes = Votes([[250, 0], [0, 250], [250, 0]], n_teachers=250)
    >>> folder = tempfile.TemporaryDirectory()
    >>> with Service(GNMax(sigma=20), Pool(votes, "ward"), f"{folder.name}/ledger.db", Budget(1.0, 1e-5)) as service:
    ...     service.ask("ann", "request 1", [0, 1])
    ...     service.ask("bob", "request 1", [1, 2])  # 1 is known: bob pays for 2 alone
    ...     service.budget_facts()["answered"]
    [0, 1]
    [1, 0]
    3
    >>> folder.cleanup()
    """

    def __init__(
        self,
        aggregator: Aggregator,
        source: VoteSource,
        place: str | os.PathLike[str],
        budget: Budget | None = None,
        *,
        quotas: Mapping[str, int] | None = None,
        noise: Noise | None = None,
    ) -> None:
        """quotas: how many questions each client may have paid for; who is not named has no limit but the budget."""
        self.aggregator = aggregator
        self.source = source
        self.quotas = dict(quotas or {})
        self._noise = OSNoise() if noise is None else noise
        self._lock = ServiceLock(place, source.fingerprint)
        try:
            self.ledger = Ledger.open(place, source.fingerprint, budget, unit=source.unit)
            self.book = AnswerBook(self.ledger)
            self._of = _digest(self.mechanism_facts())
            self._prefix = self._find_prefix()
        except BaseException:
            self._lock.release()
            raise
        self._history = History(self.ledger, _RECENT)
        self.refused = 0
        self.trouble: str | None = None
        """Why it cannot answer just now; None when it can."""
        self._line = Line(together=aggregator.adds_up)
        self._unconfirmed = False
        self._worst_costs: dict[int, RdpCurve] = {}  # by number of questions, of which a group has not many
        self._worker = threading.Thread(target=self._work, name="pate-service", daemon=True)
        self._worker.start()

    def _find_prefix(self) -> str:
        """Before the names of questions. What another mechanism answered, or votes on another pool, is no answer of this one.

        It would be passed off as such, at a cost that it did not have. So the questions to the first mechanism that a service
        on this ledger had go by their own names, and those to any later one are other questions.
        """
        first = next((entry.memo for entry in self.ledger.entries() if entry.memo.get("service")), None)
        return "" if first is None or first.get("of") == self._of else f"{self._of}:"

    def set_quotas(self, quotas: Mapping[str, int]) -> None:
        """From now on these; what was paid for before counts in them."""
        self.quotas = dict(quotas)

    # Asking -----------------------------------------------------------------------------------------------------------------

    def submit(self, client: str, key: str, queries: Sequence[Any]) -> Future[list[int]]:
        """The answers, a label or ABSTAIN for each question, when they are on the disk. Raises what can be told at once."""
        if not queries:
            raise QueryError("A request must ask at least one question.")
        if len(queries) > MOST_IN_GROUP:
            raise QueryError(f"A request may ask at most {MOST_IN_GROUP} questions, got {len(queries)}. Send several.")
        if not isinstance(key, str) or not 0 < len(key) <= MOST_KEY or not key.isprintable():
            raise QueryError(f"An idempotency key must be 1 to {MOST_KEY} printable characters.")
        names = [self._prefix + name for name in self.source.names(queries)]
        request = Request(Written(client, key, request_digest(names)), names, dict(zip(names, queries, strict=True)))
        self._line.join(request)
        return request.future

    def ask(self, client: str, key: str, queries: Sequence[Any]) -> list[int]:
        """As :meth:`submit`, and wait."""
        return self.submit(client, key, queries).result()

    def _work(self) -> None:
        while (group := self._line.next_group(self._rest())) is not None:
            if not group:
                self._at_rest()
                continue
            try:
                if self.trouble is not None:  # the book may lack answers that were given
                    self.book.reload()
                    self.trouble = None
                self._serve(group)
            except Exception as error:  # of the disk, the teachers, or a defect: nobody waits for ever, and nothing is released
                log("failed", logging.ERROR, error=type(error).__name__)
                self._reload()
                for request in group:
                    if not request.future.done():
                        request.future.set_exception(_told(error))

    def _at_rest(self) -> None:
        """Nobody waits. A service that is not ready may be asked nothing until it is, so it looks by itself."""
        if self.trouble is not None:
            self._reload()
        if self._unconfirmed:
            self._confirm()

    def _reload(self) -> None:
        """What was committed is known again before the next group, or the service is not ready."""
        try:
            self.book.reload()
            self.trouble = None
        except Exception as error:
            self.trouble = type(error).__name__

    def _confirm(self) -> None:
        """Claim the last settled row in the head file. Where that fails, the next reservation claims it, or fails too."""
        self._unconfirmed = False
        with suppress(PateError):
            self.ledger.confirm()

    def _rest(self) -> float | None:
        """Seconds without a request after which there is something else to do."""
        return _IDLE if self._unconfirmed else None if self.trouble is None else _TRY_AGAIN

    def _serve(self, group: list[Request]) -> None:
        """Answer the requests in their order, as if they had come one after the other, with one charge for all."""
        found = judged(group, self.book, self.quotas)
        refused = found.refused
        try:
            self._answer(found.accepted, found.fresh, found.written)
        except BudgetExceeded:
            if len(group) > 1:
                # Together they are too many: in their order, each for itself, so that who is refused depends on nothing else.
                # Also who was refused above: a quota or a key may have been taken by a request that the budget refuses now.
                for request in group:
                    self._serve([request])
                return
            refused = [(group[0], BudgetExceeded("The budget does not cover this request. Ask for less."))]
        for request, error in refused:
            self.refused += not isinstance(error, KeyConflict)
            request.future.set_exception(error)

    def _answer(
        self, accepted: list[Request], fresh: Mapping[str, tuple[Any, str]], written: Container[tuple[str, str]]
    ) -> None:
        requests = {each.written.who: each.written for each in accepted}
        unwritten = [each for who, each in requests.items() if who not in written]
        answers: dict[str, Answer] = {}
        if fresh:
            answers = self._pay_and_draw(fresh, unwritten)
        elif unwritten:
            self.ledger.write_beside(lambda connection: self.book.write(connection, {}, unwritten))
        self.book.remember(answers, unwritten)
        for request in accepted:
            request.future.set_result([self.book.answers[name].label for name in request.names])

    def _worst(self, n_questions: int) -> RdpCurve:
        """What so many questions cost at most. Always the same, so worked out once."""
        if n_questions not in self._worst_costs:
            self._worst_costs[n_questions] = curve_ahead(self.aggregator, self.source.electorate, n_questions)
        return self._worst_costs[n_questions]

    def _pay_and_draw(self, fresh: Mapping[str, tuple[Any, str]], unwritten: Sequence[Written]) -> dict[str, Answer]:
        worst = self._worst(len(fresh))
        self.ledger.afford(worst, look=False)  # before the teachers are troubled
        votes = self.source.votes([question for question, _ in fresh.values()])
        facts = {**self.aggregator.mechanism, "service": True, "of": self._of, "queries": len(fresh), "mode": self._noise.mode}
        reservation = self.ledger.reserve(worst, facts)
        faultpoints.reached("reserved")
        release = self.aggregator.release(votes, self._noise)
        faultpoints.reached("noise drawn")
        answers = {
            name: Answer(label, reservation.sequence, payer)
            for (name, (_, payer)), label in zip(fresh.items(), release.labels.tolist(), strict=True)
        }
        memo = {
            "answered": int(release.answered.sum()),
            "answers": answers_digest({name: each.label for name, each in answers.items()}),
        }
        self.ledger.settle(
            reservation,
            curve_bound(self.aggregator, release),
            memo,
            also=lambda connection: self.book.write(connection, answers, unwritten),
            confirm=False,  # the reservation is confirmed, so the charge cannot be cut off; this row can wait for the next one
        )
        self._unconfirmed = True
        faultpoints.reached("answers committed")
        return answers

    # What may be known ------------------------------------------------------------------------------------------------------

    def budget_facts(self) -> dict[str, Any]:
        """Data-independent figures only: what was answered is public, what it cost follows from that."""
        remaining = self.ledger.remaining()
        one = self._worst(1)
        free = not one.slack and not one.values[self.ledger.budget.order_index]
        return {
            "epsilon": self.ledger.budget.epsilon,
            "delta": self.ledger.budget.delta,
            "spent": self.ledger.spent().epsilon,
            "remaining_fraction": remaining.fraction,
            "queries_left": 0 if free else self.ledger.affordable(one),
            "answered": self.book.answered,
            "abstained": self.book.abstained,
            "unit": self.ledger.unit,
            "neighbours": self.ledger.neighbours,
        }

    def mechanism_facts(self) -> dict[str, Any]:
        electorate = self.source.electorate
        return {**self.aggregator.mechanism, "n_teachers": electorate.n_teachers, **self.source.facts, "mode": self._noise.mode}

    def owner_facts(self) -> dict[str, Any]:
        """For the owner's page: who asked how much, and the last rows of the ledger. Nothing that depends on votes."""
        recent = self._history.recent()
        clients = self.book.clients | set(self.quotas)
        return {
            **self.budget_facts(),
            "refused_since_start": self.refused,
            "clients": [
                {"client": each, "paid_for": self.book.paid[each], "quota": self.quotas.get(each)} for each in sorted(clients)
            ],
            "rows": self._history.count,
            "recent": recent,
        }

    def verify(self) -> dict[str, Any]:
        """Read the ledger anew from its first row, and check every stored answer against it. Raises LedgerError if unsound."""
        found = self.ledger.verify()
        return {"rows": found.rows, "head": found.head, "open_reservations": found.pending, "answers": self.book.verify()}

    def close(self) -> None:
        """Answer what waits, then stop."""
        self._line.close()
        self._worker.join()
        self._confirm()
        self.ledger.close()
        self._lock.release()

    def __enter__(self) -> Service:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def _digest(facts: Mapping[str, Any]) -> str:
    """Of what a mechanism says of itself; 40 and 40.0 are the same."""
    plain = {name: float(value) if type(value) is int else value for name, value in facts.items()}
    return hashlib.sha256(json.dumps(plain, sort_keys=True, default=str).encode()).hexdigest()[:16]


def _told(error: Exception) -> PateError:
    """What a client may hear: nothing that a vote or a path could be read from."""
    return ExecutionError(f"The service could not answer ({type(error).__name__}). Ask again with the same key.")
