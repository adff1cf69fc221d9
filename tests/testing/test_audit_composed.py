"""Composed exact lower bounds, against plain enumeration; and what exact audits say of honest and broken aggregators."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from broken import HalfTheNoise, HalfTheNoiseUnknown, SeededNoise
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from pate.aggregators import Aggregator, ConfidentGNMax, GNMax, LNMax
from pate.arrays import FloatArray, IntArray
from pate.errors import ParameterError
from pate.testing import audit_aggregator
from pate.testing.composed import Atoms, all_of
from pate.votes import Votes


def pair(seed: int, outcomes: int) -> tuple[FloatArray, FloatArray]:
    generator = np.random.default_rng(seed)
    one, two = generator.dirichlet(np.full(outcomes, 2.0), 2)
    return np.log(one), np.log(two)


@pytest.mark.parametrize("epsilon", [0.0, 0.4, 1.5])
def test_a_product_is_every_sequence_of_outcomes(epsilon: float) -> None:
    pairs = [pair(seed, 3) for seed in range(4)]
    expected = 0.0
    for outcomes in product(range(3), repeat=4):
        p, q = (math.prod(math.exp(logs[side][o]) for logs, o in zip(pairs, outcomes, strict=True)) for side in (0, 1))
        expected += max(0.0, p - math.exp(epsilon) * q)
    assert all_of(Atoms.of(*logs) for logs in pairs).delta(epsilon) == pytest.approx(expected, abs=1e-8)


@pytest.mark.parametrize("times", [1, 7, 300])
def test_many_equal_queries_are_a_binomial(times: int) -> None:
    """And the bins cost little: below the exact delta, by less than a thousandth."""
    p, q = 0.55, 0.45
    found = Atoms.of(np.log([p, 1 - p]), np.log([q, 1 - q])) ** times
    answers = np.arange(times + 1)
    for epsilon in (0.0, 0.3, 1.0):
        exact = np.maximum(binom.pmf(answers, times, p) - math.exp(epsilon) * binom.pmf(answers, times, q), 0.0).sum()
        assert found.delta(epsilon) <= exact + 1e-15
        assert found.delta(epsilon) == pytest.approx(exact, rel=1e-3, abs=1e-9)


@given(seed=st.integers(0, 10_000), epsilon=st.floats(0.0, 3.0))
def test_merging_outcomes_never_adds_to_delta(seed: int, epsilon: float) -> None:
    generator = np.random.default_rng(seed)
    p, q = generator.dirichlet(np.full(3000, 0.3), 2)
    kept = (p > 0) & (q > 0)
    atoms = Atoms(p[kept], q[kept])
    assert atoms.merged().delta(epsilon) <= atoms.delta(epsilon) * (1 + 1e-9) + 1e-13


def test_outcomes_that_one_world_does_not_have() -> None:
    revealing = Atoms.of(np.log([0.9, 0.1]), np.array([0.0, -np.inf]))
    assert (revealing**2).only_one == pytest.approx(1 - 0.9**2)
    assert math.isinf(revealing.epsilon(0.05))
    assert revealing.epsilon(0.1) == 0.0


def test_a_query_is_asked_once_at_least() -> None:
    with pytest.raises(ParameterError, match="at least once"):
        Atoms.of(np.log([0.5, 0.5]), np.log([0.5, 0.5])) ** 0
    with pytest.raises(ParameterError, match="at least one query"):
        all_of([])


HONEST = [
    GNMax(sigma=20),
    LNMax(gamma=0.1),
    ConfidentGNMax(threshold=14, sigma1=15, sigma2=8),
]


@pytest.mark.parametrize("aggregator", HONEST, ids=repr)
def test_an_honest_aggregator_costs_no_more_than_it_says(aggregator: Aggregator) -> None:
    report = audit_aggregator(aggregator, queries=60, n_teachers=20, n_classes=3, runs=40, seed=1)
    exact = report.lower_bounds[0]
    assert report.passed, report
    assert exact.method == "exact"
    assert 0 <= exact.lower <= exact.claim


def test_the_exact_bound_is_near_the_data_dependent_claim(mnist_votes: IntArray) -> None:
    """Of real votes: no accountant could say less than three quarters of what is claimed."""
    votes = Votes(mnist_votes[:40], 250)
    report = audit_aggregator(GNMax(sigma=40), votes=votes, runs=20, seed=1)
    independent, dependent, _ = report.lower_bounds
    assert dependent.private
    assert 0.75 * dependent.claim < dependent.lower == independent.lower < dependent.claim < independent.claim


def test_half_the_noise_shows_in_releases_only_or_always() -> None:
    """400 queries at sigma 20, 600 runs a world, confidence 0.99; the stated probabilities are those of the claim."""
    report = audit_aggregator(HalfTheNoise(sigma=20), queries=400, n_teachers=40, n_classes=2, runs=600, seed=1)
    exact, released = report.lower_bounds
    assert not exact.refuted
    assert released.refuted
    assert "claimed" in released.proof


def test_without_stated_probabilities_releases_speak() -> None:
    report = audit_aggregator(HalfTheNoiseUnknown(sigma=20), queries=40, n_teachers=20, n_classes=2, runs=60, seed=1)
    assert {each.method for each in report.lower_bounds} == {"black box"}
    assert len({each.canary for each in report.lower_bounds}) == len(report.lower_bounds) > 1
    assert all(each.confidence is not None and each.confidence > 0.99 for each in report.lower_bounds)


@pytest.mark.slow
def test_without_stated_probabilities_half_the_noise_is_caught() -> None:
    report = audit_aggregator(HalfTheNoiseUnknown(sigma=20), queries=400, n_teachers=40, n_classes=2, runs=3000, seed=1)
    assert any(each.refuted for each in report.lower_bounds)


def test_seeded_noise_is_caught_by_a_rule_and_by_the_bound() -> None:
    report = audit_aggregator(SeededNoise(sigma=20), queries=200, n_teachers=40, n_classes=2, runs=200, seed=1)
    assert "noise: fresh every release" in {rule.name for rule in report.failures}
    assert any(each.refuted for each in report.lower_bounds)


def test_partial_votes_are_not_for_this_audit() -> None:
    with pytest.raises(ParameterError, match="these are partial"):
        audit_aggregator(GNMax(sigma=3), votes=Votes([[2, 0], [1, 1]], 4, participation=1))
