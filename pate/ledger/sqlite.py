"""A ledger in an SQLite file, and the head file beside it."""

from __future__ import annotations

import os
import secrets
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

from sqlalchemy import Connection, create_engine, event
from sqlalchemy.engine import URL
from sqlalchemy.pool import ConnectionPoolEntry, QueuePool

from pate.errors import LedgerError, PateError
from pate.ledger import faultpoints
from pate.ledger.chain import Chain
from pate.ledger.head import Claim, Claims, create_claims, head_path, read_claims, sync_folder, write_claims
from pate.ledger.store import RESTORE, TABLE, Store, driver_of, fetch

BUSY_SECONDS = 60

# One b-tree (WITHOUT ROWID): there is no second copy of a row, in an index, that could disagree with it.
SCHEMA = {
    TABLE: (
        f"CREATE TABLE {TABLE} (dataset TEXT NOT NULL, sequence INTEGER NOT NULL, kind TEXT NOT NULL, payload TEXT NOT NULL, "
        "hash TEXT NOT NULL, PRIMARY KEY (dataset, sequence)) WITHOUT ROWID"
    ),
    **{
        f"{TABLE}_no_{action.lower()}": (
            f"CREATE TRIGGER {TABLE}_no_{action.lower()} BEFORE {action} ON {TABLE} "
            "BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END"
        )
        for action in ("UPDATE", "DELETE")
    },
}


class SqliteStore(Store):
    """An SQLite file in WAL mode with full fsync. Its folder must be on a local disk: WAL needs shared memory."""

    # Errors while a connection is being set up come from the driver as they are; so does its failure to decode SQLite's
    # own message, when that quotes a damaged file.
    database_errors = (*Store.database_errors, sqlite3.Error, UnicodeDecodeError)

    def __init__(self, path: Path, *, create: bool, trust_head: bool = True) -> None:
        if not path.name or path.name == ":memory:":
            raise LedgerError("A ledger must survive the process: give a file path, not an in-memory database.")
        # Links are followed first, or one ledger could have two head files.
        self.path = Path(os.path.realpath(path))
        self.head = head_path(self.path)
        self._trust_head = trust_head
        engine = create_engine(
            URL.create("sqlite", database=str(self.path)),
            isolation_level="AUTOCOMMIT",  # transactions are begun and ended in plain sight, in Store.transaction
            connect_args={"timeout": BUSY_SECONDS, "check_same_thread": False},
            poolclass=QueuePool,
            pool_size=1,
            max_overflow=0,
        )
        event.listen(engine, "connect", _configure)
        super().__init__(engine, str(self.path))
        self._prepare(create)
        self.inspect()

    def _prepare(self, create: bool) -> None:
        """Check that the two files belong together, or make both. Each appears whole or not at all."""
        # The database is looked at through its size only: closing a second handle on it would drop SQLite's locks.
        size = self.path.stat().st_size if self.path.exists() else None
        if size == 0:
            raise LedgerError(f"Ledger {self.path}: empty (0 bytes). If it never was a ledger, remove it. If it was: {RESTORE}")
        if size is None:
            claims = read_claims(self.head)
            if claims:
                raise self.broken(f"the file is missing, though {self.head.name} says that it holds {_rows(claims)}")
            if not create:
                raise LedgerError(
                    f"Ledger {self.path}: there is none. Check the path. One begins with a budget: "
                    "`pate ask` or `pate serve` with --budget-epsilon, Ledger.open(…, Budget(…)) in Python."
                )
            try:
                create_claims(self.head)
                _create_database(self.path)
            except (OSError, sqlite3.Error) as error:
                raise self.failure(error) from error

    def claims(self) -> Claims:
        """What the head file says must be there."""
        claims = read_claims(self.head) if self._trust_head else {}
        if claims is None:
            raise LedgerError(
                f"Ledger {self.path}: its head file {self.head.name} is missing, so rows cut from the end would go unnoticed. "
                "Copy it from where the ledger came from; if you are sure that the ledger is complete, rebuild it with: "
                "pate ledger verify LEDGER --rebuild-head"
            )
        return claims

    def inspect(self) -> None:
        # Claims are read before the snapshot: a row that is claimed now is in every later snapshot.
        with self.transaction() as connection:
            complaints = connection.exec_driver_sql("PRAGMA integrity_check(3)").scalars().all()
            if complaints != ["ok"]:
                raise self.broken(f"SQLite's integrity check says: {' '.join('; '.join(map(str, complaints)).split())[:300]}")
            found = connection.exec_driver_sql("SELECT name, sql FROM sqlite_master").all()
        objects = {str(name): sql for name, sql in found}
        if TABLE not in objects:
            raise LedgerError(f"Ledger {self.path}: this is an SQLite database without a ledger in it. Check the path.")
        changed = sorted(name for name, sql in SCHEMA.items() if objects.get(name) != sql)
        if changed:
            raise self.broken(f"the definition of {', '.join(changed)} was changed or dropped")

    def _begin(self, connection: Connection, fingerprint: str | None) -> None:
        claims = self.claims()
        # IMMEDIATE takes the write lock now, before the budget is looked at.
        driver_of(connection).execute("BEGIN" if fingerprint is None else "BEGIN IMMEDIATE")
        if fingerprint is not None:
            claims = {name: claim for name, claim in claims.items() if name == fingerprint}
        has_table = bool(fetch(connection, f"SELECT 1 FROM sqlite_master WHERE name = '{TABLE}'"))
        for name, claim in claims.items():
            row = self.row(connection, name, claim.sequence) if has_table else None
            if row is None or row.hash != claim.hash:
                raise self.broken(
                    f"row {claim.sequence} of data set {name!r} was committed (so says {self.head.name}) and is "
                    f"{'missing' if row is None else 'another one now'}: the file was cut or replaced by an older copy"
                )

    def confirm(self, fingerprint: str) -> None:
        # Under the write lock the last row is the last row, so claims only ever grow.
        with self.transaction(fingerprint) as connection:
            newest = f"SELECT sequence, hash FROM {TABLE} WHERE dataset = ? ORDER BY sequence DESC LIMIT 1"
            ((sequence, digest),) = fetch(connection, newest, (fingerprint,))
            claims = self.claims()
            latest = Claim(int(str(sequence)), str(digest))
            if claims.get(fingerprint) != latest:
                self._write(claims | {fingerprint: latest})
        faultpoints.reached("head confirmed")

    def _write(self, claims: Claims) -> None:
        try:
            write_claims(self.head, claims)
        except OSError as error:
            raise self.failure(error) from error

    def failure(self, error: Exception) -> PateError:
        if isinstance(error, OSError):
            return super().failure(OSError(f"{error.strerror} ({error.filename or self.path.parent})"))
        return super().failure(error)


def rebuild_head(path: Path) -> None:
    """Write a head file that is missing or damaged anew, from chains that verify: its owner says that no row is missing.

    A readable head file is never replaced. If the database lacks a row that it claims, a spend would be forgotten.
    """
    with suppress(LedgerError):
        if read_claims(head_path(Path(os.path.realpath(path)))) is not None:
            return
    store = SqliteStore(path, create=False, trust_head=False)
    try:
        claims: Claims = {}
        with store.transaction("") as connection:
            for fingerprint in store.fingerprints(connection):
                chain = store.extend(Chain(fingerprint), store.rows(connection, fingerprint))
                claims[fingerprint] = Claim(chain.sequence, chain.head)
            store._write(claims)
    finally:
        store.disconnect()


def _configure(connection: sqlite3.Connection, _: ConnectionPoolEntry) -> None:
    with closing(connection.cursor()) as cursor:
        # FULL: the WAL is synced at every commit, so a commit survives a power cut. fullfsync is macOS's real fsync.
        for setting in ("journal_mode = WAL", "synchronous = FULL", "fullfsync = ON"):
            cursor.execute(f"PRAGMA {setting}")


def _create_database(path: Path) -> None:
    """Build the database under another name and link it into place, so that nobody ever sees half of it."""
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    try:
        os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))  # SQLite gives its other files this mode too
        with closing(sqlite3.connect(temporary, isolation_level=None)) as connection:
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("BEGIN IMMEDIATE")
            for statement in SCHEMA.values():
                connection.execute(statement)
            connection.execute("COMMIT")
        try:
            os.link(temporary, path)
        except FileExistsError:
            return  # another process was faster, and made the same
        sync_folder(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def _rows(claims: Claims) -> str:
    return f"{sum(claim.sequence for claim in claims.values())} rows of {len(claims)} data set(s)"
