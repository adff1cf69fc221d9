"""The PostgreSQL server that tests may use, if there is one."""

from __future__ import annotations

import os

import pytest


def postgres_url() -> str:
    """The server's URL; skips the test where there is none, or fails it where there must be one."""
    url = os.environ.get("PATE_TEST_POSTGRES", "")
    if not url:
        reason = "PATE_TEST_POSTGRES is not set; run tests/ledger/postgres.sh make test"
        if os.environ.get("PATE_REQUIRE_POSTGRES"):
            pytest.fail(f"PATE_REQUIRE_POSTGRES is set, but {reason}")
        pytest.skip(reason)
    return url
