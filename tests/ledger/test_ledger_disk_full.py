"""A full disk: the charge fails before anything is released, and the ledger stays sound."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from ledger_worker import BUDGET, QUERY

from pate.errors import LedgerError
from pate.ledger import Ledger

SMALL = QUERY.of(QUERY.values / 1000)


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A real file system of one megabyte."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small tmpfs needs root")
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)], capture_output=True, text=True)
    if mounted.returncode:
        pytest.skip(f"a small tmpfs cannot be mounted here: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_stops_the_charge_and_nothing_else(tiny_disk: Path) -> None:
    place = tiny_disk / "ledger.db"
    paid: list[int] = []
    with Ledger.open(place, "data", BUDGET) as ledger:

        def charge_many() -> None:
            for _ in range(5000):
                paid.append(ledger.charge(SMALL, {}).sequence)

        with pytest.raises(LedgerError, match=r"Nothing was released\. Free space"):
            charge_many()
        assert len(paid) > 10
        with pytest.raises(LedgerError, match="Free space"):
            ledger.charge(SMALL, {})
    subprocess.run(["mount", "-o", "remount,size=8m", str(tiny_disk)], check=True)
    with Ledger.open(place, "data") as ledger:
        rows = ledger.verify().rows
        assert {row.sequence for row in ledger.rows()} >= set(paid)
        assert ledger.charge(SMALL, {}).sequence == rows + 1


def test_no_room_for_a_new_ledger(tiny_disk: Path) -> None:
    filler = tiny_disk / "filler"
    with pytest.raises(OSError, match="No space"):
        filler.write_bytes(b"0" * (2 << 20))
    with pytest.raises(LedgerError, match="Free space"):
        Ledger.open(tiny_disk / "ledger.db", "data", BUDGET)
    assert not (tiny_disk / "ledger.db").exists()
    filler.unlink()
    with Ledger.open(tiny_disk / "ledger.db", "data", BUDGET) as ledger:
        assert ledger.charge(SMALL, {}).sequence == 2


def test_a_file_size_limit_stops_the_charge_and_nothing_else(tmp_path: Path, run_worker: Callable[..., Any]) -> None:
    place, released = tmp_path / "ledger" / "ledger.db", tmp_path / "released"
    place.parent.mkdir()
    message = run_worker("limited-file-size", place, "data", released)
    assert "Nothing was released." in message
    answers = released.read_text().split()
    with Ledger.open(place, "data") as ledger:
        assert {row.sequence for row in ledger.rows()} >= set(map(int, answers))
        assert (ledger.spent_curve().values >= (len(answers) * QUERY).values).all()
        ledger.charge(QUERY, {})
        ledger.verify()


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match="No such file or directory"):
        Ledger.open(tmp_path / "missing" / "ledger.db", "data", BUDGET)
