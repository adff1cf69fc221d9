"""How many answers a second, and how soon? Against the bare commits that make them durable, and against HTTP alone."""

from __future__ import annotations

import sqlite3
import statistics
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from pate.errors import ExecutionError
from pate.experiments.bench.service_load import Heard, ask_for, empty_process, lost, service_process

POOL = 1_000_000_000  # more than anybody asks
_TABLES = {"pate_ledger": 5, "pate_answers": 5, "pate_requests": 4}
_ALONE = 100  # requests of the comparison without grouping
Commit = list[tuple[str, list[tuple[Any, ...]]]]


def run(
    batches: Sequence[int] = (1, 100),
    clients: Sequence[int] = (1, 8, 64),
    seconds: float = 2.0,
    rounds: int = 3,
    folder: Path | None = None,
) -> list[dict[str, Any]]:
    """Each case in turn, with what it is compared with directly after it, ``rounds`` times over; medians of the rounds."""
    measured: dict[tuple[int, int], list[dict[str, Any]]] = {}
    labels: dict[int, int] = {}
    with tempfile.TemporaryDirectory(dir=folder) as name:
        ledger = Path(name) / "ledger.db"
        with service_process(ledger, POOL) as service, empty_process() as empty:
            ids = iter(range(POOL))
            ask_for(service.port, 2, _batches(ids, 10, 20), 5.0, "warm-up")
            for turn in range(rounds):
                for batch in batches:
                    for count in clients:
                        begin = _last_row(ledger)
                        heard = ask_for(service.port, count, _batches(ids, batch), seconds, f"{turn} {batch} {count}")
                        commits = list(_commits(ledger, begin))
                        bare = _replay(commits, Path(name) / f"bare {turn} {batch} {count}.db")
                        alone = _replay(_one_by_one(commits, batch), Path(name) / f"alone {turn} {batch} {count}.db")
                        nothing = ask_for(empty.port, count, _batches(iter(range(POOL)), batch), seconds / 2, "empty")
                        measured.setdefault((batch, count), []).append(
                            {"heard": heard, "bare": bare, "alone": alone, "empty": nothing}
                        )
                        labels |= heard.labels
        missing = lost(ledger, POOL, labels)
        if missing:
            raise ExecutionError(f"{missing} of {len(labels)} answers that clients heard are not in the book.")
    return [_row(batch, count, found, len(labels)) for (batch, count), found in measured.items()]


def _batches(ids: Iterator[int], batch: int, most: int = 100_000) -> Iterator[list[int]]:
    """Questions that nobody asked before, so many at a time."""
    for _ in range(most):
        found = [each for each, _ in zip(ids, range(batch), strict=False)]
        if len(found) < batch:
            return
        yield found


def _row(batch: int, clients: int, found: list[dict[str, Any]], checked: int) -> dict[str, Any]:
    def rate(heard: Heard) -> float:
        return batch * len(heard.seconds) / heard.elapsed

    milliseconds = 1e3 * np.array([each for turn in found for each in turn["heard"].seconds])
    empty = 1e3 * np.array([each for turn in found for each in turn["empty"].seconds])
    return {
        "batch": batch,
        "clients": clients,
        "answers_per_second": statistics.median(rate(turn["heard"]) for turn in found),
        "p50_ms": float(np.quantile(milliseconds, 0.5)),
        "p99_ms": float(np.quantile(milliseconds, 0.99)),
        "times_bare_commits": statistics.median(turn["heard"].elapsed / turn["bare"] for turn in found),
        "times_bare_requests": statistics.median(_ALONE * batch / turn["alone"] / rate(turn["heard"]) for turn in found),
        "times_empty_endpoint": statistics.median(rate(turn["empty"]) / rate(turn["heard"]) for turn in found),
        "empty_p50_ms": float(np.quantile(empty, 0.5)),
        "answers_checked": checked,
        "answers_lost": 0,
    }


def _last_row(ledger: Path) -> int:
    with closing(sqlite3.connect(ledger)) as connection:
        found: int = connection.execute("SELECT max(sequence) FROM pate_ledger").fetchone()[0]
        return found


def _commits(ledger: Path, begin: int) -> Iterable[Commit]:
    """What the service committed after row ``begin``, as it did: a reservation; then its settlement with all answers.

    Requests are not known by their commit, so they are spread evenly over the settlements.
    """
    with closing(sqlite3.connect(ledger)) as connection:
        rows = connection.execute("SELECT * FROM pate_ledger WHERE sequence > ? ORDER BY sequence", (begin,)).fetchall()
        answers: dict[int, list[tuple[Any, ...]]] = {}
        for each in connection.execute("SELECT * FROM pate_answers WHERE reservation > ?", (begin,)):
            answers.setdefault(each[3], []).append(each)
        wanted = sum(map(len, answers.values()))
        requests = connection.execute("SELECT * FROM pate_requests ORDER BY rowid DESC LIMIT ?", (wanted,)).fetchall()
    settled = [row for row in rows if row[2] == "settle"]
    share = -(-len(requests) // max(1, len(settled)))
    for row in rows:
        commit: Commit = [("pate_ledger", [row])]
        if row[2] == "settle":
            commit += [("pate_answers", answers.get(row[1] - 1, [])), ("pate_requests", requests[:share])]
            requests = requests[share:]
        yield commit


def _one_by_one(commits: Sequence[Commit], batch: int) -> list[Commit]:
    """Requests of such rows without grouping, each with two commits of its own: what one writer with plain SQLite can do."""
    reserve, (settle, answers, requests) = commits[0], commits[1]
    (row,), (end,), (answer, *_), (request, *_) = reserve[0][1], settle[1], answers[1], requests[1]
    found: list[Commit] = []
    for number in range(_ALONE):
        found.append([("pate_ledger", [(row[0], 2 * number, *row[2:])])])
        asked = [(answer[0], f"{number * batch + each}", *answer[2:]) for each in range(batch)]
        key = (*request[:2], f"{number}", request[3])
        found.append([("pate_ledger", [(end[0], 2 * number + 1, *end[2:])]), ("pate_answers", asked), ("pate_requests", [key])])
    return found


def _replay(commits: Sequence[Commit], path: Path) -> float:
    """Seconds that plain sqlite3 needs for the same rows in the same commits, each as durable."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("CREATE TABLE pate_ledger (a, b, c, d, e, PRIMARY KEY (a, b)) WITHOUT ROWID")
        connection.execute("CREATE TABLE pate_answers (a, b, c, d, e, PRIMARY KEY (a, b))")
        connection.execute("CREATE TABLE pate_requests (a, b, c, d, PRIMARY KEY (a, b, c))")
        begun = time.perf_counter()
        for commit in commits:
            connection.execute("BEGIN IMMEDIATE")
            for table, rows in commit:
                connection.executemany(f"INSERT INTO {table} VALUES ({','.join('?' * _TABLES[table])})", rows)
            connection.execute("COMMIT")
        return time.perf_counter() - begun


def table(rows: list[dict[str, Any]]) -> Table:
    """The rows of :func:`run` as a table for people."""
    checked = f"{rows[0]['answers_checked']:,} answers checked against the ledger, none lost"
    result = Table(title=f"Answers of the service, each on the disk before it is sent; {checked}")
    for column in (
        "questions a request",
        "clients",
        "answers a second",
        "p50 ms",
        "p99 ms",
        "time / the same commits, bare",
        "time / bare commits request by request",
        "time / an empty endpoint's",
    ):
        result.add_column(column, justify="right")
    for row in rows:
        result.add_row(
            str(row["batch"]),
            str(row["clients"]),
            f"{row['answers_per_second']:,.0f}",
            f"{row['p50_ms']:.1f}",
            f"{row['p99_ms']:.1f}",
            f"{row['times_bare_commits']:.1f}",
            f"{row['times_bare_requests']:.1f}",
            f"{row['times_empty_endpoint']:.1f}",
        )
    return result
