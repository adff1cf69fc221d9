"""What tests of commands share."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

MISTAKES = frozenset({1, 2, 5, 6})
"""Failed on the way, wrong arguments, wrong data, no cluster: test_exit_codes.py says which error is which."""


class Ran(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def one_line(ran: Any, message: str, code: int | None = None) -> None:
    """The command failed with one line that says so, and without a traceback."""
    assert ran.code in MISTAKES if code is None else ran.code == code, ran
    lines = [line for line in ran.err.splitlines() if line.startswith("pate: ")]
    assert len(lines) == 1, ran.err
    assert ran.err.splitlines()[-1] == lines[0]
    assert message in lines[0]
