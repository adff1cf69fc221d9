"""Training goes in pieces, each charged to the ledger before its first lot is drawn, and saved when it is done."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pate.errors import BudgetExceeded, ExecutionError, ParameterError
from pate.experiments.array_files import write_text, write_whole
from pate.experiments.baselines.dpsgd.accounting import Training
from pate.experiments.baselines.dpsgd.training.optimiser import FlatOptimiser
from pate.extras import require
from pate.ledger import Ledger
from pate.release import Mode

_STATE, _WEIGHTS = "training.json", "training.safetensors"


@dataclass
class Books:
    """How far a run is, and what was charged. Steps of a piece that a crash took away stay charged."""

    done: int = 0
    tried: int = 0
    charged: int = 0
    ended_by_budget: bool = False
    diagnostics: list[dict[str, float]] = field(default_factory=list)
    """Private: of each piece the share of clipped gradients and the like."""

    @property
    def lost(self) -> int:
        return self.charged - self.done


class Checkpoints:
    """Where a run is saved: a directory, or nowhere. After a crash there is the last whole state."""

    def __init__(self, folder: Path | None, identity: dict[str, Any]) -> None:
        self._folder = folder
        self._identity = json.loads(json.dumps(identity))

    def load(self, optimiser: FlatOptimiser) -> Books:
        if self._folder is None or not (self._folder / _STATE).exists():
            return Books()
        facts = json.loads((self._folder / _STATE).read_text())
        if facts.pop("identity") != self._identity:
            raise ParameterError(
                f"{self._folder}: a run with other settings, data or model was begun there. Name another directory, or go on "
                "with the same ones."
            )
        books = Books(**facts)
        if books.done:
            file = self._folder / _weights_name(books.done)
            optimiser.restore(require("safetensors.torch", "train").load_file(file), books.done)
        return books

    def save_books(self, books: Books) -> None:
        if self._folder is not None:
            write_text(self._folder / _STATE, json.dumps({"identity": self._identity, **asdict(books)}), 0o600)

    def save(self, books: Books, optimiser: FlatOptimiser) -> None:
        """The weights first, under a name of their own; then the books, which name them."""
        if self._folder is None:
            return
        content: bytes = require("safetensors.torch", "train").save(optimiser.state())
        file = self._folder / _weights_name(books.done)
        write_whole(file, 0o600, lambda out: out.write(content))
        self.save_books(books)
        for old in self._folder.glob(f"*-{_WEIGHTS}"):
            if old != file:
                old.unlink()


def _weights_name(step: int) -> str:
    return f"{step}-{_WEIGHTS}"


def pieces(
    books: Books, training: Training, count: int, ledger: Ledger | None, mode: Mode, key: str, checkpoints: Checkpoints
) -> Iterator[int]:
    """The numbers of steps to take next, each paid for. The caller takes them, sets ``books.done`` and saves.

    A piece that was paid for and not finished is paid for again in a release, since its noise is drawn anew; in a simulation
    the same noise comes again, under the same key. The budget may end a run early if others spend from it meanwhile.
    """
    size = -(-training.steps // count)
    while books.done < training.steps:
        steps = min(size, training.steps - books.done)
        if ledger is not None:
            try:
                _charge(books, training, steps, ledger, mode, key, checkpoints)
            except BudgetExceeded:
                if not books.done:
                    raise
                books.ended_by_budget = True
                checkpoints.save_books(books)
                return
        else:  # written down before they are taken; a simulation repeats itself, so it counts once
            books.charged = books.done + steps if mode == "simulation" else books.charged + steps
            checkpoints.save_books(books)
        yield steps


def _charge(
    books: Books, training: Training, steps: int, ledger: Ledger, mode: Mode, key: str, checkpoints: Checkpoints
) -> None:
    cost = training.curve(ledger.neighbours, steps)
    memo = {
        "mechanism": "dp-sgd",
        "rate": training.rate,
        "noise_multiplier": training.sigma,
        "first_step": books.done + 1,
        "steps": steps,
        "mode": mode,
    }
    while True:
        books.tried += mode == "release"
        checkpoints.save_books(books)  # so that the next try after a crash has another key
        name = f"{key}, step {books.done + 1}" + (f", try {books.tried}" if mode == "release" else "")
        paid = ledger.charge(cost, memo, name)
        if not paid.repeated or mode == "simulation":
            # Read off the ledger: a crash may have come between a charge and these books.
            own = (entry for entry in ledger.entries() if (entry.key or "").startswith(f"{key}, step "))
            books.charged = sum(int(entry.memo["steps"]) for entry in own)
            checkpoints.save_books(books)
            return
        if books.tried > 1_000:
            raise ExecutionError(f"The key {key!r} was used a thousand times already; give another one.")
