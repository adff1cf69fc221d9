"""What the student believes about the noise is what the aggregators really do."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.special import ndtr

from pate import SimulatedNoise, Votes
from pate.aggregators import GNMax, LNMax, NoisyHistogram
from pate.aggregators.base import Aggregator
from pate.aggregators.confident import Confident, ConfidentGNMax
from pate.arrays import FloatArray
from pate.errors import ParameterError, StudentError
from pate.release import ABSTAIN, Electorate, Release
from pate.student.channel import Channel, Noise, plain_log_likelihood, winner_log_prob

TEACHERS = 100
COUNTS = {2: [[50, 50], [60, 40], [90, 10]], 3: [[34, 33, 33], [50, 40, 10], [0, 75, 25]], 6: [[30, 25, 20, 15, 10, 0]]}
ASKED = 20_000

MECHANISMS: list[Aggregator] = [
    GNMax(20),
    LNMax(0.05),
    ConfidentGNMax(60, 15, 20),
    Confident(LNMax(0.05), 50, 10),
    Confident(NoisyHistogram(20), 50, 10),
]


def channel_of(aggregator: Aggregator, n_classes: int) -> Channel:
    found = Channel.of(Release(np.zeros(1, dtype=np.int64), Electorate(TEACHERS, n_classes), aggregator.mechanism))
    assert found is not None
    return found


def all_probs(scores: FloatArray, noise: Noise) -> FloatArray:
    """float64[record, class]"""
    k = scores.shape[1]
    return np.exp(np.stack([winner_log_prob(scores, np.full(len(scores), j), noise)[0] for j in range(k)], axis=1))


@pytest.mark.parametrize("n_classes", COUNTS)
@pytest.mark.parametrize("aggregator", MECHANISMS, ids=lambda each: str(each.mechanism["aggregator"]))
def test_outcomes_are_as_frequent_as_the_channel_says(aggregator: Aggregator, n_classes: int) -> None:
    # 20,000 seeded answers each; a frequency is off by 5 standard errors with probability below 6e-7, and about 100 are tried.
    channel = channel_of(aggregator, n_classes)
    for row in COUNTS[n_classes]:
        votes = Votes(np.tile(row, (ASKED, 1)), TEACHERS)
        labels = aggregator.release(votes, SimulatedNoise(7)).labels
        expected = np.exp(channel.log_probs(np.array([row]) / TEACHERS)[0])
        outcomes = [*range(n_classes), ABSTAIN][: len(expected)]
        found = np.array([(labels == outcome).mean() for outcome in outcomes])
        assert np.all(np.abs(found - expected) <= 5 * np.sqrt(expected * (1 - expected) / ASKED) + 1e-9)


@pytest.mark.parametrize("aggregator", [*MECHANISMS[:2], Confident(GNMax(4), 60, 6)], ids=str)
@pytest.mark.parametrize("n_classes", COUNTS)
def test_it_agrees_with_the_accountant_s_own_integrals(aggregator: Aggregator, n_classes: int) -> None:
    counts = np.array(COUNTS[n_classes])
    exact = aggregator.outcome_log_probs(counts)
    assert exact is not None
    # Logarithms, so unlikely outcomes are compared too.
    np.testing.assert_allclose(channel_of(aggregator, n_classes).log_probs(counts / TEACHERS), exact, rtol=1e-9, atol=1e-9)


def test_two_classes_have_the_closed_form_of_gaussian_noise() -> None:
    share = np.linspace(0, 1, 21)
    found = channel_of(GNMax(40), 2).log_probs(np.stack([1 - share, share], axis=1))[:, 1]
    np.testing.assert_allclose(np.exp(found), ndtr(TEACHERS * (2 * share - 1) / (np.sqrt(2) * 40)), rtol=1e-12)


@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
def test_the_integral_agrees_with_the_closed_form_where_a_third_class_has_no_chance(noise: Noise) -> None:
    lead = np.linspace(-6, 6, 13)
    two = np.stack([lead, np.zeros_like(lead)], axis=1)
    three = np.concatenate([two, np.full((len(lead), 1), -60.0)], axis=1)
    labels = np.zeros(len(lead), dtype=np.int64)
    np.testing.assert_allclose(winner_log_prob(three, labels, noise)[0], winner_log_prob(two, labels, noise)[0], rtol=1e-8)


scores_of = st.integers(2, 6).flatmap(
    lambda k: arrays(np.float64, (1, k), elements=st.floats(0, 12, allow_subnormal=False, width=32))
)


@settings(max_examples=40, deadline=None)
@given(scores=scores_of, noise=st.sampled_from(["gaussian", "laplace"]), data=st.data())
def test_probabilities_sum_to_one_rise_with_the_share_and_follow_a_renaming(
    scores: FloatArray, noise: Noise, data: st.DataObject
) -> None:
    k = scores.shape[1]
    probs = all_probs(scores, noise)
    assert probs.sum() == pytest.approx(1, abs=1e-9)
    order = np.array(data.draw(st.permutations(range(k))))
    np.testing.assert_allclose(all_probs(scores[:, order], noise), probs[:, order], rtol=1e-8)
    grown = scores.copy()
    grown[0, 0] += 0.5
    more = all_probs(grown, noise)
    assert more[0, 0] > probs[0, 0] - 1e-12
    assert np.all(more[0, 1:] < probs[0, 1:] + 1e-12)


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize(
    "aggregator", [*MECHANISMS[:4], NoisyHistogram(20)], ids=lambda each: str(each.mechanism["aggregator"])
)
def test_the_derivative_is_the_slope(aggregator: Aggregator, n_classes: int) -> None:
    random = np.random.default_rng(0)
    channel = channel_of(aggregator, n_classes)
    shares = random.dirichlet(np.ones(n_classes), size=6)
    labels = random.integers(-1 if channel.test else 0, n_classes, size=6)
    noisy = TEACHERS * shares + random.normal(0, 20, shares.shape) if isinstance(aggregator, NoisyHistogram) else None
    slope = channel.log_likelihood(shares, labels, noisy)[1]
    for j in range(n_classes):
        step = 1e-6 * np.eye(n_classes)[j]
        up, down = (channel.log_likelihood(shares + sign * step, labels, noisy)[0] for sign in (1, -1))
        np.testing.assert_allclose(slope[:, j], (up - down) / 2e-6, rtol=1e-5, atol=1e-4)


def test_plain_labels_are_draws_from_the_shares() -> None:
    shares = np.array([[0.25, 0.75], [0.5, 0.5]])
    value, slope = plain_log_likelihood(shares, np.array([1, ABSTAIN]))
    np.testing.assert_allclose(value, np.array([np.log(0.75), 0.0]))
    np.testing.assert_allclose(slope, np.array([[0, 1 / 0.75], [0, 0]]))


def test_what_the_mechanism_does_not_say_is_not_guessed() -> None:
    def of(mechanism: dict[str, object], participation: int | None = None) -> Channel | None:
        return Channel.of(Release(np.zeros(3, dtype=np.int64), Electorate(10, 2, participation), mechanism))

    assert of({}) is None
    assert of({"aggregator": "my-own", "sigma": 3.0}) is None
    assert of({"aggregator": "confident", "threshold": 5, "sigma": 3.0, "inner_aggregator": "my-own"}) is None
    assert of({"aggregator": "gnmax", "sigma": 3.0}, participation=1) is None
    with pytest.raises(StudentError, match="must state 'sigma'"):
        of({"aggregator": "gnmax"})
    with pytest.raises(ParameterError, match="greater than 0, got -1"):
        of({"aggregator": "gnmax", "sigma": -1.0})


def test_an_abstention_from_a_mechanism_that_always_answers_is_refused() -> None:
    with pytest.raises(StudentError, match="answers every query"):
        channel_of(GNMax(5), 2).log_likelihood(np.full((1, 2), 0.5), np.array([ABSTAIN]))
