"""Where the rows lie: one table in SQLite or PostgreSQL, written in serialised transactions, never updated."""

from __future__ import annotations

import os
import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, ClassVar

from sqlalchemy import Connection, Engine
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from pate.errors import LedgerError, PateError
from pate.ledger import faultpoints
from pate.ledger.chain import Chain, Row

TABLE = "pate_ledger"
_PAGE = 1000
_INSERT = f"INSERT INTO {TABLE} (dataset, sequence, kind, payload, hash) VALUES (?, ?, ?, ?, ?)"
_SELECT = f"SELECT dataset, sequence, kind, payload, hash FROM {TABLE} WHERE dataset = ?"

RESTORE = (
    "Stop every run on this data, keep the files for inquiry and restore the ledger from a backup; "
    "never delete it or start a new one: what was spent would be forgotten."
)


class Store(ABC):
    """One ledger database. Thread-safe; safe over ``os.fork``; one transaction at a time."""

    database_errors: ClassVar[tuple[type[Exception], ...]] = (SQLAlchemyError,)

    def __init__(self, engine: Engine, where: str) -> None:
        self.where = where
        """The ledger's place, without a password, for messages."""
        self.lock = threading.RLock()
        self._engine = engine
        self._connected_in: int | None = None
        _LIVE.add(self)
        weakref.finalize(self, _dispose_in, os.getpid(), engine)  # for whoever forgets to close

    @abstractmethod
    def _begin(self, connection: Connection, fingerprint: str | None) -> None:
        """Begin a transaction; with a fingerprint, one that excludes all other writers of that chain until its end."""

    @abstractmethod
    def confirm(self, fingerprint: str) -> None:
        """Called after a commit, before the caller hears of it: whatever makes the loss of the row noticeable."""

    @abstractmethod
    def inspect(self) -> None:
        """Raise LedgerError unless the database itself, apart from the chains in it, is sound."""

    @contextmanager
    def transaction(self, write_to: str | None = None) -> Iterator[Connection]:
        """A snapshot for reading, or the only writer of the chain ``write_to``. Commits at the end, unless it raises."""
        with self.lock:
            self._refuse_inherited_connection()
            try:
                with self._engine.connect() as connection:
                    try:
                        self._begin(connection, write_to)
                        faultpoints.reached("transaction begun")
                        yield connection
                        driver_of(connection).execute("COMMIT")
                    except BaseException:
                        # Closing the raw connection rolls back, whatever state the error left it in.
                        connection.invalidate()
                        raise
            except self.database_errors as error:
                raise self.failure(error) from error

    def rows(self, connection: Connection, fingerprint: str, after: int = 0) -> Iterator[Row]:
        """The rows of a chain from number ``after`` + 1 on, in order, a page at a time."""
        query = f"{_SELECT} AND sequence > ? ORDER BY sequence LIMIT {_PAGE}"
        while True:
            page = [self._row(found) for found in fetch(connection, query, (fingerprint, after))]
            yield from page
            if len(page) < _PAGE:
                return
            after = page[-1].sequence

    def row(self, connection: Connection, fingerprint: str, sequence: int) -> Row | None:
        """One row of a chain, if it is there."""
        found = fetch(connection, f"{_SELECT} AND sequence = ?", (fingerprint, sequence))
        return self._row(found[0]) if found else None

    def fingerprints(self, connection: Connection) -> list[str]:
        """Every data set that has rows here."""
        found = connection.exec_driver_sql(f"SELECT DISTINCT dataset FROM {TABLE} ORDER BY dataset").scalars().all()
        return [str(fingerprint) for fingerprint in found]

    def append(self, connection: Connection, row: Row) -> None:
        """Insert a row inside the current transaction."""
        insert(connection, _INSERT, [(row.fingerprint, row.sequence, row.kind, row.payload, row.hash)])

    def _row(self, values: tuple[object, ...]) -> Row:
        fingerprint, sequence, kind, payload, digest = values
        if not isinstance(sequence, int) or not all(isinstance(part, str) for part in (fingerprint, kind, payload, digest)):
            raise self.broken("a row holds values of the wrong type, so its bytes were changed")
        return Row(str(fingerprint), sequence, str(kind), str(payload), str(digest))

    def extend(self, chain: Chain, rows: Iterable[Row]) -> Chain:
        """Take rows into a chain; what does not follow is damage."""
        for row in rows:
            try:
                chain.extend(row)
            except LedgerError as error:
                raise self.broken(str(error).rstrip(".")) from None
        return chain

    def broken(self, found: str) -> LedgerError:
        """The error for a ledger that must not be used."""
        return LedgerError(f"Ledger {self.where}: {found}. {RESTORE}")

    def failure(self, error: Exception) -> PateError:
        """A database error as a LedgerError that says what to do."""
        cause = " ".join(str(getattr(error, "orig", None) or error).split())[:300]
        return LedgerError(f"Ledger {self.where}: the database said: {cause.rstrip('.')}. {_advice(cause)}")

    def disconnect(self) -> None:
        """Close the connection; the next use opens one again."""
        self._engine.dispose()
        self._connected_in = None

    def _refuse_inherited_connection(self) -> None:
        # os.fork closes connections first (below). Only a fork by foreign C code can carry one into a child, where
        # SQLite's locks are not held and PostgreSQL's socket is shared: neither can be used, nor closed, safely.
        if self._connected_in not in (None, os.getpid()):
            raise LedgerError(
                f"Ledger {self.where}: its connection was opened in process {self._connected_in} and came here by a fork that "
                "Python did not see. Start workers with the spawn method, and open the ledger there."
            )
        self._connected_in = os.getpid()


def fetch(connection: Connection, statement: str, values: Sequence[object] = ()) -> list[tuple[object, ...]]:
    """All rows of a query with ? for values, straight from the driver.

    SQLAlchemy would take several times as long over a row of this ledger as the database does.
    """
    driver = driver_of(connection)
    with closing(driver.cursor()) as cursor:
        cursor.execute(_marked(connection, statement), values)
        found: list[tuple[object, ...]] = cursor.fetchall()
        return found


def insert(connection: Connection, statement: str, rows: Sequence[Sequence[object]]) -> None:
    """Insert rows with ? for values, straight through the driver."""
    with closing(driver_of(connection).cursor()) as cursor:
        cursor.executemany(_marked(connection, statement), rows)


def driver_of(connection: Connection) -> Any:
    """The connection below SQLAlchemy's."""
    return connection.connection.driver_connection


def _marked(connection: Connection, statement: str) -> str:
    """What stands for a value in the driver's own SQL."""
    return statement if connection.dialect.paramstyle == "qmark" else statement.replace("?", "%s")


def _advice(cause: str) -> str:
    """The next step for a message of SQLite or PostgreSQL."""
    words = cause.lower()
    if any(sign in words for sign in ("malformed", "not a database", "decode", "file is encrypted")):
        return f"The file is damaged. {RESTORE}"
    if any(sign in words for sign in ("full", "no space", "disk i/o")):
        return "Nothing was released. Free space on the disk, or raise its quota, and try again."
    if "locked" in words or "timeout" in words:
        return "Another process holds the ledger. Wait for it, or stop it, and try again."
    if "readonly" in words or "read-only" in words or "permission" in words or "unable to open" in words:
        return "Check that this user may write the ledger and its folder."
    return "Nothing was released. Check that the database can be reached and try again."


def _dispose_in(pid: int, engine: Engine) -> None:
    if os.getpid() == pid:
        engine.dispose()


_LIVE: weakref.WeakSet[Store] = weakref.WeakSet()
_held: list[Store] = []


def _before_fork() -> None:
    """Close every connection, so that the child inherits none: see _refuse_inherited_connection."""
    for store in list(_LIVE):
        store.lock.acquire()
        _held.append(store)
        store.disconnect()


def _after_fork() -> None:
    while _held:
        _held.pop().lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)


def connect(place: str | os.PathLike[str], *, create: bool) -> Store:
    """The store at a path (SQLite) or SQLAlchemy URL (sqlite, postgresql); made first where it is new and ``create``."""
    name = os.fspath(place)
    if "://" not in name:
        return _sqlite(Path(name), create)
    try:
        url = make_url(name)
    except ArgumentError:
        raise LedgerError("A ledger's place must be a path or a database URL such as postgresql+psycopg://host/name.") from None
    if url.get_backend_name() == "sqlite":
        return _sqlite(Path(url.database or ""), create)
    if url.get_backend_name() == "postgresql":
        return _postgres(url, create)
    raise LedgerError(f"A ledger lies in SQLite or PostgreSQL, got a URL for {url.get_backend_name()!r}.")


def _sqlite(path: Path, create: bool) -> Store:
    from pate.ledger.sqlite import SqliteStore

    return SqliteStore(path, create=create)


def _postgres(url: URL, create: bool) -> Store:
    from pate.ledger.postgres import PostgresStore

    return PostgresStore(url, create=create)
