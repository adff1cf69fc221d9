"""Requests that are paid for together: the line in which they wait, and who of a group is accepted."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from pate.aggregators.service.book import AnswerBook, Written
from pate.errors import ExecutionError, KeyConflict, PateError, QuotaExceeded

MOST_IN_GROUP = 2_000  # questions


@dataclass(eq=False)
class Request:
    """names: of its questions, in their order. queries: each question once, by its name."""

    written: Written
    names: list[str]
    queries: dict[str, Any]
    future: Future[list[int]] = field(default_factory=Future)


class Line:
    """Requests in the order in which they came, from many threads to the one that answers.

    together: whether requests may share a group. Where questions of a batch hang on each other, a batch is one request:
    nobody's questions use up another's.
    """

    def __init__(self, together: bool) -> None:
        self._together = together
        self._waiting: list[Request] = []
        self._wake = threading.Condition()
        self.closing = False

    def join(self, request: Request) -> None:
        with self._wake:
            if self.closing:
                raise ExecutionError("The service is closing. Ask again when it is back; the same key is safe.")
            self._waiting.append(request)
            self._wake.notify()

    def next_group(self, rest: float | None) -> list[Request] | None:
        """Who waits, in order; nobody after ``rest`` seconds without a request (None: for ever); None at the end."""
        with self._wake:
            while not self._waiting and not self.closing:
                if not self._wake.wait(rest) and not self._waiting:
                    return []
            if not self._waiting:
                return None
            taken, count = 0, 0
            for request in self._waiting:
                count += len(request.names)
                if taken and (count > MOST_IN_GROUP or not self._together):
                    break
                taken += 1
            group, self._waiting = self._waiting[:taken], self._waiting[taken:]
            # From here on nobody can cancel them; whoever hung up before is not served.
            return [request for request in group if request.future.set_running_or_notify_cancel()]

    def close(self) -> None:
        """Nobody joins any more; who waits is still served."""
        with self._wake:
            self.closing = True
            self._wake.notify_all()


@dataclass(frozen=True)
class Judged:
    """A group, before the budget is asked.

    refused: each with what it is told. fresh: questions without an answer, name -> (question, client who pays). written: the
    requests, by client and key, that the book holds already.
    """

    accepted: list[Request]
    refused: list[tuple[Request, PateError]]
    fresh: dict[str, tuple[Any, str]]
    written: set[tuple[str, str]]


def judged(group: Sequence[Request], book: AnswerBook, quotas: Mapping[str, int]) -> Judged:
    """Each request as if those before it had been answered. Changes nothing; the same group may be judged again."""
    accepted: list[Request] = []
    refused: list[tuple[Request, PateError]] = []
    fresh: dict[str, tuple[Any, str]] = {}
    digests = book.digests([request.written.who for request in group])
    written = set(digests)
    pays: Counter[str] = Counter()
    for request in group:
        who = request.written.who
        if digests.get(who, request.written.digest) != request.written.digest:
            refused.append((request, KeyConflict("This idempotency key belongs to another request of yours. Use a new key.")))
            continue
        new = [name for name in request.queries if name not in book.answers and name not in fresh]
        quota = quotas.get(who[0])
        if new and quota is not None and book.paid[who[0]] + pays[who[0]] + len(new) > quota:
            refused.append((request, QuotaExceeded("Your quota of questions does not cover this request.")))
            continue
        pays[who[0]] += len(new)
        digests[who] = request.written.digest
        fresh |= {name: (request.queries[name], who[0]) for name in new}
        accepted.append(request)
    return Judged(accepted, refused, fresh, written)
