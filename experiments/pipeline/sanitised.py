"""The sanitised epsilon of a run: planned before anybody is trained, drawn once when the answers are there."""

from __future__ import annotations

from collections.abc import Sequence

from pate.aggregators.interrupts import uninterrupted
from pate.experiments.pipeline.answering import Desk
from pate.experiments.pipeline.voting import Material
from pate.experiments.recipes.checking import mechanisms_of
from pate.experiments.recipes.model import Recipe
from pate.experiments.sanitised_release import SanitisedBefore, charges, release_sanitised
from pate.experiments.sanitising import Sanitised, Sanitiser
from pate.ledger import Ledger
from pate.ledger.records import Entry
from pate.noise import Noise, OSNoise, SimulatedNoise
from pate.votes import Votes


def planned(recipe: Recipe, material: Material) -> Sanitiser | None:
    """How the epsilon of a run will be sanitised, if the recipe says so. No vote is looked at."""
    if not recipe.privacy.sanitise:
        return None
    (mechanism,) = mechanisms_of(recipe)
    return Sanitiser.plan(mechanism, material.electorate(recipe), recipe.queries.count, recipe.privacy.delta)


def drawn(sanitiser: Sanitiser, votes: Votes, desk: Desk, paid_as: Sequence[str] | None) -> Sanitised:
    """The run's own, out of the ledger: found there, or charged and drawn. One that a crash took stays charged."""
    with uninterrupted(), desk.open() as ledger:
        state = desk.entries(ledger, paid_as)[-1].hash
        noise: Noise = OSNoise()
        if desk.mode == "simulation":
            noise = SimulatedNoise(SimulatedNoise(desk.recipe.seed).spawn(1)[0])  # the answers have the seed's own stream
        try:
            return release_sanitised(sanitiser, votes, ledger, noise, state=state)
        except SanitisedBefore:
            return release_sanitised(sanitiser, votes, ledger, noise, state=state, again=True)


def sanitised_charges(ledger: Ledger, paid: Sequence[Entry]) -> list[Entry]:
    """The rows of the ledger that concern it, where these are the rows of the answers."""
    return charges(ledger.entries(), paid[-1].hash)
