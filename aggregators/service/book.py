"""The answers given so far and the requests they were given to, in the ledger's own database, written with its rows."""

from __future__ import annotations

import hashlib
import json
from collections import Counter, OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sqlalchemy import Connection, text

from pate.errors import LedgerError
from pate.ledger import Ledger
from pate.ledger.store import fetch, insert
from pate.release import ABSTAIN

_ANSWERS, _REQUESTS = "pate_answers", "pate_requests"
_SCHEMA = (
    f"CREATE TABLE IF NOT EXISTS {_ANSWERS} (dataset TEXT NOT NULL, query TEXT NOT NULL, label BIGINT NOT NULL, "
    "reservation BIGINT NOT NULL, client TEXT NOT NULL, PRIMARY KEY (dataset, query))",
    f"CREATE TABLE IF NOT EXISTS {_REQUESTS} (dataset TEXT NOT NULL, client TEXT NOT NULL, request_key TEXT NOT NULL, "
    "digest TEXT NOT NULL, PRIMARY KEY (dataset, client, request_key))",
)
_ADD_ANSWER = f"INSERT INTO {_ANSWERS} (dataset, query, label, reservation, client) VALUES (?, ?, ?, ?, ?)"
_ADD_REQUEST = f"INSERT INTO {_REQUESTS} (dataset, client, request_key, digest) VALUES (?, ?, ?, ?)"
_ALL_ANSWERS = text(f"SELECT query, label, reservation, client FROM {_ANSWERS} WHERE dataset = :dataset")
_SOME_REQUESTS = text(f"SELECT client, request_key, digest FROM {_REQUESTS} WHERE dataset = :dataset LIMIT :most")
_CLIENTS = text(f"SELECT DISTINCT client FROM {_REQUESTS} WHERE dataset = :dataset")
_MOST_REQUESTS = 50_000
"""Kept in memory, some 20 MB; the others are looked up. Requests are as many as clients like: repeats cost them nothing."""


class Answer(NamedTuple):
    """A label (or ABSTAIN), the ledger's row that paid for it, and for whom it was first asked."""

    label: int
    reservation: int
    client: str


@dataclass(frozen=True)
class Written:
    """A request by its client and key; digest: of all that it asked."""

    client: str
    key: str
    digest: str

    @property
    def who(self) -> tuple[str, str]:
        return self.client, self.key


class AnswerBook:
    """What was answered, in memory and on disk. One service writes it; see :mod:`pate.aggregators.service.lock`."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self.reload()

    def reload(self) -> None:
        """Read it from the disk: at the start, and after a failure that left it unknown what was committed."""
        self.answers: dict[str, Answer] = {}
        self._requests: OrderedDict[tuple[str, str], str] = OrderedDict()  # the last ones; all of them while they fit
        self._all_in_memory = True
        self.clients: set[str] = set()
        self.paid: Counter[str] = Counter()
        self.answered = self.abstained = 0
        self._ledger.write_beside(self._read)

    def _read(self, connection: Connection) -> None:
        for statement in _SCHEMA:
            connection.exec_driver_sql(statement)
        dataset = {"dataset": self._ledger.fingerprint}
        answers = connection.execute(_ALL_ANSWERS, dataset).all()
        requests = connection.execute(_SOME_REQUESTS, {**dataset, "most": _MOST_REQUESTS + 1}).all()
        self.clients = {str(client) for client in connection.execute(_CLIENTS, dataset).scalars()}
        self.remember(
            {str(query): Answer(int(label), int(row), str(client)) for query, label, row, client in answers},
            [Written(str(client), str(key), str(digest)) for client, key, digest in requests],
        )

    def digests(self, asked: Sequence[tuple[str, str]]) -> dict[tuple[str, str], str]:
        """The digests of those requests, each by client and key, that were written before."""
        found = {who: self._requests[who] for who in asked if who in self._requests}
        others = [] if self._all_in_memory else list({who for who in asked if who not in found})
        if others:
            found |= self._ledger.write_beside(lambda connection: self._look_up(connection, others))
        return found

    def _look_up(self, connection: Connection, asked: Sequence[tuple[str, str]]) -> dict[tuple[str, str], str]:
        statement = (
            f"WITH asked (client, request_key) AS (VALUES {', '.join(['(?, ?)'] * len(asked))}) "
            f"SELECT client, request_key, digest FROM asked JOIN {_REQUESTS} USING (client, request_key) WHERE dataset = ?"
        )
        rows = fetch(connection, statement, (*(part for who in asked for part in who), self._ledger.fingerprint))
        return {(str(client), str(key)): str(digest) for client, key, digest in rows}

    def write(self, connection: Connection, answers: Mapping[str, Answer], requests: Iterable[Written]) -> None:
        """Inside a transaction of the ledger. Call :meth:`remember` once it is committed."""
        dataset = self._ledger.fingerprint
        insert(connection, _ADD_ANSWER, [(dataset, name, *each) for name, each in answers.items()])
        insert(connection, _ADD_REQUEST, [(dataset, each.client, each.key, each.digest) for each in requests])

    def remember(self, answers: Mapping[str, Answer], requests: Iterable[Written]) -> None:
        self.answers.update(answers)
        for each in requests:
            self._requests[each.who] = each.digest
            self.clients.add(each.client)
        while len(self._requests) > _MOST_REQUESTS:
            self._requests.popitem(last=False)
            self._all_in_memory = False
        self.paid.update(each.client for each in answers.values())
        answered = sum(each.label != ABSTAIN for each in answers.values())
        self.answered += answered
        self.abstained += len(answers) - answered

    def verify(self) -> int:
        """Check that every answer on the disk is the one that the ledger's chain vouches for; how many there are."""
        before = self._vouched()
        dataset = {"dataset": self._ledger.fingerprint}
        stored = self._ledger.write_beside(lambda connection: connection.execute(_ALL_ANSWERS, dataset).all())
        by_row: dict[int, dict[str, int]] = {}
        for name, label, row, _ in stored:
            by_row.setdefault(int(row), {})[str(name)] = int(label)
        found = {row: answers_digest(labels) for row, labels in by_row.items()}
        # Questions may be answered meanwhile: none that was there is missing, and none is there that is not vouched for.
        if not before.items() <= found.items() <= self._vouched().items():
            raise LedgerError(
                "The stored answers are not those that the ledger vouches for: rows were changed, added or removed. Stop the "
                "service and restore ledger and answers, which lie in one database, from a backup."
            )
        return len(stored)

    def _vouched(self) -> dict[int, str]:
        """The digest of the answers that each reservation paid for, by its row."""
        settled = (entry for entry in self._ledger.entries() if entry.kind == "settle" and "answers" in entry.memo)
        return {entry.settles or 0: str(entry.memo["answers"]) for entry in settled}


def answers_digest(labels: Mapping[str, int]) -> str:
    """SHA-256 over names and labels, whatever their order."""
    return hashlib.sha256(json.dumps(sorted(labels.items())).encode()).hexdigest()


def request_digest(names: Sequence[str]) -> str:
    """SHA-256 over what a request asked, in its order."""
    return hashlib.sha256(json.dumps(list(names)).encode()).hexdigest()
