"""The formulas behind the audits, against plain loops, random search and known values."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binom

from pate.arrays import FloatArray
from pate.privacy.outcomes import renyi_divergence
from pate.testing.empirical import Interval, clopper_pearson, log_filter_floor
from pate.testing.exact import log_filter
from pate.testing.tables import battery, changed_counts, ladder, moved_votes, partial_battery

ORDERS = np.array([1.1, 2.0, 7.5, 40.0])


def random_logs(seed: int, shape: tuple[int, int]) -> FloatArray:
    generator = np.random.default_rng(seed)
    weights = generator.dirichlet(np.full(shape[1], 0.7), shape[0])
    return np.log(np.maximum(weights, 1e-300))


def test_a_free_filter_is_the_renyi_divergence() -> None:
    p, q = random_logs(1, (50, 4)), random_logs(2, (50, 4))
    found = log_filter(p, q, np.zeros((1, 1, 1)), ORDERS)
    np.testing.assert_allclose(found, renyi_divergence(p, q, ORDERS), rtol=1e-9, atol=1e-12)


def test_a_constant_charge_pays_exactly_for_the_divergence() -> None:
    p, q = random_logs(3, (50, 5)), random_logs(4, (50, 5))
    charge = renyi_divergence(p, q, ORDERS)[:, None, :]
    np.testing.assert_allclose(log_filter(p, q, np.repeat(charge, 5, axis=1), ORDERS), 0.0, atol=1e-9)


def test_impossible_outcomes() -> None:
    certain, even = np.log([[1.0, 1e-320]]), np.log([[0.5, 0.5]])
    certain[0, 1] = -np.inf
    free = np.zeros((1, 2, ORDERS.size))
    np.testing.assert_allclose(log_filter(certain, even, free, ORDERS), np.log(2) * np.ones((1, ORDERS.size)))
    assert np.isposinf(log_filter(even, certain, free, ORDERS)).all()
    paid = free.copy()
    paid[:, 1] = np.inf
    assert np.isfinite(log_filter(even, certain, paid, ORDERS)).all()


def test_charging_by_outcome_bounds_an_adaptive_conversation() -> None:
    """The proof in log_filter, run: stop after an abstention, ask again after an answer, at most three times.

    One query has the outcomes answer and abstain with probabilities p and q; charges b(answer), b(abstain) satisfy the
    filter with equality. The divergence of the whole conversation must not exceed the largest sum of charges.
    """
    p, q, order = np.array([0.6, 0.4]), np.array([0.5, 0.5]), 4.0
    answer = 0.3
    # Solve p0^a q0^(1-a) e^(-(a-1) answer) + p1^a q1^(1-a) e^(-(a-1) abstain) = 1 for the charge of an abstention.
    weight = p**order * q ** (1 - order)
    abstain = -np.log((1 - weight[0] * np.exp(-(order - 1) * answer)) / weight[1]) / (order - 1)
    total, budget = 0.0, 0.0
    for answers in range(4):
        abstained = answers < 3
        probability = p[0] ** answers * (p[1] if abstained else 1.0)
        other = q[0] ** answers * (q[1] if abstained else 1.0)
        total += probability**order * other ** (1 - order)
        budget = max(budget, answers * answer + abstained * abstain)
    assert np.log(total) / (order - 1) <= budget + 1e-12


@pytest.mark.parametrize("seed", range(20))
def test_the_floor_is_the_least_value_over_the_box(seed: int) -> None:
    generator = np.random.default_rng(seed)
    p_low, p_high = np.sort(generator.random(2))
    q_low, q_high = np.sort(generator.random(2))
    inside, outside = generator.exponential(0.3, 2)
    floor = log_filter_floor(
        Interval(np.array([p_low]), np.array([p_high])),
        Interval(np.array([q_low]), np.array([q_high])),
        np.full((1, ORDERS.size), inside),
        np.full((1, ORDERS.size), outside),
        ORDERS,
    )[0]
    p, q = np.meshgrid(np.linspace(p_low, p_high, 300), np.linspace(q_low, q_high, 300))
    for order, found in zip(ORDERS, floor, strict=True):
        value = p**order * q ** (1 - order) * np.exp(-(order - 1) * inside)
        value += (1 - p) ** order * (1 - q) ** (1 - order) * np.exp(-(order - 1) * outside)
        least = np.log(value.min()) / (order - 1)
        assert found <= least + 1e-12
        assert found == pytest.approx(least, abs=0.02)


def test_the_floor_of_certain_events() -> None:
    """An event that surely happens on one side and may never happen on the other."""
    sure = Interval(np.array([0.99]), np.array([1.0]))
    never = Interval(np.array([0.0]), np.array([0.01]))
    charge = np.zeros((1, ORDERS.size))
    expected = renyi_divergence(np.log([0.99, 0.01]), np.log([0.01, 0.99]), ORDERS)
    np.testing.assert_allclose(log_filter_floor(sure, never, charge, charge, ORDERS)[0], expected, rtol=1e-9)


@pytest.mark.parametrize("probability", [0.0, 0.001, 0.3, 0.5, 0.97, 1.0])
def test_clopper_pearson_covers(probability: float) -> None:
    """The exact chance of missing the true probability, summed over all outcomes of 200 draws, is at most 1%."""
    happened = np.arange(201)
    interval = clopper_pearson(happened, 200, 0.01)
    missed = (interval.low > probability) | (interval.high < probability)
    assert binom.pmf(happened, 200, probability)[missed].sum() <= 0.01


def test_moved_votes_are_all_neighbours() -> None:
    rows = {tuple(row) for row in moved_votes(np.array([3, 0, 1]))}
    assert rows == {(2, 1, 1), (2, 0, 2), (4, 0, 0), (3, 1, 0)}


def test_changed_counts_stay_within_the_electorate() -> None:
    assert {tuple(row) for row in changed_counts(np.array([2, 0]), 2)} == {(1, 0)}
    assert {tuple(row) for row in changed_counts(np.array([1, 0]), 2)} == {(0, 0), (2, 0), (1, 1)}


@pytest.mark.parametrize(("n_teachers", "n_classes"), [(4, 2), (20, 3), (251, 10), (100, 40)])
def test_tables_are_votes(n_teachers: int, n_classes: int) -> None:
    full = battery(n_teachers, n_classes, [n_teachers // 2])
    rungs = ladder(n_teachers, n_classes)
    for tables in (full, rungs):
        assert (tables >= 0).all()
        assert (tables.sum(axis=1) == n_teachers).all()
    assert n_teachers in full.max(axis=1)
    assert (np.abs(np.diff(rungs, axis=0)).sum(axis=1) == 2).all()
    partial = partial_battery(n_teachers, n_classes, [n_teachers // 2])
    assert (partial >= 0).all()
    assert (partial.sum(axis=1) <= n_teachers).all()
    assert 0 in partial.sum(axis=1)


def test_many_classes_keep_the_number_of_neighbours_bounded() -> None:
    assert len(moved_votes(np.ones(150, dtype=np.int64))) == 12 * 11
