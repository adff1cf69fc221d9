"""Where ledgers are tested: always in SQLite, and in PostgreSQL where PATE_TEST_POSTGRES names a server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ledger_places import postgres_url

import pate


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A new SQLite path, and the PostgreSQL server."""
    return str(tmp_path / "ledger.db") if request.param == "sqlite" else postgres_url()


@pytest.fixture
def fingerprint() -> str:
    """A data set that no other test uses: the PostgreSQL server is shared by all."""
    return f"data-{uuid.uuid4()}"


@pytest.fixture
def run_worker() -> Callable[..., Any]:
    """Run tests/ledger/ledger_worker.py in a process of its own, and return what it prints as JSON."""

    def run(*arguments: object) -> Any:
        root = str(Path(pate.__file__).parents[1])
        done = subprocess.run(
            [sys.executable, str(Path(__file__).with_name("ledger_worker.py")), *map(str, arguments)],
            env={**os.environ, "PYTHONPATH": root, "OPENBLAS_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run
