"""Progress of long work: a live bar on a terminal, lines in a log elsewhere, and a file that can be read while it runs."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

Show = Literal["auto", "bar", "lines", "none"]

_SECONDS_BETWEEN_LINES = 10.0


class Progress:
    """Counts what is done and what failed; says so in the ways it was given."""

    def __init__(self, title: str, total: int, done: int = 0) -> None:
        self.title = title
        self.total = total
        self.done = done
        self.failed = 0
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
            parts.append(f"{self.rate:.3g}/s")
        if self.seconds_left and self.done < self.total:
            parts.append(f"{self.seconds_left:.0f} s left")
        if self.done >= self.total:
            parts.append(f"took {self.seconds:.1f} s")
        parts.append(f"{self.failed} failed")
        return f"{self.title}: {', '.join(parts)}"


@contextmanager
def tracked(title: str, total: int, *, done: int = 0, show: Show = "auto", file: Path | None = None) -> Iterator[Progress]:
    """Show the progress of ``total`` pieces of work while the block runs.

    show: "bar" or "lines" on standard error, "none", or "auto": a bar on a terminal, nothing elsewhere.
    file: lines of JSON are added here in any case, at most ten seconds apart.

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
        progress.write()


class _Written(Progress):
    def __init__(self, title: str, total: int, done: int, *, lines: bool, file: Path | None) -> None:
        super().__init__(title, total, done)
        self._lines = lines
        self._file = file
        self._written = 0.0

    def advance(self, done: int, failed: int = 0) -> None:
        super().advance(done, failed)
        if time.monotonic() - self._written >= _SECONDS_BETWEEN_LINES:
            self.write()

    def write(self) -> None:
        self._written = time.monotonic()
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
