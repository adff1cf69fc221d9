"""The PostgreSQL server that tests may use, if there is one."""

from __future__ import annotations

import hashlib
import os
from functools import cache

import pytest
from sqlalchemy import create_engine
from sqlalchemy.engine import make_url
from sqlalchemy.pool import NullPool


def postgres_url() -> str:
    """A database of the server; skips the test where there is no server, or fails it where there must be one.

    Each file of tests has its own: tests that damage rows run beside others that read every row there is.
    """
    server = os.environ.get("PATE_TEST_POSTGRES", "")
    if not server:
        reason = "PATE_TEST_POSTGRES is not set; run tests/ledger/postgres.sh make test"
        if os.environ.get("PATE_REQUIRE_POSTGRES"):
            pytest.fail(f"PATE_REQUIRE_POSTGRES is set, but {reason}")
        pytest.skip(reason)
    return _database(server, os.environ["PYTEST_CURRENT_TEST"].partition("::")[0])


@cache
def _database(server: str, file: str) -> str:
    name = f"pate_{os.getpid()}_{hashlib.sha256(file.encode()).hexdigest()[:12]}"
    with create_engine(server, poolclass=NullPool, isolation_level="AUTOCOMMIT").connect() as connection:
        connection.exec_driver_sql(f"CREATE DATABASE {name}")
    return make_url(server).set(database=name).render_as_string(hide_password=False)
