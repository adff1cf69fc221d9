"""A small PATE job on scikit-learn's embedded digits, from private data to a published epsilon, in a few seconds.

Two ways to label the same public queries, both charged to one ledger, since they look at the same private data:
an ensemble of teachers that vote on every query, and single records that vote once each (partial votes).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pate.aggregators import Aggregator, GNMax, ask, curve_bound, curve_dependent
from pate.arrays import FloatArray, IntArray
from pate.digests import keyed_place
from pate.execution import Executor, Serial
from pate.extras import require
from pate.ledger import Budget, Ledger
from pate.noise import Noise
from pate.privacy.curve import Epsilon
from pate.release import ABSTAIN, Release
from pate.teachers import Ensemble, Partition, PrivateData
from pate.teachers.nearest import nearest_votes
from pate.teachers.sklearn_teachers import KNNTeachers
from pate.votes import Votes

N_CLASSES = 10
N_TEACHERS = 60
TEACHERS = KNNTeachers(n_neighbors=1)
N_QUERIES = 20
DELTA = 1e-5
BUDGET = Budget(epsilon=4.0, delta=DELTA)
ENSEMBLE = GNMax(sigma=8.0)
SINGLE_RECORDS = GNMax(sigma=6.0)


@dataclass(frozen=True)
class Digits:
    """Private records with labels, public ones without, and a test set that is looked at once."""

    private: PrivateData
    public_x: FloatArray
    test_x: FloatArray
    test_y: IntArray


@dataclass(frozen=True)
class Outcome:
    """What one way of labelling gave: a student's accuracy, and what the labels cost."""

    title: str
    release: Release
    accuracy: float
    independent: Epsilon
    dependent: Epsilon


@dataclass(frozen=True)
class DemoResult:
    outcomes: tuple[Outcome, ...]
    total: Epsilon
    budget: Budget
    ledger_path: Path


def load() -> Digits:
    """1,797 images of 8x8: about 1,000 private, 400 public, 400 for the test, by a hash of the row number."""
    images, labels = require("sklearn.datasets", "train").load_digits(return_X_y=True)
    # Pixels are 0..16 by the definition of the data set: a declared range, not one learned from private data.
    x, y = images / 16.0, labels.astype(np.int64)
    place = keyed_place(np.arange(len(y)), "digits-split", 18)
    private, public, test = place < 10, (place >= 10) & (place < 14), place >= 14
    # The row number in scikit-learn's file is the id: it belongs to its picture whatever we do with the others.
    people = PrivateData(x[private], y[private], ids=np.flatnonzero(private), name="digits")
    return Digits(people, x[public], x[test], y[test])


def choose_queries(public_x: FloatArray) -> IntArray:
    """The public images nearest to the centres of k-means on public images. Costs no privacy."""
    cluster = require("sklearn.cluster", "train")
    centres = cluster.KMeans(N_QUERIES, n_init=4, random_state=0).fit(public_x).cluster_centers_
    distances = ((centres[:, None, :] - public_x[None, :, :]) ** 2).sum(axis=-1)
    return np.unique(distances.argmin(axis=1))


def ensemble_votes(data: Digits, queries: FloatArray, run_dir: Path, executor: Executor) -> Votes:
    """Each teacher learns on its own part and votes on every query."""
    parts = Partition.by_hash(data.private, N_TEACHERS, salt="digits-teachers")
    teachers = Ensemble.train(parts, TEACHERS, run_dir, n_classes=N_CLASSES, holdout=0.0, executor=executor, resume=True)
    return teachers.vote(queries, executor=executor)


def student_accuracy(data: Digits, queries: IntArray, release: Release) -> float:
    """A student that spreads the noisy labels over all public images and is then tested once."""
    semi_supervised: Any = require("sklearn.semi_supervised", "train")
    known = np.full(len(data.public_x), ABSTAIN)
    known[queries] = release.labels
    student = semi_supervised.LabelSpreading(kernel="knn", n_neighbors=7, alpha=0.8, max_iter=100)
    return float(student.fit(data.public_x, known).score(data.test_x, data.test_y))


def run(noise: Noise, folder: Path, report: Callable[[str], None], executor: Executor | None = None) -> DemoResult:
    """The whole job; the teachers and the ledger are kept in ``folder``. ``report`` is called with a line before each step."""
    executor = executor or Serial()
    report("Loading scikit-learn's digits; splitting into private, public and test by a keyed hash")
    data = load()
    report(
        f"Choosing {N_QUERIES} public images to ask about (k-means on {len(data.public_x)} public images, free of privacy cost)"
    )
    queries = choose_queries(data.public_x)
    asked = data.public_x[queries]
    ways: tuple[tuple[str, Aggregator, Callable[[], Votes]], ...] = (
        (f"{N_TEACHERS} teachers, {ENSEMBLE!r}", ENSEMBLE, lambda: ensemble_votes(data, asked, folder / "teachers", executor)),
        (
            f"{len(data.private)} single records, {SINGLE_RECORDS!r}",
            SINGLE_RECORDS,
            lambda: nearest_votes(data.private, asked, n_classes=N_CLASSES, executor=executor),
        ),
    )
    folder.mkdir(parents=True, exist_ok=True)
    ledger_path = folder / "ledger.db"
    outcomes = []
    with Ledger.open(ledger_path, data.private.fingerprint, BUDGET) as ledger:
        for title, aggregator, count_votes in ways:
            report(f"{title}: voting, paying the ledger, drawing noise, teaching a student")
            votes = count_votes()
            release = ask(aggregator, votes, ledger, noise)
            outcomes.append(
                Outcome(
                    title,
                    release,
                    student_accuracy(data, queries, release),
                    curve_bound(aggregator, release).epsilon(DELTA),
                    curve_dependent(aggregator, votes, release).epsilon(DELTA),
                )
            )
        return DemoResult(tuple(outcomes), ledger.spent(DELTA), BUDGET, ledger_path)
