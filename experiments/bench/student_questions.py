"""What the students of a benchmark are given: which public records were asked about, and what was answered."""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from pate.aggregators import GNMax
from pate.arrays import IntArray
from pate.errors import ParameterError
from pate.execution.base import Shared
from pate.experiments.datasets import Split, load
from pate.experiments.planning import least_sigma
from pate.ledger import Budget
from pate.noise import SimulatedNoise
from pate.public import PublicData
from pate.release import Electorate, Release
from pate.student.presets import HOG_PCA
from pate.student.queries import select_queries
from pate.student.records import FeaturesSpec, float_records, make_features
from pate.teachers import Ensemble, Partition

DELTA = 1e-5
EPSILON = 0.5
_PICTURES = ("supervised", "vat", "gan", "fixmatch", "spreading", "propagation")
_TABLES = ("supervised", "vat", "fixmatch", "self-training", "vote-share")


@dataclass(frozen=True)
class Problem:
    """A data set as the benchmark uses it.

    queries: how many public records are asked about. students: who can learn it. options: of the data set.
    features: by what records are compared when queries are chosen; fitted on the public ones.
    teachers: how many real teachers answer through GNMax; 0: the true labels, some of them made wrong.
    settings: of students, by name, where neither their preset nor their defaults will do.
    """

    queries: int
    students: tuple[str, ...]
    options: Mapping[str, Any] = field(default_factory=dict)
    features: FeaturesSpec = "identity"
    teachers: int = 0
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


PROBLEMS: Mapping[str, Problem] = {
    "mnist": Problem(50, _PICTURES, {"protocol": "A"}, features="contrastive"),
    "fashion-mnist": Problem(250, _PICTURES, features=HOG_PCA),
    "adult": Problem(200, _TABLES, {"protocol": "A", "encoding": "small"}, features="standardise", teachers=500),
    # Too small for self-supervised features.
    "digits": Problem(40, _PICTURES, settings={"propagation": {"features": "identity"}}),
}


@dataclass(frozen=True)
class Subject:
    """A data set, the seed by which it is asked about, and the shares of wrong labels."""

    dataset: str
    seed: int
    noises: tuple[float, ...]
    root: str | None
    quick: bool

    @property
    def problem(self) -> Problem:
        return PROBLEMS[self.dataset]

    @property
    def key(self) -> str:
        # The shares of wrong labels are part of it: a file made for others has no releases for these.
        return f"{self.dataset}, seed {self.seed}, {'; '.join(self.labels)}{', quick' if self.quick else ''}"

    @property
    def features(self) -> FeaturesSpec:
        """By what records are compared when queries are chosen among them: for each seed features of its own."""
        if self.problem.features != "contrastive":
            return self.problem.features
        return {"name": "contrastive", "settings": {"epochs": 1 if self.quick else 27, "seed": self.seed}}

    @property
    def labels(self) -> tuple[str, ...]:
        """How the labels of each release came about, in words."""
        if self.problem.teachers:
            return (f"GNMax, epsilon {EPSILON}",)
        return tuple("right" if noise == 0 else f"{noise:.0%} wrong" for noise in self.noises)

    def load(self) -> Split:
        return load(self.dataset, self.root, **self.problem.options)


def ask(subject: Subject, shared: Shared) -> dict[str, Any]:
    """Choose queries on public data and answer them. JSON values: ``queries``, ``releases`` by label, ``seconds``."""
    split, problem = subject.load(), subject.problem
    start = time.perf_counter()
    public = PublicData(float_records(split.public_x))
    points = make_features(subject.features).fit(public).transform(public.x)
    queries = select_queries(public.x, problem.queries, "medoids", features=points, seed=subject.seed)
    seconds = time.perf_counter() - start
    if problem.teachers:
        releases = [voted(split, queries, problem.teachers, subject.seed)]
    else:
        assert split.public_labels is not None  # every benchmark knows them
        releases = flipped(split.public_labels.of(queries), split.n_classes, subject.noises, subject.seed)
    return {
        "queries": queries.tolist(),
        "releases": {name: _as_json(each) for name, each in zip(subject.labels, releases, strict=True)},
        "seconds": seconds,
    }


def flipped(truth: IntArray, n_classes: int, noises: tuple[float, ...], seed: int) -> list[Release]:
    """The true labels, int64[query], of which a share is made wrong: for each of ``noises`` a release.

    What is wrong at a small share is wrong at a larger one too, so that the shares can be compared.
    """
    random = np.random.default_rng(seed)
    order, other = random.permutation(len(truth)), random.integers(1, n_classes, len(truth))
    releases = []
    for noise in noises:
        if not 0 <= noise <= 1:
            raise ParameterError(f"A share of wrong labels must be from 0 to 1, got {noise!r}.")
        wrong = order[: math.floor(noise * len(truth) + 0.5)]
        labels = truth.copy()
        labels[wrong] = (truth[wrong] + other[wrong]) % n_classes
        # No key "aggregator": these labels came from no mechanism, and a student must not be told of one.
        facts = {"simulated": "true labels, some made wrong at random", "wrong": len(wrong)}
        releases.append(Release(labels, Electorate(1, n_classes), facts, "simulation"))
    return releases


def voted(split: Split, queries: IntArray, n_teachers: int, seed: int) -> Release:
    """What real teachers answer through GNMax, with the least noise that keeps all queries within the budget."""
    parts = Partition.by_hash(split.private, n_teachers, salt=f"bench-{seed}", allow_empty=True)
    with tempfile.TemporaryDirectory(prefix="pate-bench-") as folder:
        teachers = Ensemble.train(
            parts, "logistic", Path(folder) / "teachers", n_classes=split.n_classes, holdout=0.0, seed=seed, show="none"
        )
        votes = teachers.vote(split.public_x[queries])
    return GNMax(least_sigma("gnmax", len(queries), Budget(EPSILON, DELTA), votes.electorate)).release(
        votes, SimulatedNoise(seed)
    )


def _as_json(release: Release) -> dict[str, Any]:
    electorate = {"n_teachers": release.electorate.n_teachers, "n_classes": release.electorate.n_classes}
    return {"labels": release.labels.tolist(), "electorate": electorate, "mechanism": dict(release.mechanism)}


def from_json(found: Mapping[str, Any]) -> Release:
    """One of the ``releases`` of :func:`ask`."""
    labels = np.array(found["labels"], dtype=np.int64)
    return Release(labels, Electorate(**found["electorate"]), found["mechanism"], "simulation")
