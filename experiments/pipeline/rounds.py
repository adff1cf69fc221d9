"""The rounds of a run: each is chosen from public records and earlier answers, paid for before its noise, and asked once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pate.aggregators import Aggregator, curve_ahead
from pate.aggregators.interrupts import uninterrupted
from pate.arrays import IntArray
from pate.errors import DataError
from pate.experiments.array_files import write_text
from pate.experiments.pipeline.answering import Desk
from pate.experiments.pipeline.folder import RELEASE, RunFolder
from pate.experiments.pipeline.voting import Chosen, Material, Voting
from pate.experiments.recipes.checking import mechanisms_of, round_table
from pate.experiments.recipes.model import Recipe
from pate.experiments.release_files import read_release, release_text
from pate.privacy.curve import RdpCurve
from pate.release import ABSTAIN, Electorate, Mode, Release
from pate.votes import Votes


@dataclass(frozen=True, eq=False)
class Round:
    """One round that was answered. votes: private."""

    mechanism: Aggregator
    votes: Votes
    release: Release
    rows: IntArray


def release_name(number: int) -> str:
    """The file of a round's answers in the run directory; rounds are counted from 0."""
    return RELEASE if number == 0 else f"release-{number + 1}.json"


def told_of(release: Release) -> str:
    """How a round went, in a few words."""
    told = f"{int(release.answered.sum())} of {len(release)} answered"
    if release.reinforced is None:
        return told
    return f"{told}, {int((release.reinforced != ABSTAIN).sum())} reinforced"


def joined_release(releases: Sequence[Release], electorate: Electorate) -> Release:
    """The labels of all rounds as one release; of the mechanism, what differs from round to round is told for each of them."""
    if len(releases) == 1:
        return releases[0]
    facts = [each.mechanism for each in releases]
    told = {key: [each.get(key) for each in facts] for key in dict.fromkeys(key for each in facts for key in each)}
    told.pop("scores", None)  # of one round each, and in its own file
    mechanism = {key: found[0] if all(each == found[0] for each in found) else found for key, found in told.items()}
    return Release(np.concatenate([each.labels for each in releases]), electorate, mechanism, releases[-1].mode)


def costs_ahead(recipe: Recipe, material: Material) -> list[RdpCurve]:
    """What each round costs at most, known before anything is asked: no later round's depends on earlier answers."""
    return [
        curve_ahead(mechanism, material.electorate(recipe, number), recipe.queries.counts[number])
        for number, mechanism in enumerate(mechanisms_of(recipe))
    ]


class Rounds:
    """What a run asks, round by round, and what was answered."""

    def __init__(self, recipe: Recipe, mode: Mode, material: Material, folder: RunFolder, voting: Voting, desk: Desk) -> None:
        self._recipe = recipe
        self._mode = mode
        self._material = material
        self._folder = folder
        self._voting = voting
        self._desk = desk
        self._mechanisms = mechanisms_of(recipe)
        self._chosen: list[Chosen] = []

    def __len__(self) -> int:
        return len(self._mechanisms)

    def afford(self, more: RdpCurve | None = None) -> None:
        """Raise before anybody is trained if the budget does not cover all rounds that are not paid for yet.

        more: what comes after them.
        """
        releases: list[Release] = []
        while len(releases) < len(self):
            found = self._found(len(releases), self.choose(releases))
            if found is None:
                break
            releases.append(found)
        costs = costs_ahead(self._recipe, self._material)[len(releases) :]
        if costs:
            costs += [] if more is None else [more]
            self._desk.afford(sum(costs[1:], start=costs[0]), charged=self._key(len(releases)))

    def choose(self, releases: Sequence[Release]) -> Chosen:
        """What the round after these releases asks."""
        if len(self._chosen) == len(releases):
            asked = [each.rows for each in self._chosen]
            self._chosen.append(self._voting.rows_of_round(releases, asked))
        return self._chosen[len(releases)]

    def mechanism(self, number: int) -> Aggregator:
        """What answers a round whose queries are chosen; told what the student predicts for them."""
        scores, mechanism = self._chosen[number].scores, self._mechanisms[number]
        return mechanism if scores is None else mechanism.against(scores)

    def answer(self, number: int, votes: Votes) -> tuple[Release, bool]:
        """The answers to a round, paid for; and whether they were there already."""
        file = self._file(number)
        rows, mechanism = self._chosen[number].rows, self.mechanism(number)
        if self._mode == "simulation":
            return self._desk.simulate(mechanism, votes, rows, file, number)
        if file.exists():  # whatever became of the stages: these answers are paid for
            return self._stored(file, rows), True
        question, stages = self._question(number), self._folder.stages
        with uninterrupted():
            # Told first, so that they are found wherever this is killed.
            place = self._desk.answers_folder(stages, question).name
            self._folder.remember(asked=list(dict.fromkeys([*self._folder.run().get("asked", []), place])))
            release, cached, name = self._desk.release(mechanism, votes, rows, stages, question)
            self._folder.remember(paid_as=list(dict.fromkeys([*self._names(), name])))
            write_text(file, release_text(release, rows))
        return release, cached

    def paid_as(self) -> list[str] | None:
        """What the keys of this run's charges begin with; None in a simulation, whose ledger is its own."""
        return None if self._mode == "simulation" else self._names()

    def _names(self) -> list[str]:
        names = self._folder.run().get("paid_as") or []
        return [names] if isinstance(names, str) else list(names)

    def _file(self, number: int) -> Path:
        return self._folder.file(release_name(number))

    def _key(self, number: int) -> str | None:
        """Under which a simulation charges a round. A release that was charged and lost is charged again."""
        return self._desk.simulated_key(number) if self._mode == "simulation" else None

    def _found(self, number: int, chosen: Chosen) -> Release | None:
        """Answers that are paid for."""
        file = self._file(number)
        if file.exists():
            return self._stored(file, chosen.rows)
        return None if self._mode == "simulation" else self._desk.stored(self._folder.stages, self._question(number))

    def _stored(self, file: Path, rows: IntArray) -> Release:
        stored = read_release(file)
        if stored.queries is None or not np.array_equal(rows, stored.queries):  # other versions of libraries may choose others
            raise DataError(
                f"{file}: its answers are about other public records than are chosen now. Go on with the versions of libraries "
                "in environment.json, or begin a run of its own with --again."
            )
        return stored.release

    def _question(self, number: int) -> dict[str, Any]:
        """All that decides what is asked of whom: the same question is answered once. Not by what version of this package."""
        table = round_table(self._recipe.aggregator, number)
        recipe = self._recipe.model_copy(update={"aggregator": table})
        question = {
            "fingerprint": self._material.split.private.fingerprint,
            "private": self._material.private_digest,
            "public": self._material.public_digest,
            "queries": self._chosen[number].rows.tolist(),
            "recipe": recipe.model_dump(mode="json", include={"features", "teachers", "aggregator", "privacy", "seed"}),
            "take": self._folder.take,
        }
        question["recipe"]["privacy"].pop("sanitise")  # asks nothing, and is paid for by itself
        if number:
            # Two rounds may ask the same again, of other noise; and what they are compared with is part of the question.
            question["round"] = {"number": number, "mechanism": self.mechanism(number).mechanism}
        return question
