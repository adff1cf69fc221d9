"""The run that is audited: the real parts of ``pate run``, in memory, small enough to be repeated hundreds of times."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Hashable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pate.aggregators import Aggregator, curve_ahead
from pate.arrays import FloatArray, IntArray
from pate.errors import PateError
from pate.execution import Serial
from pate.experiments.datasets import Split
from pate.experiments.pipeline.voting import Material
from pate.experiments.recipes.checking import make_family, make_features, make_student, mechanisms_of
from pate.experiments.recipes.model import FeaturesTable, Recipe
from pate.features import Features
from pate.features.cache import fit_cached
from pate.noise import Noise
from pate.privacy.curve import RdpCurve
from pate.public import PublicData
from pate.release import Electorate, Release
from pate.student import OneClassWarning, Student
from pate.student.queries import select_queries
from pate.teachers import Ensemble, Partition, PrivateData, nearest_votes
from pate.votes import Votes

_DIGITS = 9  # of what a student says: sums of floats may differ beyond them


@dataclass(frozen=True)
class Polled:
    """What private data leave behind before noise is added: private.

    predictions: [teacher, query], each teacher's own votes; None where single records vote.
    """

    votes: Votes
    predictions: NDArray[Any] | None = None


@dataclass(frozen=True)
class Published:
    """Everything that an outsider may see of a run, as hashable tuples.

    answers: the labels of all queries, and noisy counts where they are published. student: what it says of every public record
    that was asked, float[query, class], flat. refusal: the kind of error, where there was one.
    """

    answers: tuple[float, ...] = ()
    student: tuple[float, ...] = ()
    refusal: str = ""

    @property
    def everything(self) -> Hashable:
        """Also what was refused, which is public too."""
        return self.refusal or (*self.answers, *self.student)


class Pipeline:
    """A recipe's run from private data to what its first round publishes. Each method is a stage; an audit calls them in order.

    To audit a run of your own, subclass it and override what is yours: the planted leaks of the tests do the same. The private
    data of a stage are its arguments, the worlds that the audit made up; of ``split`` a stage takes what is public.
    """

    def __init__(self, recipe: Recipe, split: Split) -> None:
        self.recipe = recipe
        self.split = split
        self.public_x: NDArray[Any] = split.public_x
        self.n_classes = split.n_classes
        self.aggregator: Aggregator = mechanisms_of(recipe)[0]
        self._fitted: dict[str, Features] = {}

    # The public side --------------------------------------------------------------------------------------------------------

    @cached_property
    def rows(self) -> IntArray:
        """int64[query]: which public records are asked about."""
        space = self.features(self.recipe.features_for("queries"))
        points = None if space is None else space.transform(self.public_x)
        queries = self.recipe.queries
        return select_queries(self.public_x, queries.count, queries.strategy, features=points, seed=self.recipe.seed)

    def features(self, table: FeaturesTable | None) -> Features | None:
        """Fitted on the public records."""
        if table is None:
            return None
        key = table.model_dump_json()
        if key not in self._fitted:
            self._fitted[key] = fit_cached(make_features(table), PublicData(self.public_x))
        return self._fitted[key]

    def electorate(self, private: PrivateData) -> Electorate:
        """Who votes: published with every answer."""
        return Material(replace(self.split, private=private)).electorate(self.recipe)

    def claim(self, private: PrivateData) -> RdpCurve:
        """The data-independent cost of all answers: what the run says of itself."""
        return curve_ahead(self.aggregator, self.electorate(private), self.recipe.queries.count)

    # The stages that see private data, or what was made of them -------------------------------------------------------------

    def partition(self, private: PrivateData) -> Partition:
        # That a part is empty is allowed here: the data are made so that the canary's teacher has nothing but the canary.
        teachers = self.recipe.teachers
        return Partition.by_hash(private, teachers.count or 0, salt=teachers.salt, allow_empty=True)

    def poll(self, private: PrivateData) -> Polled:
        """Train teachers on ``private`` and let them vote; or let its records vote."""
        teachers, queries = self.recipe.teachers, self.public_x[self.rows]
        features = self.features(self.recipe.features_for("teachers"))
        if teachers.nearest:
            votes = nearest_votes(
                private,
                queries,
                n_classes=self.n_classes,
                votes_per_record=teachers.votes_per_record,
                votes_per_user=teachers.votes_per_user,
                features=features,
            )
            return Polled(votes)
        with tempfile.TemporaryDirectory(prefix="pate-audit-") as folder:
            ensemble = Ensemble.train(
                self.partition(private),
                make_family(teachers),
                Path(folder) / "teachers",
                n_classes=self.n_classes,
                features=features,
                executor=Serial(),
                seed=self.recipe.seed,
                holdout=teachers.holdout,
                default_vote=teachers.default_vote,
                retries=teachers.retries,
                max_failures=teachers.max_failures,
                show="none",
            )
            predictions = ensemble.predict(queries)
        return Polled(Votes.from_predictions(predictions.astype(np.int64), self.n_classes), predictions)

    def answer(self, polled: Polled, noise: Noise) -> Release:
        return self.aggregator.release(polled.votes, noise)

    def learn(self, release: Release, polled: Polled) -> Student:
        """A student of the answers. ``polled`` is what it must not look at: it is passed only so that an audit can see that."""
        del polled
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", OneClassWarning)
            return make_student(self.recipe.student, self.recipe.seed).fit(self.public_x, release, self.rows, show="none")

    def publish(self, polled: Polled, noise: Noise, *, with_student: bool = True) -> Published:
        """Answers, and a student of them. An error is published as well: who waits for answers sees it."""
        try:
            release = self.answer(polled, noise)
            student = self.told(self.learn(release, polled)) if with_student else ()
        except PateError as error:
            return Published(refusal=type(error).__name__)
        histogram = () if release.histogram is None else tuple(release.histogram.reshape(-1).tolist())
        return Published((*release.labels.tolist(), *histogram), student)

    def told(self, student: Student) -> tuple[float, ...]:
        """What the student says of the records that were asked about: anybody can ask it."""
        said: FloatArray = student.predict_proba(self.public_x[self.rows])
        return tuple(np.round(said, _DIGITS).reshape(-1).tolist())
