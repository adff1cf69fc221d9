"""A small PATE job on scikit-learn's embedded digits, from private data to a published epsilon, in a few seconds.

Two ways to label the same public queries, both charged to one ledger, since they look at the same private data:
an ensemble of teachers that vote on every query, and single records that vote once each (partial votes).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pate.aggregators import Aggregator, GNMax, ask, curve_bound, curve_dependent
from pate.arrays import FloatArray, IntArray
from pate.extras import require
from pate.ledger import Budget, Ledger
from pate.noise import Noise
from pate.privacy.curve import Epsilon
from pate.release import ABSTAIN, Release
from pate.votes import Votes

N_CLASSES = 10
N_TEACHERS = 60
N_QUERIES = 20
DELTA = 1e-5
BUDGET = Budget(epsilon=4.0, delta=DELTA)
ENSEMBLE = GNMax(sigma=8.0)
SINGLE_RECORDS = GNMax(sigma=6.0)


@dataclass(frozen=True)
class Digits:
    """Private records with labels, public ones without, and a test set that is looked at once."""

    private_x: FloatArray
    private_y: IntArray
    private_ids: IntArray
    public_x: FloatArray
    test_x: FloatArray
    test_y: IntArray

    @property
    def fingerprint(self) -> str:
        """What keys the ledger: every run on the same private data adds up in it."""
        digest = hashlib.sha256()
        for array in (self.private_ids, self.private_x, self.private_y):
            digest.update(np.ascontiguousarray(array).tobytes())
        return f"digits-{digest.hexdigest()[:16]}"


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


def _keyed_hash(identity: int, salt: str, buckets: int) -> int:
    """The bucket of a record: it depends on the record's own id and a public salt, on no other record."""
    digest = hashlib.blake2b(str(identity).encode(), key=salt.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") % buckets


def load() -> Digits:
    """1,797 images of 8x8: about 1,000 private, 400 public, 400 for the test, by a hash of the row number."""
    images, labels = require("sklearn.datasets", "train").load_digits(return_X_y=True)
    # Pixels are 0..16 by the definition of the data set: a declared range, not one learned from private data.
    x, y = images / 16.0, labels.astype(np.int64)
    place = np.array([_keyed_hash(i, "digits-split", 18) for i in range(len(y))])
    private, public, test = place < 10, (place >= 10) & (place < 14), place >= 14
    return Digits(x[private], y[private], np.flatnonzero(private), x[public], x[test], y[test])


def choose_queries(public_x: FloatArray) -> IntArray:
    """The public images nearest to the centres of k-means on public images. Costs no privacy."""
    cluster = require("sklearn.cluster", "train")
    centres = cluster.KMeans(N_QUERIES, n_init=4, random_state=0).fit(public_x).cluster_centers_
    return np.unique(_nearest(centres, public_x))


def _nearest(points: FloatArray, among: FloatArray) -> IntArray:
    distances = ((points[:, None, :] - among[None, :, :]) ** 2).sum(axis=-1)
    nearest: IntArray = distances.argmin(axis=1)
    return nearest


def ensemble_votes(data: Digits, queries: FloatArray) -> Votes:
    """Each teacher learns on its own partition and votes on every query."""
    neighbours = require("sklearn.neighbors", "train")
    teacher_of = np.array([_keyed_hash(int(i), "digits-teachers", N_TEACHERS) for i in data.private_ids])
    # A teacher without data votes class 0: a fixed public default, so the ensemble never shrinks.
    predictions = np.zeros((N_TEACHERS, len(queries)), dtype=np.int64)
    for teacher in range(N_TEACHERS):
        mine = teacher_of == teacher
        if mine.any():
            predictions[teacher] = (
                neighbours.KNeighborsClassifier(1).fit(data.private_x[mine], data.private_y[mine]).predict(queries)
            )
    return Votes.from_predictions(predictions, N_CLASSES)


def single_record_votes(data: Digits, queries: FloatArray) -> Votes:
    """Each record votes its own label, once, on the query nearest to it. Nothing is trained."""
    n_records = len(data.private_y)
    return Votes.from_ballots(
        np.arange(n_records),
        _nearest(data.private_x, queries),
        data.private_y,
        n_teachers=n_records,
        n_queries=len(queries),
        n_classes=N_CLASSES,
        participation=1,
    )


def student_accuracy(data: Digits, queries: IntArray, release: Release) -> float:
    """A student that spreads the noisy labels over all public images and is then tested once."""
    semi_supervised: Any = require("sklearn.semi_supervised", "train")
    known = np.full(len(data.public_x), ABSTAIN)
    known[queries] = release.labels
    student = semi_supervised.LabelSpreading(kernel="knn", n_neighbors=7, alpha=0.8, max_iter=100)
    return float(student.fit(data.public_x, known).score(data.test_x, data.test_y))


def run(noise: Noise, ledger_path: Path, report: Callable[[str], None]) -> DemoResult:
    """The whole job. ``report`` is called with a line before each step."""
    report("Loading scikit-learn's digits; splitting into private, public and test by a keyed hash")
    data = load()
    report(
        f"Choosing {N_QUERIES} public images to ask about (k-means on {len(data.public_x)} public images, free of privacy cost)"
    )
    queries = choose_queries(data.public_x)
    asked = data.public_x[queries]
    ways: tuple[tuple[str, Aggregator, Callable[[Digits, FloatArray], Votes]], ...] = (
        (f"{N_TEACHERS} teachers, {ENSEMBLE!r}", ENSEMBLE, ensemble_votes),
        (f"{len(data.private_y)} single records, {SINGLE_RECORDS!r}", SINGLE_RECORDS, single_record_votes),
    )
    outcomes = []
    with Ledger.open(ledger_path, data.fingerprint, BUDGET) as ledger:
        for title, aggregator, count_votes in ways:
            report(f"{title}: voting, paying the ledger, drawing noise, teaching a student")
            votes = count_votes(data, asked)
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
