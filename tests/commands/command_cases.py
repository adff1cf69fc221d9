"""What tests of commands share."""

from __future__ import annotations

from typing import Any


def one_line(ran: Any, message: str, code: int = 2) -> None:
    """The command failed with one line that says so, and without a traceback."""
    assert ran.code == code, ran
    lines = [line for line in ran.err.splitlines() if line.startswith("pate: ")]
    assert len(lines) == 1, ran.err
    assert ran.err.splitlines()[-1] == lines[0]
    assert message in lines[0]
