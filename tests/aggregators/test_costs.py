"""What the aggregators say they cost: order of the three costs, partial votes, custom aggregators."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pate.aggregators import (
    Aggregator,
    Confident,
    ConfidentGNMax,
    GNMax,
    LNMax,
    NoisyHistogram,
    curve_ahead,
    curve_bound,
    curve_dependent,
)
from pate.arrays import FloatArray, IntArray
from pate.errors import ParameterError
from pate.noise import Noise, SimulatedNoise
from pate.privacy.curve import DEFAULT_ORDERS, RdpCurve
from pate.privacy.independent import noisy_max_bound, one_count_bound
from pate.release import Electorate, Release
from pate.votes import Votes

ORDERS = np.array([1.5, 2.0, 8.0, 32.0, 128.0])
KINDS: tuple[Aggregator, ...] = (
    LNMax(0.05),
    GNMax(5.0),
    GNMax(40.0),
    Confident(LNMax(0.1), 30, 8.0),
    ConfidentGNMax(30, 10.0, 5.0),
    ConfidentGNMax(30, 10.0, 5.0, charging="realised"),
    NoisyHistogram(5.0),
)


class CoinOrTop(Aggregator):
    """With probability 1/2 the top class (first of equals), else a class at random: exact cost from its probabilities."""

    name = "coin-or-top"

    def release(self, votes: Votes, noise: Noise) -> Release:
        words = noise.words(2 * len(votes)).reshape(2, -1)
        random = (words[0] % np.uint64(votes.n_classes)).astype(np.int64)
        labels = np.where(words[1] & np.uint64(1), votes.counts.argmax(axis=1), random)
        return Release(labels, votes.electorate, self.mechanism, noise.mode)

    def rdp_ahead(self, electorate: Electorate, orders: FloatArray) -> FloatArray:
        return np.full(orders.size, np.log(electorate.n_classes + 1))

    def outcome_log_probs(self, counts: IntArray) -> FloatArray:
        k = counts.shape[1]
        probs = np.full(counts.shape, 0.5 / k)
        probs[np.arange(len(counts)), counts.argmax(axis=1)] += 0.5
        return np.log(probs)


def _histograms(n_teachers: int, n_classes: int) -> st.SearchStrategy[list[int]]:
    cuts = st.lists(st.integers(0, n_teachers), min_size=n_classes - 1, max_size=n_classes - 1)
    return cuts.map(lambda c: np.diff([0, *sorted(c), n_teachers]).tolist())


@given(st.lists(_histograms(50, 4), min_size=1, max_size=4), st.sampled_from(KINDS))
@settings(max_examples=100, deadline=None)
def test_the_three_costs_are_in_order(rows: list[list[int]], aggregator: Aggregator) -> None:
    votes = Votes(rows, n_teachers=50)
    release = aggregator.release(votes, SimulatedNoise(1))
    ahead = aggregator.rdp_ahead(votes.electorate, ORDERS)
    bound = aggregator.rdp_bound(release, ORDERS)
    dependent = aggregator.rdp(votes, release, ORDERS)
    assert dependent.shape == bound.shape == (len(rows), ORDERS.size)
    assert (dependent <= bound).all()
    assert (bound <= ahead * (1 + 1e-12)).all()
    assert (np.diff(ahead) >= 0).all()
    assert (dependent > 0).all()


def test_a_custom_aggregator_gets_its_exact_cost_from_its_probabilities() -> None:
    votes = Votes([[6, 4], [10, 0]], n_teachers=10)
    aggregator = CoinOrTop()
    release = aggregator.release(votes, SimulatedNoise(1))
    cost = aggregator.rdp(votes, release, ORDERS)
    # 6:4 may become 5:5, where the first still wins; and no neighbour of 10:0 changes the winner: both cost nothing.
    assert (cost < 1e-10).all()
    # 5:5 may become 4:6: the winner's probability falls from 3/4 to 1/4.
    tie = aggregator.rdp(Votes([[5, 5]], n_teachers=10), aggregator.release(Votes([[5, 5]], 10), SimulatedNoise(1)), ORDERS)[0]
    exact = np.log(0.75**ORDERS * 0.25 ** (1 - ORDERS) + 0.25**ORDERS * 0.75 ** (1 - ORDERS)) / (ORDERS - 1)
    assert tie == pytest.approx(exact, rel=1e-9)


def test_a_custom_aggregator_behind_a_test_is_accounted_jointly() -> None:
    votes = Votes([[25, 25]], n_teachers=50)
    plain, guarded = CoinOrTop(), Confident(CoinOrTop(), 30, 10.0)
    release = guarded.release(votes, SimulatedNoise(1))
    cost = guarded.rdp(votes, release, ORDERS)
    # It answers rarely here, so the answer's cost hardly counts; at high orders the test's own cost comes on top.
    alone = plain.rdp(votes, release, ORDERS)
    assert (cost[:, :2] < alone[:, :2] / 2).all()
    assert (cost <= alone + one_count_bound(10.0, ORDERS)).all()


def test_realised_charging_pays_for_the_test_always_and_for_the_answer_when_there_is_one() -> None:
    aggregator = ConfidentGNMax(30, 10.0, 5.0, charging="realised")
    votes = Votes([[50, 0], [25, 25]] * 50, n_teachers=50)
    release = aggregator.release(votes, SimulatedNoise(3))
    assert 0 < release.answered.sum() < len(release)
    bound = aggregator.rdp_bound(release, ORDERS)
    test, answer = one_count_bound(10.0, ORDERS), noisy_max_bound(5.0, ORDERS)
    assert bound[release.answered] == pytest.approx(np.tile(test + answer, (int(release.answered.sum()), 1)))
    assert bound[~release.answered] == pytest.approx(np.tile(test, (int((~release.answered).sum()), 1)))


def test_a_realised_sequence_by_hand() -> None:
    """640 asked, 286 answered, T=200, sigma1=150, sigma2=40: 3.18 with the published step costs, classic conversion."""
    a = DEFAULT_ORDERS
    published = RdpCurve(a, 640 * a / (2 * 150**2) + 286 * a / 40**2)
    assert published.epsilon(1e-5, "classic").epsilon == pytest.approx(3.18, abs=0.01)
    aggregator = ConfidentGNMax(200, 150.0, 40.0, charging="realised")
    labels = np.repeat([0, -1], [286, 640 - 286])
    realised = curve_bound(aggregator, Release(labels, Electorate(250, 10), aggregator.mechanism))
    assert (realised.values <= published.values).all()
    # Most were declined here, so this is less than the joint charge; but then the claim is the budget of a filter.
    joint = curve_ahead(ConfidentGNMax(200, 150.0, 40.0), Electorate(250, 10), 640)
    assert realised.epsilon(1e-5).epsilon < joint.epsilon(1e-5).epsilon


def test_full_votes_add_up_over_queries() -> None:
    electorate = Electorate(250, 10)
    one = curve_ahead(GNMax(40.0), electorate, 1)
    many = curve_ahead(GNMax(40.0), electorate, 640)
    assert many.values == pytest.approx(640 * one.values)
    assert curve_ahead(GNMax(40.0), electorate, 0).epsilon(1e-5).epsilon == 0


def test_partial_votes_cost_the_participation_not_the_queries() -> None:
    electorate = Electorate(50_000, 10, participation=3)
    expected = 3 * np.maximum(noisy_max_bound(91.0, DEFAULT_ORDERS), 2 * one_count_bound(91.0, DEFAULT_ORDERS))
    for n_queries in (3, 50, 5000):
        assert curve_ahead(GNMax(91.0), electorate, n_queries).values == pytest.approx(expected)
    # Fewer queries than votes: nobody can vote on more queries than there are.
    assert curve_ahead(GNMax(91.0), electorate, 2).values == pytest.approx(expected * 2 / 3)


def test_partial_votes_of_accounting_section_8() -> None:
    """50 queries, one vote per record, sigma 91: epsilon 0.05 by the Gaussian mechanism, less for winners only."""
    electorate = Electorate(50_000, 10, participation=1)
    histogram = curve_ahead(NoisyHistogram(91.0), electorate, 50).epsilon(1e-5).epsilon
    winners = curve_ahead(GNMax(91.0), electorate, 50).epsilon(1e-5).epsilon
    assert histogram == pytest.approx(0.05, rel=0.05)
    assert winners < 0.9 * histogram


def test_release_of_partial_votes_is_charged_as_a_batch() -> None:
    votes = Votes.from_ballots([0, 1, 2], [0, 0, 1], [1, 1, 0], n_teachers=3, n_queries=2, n_classes=2, participation=1)
    aggregator = GNMax(2.0)
    release = aggregator.release(votes, SimulatedNoise(1))
    ahead = curve_ahead(aggregator, votes.electorate, 2).values.tolist()
    assert curve_bound(aggregator, release).values.tolist() == ahead
    assert curve_dependent(aggregator, votes, release).values.tolist() == ahead


def test_partial_votes_need_a_cost_for_one_count() -> None:
    with pytest.raises(ParameterError, match="rdp_ahead_one_count"):
        curve_ahead(CoinOrTop(), Electorate(10, 2, participation=1), 5)


@given(st.data())
@settings(max_examples=40, deadline=None)
def test_partial_votes_bound_holds_against_brute_force(data: st.DataObject) -> None:
    """Two batches that differ in one voter: the exact divergence of all winners together is within the batch's cost."""
    n_queries, n_classes, m = 3, 3, data.draw(st.integers(1, 2))
    sigma = data.draw(st.sampled_from([0.7, 2.0, 10.0]))
    others = np.array(data.draw(st.lists(st.lists(st.integers(0, 5), min_size=3, max_size=3), min_size=3, max_size=3)))

    def with_voter() -> IntArray:
        table = others.copy()
        for query in data.draw(st.lists(st.integers(0, n_queries - 1), max_size=m, unique=True)):
            table[query, data.draw(st.integers(0, n_classes - 1))] += 1
        return table

    aggregator = GNMax(sigma)
    log_p, log_q = (aggregator.outcome_log_probs(with_voter()) for _ in range(2))
    a = ORDERS[:, None, None]
    # Queries are answered independently, so their divergences add up.
    divergence = (np.logaddexp.reduce(a * log_p - (a - 1) * log_q, axis=-1) / (a[..., 0] - 1)).sum(axis=1)
    claimed = curve_ahead(aggregator, Electorate(50, n_classes, participation=m), n_queries, ORDERS).values
    assert (divergence <= claimed + 1e-9).all()
