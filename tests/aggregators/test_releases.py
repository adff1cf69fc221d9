"""What the aggregators release: right shapes, right distribution, noise from the argument and nowhere else.

Statistical tests are seeded and would fail by chance for fewer than one seed in a million.
"""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from pate.aggregators import (
    Aggregator,
    Confident,
    ConfidentGNMax,
    GNMax,
    InteractiveGNMax,
    LNMax,
    NoisyHistogram,
    SparseVector,
    StableMax,
    ask,
)
from pate.arrays import IntArray
from pate.errors import ParameterError
from pate.ledger import Budget, Ledger
from pate.noise import Noise, OSNoise, SimulatedNoise
from pate.release import ABSTAIN, Electorate, Release
from pate.votes import Votes

FALSE_ALARM = 1e-6
ALL: tuple[Aggregator, ...] = (
    LNMax(0.1),
    GNMax(10.0),
    Confident(LNMax(0.1), 20, 5.0),
    ConfidentGNMax(20, 8.0, 10.0),
    ConfidentGNMax(20, 8.0, 10.0, charging="realised"),
    NoisyHistogram(10.0),
)
NAMES = [repr(each) for each in ALL]


@pytest.mark.parametrize("aggregator", ALL, ids=NAMES)
def test_release_carries_public_facts_and_no_votes(aggregator: Aggregator) -> None:
    votes = Votes([[13, 17, 7], [37, 0, 0]], n_teachers=37)
    release = aggregator.release(votes, OSNoise())
    assert len(release) == 2
    assert release.mode == "release"
    assert release.electorate == votes.electorate
    assert release.mechanism["aggregator"] == aggregator.name
    assert "13" not in repr(release)
    assert aggregator.release(votes, SimulatedNoise(1)).stamp == "simulation, not private"


@pytest.mark.parametrize("aggregator", ALL, ids=NAMES)
def test_an_empty_batch_is_answered_with_nothing(aggregator: Aggregator) -> None:
    assert len(aggregator.release(Votes(np.zeros((0, 3), dtype=np.int64), n_teachers=5), OSNoise())) == 0


@pytest.mark.parametrize("aggregator", ALL, ids=NAMES)
def test_aggregators_are_values(aggregator: Aggregator) -> None:
    copy = pickle.loads(pickle.dumps(aggregator))
    assert copy == aggregator
    assert repr(copy) == repr(aggregator)
    assert copy.mechanism == aggregator.mechanism


@pytest.mark.parametrize("aggregator", ALL[:-1], ids=NAMES[:-1])
def test_frequencies_match_the_stated_probabilities(aggregator: Aggregator) -> None:
    row = np.array([[20, 15, 5]])
    n = 60_000
    labels = aggregator.release(Votes(np.repeat(row, n, axis=0), n_teachers=40), SimulatedNoise(11)).labels
    log_probs = aggregator.outcome_log_probs(row)
    assert log_probs is not None
    outcomes = [0, 1, 2] + ([ABSTAIN] if log_probs.shape[1] == 4 else [])
    seen = [int((labels == outcome).sum()) for outcome in outcomes]
    assert np.exp(log_probs).sum() == pytest.approx(1, abs=1e-12)
    assert stats.chisquare(seen, np.exp(log_probs[0]) * n).pvalue > FALSE_ALARM


def test_noisy_histogram_has_the_stated_noise() -> None:
    counts = np.tile([[30, 10]], (20_000, 1))
    release = NoisyHistogram(5.0).release(Votes(counts, n_teachers=40), SimulatedNoise(12))
    assert release.histogram is not None
    noise = (release.histogram - counts).ravel()
    assert stats.kstest(noise / 5.0, "norm").pvalue > FALSE_ALARM
    assert (release.labels == release.histogram.argmax(axis=1)).all()


def test_confident_gnmax_is_confident_around_gnmax() -> None:
    paper, wrapped = ConfidentGNMax(threshold=20, sigma1=8.0, sigma2=10.0), Confident(GNMax(10.0), 20, 8.0)
    votes = Votes([[20, 15, 5]] * 500, n_teachers=40)
    assert paper.release(votes, SimulatedNoise(1)).labels.tolist() == wrapped.release(votes, SimulatedNoise(1)).labels.tolist()
    orders = np.array([2.0, 8.0])
    assert paper.rdp_ahead(votes.electorate, orders).tolist() == wrapped.rdp_ahead(votes.electorate, orders).tolist()
    assert (paper.sigma1, paper.sigma2) == (8.0, 10.0)
    assert repr(paper) == "ConfidentGNMax(threshold=20, sigma1=8.0, sigma2=10.0, charging='joint')"


@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf"), "40", True, None])
def test_bad_noise_parameters_are_refused(value: object) -> None:
    for build in (GNMax, LNMax, NoisyHistogram, lambda v: Confident(GNMax(1.0), 5, v), lambda v: ConfidentGNMax(5, 1.0, v)):
        with pytest.raises(ParameterError, match="must be a finite number greater than 0"):
            build(value)  # type: ignore[operator]


def test_confident_refuses_what_it_cannot_be_charged_for() -> None:
    with pytest.raises(ParameterError, match="whole number of votes"):
        Confident(GNMax(1.0), 2.5, 1.0)
    with pytest.raises(ParameterError, match="always answers"):
        Confident(ConfidentGNMax(5, 1.0, 1.0), 5, 1.0)
    with pytest.raises(ParameterError, match="'joint' or 'realised'"):
        ConfidentGNMax(5, 1.0, 1.0, charging="expected")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("inner", "why"),
    [
        (InteractiveGNMax(60, 5.0, 5.0, 0.8), "a threshold of its own"),
        (InteractiveGNMax(60, 5.0, 5.0, 0.8, [0.5, 0.5]), "what a student predicts"),
        (StableMax(4.0, 1e-8), "always answers"),
        (SparseVector(4.0, 4.0, 1e-8), "each query by itself"),
    ],
    ids=lambda each: getattr(each, "name", ""),
)
@pytest.mark.parametrize("charging", ["joint", "realised"])
def test_confident_refuses_mechanisms_that_cannot_stand_behind_its_test(inner: Aggregator, why: str, charging: Any) -> None:
    with pytest.raises(ParameterError, match=why):
        Confident(inner, 60, 5.0, charging)


class Shy(GNMax):
    """One's own: declines a close race, takes three classes of unlike weight, and at least 30 teachers."""

    def __init__(self, heavy: int = 0) -> None:
        super().__init__(5.0)
        object.__setattr__(self, "heavy", heavy)

    n_classes = 3

    def check_ready(self, electorate: Electorate, n_queries: int) -> None:
        if electorate.n_teachers < 30:
            raise ParameterError("Shy needs 30 teachers.")

    def relabelled(self, order: IntArray) -> Shy:
        return Shy(list(order).index(self.heavy))  # type: ignore[attr-defined]

    def release(self, votes: Votes, noise: Noise) -> Release:
        told = super().release(votes, noise)
        close = np.sort(votes.counts, axis=1)[:, -2:] @ [-1, 1] < 5
        return Release(np.where(close, ABSTAIN, told.labels), votes.electorate, self.mechanism, noise.mode)


def test_an_abstention_of_ones_own_behind_the_test_is_not_charged_as_one_of_the_test() -> None:
    close = Votes([[19, 18, 3]], n_teachers=40)
    with pytest.raises(ParameterError, match=r"always answers, and .* abstained"):
        Confident(Shy(), 5, 1.0, "realised").release(close, SimulatedNoise(1))
    clear = Votes([[38, 1, 1]], n_teachers=40)
    assert Confident(Shy(), 5, 1.0, "realised").release(clear, SimulatedNoise(1)).labels.tolist() == [0]
    # Jointly every outcome costs the same.
    assert Confident(Shy(), 5, 1.0).release(close, SimulatedNoise(1)).labels.tolist() == [ABSTAIN]


def test_what_the_inner_aggregator_needs_is_asked_before_anything_is_charged(tmp_path: Path) -> None:
    mechanism = Confident(Shy(), 5, 1.0)
    assert mechanism.n_classes == 3
    assert mechanism.relabelled(np.array([2, 0, 1])).inner.heavy == 1  # type: ignore[attr-defined]
    plain = Confident(GNMax(5.0), 5, 1.0)
    assert plain.relabelled(np.array([2, 0, 1])) is plain
    with Ledger.open(tmp_path / "ledger.db", "ward", Budget(5.0, 1e-5)) as ledger:
        with pytest.raises(ParameterError, match="30 teachers"):
            ask(mechanism, Votes([[9, 1, 0]], n_teachers=10), ledger)
        assert [entry.kind for entry in ledger.entries()] == ["open"]


def test_noise_too_wide_to_draw_is_refused_before_anything_is_paid() -> None:
    for build in (GNMax, NoisyHistogram, lambda v: LNMax(1 / v), lambda v: Confident(GNMax(1.0), 5, v)):
        with pytest.raises(ParameterError, match=r"must lie in \(0, 2\*\*30\] votes"):
            build(2.0**31)
