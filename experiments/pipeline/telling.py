"""What a run says while it goes on: a line for each stage, on standard error."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from pate.experiments.results import StageFact
from pate.progress import Show, duration

STAGES = ("data", "features", "queries", "teachers", "votes", "answers", "student", "evaluation", "report")
_PRIVATE = frozenset({"data", "teachers", "votes", "answers", "training", "evaluation"})
"""Stages that look at private records, votes or test records: how long they take may depend on them."""


@dataclass
class Note:
    """What is known of a stage at its end."""

    cached: bool = False
    text: str = ""


class Teller:
    """Says which stage begins and how it ended, and keeps the times.

    show: "bar" on a terminal (colours, live bars inside the stages), "lines", or "none"; "auto" chooses.
    """

    def __init__(self, show: Show = "auto", stages: Sequence[str] = STAGES) -> None:
        self._stages = stages
        if show == "auto":
            show = "bar" if sys.stderr.isatty() else "none"
        self.show: Show = show
        self.facts: list[StageFact] = []

    @contextmanager
    def stage(self, name: str, what: str, round_number: int = 0) -> Iterator[Note]:
        """round_number: counted from 0; a later round goes through some of the stages again."""
        number = f"[{self._stages.index(name) + 1}/{len(self._stages)}]"
        private = name in _PRIVATE
        if round_number:
            name = f"{name}, round {round_number + 1}"
        self.say(f"{number} {name}: {what}")
        note, start = Note(), time.monotonic()
        yield note
        seconds = time.monotonic() - start
        self.facts.append(StageFact(name=name, seconds=seconds, cached=note.cached, private=private, note=note.text))
        ended = "found, made by an earlier run" if note.cached else f"done in {duration(seconds)}"
        self.say(f"{number} {name}: {ended}{f'; {note.text}' if note.text else ''}", faint=True)

    def say(self, line: str, faint: bool = False) -> None:
        if self.show == "none":
            return
        if self.show == "bar":
            from rich.console import Console
            from rich.markup import escape

            style = "dim" if faint else "bold"
            Console(stderr=True, highlight=False, soft_wrap=True).print(f"[{style}]{escape(line)}[/{style}]")
        else:
            print(line, file=sys.stderr, flush=True)
