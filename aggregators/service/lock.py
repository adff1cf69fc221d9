"""One service for each data set: a second one on the same ledger refuses to start."""

from __future__ import annotations

import fcntl
import hashlib
import os
from pathlib import Path
from types import TracebackType

from sqlalchemy import create_engine, text
from sqlalchemy.engine import make_url
from sqlalchemy.pool import NullPool

from pate.errors import LedgerError
from pate.ledger.names import public_name


class ServiceLock:
    """Held from construction until :meth:`release`, or until the process ends, however it ends.

    A file beside an SQLite ledger, locked by the operating system; an advisory lock of the session in PostgreSQL.
    """

    def __init__(self, place: str | os.PathLike[str], fingerprint: str) -> None:
        name = os.fspath(place)
        taken = LedgerError(
            f"Another service answers for data set {public_name(fingerprint)!r} on this ledger. Two would be two "
            "answers to one question; stop it first."
        )
        self._file, self._connection = None, None
        if "://" in name and make_url(name).get_backend_name() == "postgresql":
            engine = create_engine(make_url(name).set(drivername="postgresql+psycopg"), poolclass=NullPool)
            self._connection = engine.connect().execution_options(isolation_level="AUTOCOMMIT")
            held = self._connection.execute(
                text("SELECT pg_try_advisory_lock(hashtextextended(:name, 1))"), {"name": f"pate_service:{fingerprint}"}
            ).scalar()
            if not held:
                self._connection.close()
                raise taken
            return
        path = Path(os.path.realpath(make_url(name).database or "") if "://" in name else os.path.realpath(name))
        digest = hashlib.sha256(fingerprint.encode()).hexdigest()[:12]
        self._file = path.with_name(f"{path.name}.service-{digest}").open("a")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._file.close()
            raise taken from None

    def release(self) -> None:
        if self._file is not None:
            self._file.close()
        if self._connection is not None:
            self._connection.close()

    def __enter__(self) -> ServiceLock:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.release()
