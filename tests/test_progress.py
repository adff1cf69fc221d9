"""Progress of long work: what is said, where, and what another process can read of it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from pate.progress import Progress, last_written, tracked


class Clock:
    """Stands still until it is told to go on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr("pate.progress.time.monotonic", lambda: self.now)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def test_rate_and_time_left_count_what_was_done_now(clock: Clock) -> None:
    progress = Progress("teachers", 250, done=50)
    assert (progress.rate, progress.seconds_left) == (0.0, None)
    assert progress.line() == "teachers: 50 of 250, 0 failed"
    clock.now += 20
    progress.advance(100, failed=1)
    assert (progress.rate, progress.seconds_left) == (5.0, 20.0)
    assert progress.line() == "teachers: 150 of 250, 5/s, 20 s left, 1 failed"
    clock.now += 20
    progress.advance(100)
    assert progress.line() == "teachers: 250 of 250, 5/s, took 40 s, 1 failed"


def test_lines_for_a_log_are_few(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    with tracked("teachers", 100, show="lines") as progress:
        for _ in range(100):
            clock.now += 0.25
            progress.advance(1)
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "teachers: 0 of 100, 0 failed",
        "teachers: 40 of 100, 4/s, 15 s left, 0 failed",
        "teachers: 80 of 100, 4/s, 5.0 s left, 0 failed",
        "teachers: 100 of 100, 4/s, took 25 s, 0 failed",
    ]


def test_nothing_is_said_twice(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    with tracked("teachers", 5, done=5, show="lines"):
        pass
    assert capsys.readouterr().err.splitlines() == ["teachers: 5 of 5, took 0.0 s, 0 failed"]


def test_what_was_done_is_said_when_the_work_breaks_off(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "progress.jsonl"

    def work() -> None:
        with tracked("teachers", 5, show="lines", file=file) as progress:
            progress.advance(2, failed=1)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        work()
    assert "2 of 5" in capsys.readouterr().err
    last = last_written(file)
    assert last is not None
    assert (last["done"], last["total"], last["failed"]) == (2, 5, 1)


def test_a_log_hears_nothing_unless_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with tracked("teachers", 5, file=tmp_path / "progress.jsonl") as progress:
        progress.advance(5)
    assert capsys.readouterr() == ("", "")
    assert [json.loads(line)["done"] for line in (tmp_path / "progress.jsonl").read_text().splitlines()] == [0, 5]


def test_a_terminal_gets_a_bar(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "120")
    with tracked("teachers", 4) as progress:
        progress.advance(4, failed=1)
    shown = capsys.readouterr().err
    assert "━" in shown
    assert "teachers: 4 of 4" in shown
    assert "1 failed" in shown


def test_a_file_that_is_being_written_can_be_read(tmp_path: Path) -> None:
    file = tmp_path / "progress.jsonl"
    assert last_written(file) is None
    file.write_text("")
    assert last_written(file) is None
    with tracked("teachers", 5, show="none", file=file) as progress:
        progress.advance(3)
    with file.open("ab") as out:
        out.write(b'[1]\n{"done": 4}\n\xff\xfe\n{"title": "teachers", "do')
    last = last_written(file)
    assert last is not None
    assert last["done"] == 3
