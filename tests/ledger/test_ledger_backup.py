"""Backups of a ledger in use, and restoring them without forgetting what was spent."""

from __future__ import annotations

import shutil
import sqlite3
import threading
from pathlib import Path

import pytest
from ledger_worker import BUDGET, CHEAP, QUERY
from typer.testing import CliRunner

from pate.aggregators import GNMax
from pate.aggregators.service.book import AnswerBook
from pate.aggregators.service.desk import Service
from pate.aggregators.service.sources import Pool
from pate.commands.ledger import _check_answers, app
from pate.errors import LedgerError
from pate.ledger import Ledger
from pate.ledger.backup import FORGET, back_up, restore
from pate.ledger.head import head_path
from pate.votes import Votes


def spend(path: Path, times: int, fingerprint: str = "ward") -> None:
    with Ledger.open(path, fingerprint, BUDGET) as ledger:
        for _ in range(times):
            ledger.charge(QUERY, {"queries": 1})


def rows(path: Path, fingerprint: str = "ward") -> int:
    with Ledger.open(path, fingerprint) as ledger:
        return ledger.verify().rows


def lose(path: Path) -> None:
    """As a disk fault would; the head file stays, say on another disk."""
    for end in ("", "-wal", "-shm"):
        path.with_name(path.name + end).unlink(missing_ok=True)


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    path = tmp_path / "ledger.db"
    spend(path, 3)
    spend(path, 1, "other ward")
    return path


def test_a_copy_holds_every_data_set_and_is_a_ledger(ledger: Path, tmp_path: Path) -> None:
    claims = back_up(ledger, tmp_path / "copy.db")
    assert {name: claim.sequence for name, claim in claims.items()} == {"ward": 4, "other ward": 2}
    assert rows(tmp_path / "copy.db") == rows(ledger) == 4
    assert sorted(path.name for path in tmp_path.iterdir()) == ["copy.db", "copy.db.head", "ledger.db", "ledger.db.head"]


def test_backups_while_others_write(ledger: Path, tmp_path: Path) -> None:
    """Each is one moment: sound, with every row that was confirmed before it began."""
    stop = threading.Event()
    confirmed = 4

    def write(fingerprint: str) -> None:
        nonlocal confirmed
        with Ledger.open(ledger, fingerprint, BUDGET) as mine:
            while not stop.is_set():
                paid = mine.reserve(2 * CHEAP, {"queries": 2})
                mine.settle(paid, CHEAP, {"answered": 1})
                if fingerprint == "ward":
                    confirmed = paid.sequence + 1

    writers = [threading.Thread(target=write, args=(name,)) for name in ("ward", "other ward")]
    for writer in writers:
        writer.start()
    try:
        counts: list[int] = []
        while len(counts) < 8 or counts[-1] == counts[0]:  # on an idle machine eight copies may be faster than one writer
            before = confirmed
            copy = tmp_path / f"copy-{len(counts)}.db"
            assert before <= back_up(ledger, copy)["ward"].sequence == rows(copy)
            counts.append(rows(copy))
            assert len(counts) < 500
    finally:
        stop.set()
        for writer in writers:
            writer.join()
    assert counts == sorted(counts)
    assert rows(ledger) >= counts[-1] > counts[0] >= 4
    assert not list(tmp_path.glob("copy-*.db.????*[0-9a-f]"))


def test_the_answers_of_a_running_service_are_in_it(tmp_path: Path) -> None:
    place, copy = tmp_path / "ledger.db", tmp_path / "copy.db"
    votes = Pool(Votes([[250, 0]] * 20, n_teachers=250), "ward")
    with Service(GNMax(sigma=40), votes, place, BUDGET) as service:
        said = service.ask("ann", "k", [1, 2, 3])
        back_up(place, copy, _check_answers)
        service.ask("ann", "k2", [4])
    with Service(GNMax(sigma=40), votes, copy) as service:
        assert service.ask("ann", "k", [1, 2, 3]) == said
        assert service.verify()["answers"] == 3
    with sqlite3.connect(copy) as changed:
        changed.execute("UPDATE pate_answers SET label = 1 - label WHERE query = '2'")
    changed.close()
    with pytest.raises(LedgerError, match="not those that the ledger vouches for"):
        back_up(copy, tmp_path / "second.db", _check_answers)
    assert not (tmp_path / "second.db").exists()
    with Ledger.open(copy, "ward") as opened, pytest.raises(LedgerError):
        AnswerBook(opened).verify()


def test_a_backup_overwrites_nothing(ledger: Path, tmp_path: Path) -> None:
    back_up(ledger, tmp_path / "copy.db")
    spend(ledger, 1)
    with pytest.raises(LedgerError, match="is there already"):
        back_up(ledger, tmp_path / "copy.db")
    assert rows(tmp_path / "copy.db") == 4
    (tmp_path / "copy.db").unlink()
    with pytest.raises(LedgerError, match="head is there already"):
        back_up(ledger, tmp_path / "copy.db")
    with pytest.raises(LedgerError, match="there is no folder"):
        back_up(ledger, tmp_path / "nowhere" / "copy.db")


def test_a_broken_ledger_is_not_copied(ledger: Path, tmp_path: Path) -> None:
    old = tmp_path / "old.db"
    shutil.copy(ledger, old)
    spend(ledger, 1)
    shutil.copy(old, ledger)
    with pytest.raises(LedgerError, match="older copy"):
        back_up(ledger, tmp_path / "copy.db")
    assert not (tmp_path / "copy.db").exists()


def test_nothing_is_forgotten_where_the_head_file_says_so(ledger: Path, tmp_path: Path) -> None:
    back_up(ledger, tmp_path / "copy.db")
    lose(ledger)
    restore(tmp_path / "copy.db", ledger)
    assert rows(ledger) == 4
    spend(ledger, 1)


def test_a_restore_never_overwrites(ledger: Path, tmp_path: Path) -> None:
    back_up(ledger, tmp_path / "copy.db")
    spend(ledger, 2)
    for forget in (False, True):
        with pytest.raises(LedgerError, match=r"sound, with 8 rows; the backup has 6\. Keep it"):
            restore(tmp_path / "copy.db", ledger, forget=forget)
    assert rows(ledger) == 6
    lose(ledger)
    ledger.with_name("ledger.db-wal").write_bytes(b"rows that were not yet in the database")
    with pytest.raises(LedgerError, match=r"ledger\.db-wal is there"):
        restore(tmp_path / "copy.db", ledger, forget=True)


def test_an_old_copy_needs_a_plain_word(ledger: Path, tmp_path: Path) -> None:
    back_up(ledger, tmp_path / "copy.db")
    spend(ledger, 2)
    lose(ledger)
    with pytest.raises(LedgerError, match=f"'ward' had 6 rows, and the backup lacks the last of them.*{FORGET}"):
        restore(tmp_path / "copy.db", ledger)
    restore(tmp_path / "copy.db", ledger, forget=True)
    assert rows(ledger) == 4
    assert len(list(tmp_path.glob("ledger.db.head.forgotten-*"))) == 1


def test_without_a_head_file_nobody_knows(ledger: Path, tmp_path: Path) -> None:
    back_up(ledger, tmp_path / "copy.db")
    lose(ledger)
    head_path(ledger).write_text("{}")
    with pytest.raises(LedgerError, match="damaged, so nobody can say"):
        restore(tmp_path / "copy.db", ledger)
    head_path(ledger).unlink()
    with pytest.raises(LedgerError, match="nobody can say"):
        restore(tmp_path / "copy.db", ledger)
    restore(tmp_path / "copy.db", ledger, forget=True)
    assert rows(ledger) == 4


def test_a_damaged_backup_is_not_restored(ledger: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.db"
    back_up(ledger, copy)
    lose(ledger)
    text = copy.read_bytes()
    copy.write_bytes(text.replace(b'"queries":1', b'"queries":9', 1))
    with pytest.raises(LedgerError):
        restore(copy, ledger, forget=True)
    assert not ledger.exists()


def test_the_commands(ledger: Path, tmp_path: Path) -> None:
    def run(*words: object) -> str:
        done = CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False)
        assert done.exit_code == 0
        return done.output

    assert "6 rows of 2 data set(s), verified" in run("backup", ledger, tmp_path / "copy.db")
    lose(ledger)
    assert "verified" in run("restore", tmp_path / "copy.db", ledger)
    lose(ledger)
    head_path(ledger).unlink()
    assert "charge it by hand" in run("restore", tmp_path / "copy.db", ledger, FORGET)
    with pytest.raises(LedgerError, match="pg_dump"):
        run("backup", "postgresql+psycopg://host/name", tmp_path / "second.db")
