"""Cost tables and what lies within a distance, against every histogram and every move there is."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pate.arrays import FloatArray, IntArray
from pate.errors import ParameterError, VotesError
from pate.privacy.exact import NoisyMax, ThresholdTest, noisy_max_rdp, threshold_log_probs
from pate.privacy.outcomes import moved_votes, renyi_divergence
from pate.privacy.smooth import CostTable, Growth, Reach, cost_tables, threshold_table
from pate.privacy.smooth.costs import independent_cost

TEST = ThresholdTest(7.0, 3.0)
MECHANISMS = (
    NoisyMax("gaussian", 2.5),
    NoisyMax("laplace", 0.4),
    NoisyMax("gaussian", 2.5, TEST),
    NoisyMax("laplace", 0.4, TEST),
)
ORDER = 5.0


def histograms(n: int, k: int) -> IntArray:
    return np.array([row for row in itertools.product(range(n + 1), repeat=k) if sum(row) == n])


def within(rows: IntArray, distance: int) -> list[list[int]]:
    """For each row, which rows are at most so many moves away: half the L1 distance."""
    apart = np.abs(rows[:, None, :] - rows[None, :, :]).sum(axis=2) // 2
    return [np.flatnonzero(line <= distance).tolist() for line in apart]


def moves(rows: IntArray) -> Iterator[tuple[IntArray, IntArray]]:
    for row in rows:
        for moved in moved_votes(row):
            yield row, moved


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=str)
def test_two_classes_exactly(mechanism: NoisyMax) -> None:
    """All histograms of 12 votes: costs, local sensitivities, and the largest of both within every distance."""
    rows = histograms(12, 2)
    table = cost_tables(mechanism, 12, 2, np.array([ORDER]))[0]
    cap = independent_cost(mechanism, 12, 2, np.array([ORDER]))[0]
    costs = np.minimum(noisy_max_rdp(mechanism, rows, [ORDER]).worst[:, 0], cap)
    np.testing.assert_allclose(table.cost(rows), costs, rtol=1e-12)
    local = np.array([max(abs(costs[i] - costs[j]) for j in near) for i, near in enumerate(within(rows, 1))])
    for i, row in enumerate(rows):
        reach, sensitivity = table.costs_within([row[None]])[0], table.sensitivity_within([row[None]])[0]
        for distance in range(13):
            near = within(rows, distance)[i]
            at = min(distance, reach.distance.size - 1)
            assert reach.value[at] == pytest.approx(costs[near].max(), rel=1e-12)
            at = min(distance, sensitivity.distance.size - 1)
            assert sensitivity.value[at] == pytest.approx(local[near].max(), rel=1e-10, abs=1e-15)


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=str)
@pytest.mark.parametrize(("n", "k"), [(9, 3), (8, 4), (6, 6)])
def test_more_classes_never_below(mechanism: NoisyMax, n: int, k: int) -> None:
    """Every histogram: no cost below the exact one, no local sensitivity below that of the table's own costs over all moves."""
    rows = np.unique(np.sort(histograms(n, k), axis=1)[:, ::-1], axis=0)
    orders = np.array([1.5, ORDER, 20.0])
    exact = noisy_max_rdp(mechanism, rows, orders).worst
    cap = independent_cost(mechanism, n, k, orders)
    for i, table in enumerate(cost_tables(mechanism, n, k, orders)):
        costs = table.cost(rows)
        assert (costs >= np.minimum(exact[:, i], cap[i]) - 1e-11).all()
        assert (costs <= cap[i] * (1 + 1e-12)).all()
        if k == 3:
            np.testing.assert_allclose(costs, np.minimum(exact[:, i], cap[i]), rtol=1e-9)
        sensitivity = {tuple(row): table.sensitivity_within([row[None]])[0] for row in rows}
        reach = {tuple(row): table.costs_within([row[None]])[0] for row in rows}
        for row, moved in moves(rows):
            other = tuple(np.sort(moved)[::-1].tolist())
            change = abs(table.cost(moved[None])[0] - table.cost(row[None])[0])
            assert change <= sensitivity[tuple(row)].value[0] + 1e-15
            for found in (sensitivity, reach):
                one, two = found[tuple(row)], found[other]
                for d in range(one.value.size - 1):
                    later = min(d + 1, two.value.size - 1)
                    assert one.value[d] <= two.value[later] + 1e-15


@pytest.mark.parametrize("n_classes", [2, 4])
@pytest.mark.parametrize("order", [1.5, 6.0, 30.0])
def test_threshold_exactly(n_classes: int, order: float) -> None:
    n = 15
    table = threshold_table(TEST, n, n_classes, order)
    lowest = -(-n // n_classes)
    for largest in range(lowest, n + 1):
        row = np.zeros(n_classes, dtype=np.int64)
        row[0] = largest
        for i in range(n - largest):
            row[1 + i % (n_classes - 1)] += 1
        assert row.max() == largest
        bits = [np.array(threshold_log_probs(TEST, np.array([m])))[:, 0] for m in (largest - 1, largest, largest + 1)]
        there = [bit for m, bit in zip((largest - 1, largest + 1), (bits[0], bits[2]), strict=True) if lowest <= m <= n]
        expected = max(
            float(renyi_divergence(p, q, [order])[0]) for each in there for p, q in ((bits[1], each), (each, bits[1]))
        )
        assert table.cost(row[None])[0] == pytest.approx(expected, rel=1e-9, abs=1e-11)


def test_an_answer_behind_the_test_is_paid_for_jointly() -> None:
    """Against E = N^a N'^(1-a) + A^a A'^(1-a) e^((a-1) D), and never above the sum of both steps."""
    n, answer = 15, 0.3
    alone, joint = threshold_table(TEST, n, 3, ORDER), threshold_table(TEST, n, 3, ORDER, answer)
    rows = np.array([[m, n - m, 0] for m in range(8, n + 1)])
    for row in rows:
        m = int(row[0])
        expected = 0.0
        for other in (m - 1, m, m + 1):
            if not 5 <= other <= n:
                continue
            a, b = (np.array(threshold_log_probs(TEST, np.array([x])))[:, 0] for x in (m, other))
            for p, q in ((a, b), (b, a)):
                terms = np.exp(ORDER * p - (ORDER - 1) * q)
                expected = max(expected, math.log(terms[1] + terms[0] * math.exp((ORDER - 1) * answer)) / (ORDER - 1))
        assert joint.cost(row[None])[0] == pytest.approx(expected, rel=1e-9)
    assert (joint.cost(rows) <= alone.cost(rows) + answer + 1e-11).all()


N, K = 20, 4
TABLE = cost_tables(NoisyMax("gaussian", 3.0), N, K, np.array([ORDER]))[0]


@st.composite
def neighbours(draw: st.DrawFn) -> tuple[IntArray, IntArray]:
    """Two batches of four queries; on each query at most one vote moves."""
    rows, moved = [], []
    for _ in range(4):
        cuts = sorted(draw(st.lists(st.integers(0, N), min_size=K - 1, max_size=K - 1)))
        row = np.diff([0, *cuts, N])
        other = row.copy()
        if draw(st.booleans()):
            giver = draw(st.sampled_from(np.flatnonzero(row).tolist()))
            other[giver] -= 1
            other[draw(st.integers(0, K - 1))] += 1
        rows.append(row)
        moved.append(other)
    return np.array(rows), np.array(moved)


@given(neighbours(), st.floats(0.01, 1.0))
@settings(max_examples=60)
def test_smooth_sensitivity_of_a_batch(pair: tuple[IntArray, IntArray], beta: float) -> None:
    """Above the local sensitivity, and within e^beta of any neighbour's: what GNSS stands on."""
    first, second = (TABLE.sensitivity_within([batch])[0].smooth(beta) for batch in pair)
    change = abs(TABLE.cost(pair[0]).sum() - TABLE.cost(pair[1]).sum())
    assert change <= min(first, second) * (1 + 1e-12) + 1e-15
    assert max(first, second) <= min(first, second) * math.exp(beta) * (1 + 1e-12)


PSI = Growth.of(TABLE.costs_within([np.array([[16, 4, 0, 0], [20, 0, 0, 0], [19, 1, 0, 0], [18, 1, 1, 0]])])[0])


@given(neighbours())
@settings(max_examples=100)
def test_the_growth_statistic_moves_by_at_most_one(pair: tuple[IntArray, IntArray]) -> None:
    """And the cost that it stands for is never below the true one."""
    first, second = (PSI.statistic(TABLE.costs_within([batch])[0]) for batch in pair)
    assert abs(first - second) <= 1 + 1e-9
    for batch, statistic in zip(pair, (first, second), strict=True):
        assert float(PSI.cost(statistic)) >= TABLE.cost(batch).sum() * (1 - 1e-9)


@given(st.floats(1e-6, 1e3))
def test_growth_and_its_inverse(cost: float) -> None:
    assert float(PSI.cost(PSI.changes_to(cost))) == pytest.approx(cost, rel=1e-6)


def test_a_stride_leaves_nothing_out_of_costs_and_looks_at_fewer_distances() -> None:
    batch = np.array([[16, 4, 0, 0], [20, 0, 0, 0]])
    fine, coarse = TABLE.costs_within([batch])[0], TABLE.costs_within([batch], stride=3)[0]
    for distance, value in zip(coarse.distance, coarse.value, strict=True):
        assert value == fine.value[min(int(distance), fine.value.size - 1)]


def test_what_is_no_table_is_refused() -> None:
    with pytest.raises(ParameterError, match="one or two axes"):
        CostTable(np.zeros((2, 2, 2)), np.ones((2, 2, 2), dtype=np.bool_))
    with pytest.raises(ParameterError, match="finite"):
        CostTable(np.array([np.inf, 1.0]), np.ones(2, dtype=np.bool_))
    with pytest.raises(VotesError, match="other numbers of teachers"):
        TABLE.cost(np.array([[N, 1, 0, 0]]))
    with pytest.raises(ParameterError, match="at most 2000 teachers"):
        cost_tables(MECHANISMS[0], 2001, 4, np.array([2.0]))
    with pytest.raises(ParameterError, match="at least two distances"):
        Growth.of(Reach(np.array([0.0]), np.array([1.0])))


def sensitivity_loop(costs: FloatArray) -> FloatArray:
    """Of every entry of a one-dimensional table: the larger step to either side."""
    return np.array([max(abs(costs[i] - costs[j]) for j in (i - 1, i + 1) if 0 <= j < costs.size) for i in range(costs.size)])


def test_local_sensitivity_of_a_plain_table() -> None:
    costs = np.random.default_rng(3).random(30)
    table = CostTable(costs, np.ones(30, dtype=np.bool_))
    np.testing.assert_array_equal(table.local_sensitivity(), sensitivity_loop(costs))
