"""What the aggregators release: right shapes, right distribution, noise from the argument and nowhere else.

Statistical tests are seeded and would fail by chance for fewer than one seed in a million.
"""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from scipy import stats

from pate.aggregators import Aggregator, Confident, ConfidentGNMax, GNMax, LNMax, NoisyHistogram
from pate.errors import ParameterError
from pate.noise import OSNoise, SimulatedNoise
from pate.release import ABSTAIN
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


def test_noise_too_wide_to_draw_is_refused_before_anything_is_paid() -> None:
    for build in (GNMax, NoisyHistogram, lambda v: LNMax(1 / v), lambda v: Confident(GNMax(1.0), 5, v)):
        with pytest.raises(ParameterError, match=r"must lie in \(0, 2\*\*30\] votes"):
            build(2.0**31)
