"""A vote-share student learns more from noisy answers than one that takes them at their word."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.special import softmax

from pate import SimulatedNoise, Votes
from pate.aggregators import GNMax, NoisyHistogram
from pate.aggregators.base import Aggregator
from pate.aggregators.confident import ConfidentGNMax
from pate.arrays import FloatArray, IntArray
from pate.errors import ParameterError, StudentError
from pate.release import ABSTAIN, Electorate, Release
from pate.student.base import Student
from pate.student.registry import student
from pate.student.tabular.vote_share import VoteShare

TEACHERS = 100
SEEDS = range(4)


def electorate_of(n_classes: int, seed: int, n: int = 1000) -> tuple[FloatArray, IntArray]:
    """Public records [n, 8] and the votes of teachers who agree more the farther a record lies from the border."""
    random = np.random.default_rng(seed)
    x = random.normal(size=(n, 8))
    shares = softmax(x @ random.normal(0, 1.2, size=(8, n_classes)), axis=1)
    counts = np.floor(TEACHERS * shares).astype(np.int64)
    counts[np.arange(n), shares.argmax(axis=1)] += TEACHERS - counts.sum(axis=1)
    return x, counts


def accuracy(made: Student, aggregator: Aggregator, n_classes: int, asked: int, seed: int) -> float:
    """How often the student says what most teachers say, on public records that were not asked."""
    x, counts = electorate_of(n_classes, seed)
    release = aggregator.release(Votes(counts[:asked], TEACHERS), SimulatedNoise(seed))
    made.fit(x, release, np.arange(asked), show="none")
    return made.score(x[asked:], counts[asked:].argmax(axis=1))


@pytest.mark.parametrize(
    ("aggregator", "n_classes", "asked", "margin"),
    [
        # Two classes and labels alone are left out: a border between two is where the labels turn, known noise or not.
        (GNMax(20), 5, 200, 0.005),
        (ConfidentGNMax(80, 10, 10), 2, 150, 0.004),  # half are abstentions: they say where the border is
        (ConfidentGNMax(60, 10, 10), 3, 150, 0.01),
        (NoisyHistogram(60), 2, 100, 0.01),
    ],
    ids=str,
)
def test_knowing_the_noise_helps(aggregator: Aggregator, n_classes: int, asked: int, margin: float) -> None:
    aware, plain = (
        np.mean([accuracy(VoteShare(noise_aware=known), aggregator, n_classes, asked, seed) for seed in SEEDS])
        for known in (True, False)
    )
    assert aware > plain + margin


def test_abstentions_are_used() -> None:
    # All answers lie on the positive side of 2 and the negative side of -1; the divided teachers in between set the border.
    x = np.linspace(-1, 3, 41)[:, None]
    labels = np.where(x[:, 0] > 1.95, 1, np.where(x[:, 0] < -0.45, 0, ABSTAIN))
    mechanism = {"aggregator": "confident-gnmax", "threshold": 80, "sigma1": 3.0, "sigma2": 3.0}
    release = Release(labels, Electorate(TEACHERS, 2), mechanism, "simulation")
    aware = VoteShare(ridge=0.01).fit(x, release, show="none")
    unsure = aware.predict_proba(x)[labels == ABSTAIN].max(axis=1)
    assert np.median(unsure) < 0.8  # below the threshold, as it was said
    plain = VoteShare(ridge=0.01, noise_aware=False).fit(x, release, show="none")
    assert np.median(plain.predict_proba(x)[labels == ABSTAIN].max(axis=1)) > np.median(unsure) + 0.1


def test_shares_are_found_back() -> None:
    x, counts = electorate_of(3, seed=1, n=3000)
    release = NoisyHistogram(5).release(Votes(counts, TEACHERS), SimulatedNoise(1))
    found = VoteShare(ridge=0.1).fit(x, release, show="none").predict_proba(x)
    assert np.abs(found - counts / TEACHERS).mean() < 0.02


def test_an_unknown_mechanism_means_plain_logistic_regression_and_the_record_says_so() -> None:
    x, counts = electorate_of(2, seed=0)
    labels = counts.argmax(axis=1)
    unknown = Release(labels, Electorate(TEACHERS, 2), {"aggregator": "my-own"}, "simulation")
    known = GNMax(5).release(Votes(counts, TEACHERS), SimulatedNoise(0))
    fallback = VoteShare().fit(x, unknown, show="none")
    assert fallback.record["history"][0]["stage"] == "labels as they are"
    assert VoteShare().fit(x, known, show="none").record["history"][0]["stage"] == "labels under their noise"
    both = VoteShare().fit(x, [unknown, known], [np.arange(1000), np.arange(1000)], show="none")
    assert both.record["history"][0]["stage"] == "labels as they are and labels under their noise"
    from sklearn.linear_model import LogisticRegression

    # A softmax over two classes splits the weight between them, which halves the ridge.
    standard = (x - x.mean(axis=0)) / x.std(axis=0)
    same = LogisticRegression(C=2.0, tol=1e-8, max_iter=1000).fit(standard, labels).predict_proba(standard)
    np.testing.assert_allclose(fallback.predict_proba(x), same, atol=2e-3)


def test_fewer_components_help_where_the_rest_is_noise() -> None:
    random = np.random.default_rng(0)
    x = np.concatenate([random.normal(size=(1000, 1)) + 0.3 * random.normal(size=(1000, 5)), random.normal(size=(1000, 40))], 1)
    y = (x[:, :5].sum(axis=1) > 0).astype(np.int64)
    release = Release(y[:40], Electorate(TEACHERS, 2), {"aggregator": "gnmax", "sigma": 20.0}, "simulation")
    scores = [VoteShare(components=c).fit(x, release, np.arange(40), show="none").score(x[40:], y[40:]) for c in (None, 1)]
    assert scores[1] > scores[0] + 0.1
    with pytest.raises(StudentError, match="at most the 45 columns of the records, got 46"):
        VoteShare(components=46).fit(x, release, np.arange(40), show="none")


def test_it_is_the_same_again_and_from_a_file(tmp_path: Path) -> None:
    x, counts = electorate_of(3, seed=0)
    x[:, 3] = 0.1  # a column that says nothing
    release = GNMax(20).release(Votes(counts[:100], TEACHERS), SimulatedNoise(0))
    first, second = (VoteShare(components=4).fit(x, release, np.arange(100), show="none") for _ in range(2))
    first.save(tmp_path / "student")
    loaded = Student.load(tmp_path / "student")
    expected = first.predict_proba(x)
    assert np.array_equal(second.predict_proba(x), expected)
    assert np.array_equal(loaded.predict_proba(x), expected)
    assert loaded.settings() == first.settings()


def test_bad_settings_are_refused() -> None:
    with pytest.raises(ParameterError, match="ridge must be a finite number greater than 0, got 0"):
        student("vote-share", ridge=0)
    with pytest.raises(ParameterError, match="components must be a whole number of at least 1, got 0"):
        student("vote-share", components=0)
