"""Flipped bytes, cut files, lost rows, older copies: noticed, or harmless; and the error says what to do."""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from ledger_places import postgres_url
from ledger_worker import BUDGET, QUERY
from sqlalchemy import create_engine

from pate.errors import LedgerError
from pate.ledger import Ledger
from pate.ledger.chain import Chain, Row
from pate.ledger.sqlite import SCHEMA, rebuild_head

ADVICE = "restore the ledger from a backup; never delete it"


def fill(path: Path, rounds: int = 5) -> list[Row]:
    with Ledger.open(path, "data", BUDGET) as ledger:
        for number in range(rounds):
            ledger.settle(ledger.reserve(2 * QUERY, {"number": number}), QUERY, {})
        return ledger.rows()


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Row]]:
    """A ledger of 11 rows that was closed well."""
    path = tmp_path_factory.mktemp("sound") / "ledger.db"
    return path, fill(path)


def copy(source: Path, folder: Path) -> Path:
    """The ledger and what belongs to it, in another folder."""
    for file in source.parent.glob(source.name + "*"):
        shutil.copy(file, folder / file.name)
    return folder / source.name


def noticed(path: Path, rows: list[Row]) -> bool:
    """Open a damaged ledger: True if it was refused, False if nothing was lost; anything else fails."""
    try:
        with Ledger.open(path, "data") as ledger:
            assert ledger.rows() == rows
            ledger.charge(QUERY, {})
            assert ledger.verify().rows == len(rows) + 1
    except LedgerError as error:
        message = str(error)
    else:
        return False
    assert str(path) in message
    assert "\n" not in message
    return True


def flip(path: Path, offset: int, mask: int) -> None:
    content = bytearray(path.read_bytes())
    content[offset] ^= mask
    path.write_bytes(content)


def test_flipped_bytes_are_noticed_or_harmless(sound: tuple[Path, list[Row]], tmp_path: Path) -> None:
    source, rows = sound
    size, chance = source.stat().st_size, random.Random(7)
    # The file header, then anywhere: 150 places.
    places = [*range(0, 100, 2), *(chance.randrange(size) for _ in range(100))]
    refused = 0
    for offset in places:
        path = copy(source, tmp_path)
        flip(path, offset, chance.randrange(1, 256))
        refused += noticed(path, rows)
    assert refused > 30
    assert not noticed(copy(source, tmp_path), rows)


def test_every_flipped_byte_of_a_stored_row_is_noticed(sound: tuple[Path, list[Row]], tmp_path: Path) -> None:
    source, rows = sound
    content = source.read_bytes()
    needles = [rows[3].hash.encode(), rows[5].payload.encode()[:200], rows[0].payload.encode()[-60:]]
    starts = [content.index(needle) for needle in needles]
    for start, needle in zip(starts, needles, strict=True):
        for offset in range(start, start + len(needle), 15):
            path = copy(source, tmp_path)
            flip(path, offset, 1)
            assert noticed(path, rows)


def test_files_cut_at_any_length_are_noticed(sound: tuple[Path, list[Row]], tmp_path: Path) -> None:
    source, rows = sound
    size, chance = source.stat().st_size, random.Random(11)
    for length in (0, 1, 16, 99, 100, 4096, size - 4096, size - 1, *(chance.randrange(size) for _ in range(30))):
        path = copy(source, tmp_path)
        os.truncate(path, length)
        # The last page ends in zeros, which SQLite adds again; anything more is missed.
        assert noticed(path, rows) or length > size - 4096


def test_damage_to_the_write_ahead_log_is_noticed_or_harmless(tmp_path: Path, run_worker: Callable[..., Any]) -> None:
    """A killed process leaves its rows in the -wal file only; losing any that was confirmed is noticed."""
    run_worker("kill-at", tmp_path / "ledger.db", "data", tmp_path / "released", "settled", 4)
    source = tmp_path / "ledger.db"
    wal = source.with_name("ledger.db-wal")
    if not wal.exists() or not wal.stat().st_size:
        pytest.fail("the killed process left no write-ahead log, so this test tests nothing")
    (tmp_path / "whole").mkdir()
    with Ledger.open(copy(source, tmp_path / "whole"), "data") as ledger:
        rows = ledger.rows()
    chance, size = random.Random(5), wal.stat().st_size
    damages: list[Callable[[Path], None]] = [
        Path.unlink,
        lambda file: os.truncate(file, 0),
        lambda file: os.truncate(file, size // 2),
    ]
    damages += [lambda file: flip(file, chance.randrange(size), 1 << chance.randrange(8)) for _ in range(40)]
    refused = 0
    for number, damage in enumerate(damages):
        folder = tmp_path / str(number)
        folder.mkdir()
        path = copy(source, folder)
        damage(path.with_name(wal.name))
        try:
            with Ledger.open(path, "data") as ledger:
                # At most the last row, which was committed and not yet confirmed, may be gone.
                assert ledger.rows() in (rows, rows[:-1])
        except LedgerError:
            refused += 1
    assert refused > 3


@pytest.mark.parametrize(
    "tamper",
    [
        "DELETE FROM pate_ledger WHERE sequence = 11",
        "DELETE FROM pate_ledger WHERE sequence >= 8",
        "DELETE FROM pate_ledger WHERE sequence = 5",
        "DELETE FROM pate_ledger",
        "UPDATE pate_ledger SET payload = replace(payload, '\"number\":1', '\"number\":2') WHERE sequence = 4",
        "UPDATE pate_ledger SET kind = 'charge' WHERE sequence = 4",
        "UPDATE pate_ledger SET sequence = 12 WHERE sequence = 11",
        "UPDATE pate_ledger SET dataset = 'else' WHERE sequence = 11",
        "UPDATE pate_ledger SET payload = CAST(payload AS BLOB) WHERE sequence = 6",
        "UPDATE pate_ledger SET payload = CAST(X'FF' AS TEXT) WHERE sequence = 6",
    ],
)
def test_tampering_through_sql_is_noticed(tamper: str, sound: tuple[Path, list[Row]], tmp_path: Path) -> None:
    path = copy(sound[0], tmp_path)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        triggers = [name for name in SCHEMA if "_no_" in name]
        for name in triggers:
            connection.execute(f"DROP TRIGGER {name}")
        assert connection.execute(tamper).rowcount > 0
        for name in triggers:
            connection.execute(SCHEMA[name])
    with pytest.raises(LedgerError, match=ADVICE):
        Ledger.open(path, "data")


def test_a_dropped_trigger_is_noticed(sound: tuple[Path, list[Row]], tmp_path: Path) -> None:
    path = copy(sound[0], tmp_path)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("DROP TRIGGER pate_ledger_no_delete")
    with pytest.raises(LedgerError, match="pate_ledger_no_delete was changed or dropped"):
        Ledger.open(path, "data")


def test_an_older_copy_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    fill(path, 2)
    shutil.copy(path, tmp_path / "old")
    fill(path, 3)
    shutil.copy(tmp_path / "old", path)
    with pytest.raises(LedgerError, match=r"row 11 .* was committed .* older copy"):
        Ledger.open(path, "data")


def test_rows_lost_while_a_ledger_is_open_are_noticed(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    with Ledger.open(path, "data", BUDGET) as ledger:
        ledger.charge(QUERY, {})
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute("DROP TRIGGER pate_ledger_no_delete")
            connection.execute("DELETE FROM pate_ledger WHERE sequence = 2")
        for use in (ledger.remaining, lambda: ledger.charge(QUERY, {}), ledger.verify):
            with pytest.raises(LedgerError, match=ADVICE):
                use()


def test_a_missing_ledger_is_no_fresh_start(sound: tuple[Path, list[Row]], tmp_path: Path) -> None:
    path = copy(sound[0], tmp_path)
    path.unlink()
    with pytest.raises(LedgerError, match=r"missing, though ledger.db.head says that it holds 11 rows"):
        Ledger.open(path, "data", BUDGET)


@pytest.mark.parametrize(
    "content", [None, b"", b"nonsense", b'{"heads":{},"format":"pate-ledger-head-1","check":"0"}', b"\xff"]
)
def test_the_head_file_is_needed_and_can_be_rebuilt(
    content: bytes | None, sound: tuple[Path, list[Row]], tmp_path: Path
) -> None:
    path = copy(sound[0], tmp_path)
    head = tmp_path / "ledger.db.head"
    before = head.read_bytes()
    if content is None:
        head.unlink()
    else:
        head.write_bytes(content)
    with pytest.raises(LedgerError, match="--rebuild-head"):
        Ledger.open(path, "data", BUDGET)
    rebuild_head(path)
    assert head.read_bytes() == before
    assert not noticed(path, sound[1])


def test_a_readable_head_file_is_never_rebuilt(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    fill(path, 1)
    shutil.copy(path, tmp_path / "old")
    fill(path, 2)
    shutil.copy(tmp_path / "old", path)
    rebuild_head(path)
    with pytest.raises(LedgerError, match="older copy"):
        Ledger.open(path, "data")


def test_a_damaged_chain_is_not_blessed_by_rebuilding(sound: tuple[Path, list[Row]], tmp_path: Path) -> None:
    path = copy(sound[0], tmp_path)
    content = path.read_bytes()
    flip(path, content.index(sound[1][4].hash.encode()), 1)
    (tmp_path / "ledger.db.head").unlink()
    with pytest.raises(LedgerError, match="row 5 of data set 'data' was changed"):
        rebuild_head(path)
    assert not (tmp_path / "ledger.db.head").exists()


@pytest.mark.parametrize("content", [b"hello, I am a text file\n" * 500, b"SQLite format 3\x00" + b"\x00" * 5000])
def test_a_file_that_is_no_database(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    path.write_bytes(content)
    with pytest.raises(LedgerError, match=r"ledger.db"):
        Ledger.open(path, "data", BUDGET)
    assert path.read_bytes() == content


def test_a_database_of_something_else(tmp_path: Path) -> None:
    path = tmp_path / "photos.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE photos (name TEXT)")
    with pytest.raises(LedgerError, match=r"photos\.db\.head is missing"):
        Ledger.open(path, "data", BUDGET)
    with pytest.raises(LedgerError, match="without a ledger in it"):
        rebuild_head(path)
    assert [file.name for file in tmp_path.iterdir()] == ["photos.db"]


def test_one_ledger_through_a_link(tmp_path: Path) -> None:
    fill(tmp_path / "ledger.db", 1)
    (tmp_path / "link.db").symlink_to(tmp_path / "ledger.db")
    with Ledger.open(tmp_path / "link.db", "data") as ledger:
        assert ledger.charge(QUERY, {}).sequence == 4
    assert not (tmp_path / "link.db.head").exists()


def test_a_chain_takes_no_row_that_does_not_follow() -> None:
    chain = Chain("data")
    with pytest.raises(LedgerError, match="row 1 of data set 'data' is missing"):
        chain.extend(Row("data", 2, "open", "{}", "0"))
    with pytest.raises(LedgerError, match="row 1 of data set 'data' was changed"):
        chain.extend(Row("data", 1, "open", "{}", "0"))
    assert chain == Chain("data")


def test_tampering_in_postgres_is_noticed(fingerprint: str) -> None:
    url = postgres_url()
    with Ledger.open(url, fingerprint, BUDGET) as ledger:
        ledger.charge(QUERY, {})
        ledger.charge(QUERY, {})
    engine = create_engine(url)
    try:
        with engine.begin() as connection:
            connection.exec_driver_sql("ALTER TABLE pate_ledger DISABLE TRIGGER pate_ledger_no_change")
        with pytest.raises(LedgerError, match="append-only were dropped or disabled"):
            Ledger.open(url, fingerprint)
        with engine.begin() as connection:
            connection.exec_driver_sql(f"DELETE FROM pate_ledger WHERE dataset = '{fingerprint}' AND sequence = 2")
            connection.exec_driver_sql("ALTER TABLE pate_ledger ENABLE TRIGGER pate_ledger_no_change")
        with pytest.raises(LedgerError, match=f"row 2 of data set '{fingerprint}' is missing"):
            Ledger.open(url, fingerprint)
        with pytest.raises(Exception, match="append-only"), engine.begin() as connection:
            connection.exec_driver_sql("TRUNCATE pate_ledger")
    finally:
        engine.dispose()


def test_a_postgres_that_may_forget_is_refused(fingerprint: str) -> None:
    url = postgres_url()
    with pytest.raises(LedgerError, match="synchronous_commit switched off"):
        Ledger.open(f"{url}?options=-csynchronous_commit%3Doff", fingerprint, BUDGET)
