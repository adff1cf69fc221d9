"""The stages up to the votes: data, public features, queries, teachers. Each is found again by what it was made of."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pate.arrays import FloatArray, IntArray
from pate.errors import DataError
from pate.execution import Executor
from pate.experiments.array_files import read_arrays, write_public_arrays
from pate.experiments.datasets import Split
from pate.experiments.pipeline.store import Stages, array_digest, code_digests, digest
from pate.experiments.pipeline.telling import Teller
from pate.experiments.recipes.checking import make_family, make_features, make_student
from pate.experiments.recipes.model import FeaturesTable, Recipe
from pate.experiments.release_files import release_text
from pate.experiments.vote_files import read_votes, write_votes
from pate.features import Features
from pate.features.cache import fit_cached
from pate.public import PublicData
from pate.release import ABSTAIN, Electorate, Release
from pate.student import OneClassWarning, Student
from pate.student.diary import Diary
from pate.student.queries import select_queries
from pate.student.records import float_records
from pate.teachers import Ensemble, Partition, nearest_votes
from pate.teachers.registry import describe
from pate.teachers.resuming import describe_features
from pate.votes import Votes

_ROWS, _VOTES, _TEACHERS = "rows.npz", "votes.npz", "teachers"


@dataclass(frozen=True, eq=False)
class Material:
    """A split whose private and public records are float32 alike, and the hashes of its contents."""

    split: Split

    @classmethod
    def of(cls, split: Split) -> Material:
        private = split.private.with_inputs(float_records(split.private.x))
        public = float_records(split.public_x)
        if private.x.shape[1:] != public.shape[1:]:
            raise DataError(
                f"Data set {split.name!r}: private and public records must have one shape, got {private.x.shape[1:]} and "
                f"{public.shape[1:]}."
            )
        if int(private.y.max()) >= split.n_classes:  # the label itself is not told: it is private
            raise DataError(f"Data set {split.name!r}: private labels must lie in 0..{split.n_classes - 1}; found one outside.")
        from dataclasses import replace

        return cls(replace(split, private=private, public_x=public))

    @cached_property
    def public_digest(self) -> str:
        return array_digest(self.split.public_x)

    @cached_property
    def private_digest(self) -> str:
        """Private: who can guess all records can confirm the guess."""
        private = self.split.private
        ids = np.frombuffer(b"\0".join(private.record_ids), dtype=np.uint8)
        return array_digest(private.x, private.y, ids, private.unit_of)

    def electorate(self, recipe: Recipe, number: int = 0) -> Electorate:
        """Who will vote in a round, counted from 0; known before anybody does. Each round is a batch of its own."""
        if not recipe.teachers.nearest:
            return Electorate(recipe.teachers.count or 0, self.split.n_classes)
        teachers = recipe.teachers
        most = teachers.votes_per_record if self.split.private.unit == "record" else teachers.votes_per_user
        voters = teachers.voters or len(self.split.private.unit_ids)
        return Electorate(voters, self.split.n_classes, min(most or 1, recipe.queries.counts[number]))


class Chosen(NamedTuple):
    """rows: int64[query], public records to ask about. scores: float64[query, class], what the student so far predicts for
    them; None where there is none. cached: chosen by an earlier run."""

    rows: IntArray
    scores: FloatArray | None
    cached: bool


class Voting:
    """From a recipe and its data to votes."""

    def __init__(self, recipe: Recipe, material: Material, stages: Stages, executor: Executor, teller: Teller) -> None:
        self._recipe = recipe
        self._material = material
        self._split = material.split
        self._stages = stages
        self._executor = executor
        self._teller = teller
        self._fitted: dict[str, Features] = {}

    def features(self, table: Literal["teachers", "queries"]) -> Features | None:
        """Fitted on the public records, or found from an earlier fit."""
        wanted = self._recipe.features_for(table)
        if wanted is None:
            return None
        key = wanted.model_dump_json()
        if key not in self._fitted:
            self._fitted[key] = fitted_features(wanted, self._split, self._teller)
        return self._fitted[key]

    def rows(self) -> tuple[IntArray, bool]:
        """int64[query]: the public records to ask about first; and whether they were chosen before."""
        chosen = self.rows_of_round((), ())
        return chosen.rows, chosen.cached

    def rows_of_round(self, releases: Sequence[Release], asked: Sequence[IntArray]) -> Chosen:
        """The public records to ask about after these releases, whose queries were ``asked``. No private data are looked at."""
        queries, recipe, public = self._recipe.queries, self._recipe, self._split.public_x
        number = len(releases)
        most = max(queries.counts) if queries.ask_again else sum(queries.counts)
        if most > len(public):
            raise DataError(
                f"queries.count must be at most the {len(public)} public records"
                f"{'' if queries.rounds == 1 else ', all rounds together unless queries.ask_again'}, got {most}."
            )
        strategy = queries.later_strategy if number else queries.strategy
        inputs: dict[str, Any] = {
            "public": self._material.public_digest,
            "features": _described(recipe.features_for("queries")),
            "queries": {"count": queries.counts[number], "strategy": strategy},
            "seed": recipe.seed,
            "code": code_digests(strategy),
        }
        if number:
            learner = recipe.student.model_dump(mode="json")
            inputs["queries"] |= {"first": queries.strategy, "ask_again": queries.ask_again}
            inputs["student"] = {**learner, "code": code_digests(learner)}
            inputs["before"] = [digest(release_text(*each)) for each in zip(releases, asked, strict=True)]

        def choose(folder: Path) -> None:
            space = self.features("queries")
            points = None if space is None else space.transform(public)
            student = self._student_so_far(releases, asked)
            chosen = select_queries(
                public,
                queries.counts[number],
                queries.strategy if student is None else strategy,
                features=points,
                student=student,
                asked=np.concatenate(asked) if asked and not queries.ask_again else None,
                seed=recipe.seed,
            )
            scores = {} if student is None else {"scores": np.asarray(student.predict_proba(public[chosen]), dtype=np.float64)}
            write_public_arrays(folder / _ROWS, {"rows": chosen, **scores})

        folder, cached = self._stages.kept("queries", inputs, choose)
        arrays = read_arrays(folder / _ROWS, alone="rows", error=DataError)
        return Chosen(arrays["rows"].astype(np.int64), arrays.get("scores"), cached)

    def _student_so_far(self, releases: Sequence[Release], asked: Sequence[IntArray]) -> Student | None:
        """Learnt from what was released; None while there is nothing to learn from."""
        if not any((each.lessons != ABSTAIN).any() for each in releases):
            return None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", OneClassWarning)  # said of the student at the end, if it still is one
            learner = make_student(self._recipe.student, self._recipe.seed)
            return learner.fit(self._split.public_x, releases, asked, show=self._teller.show)

    def teachers(self) -> tuple[Ensemble, bool]:
        """The ensemble, and whether it was trained before. A run that was stopped goes on with the teachers it has."""
        return self._ensemble(self._recipe.teachers.count or 0)

    def all_data_teacher(self) -> Ensemble:
        """One teacher on all private records: what could be had without privacy."""
        return self._ensemble(1)[0]

    def _ensemble(self, count: int) -> tuple[Ensemble, bool]:
        table, split = self._recipe.teachers, self._split

        def train(folder: Path) -> None:
            parts = Partition.by_hash(split.private, count, salt=table.salt, allow_empty=table.allow_empty)
            Ensemble.train(
                parts,
                make_family(table),
                folder / _TEACHERS,
                n_classes=split.n_classes,
                features=self.features("teachers"),
                executor=self._executor,
                seed=self._recipe.seed,
                holdout=table.holdout,
                default_vote=table.default_vote,
                retries=table.retries,
                max_failures=table.max_failures,
                resume=True,
                show=self._teller.show,
            )

        folder, cached = self._stages.kept("teachers", self._teacher_inputs(count), train)
        return Ensemble.open(folder / _TEACHERS), cached

    def votes(self, rows: IntArray, ensemble: Ensemble | None) -> tuple[Votes, bool]:
        """What the teachers, or the records themselves, say about the public records ``rows``; and whether they said so before.

        ensemble: None where single records vote.
        """
        table, split = self._recipe.teachers, self._split
        queries = split.public_x[rows]

        def vote(folder: Path) -> None:
            if ensemble is not None:
                votes = ensemble.vote(queries, executor=self._executor)
            else:
                votes = nearest_votes(
                    split.private,
                    queries,
                    n_classes=split.n_classes,
                    votes_per_record=table.votes_per_record,
                    votes_per_user=table.votes_per_user,
                    voters=table.voters,
                    features=self.features("teachers"),
                    executor=self._executor,
                )
            write_votes(folder / _VOTES, votes, fingerprint=split.private.fingerprint, unit=split.private.unit)

        inputs = {"teachers": self._teacher_inputs(table.count), "queries": array_digest(queries)}
        folder, cached = self._stages.kept("votes", inputs, vote)
        return read_votes(folder / _VOTES).votes, cached

    def _teacher_inputs(self, count: int | None) -> dict[str, Any]:
        """All that decides what the teachers are: JSON values."""
        table = self._recipe.teachers
        facts = table.model_dump(mode="json", exclude={"features", "model", "count"} | set(table.parameters))
        features = self.features("teachers")
        return {
            "private": self._material.private_digest,
            "n_classes": self._split.n_classes,
            "model": "nearest" if table.nearest else describe(make_family(table)),
            "count": count,
            "table": facts,
            "features": None if features is None else describe_features(features),
            "seed": self._recipe.seed,
            "code": code_digests(table.model_dump(mode="json")),
        }


def fitted_features(wanted: FeaturesTable, split: Split, teller: Teller) -> Features:
    """Fitted on the public records, or found from an earlier fit."""
    with Diary("features", teller.show).fitting() as told:
        return fit_cached(make_features(wanted), PublicData(split.public_x), progress=told)


def _described(table: FeaturesTable | None) -> dict[str, Any] | None:
    if table is None:
        return None
    found = table.model_dump(mode="json")
    return {**found, "code": code_digests(found)}


def plurality(votes: Votes) -> NDArray[np.int64]:
    """int64[query]: the class with the most votes, without noise. Private."""
    found: IntArray = votes.counts.argmax(axis=1)
    return found
