"""A small PATE job on scikit-learn's embedded digits, from private data to a student with an epsilon, in a few seconds.

Two ways to label the same public queries, both charged to one ledger, since they look at the same private data:
an ensemble of teachers that vote on every query, and single records that vote once each (partial votes).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pate.aggregators import Aggregator, GNMax, ask, curve_bound, curve_dependent
from pate.arrays import IntArray
from pate.execution import Executor, Serial
from pate.experiments.datasets import Split, load
from pate.ledger import Budget, Ledger
from pate.noise import Noise
from pate.privacy.curve import Epsilon
from pate.release import Release
from pate.student import Student, select_queries
from pate.student.graph.spreading_student import Spreading
from pate.teachers import Ensemble, Partition
from pate.teachers.nearest import nearest_votes
from pate.teachers.sklearn_teachers import KNNTeachers
from pate.votes import Votes

N_TEACHERS = 60
TEACHERS = KNNTeachers(n_neighbors=1)
N_QUERIES = 20
DELTA = 1e-5
BUDGET = Budget(epsilon=4.0, delta=DELTA)
ENSEMBLE = GNMax(sigma=8.0)
SINGLE_RECORDS = GNMax(sigma=6.0)


@dataclass(frozen=True)
class Outcome:
    """What one way of labelling gave: a student, how good it is, and what the labels cost."""

    title: str
    release: Release
    student: Student
    accuracy: float
    independent: Epsilon
    dependent: Epsilon


@dataclass(frozen=True)
class DemoResult:
    outcomes: tuple[Outcome, ...]
    total: Epsilon
    budget: Budget
    ledger_path: Path


def ensemble_votes(data: Split, queries: IntArray, run_dir: Path, executor: Executor) -> Votes:
    """Each teacher learns on its own part and votes on every query."""
    parts = Partition.by_hash(data.private, N_TEACHERS, salt="digits-teachers")
    teachers = Ensemble.train(parts, TEACHERS, run_dir, n_classes=data.n_classes, holdout=0.0, executor=executor, resume=True)
    return teachers.vote(data.public_x[queries], executor=executor)


def run(noise: Noise, folder: Path, report: Callable[[str], None], executor: Executor | None = None) -> DemoResult:
    """The whole job; teachers, ledger and students are kept in ``folder``. ``report`` gets a line before each step."""
    executor = executor or Serial()
    report("Loading scikit-learn's digits; splitting into private, public and test by a keyed hash")
    data = load("digits")
    n_public = len(data.public_x)
    report(f"Choosing {N_QUERIES} public images to ask about (medoids of {n_public} public images, free of privacy cost)")
    queries = select_queries(data.public_x, N_QUERIES, "medoids")
    ways: tuple[tuple[str, Aggregator, Callable[[], Votes]], ...] = (
        (
            f"{N_TEACHERS} teachers, {ENSEMBLE!r}",
            ENSEMBLE,
            lambda: ensemble_votes(data, queries, folder / "teachers", executor),
        ),
        (
            f"{len(data.private)} single records, {SINGLE_RECORDS!r}",
            SINGLE_RECORDS,
            lambda: nearest_votes(data.private, data.public_x[queries], n_classes=data.n_classes, executor=executor),
        ),
    )
    folder.mkdir(parents=True, exist_ok=True)
    ledger_path = folder / "ledger.db"
    made = []
    with Ledger.open(ledger_path, data.private.fingerprint, BUDGET) as ledger:
        for number, (title, aggregator, count_votes) in enumerate(ways, 1):
            report(f"{title}: voting, paying the ledger, drawing noise, teaching a student")
            votes = count_votes()
            release = ask(aggregator, votes, ledger, noise)
            student = Spreading(neighbours=7, alpha=0.8).fit(data.public_x, release, queries, show="none")
            student.save(folder / f"student-{number}.zip")
            epsilons = (
                curve_bound(aggregator, release).epsilon(DELTA),
                curve_dependent(aggregator, votes, release).epsilon(DELTA),
            )
            made.append((title, release, student, epsilons))
        total = ledger.spent(DELTA)
    test_x, test_y = data.test.open()
    outcomes = tuple(Outcome(title, release, each, each.score(test_x, test_y), *costs) for title, release, each, costs in made)
    return DemoResult(outcomes, total, BUDGET, ledger_path)
