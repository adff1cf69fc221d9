"""Progress of long work: a live bar on a terminal, lines in a log elsewhere, and a file that can be read while it runs."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

Show = Literal["auto", "bar", "lines", "none"]

_SECONDS_BETWEEN_LINES = 10.0


class Progress:
    """Counts what is done and what failed; says so in the ways it was given."""

    def __init__(self, title: str, total: int, done: int = 0) -> None:
        self.title = title
        self.total = total
        self.done = done
        self.failed = 0
        self.note = ""  # what else to say, for example a loss
        self._first = done  # found finished when the work began
        self._start = time.monotonic()

    def advance(self, done: int, failed: int = 0) -> None:
        """Another ``done`` pieces are finished, ``failed`` of them for good without a result."""
        self.done += done
        self.failed += failed

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._start

    @property
    def rate(self) -> float:
        """Pieces a second since the work began; 0.0 at the beginning."""
        return (self.done - self._first) / self.seconds if self.done > self._first else 0.0

    @property
    def seconds_left(self) -> float | None:
        return (self.total - self.done) / self.rate if self.rate else None

    def line(self) -> str:
        """For example ``teachers: 120 of 250, 31.2/s, 4 s left, 1 failed``."""
        parts = [f"{self.done} of {self.total}"]
        if self.rate:
            parts.append(per_second(self.rate))
        if self.seconds_left and self.done < self.total:
            parts.append(f"{duration(self.seconds_left)} left")
        if self.done >= self.total:
            parts.append(f"took {duration(self.seconds)}")
        parts.append(self.note or f"{self.failed} failed")
        return f"{self.title}: {', '.join(parts)}"


def duration(seconds: float) -> str:
    """A length of time as people say it.

    >>> duration(0.34), duration(41.7), duration(605), duration(7261)
    ('0.3 s', '42 s', '10 min', '2 h 1 min')
    """
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"


def per_second(rate: float) -> str:
    """A rate as people say it: by the minute or hour where that is slow.

    >>> per_second(1387.2), per_second(31.24), per_second(0.05), per_second(0.001)
    ('1387/s', '31.2/s', '3/min', '3.6/h')
    """
    for pieces, unit in ((rate, "s"), (rate * 60, "min"), (rate * 3600, "h")):
        if pieces >= 1 or unit == "h":
            break
    return f"{pieces:.0f}/{unit}" if pieces >= 100 else f"{pieces:.3g}/{unit}"


@contextmanager
def tracked(title: str, total: int, *, done: int = 0, show: Show = "auto", file: Path | None = None) -> Iterator[Progress]:
    """Show the progress of ``total`` pieces of work while the block runs.

    show: "bar" or "lines" on standard error, "none", or "auto": a bar on a terminal, nothing elsewhere.
    file: lines of JSON are added here in any case, at least ten seconds apart; :func:`last_written` reads them.

    >>> with tracked("teachers", 4, show="none") as progress:
    ...     progress.advance(3, failed=1)
    >>> progress.done, progress.failed
    (3, 1)
    """
    if show == "auto":
        show = "bar" if sys.stderr.isatty() else "none"
    progress = _Written(title, total, done, lines=show == "lines", file=file)
    progress.write()
    try:
        if show == "bar":
            with _bar(progress):
                yield progress
        else:
            yield progress
    finally:
        progress.write_news()


def last_written(file: Path) -> dict[str, Any] | None:
    """What a run of :func:`tracked` said last in ``file``; None if nothing. A line that is being written is passed over."""
    try:
        lines = file.read_text("utf-8", errors="replace").splitlines()
    except FileNotFoundError:
        return None
    for line in reversed(lines):
        try:
            found = json.loads(line)
        except ValueError:
            continue
        if isinstance(found, dict) and {"done", "total", "failed", "rate", "seconds", "time", "process"} <= found.keys():
            return found
    return None


class _Written(Progress):
    def __init__(self, title: str, total: int, done: int, *, lines: bool, file: Path | None) -> None:
        super().__init__(title, total, done)
        self._lines = lines
        self._file = file
        self._written = 0.0
        self._said = (-1, -1)

    def advance(self, done: int, failed: int = 0) -> None:
        super().advance(done, failed)
        if time.monotonic() - self._written >= _SECONDS_BETWEEN_LINES:
            self.write()

    def write_news(self) -> None:
        """Write unless the last line said the same."""
        if self._said != (self.done, self.failed):
            self.write()

    def write(self) -> None:
        self._written = time.monotonic()
        self._said = self.done, self.failed
        if self._lines:
            print(self.line(), file=sys.stderr, flush=True)
        if self._file is not None:
            fact = {"title": self.title, "done": self.done, "total": self.total, "failed": self.failed}
            fact |= {"rate": self.rate, "seconds": self.seconds, "time": time.time(), "process": os.getpid()}
            with self._file.open("a") as out:
                out.write(json.dumps(fact) + "\n")


@contextmanager
def _bar(progress: _Written) -> Iterator[None]:
    from rich.console import Console
    from rich.live import Live
    from rich.progress_bar import ProgressBar
    from rich.table import Table

    class Row:
        """Drawn anew by rich's own thread, so that the time left moves while a long piece of work runs."""

        def __rich__(self) -> Table:
            row = Table.grid(padding=(0, 1))
            row.add_row(ProgressBar(total=progress.total, completed=progress.done, width=30), progress.line())
            return row

    with Live(Row(), console=Console(stderr=True), refresh_per_second=4):
        yield
