"""A ledger in PostgreSQL, for an organisation. The server's durability is trusted, after checking that it is switched on."""

from __future__ import annotations

from sqlalchemy import Connection, create_engine, text
from sqlalchemy.engine import URL
from sqlalchemy.pool import QueuePool

from pate.errors import LedgerError
from pate.extras import require
from pate.ledger import faultpoints
from pate.ledger.store import TABLE, Store

require("psycopg", "postgres")

import psycopg  # noqa: E402

_LOCK_SECONDS = 60
_TRIGGERS = (f"{TABLE}_no_change", f"{TABLE}_no_truncate")

SCHEMA = (
    f"CREATE TABLE {TABLE} (dataset TEXT NOT NULL, sequence BIGINT NOT NULL, kind TEXT NOT NULL, payload TEXT NOT NULL, "
    "hash TEXT NOT NULL, PRIMARY KEY (dataset, sequence))",
    f"CREATE FUNCTION {TABLE}_refuse() RETURNS trigger LANGUAGE plpgsql AS "
    "$$ BEGIN RAISE EXCEPTION 'the ledger is append-only'; END $$",
    f"CREATE TRIGGER {_TRIGGERS[0]} BEFORE UPDATE OR DELETE ON {TABLE} FOR EACH ROW EXECUTE FUNCTION {TABLE}_refuse()",
    f"CREATE TRIGGER {_TRIGGERS[1]} BEFORE TRUNCATE ON {TABLE} FOR EACH STATEMENT EXECUTE FUNCTION {TABLE}_refuse()",
)


class PostgresStore(Store):
    """The table in a PostgreSQL database, shared by any number of machines."""

    database_errors = (*Store.database_errors, psycopg.Error)

    def __init__(self, url: URL, *, create: bool) -> None:
        engine = create_engine(
            url.set(drivername="postgresql+psycopg"),
            isolation_level="AUTOCOMMIT",  # transactions are begun and ended in plain sight, in Store.transaction
            poolclass=QueuePool,
            pool_size=1,
            max_overflow=0,
            pool_pre_ping=True,  # a connection that the server dropped is noticed before a transaction begins on it
        )
        super().__init__(engine, url.render_as_string(hide_password=True))
        self._prepare(create)
        self.inspect()

    def _prepare(self, create: bool) -> None:
        with self.transaction("") as connection:  # the lock on the empty name keeps two creators apart
            if connection.exec_driver_sql(f"SELECT to_regclass('{TABLE}')").scalar() is not None:
                return
            if not create:
                raise LedgerError(
                    f"Ledger {self.where}: there is none. Check the URL. One begins with a budget: "
                    "`pate ask` or `pate serve` with --budget-epsilon, Ledger.open(…, Budget(…)) in Python."
                )
            for statement in SCHEMA:
                connection.exec_driver_sql(statement)

    def inspect(self) -> None:
        with self.transaction() as connection:
            settings = {name: connection.exec_driver_sql(f"SHOW {name}").scalar() for name in ("fsync", "synchronous_commit")}
            found = connection.execute(
                text(
                    "SELECT count(*) FROM pg_trigger "
                    "WHERE tgrelid = to_regclass(:table) AND tgname = ANY(:names) AND tgenabled <> 'D'"
                ),
                {"table": TABLE, "names": list(_TRIGGERS)},
            ).scalar()
        off = [name for name, value in settings.items() if value == "off"]
        if off:
            raise LedgerError(
                f"Ledger {self.where}: the server has {' and '.join(off)} switched off, so it may lose what it confirmed. "
                "Switch it on for this database or role and try again."
            )
        if found != len(_TRIGGERS):
            raise self.broken(f"the triggers that keep {TABLE} append-only were dropped or disabled")

    def _begin(self, connection: Connection, fingerprint: str | None) -> None:
        if fingerprint is None:
            connection.exec_driver_sql("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            return
        # The lock comes first and is held to the end; every later statement then sees all that its former holders
        # committed. That is why this is READ COMMITTED: a serialisable snapshot would be older than the lock.
        connection.exec_driver_sql("BEGIN ISOLATION LEVEL READ COMMITTED")
        connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{_LOCK_SECONDS}s'")
        connection.execute(text("SELECT pg_advisory_xact_lock(hashtextextended(:name, 0))"), {"name": f"{TABLE}:{fingerprint}"})

    def confirm(self, fingerprint: str) -> None:
        faultpoints.reached("head confirmed")
