"""From votes to a release that is paid for, once, whatever is killed when."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pate.aggregators import Aggregator, ask
from pate.aggregators.asking import AlreadyAsked, refusals_tell_of_open_ones
from pate.arrays import IntArray
from pate.experiments.array_files import write_text
from pate.experiments.pipeline.store import Stages, private_folder
from pate.experiments.recipes.model import RunRecipe
from pate.experiments.release_files import read_release, release_text
from pate.ledger import Budget, Ledger
from pate.ledger.chain import Neighbours
from pate.ledger.records import Entry
from pate.noise import OSNoise, SimulatedNoise
from pate.places import data_home
from pate.privacy.curve import RdpCurve
from pate.release import Mode, Release
from pate.votes import Votes

_INTENT, _RELEASE = "intent.json", "release.json"
_SIMULATED = "answers"


def default_ledger() -> str:
    """Where release mode keeps the ledger unless the recipe says: one place for all runs of this user, wherever they are
    started, since two ledgers would be two budgets."""
    named = os.environ.get("PATE_LEDGER")
    return named or str(private_folder(data_home()) / "ledger.db")


@dataclass(frozen=True)
class Desk:
    """Who pays for the answers: the ledger of these data, in its mode."""

    recipe: RunRecipe
    mode: Mode
    place: str
    fingerprint: str
    unit: str

    @classmethod
    def of(cls, recipe: RunRecipe, mode: Mode, own: Path, fingerprint: str, unit: str) -> Desk:
        """own: the ledger of a simulation, in its run directory."""
        place = str(own) if mode == "simulation" else recipe.privacy.ledger or default_ledger()
        return cls(recipe, mode, place, fingerprint, unit)

    def open(self, neighbours_if_new: Neighbours = "replace", order: float | None = None) -> Ledger:
        """order: of the budget's filter, where not its own choice."""
        privacy = self.recipe.privacy
        budget = Budget(privacy.epsilon, privacy.delta, order, slack=privacy.slack)
        return Ledger.open(self.place, self.fingerprint, budget, unit=self.unit, neighbours_if_new=neighbours_if_new)

    def afford(self, costs: RdpCurve, charged: str | None) -> None:
        """Raise before anything is trained if the budget does not cover the answers. No data is looked at.

        charged: a key; where something is charged under it, a run that was stopped has begun to ask, and was let through.
        """
        with self.open() as ledger, refusals_tell_of_open_ones(ledger):
            if charged is None or charged not in {entry.key for entry in ledger.entries()}:
                ledger.afford(costs)

    def simulated_key(self, number: int) -> str:
        """Under which a simulation is charged for a round, counted from 0."""
        return _SIMULATED if number == 0 else f"{_SIMULATED}, round {number + 1}"

    def simulate(
        self, aggregator: Aggregator, votes: Votes, rows: IntArray, file: Path, number: int = 0
    ) -> tuple[Release, bool]:
        """Seeded noise: after a crash the same answers come again, under the same key, so they are charged once."""
        seeded = SimulatedNoise(self.recipe.seed)
        if number:  # each round has a stream of its own
            seeded = SimulatedNoise(seeded.spawn(number)[-1])
        with self.open() as ledger:
            found = file.exists()
            keep = None if found else lambda release: write_text(file, release_text(release, rows))
            return ask(aggregator, votes, ledger, seeded, key=self.simulated_key(number), keep=keep), found

    def answers_folder(self, stages: Stages, inputs: dict[str, Any]) -> Path:
        """Where :meth:`release` keeps the answers to a question."""
        return stages.folder("answers", inputs)

    def stored(self, stages: Stages, inputs: dict[str, Any]) -> Release | None:
        """The answers that :meth:`release` would find, paid for; None where there are none."""
        file = self.answers_folder(stages, inputs) / _RELEASE
        return read_release(file).release if file.exists() else None

    def release(
        self, aggregator: Aggregator, votes: Votes, rows: IntArray, stages: Stages, inputs: dict[str, Any]
    ) -> tuple[Release, bool, str]:
        """Answers with the operating system's noise; those to the same question, if they are there already.

        inputs: all that the question consists of. Also gives what the keys of its charges begin with: a try whose answers were
        lost in a crash stays charged, and the next one is charged too.
        """
        folder = self.answers_folder(stages, inputs)
        with stages.locked(folder):
            intent, file = folder / _INTENT, folder / _RELEASE
            if not intent.exists():
                write_text(intent, json.dumps({"id": secrets.token_hex(8), "tries": 0}), 0o600)
            facts = json.loads(intent.read_text())
            name = f"run {facts['id']}"
            if file.exists():
                return read_release(file).release, True, name
            with self.open() as ledger:
                while True:
                    facts["tries"] += 1
                    write_text(intent, json.dumps(facts), 0o600)
                    try:
                        release = ask(
                            aggregator,
                            votes,
                            ledger,
                            OSNoise(),
                            key=f"{name}, try {facts['tries']}",
                            keep=lambda answers: write_text(file, release_text(answers, rows)),
                        )
                    except AlreadyAsked:
                        continue
                    return release, False, name

    def entries(self, ledger: Ledger, names: Sequence[str] | None) -> list[Entry]:
        """The rows of the ledger that concern these answers: its opening, their reservations, what settled them."""
        rows = ledger.entries()
        begins = (_SIMULATED,) if names is None else tuple(f"{name}, " for name in names)
        own = {row.sequence for row in rows if row.key is not None and row.key.startswith(begins)}
        return [row for row in rows if row.kind == "open" or row.sequence in own or row.settles in own]


def entry_facts(entry: Entry, delta: float) -> dict[str, Any]:
    """A row as ledger.json holds it, which may be published.

    Without what depends on who is in the data: hashes cover the fingerprint, keys may hold a hash, the time of day tells how
    long teachers took; and a row's number, or when its ledger began, tells that another budget began as somebody came or went.
    """
    return {
        "kind": entry.kind,
        "at": None if entry.kind == "open" else entry.at[:10],
        "memo": dict(entry.memo),
        "epsilon": None if entry.cost is None else entry.cost.epsilon(delta).epsilon,
    }
