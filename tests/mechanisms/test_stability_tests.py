"""The stability test and propose-test-release: distances against brute force, costs against the true divergence."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import laplace, norm

from pate.errors import ParameterError
from pate.mechanisms import ProposeTestRelease, StabilityTest, median_distance, plurality_distance, private_mode
from pate.mechanisms.stability import least_threshold, log_tail
from pate.noise import OSNoise, SimulatedNoise

LAWS: dict[str, Any] = {"laplace": laplace, "gaussian": norm}
ORDERS = np.array([1.2, 2.0, 8.0, 64.0])


def alone_at_the_top(counts: tuple[int, ...]) -> int | None:
    return counts.index(max(counts)) if counts.count(max(counts)) == 1 else None


def changed(counts: tuple[int, ...], neighbours: str) -> Iterator[tuple[int, ...]]:
    """Every neighbour, by a plain loop."""
    for i, j in itertools.permutations(range(len(counts)), 2):
        if neighbours == "replace" and counts[i]:
            yield tuple(c - (k == i) + (k == j) for k, c in enumerate(counts))
    for i in range(len(counts)):
        if neighbours == "add-remove":
            yield tuple(c + (k == i) for k, c in enumerate(counts))
            if counts[i]:
                yield tuple(c - (k == i) for k, c in enumerate(counts))


def distance_by_search(counts: tuple[int, ...], neighbours: str) -> int:
    """How many changes it takes to where one more changes the answer, by breadth-first search."""
    reached, distance = {counts}, 0
    while True:
        for each in reached:
            if any(alone_at_the_top(other) != alone_at_the_top(each) for other in changed(each, neighbours)):
                return distance
        reached |= {other for each in reached for other in changed(each, neighbours)}
        distance += 1


@pytest.mark.parametrize("neighbours", ["replace", "add-remove"])
def test_distances_are_those_of_a_search(neighbours: Any) -> None:
    for counts in itertools.product(range(7), range(6), range(4)):
        if sum(counts):
            found = int(plurality_distance(np.array([counts]), neighbours)[0])
            assert found == distance_by_search(counts, neighbours), counts


@pytest.mark.parametrize("neighbours", ["replace", "add-remove"])
@given(counts=st.lists(st.integers(0, 30), min_size=2, max_size=5))
def test_a_distance_changes_by_at_most_one(neighbours: Any, counts: list[int]) -> None:
    """And where two neighbours answer differently, both have distance 0: all that the proof asks of it."""
    here = int(plurality_distance(np.array([counts]), neighbours)[0])
    for other in changed(tuple(counts), neighbours):
        there = int(plurality_distance(np.array([other]), neighbours)[0])
        assert abs(here - there) <= 1
        if alone_at_the_top(other) != alone_at_the_top(tuple(counts)):
            assert here == there == 0


@pytest.mark.parametrize("law", ["laplace", "gaussian"])
@given(scale=st.floats(0.3, 50), delta=st.floats(1e-12, 0.4))
def test_the_slack_is_the_tail_at_the_threshold(law: Any, scale: float, delta: float) -> None:
    test = StabilityTest(scale, delta, law)
    mpmath.mp.dps = 40
    ratio = mpmath.mpf(test.threshold) / mpmath.mpf(scale)
    true = mpmath.exp(-ratio) / 2 if law == "laplace" else mpmath.erfc(ratio / mpmath.sqrt(2)) / 2
    assert true <= test.slack <= float(true) * (1 + 1e-10)
    assert test.slack <= delta
    assert test.threshold == 1 or LAWS[law].sf(test.threshold - 1, scale=scale) > delta * (1 - 1e-9)


def two_laws(test: StabilityTest, one: tuple[int, bool], two: tuple[int, bool]) -> tuple[list[float], list[float]]:
    """Probabilities of (its own answer, the other's, nothing): each has a distance and whether its answer is the first."""
    result = []
    for distance, first in (one, two):
        passed = math.exp(log_tail(test.law, test.scale, test.threshold - distance))
        result.append([passed if first else 0.0, 0.0 if first else passed, 1 - passed])
    return result[0], result[1]


@pytest.mark.parametrize("law", ["laplace", "gaussian"])
@settings(deadline=None)  # the first Gaussian cost of a scale is certified anew
@given(
    scale=st.sampled_from([0.5, 2.0, 13.4]),
    delta=st.floats(1e-6, 0.2),
    distance=st.integers(0, 60),
    epsilon=st.floats(0, 3),
    same=st.booleans(),
)
def test_an_answer_behind_the_test_costs_what_is_claimed(
    law: Any, scale: float, delta: float, distance: int, epsilon: float, same: bool
) -> None:
    """The hockey-stick divergence of every pair there is: one answer at distances one apart, two answers at distance 0."""
    test = StabilityTest(scale, delta, law)
    one, two = ((distance, True), (distance + 1, True)) if same else ((0, True), (0, False))
    claimed = test.cost().delta(epsilon)
    for p, q in (two_laws(test, one, two), two_laws(test, two, one)):
        assert sum(max(a - math.exp(epsilon) * b, 0) for a, b in zip(p, q, strict=True)) <= claimed * (1 + 1e-9) + 1e-12


def test_a_test_without_its_slack_would_be_caught() -> None:
    test = StabilityTest(2.0, 0.01, "laplace")
    p, q = two_laws(test, (0, True), (0, False))
    forgotten = type(test.cost())(test.cost().orders, test.cost().values)
    assert sum(max(a - math.exp(5) * b, 0) for a, b in zip(p, q, strict=True)) > forgotten.delta(5.0)


def test_the_test_decides_as_it_says() -> None:
    """20,000 decisions at three distances, within 6 standard errors of the stated chance."""
    test = StabilityTest(3.0, 1e-3)
    for distance in (5, 9, 12):
        stated = math.exp(test.log_pass(np.array([distance]))[0][0])
        passed = test.passes(np.full(20_000, distance), SimulatedNoise(distance)).mean()
        assert abs(passed - stated) < 6 * math.sqrt(stated * (1 - stated) / 20_000)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.int32, np.uint32, np.uint64])
def test_the_type_of_the_distances_does_not_matter(dtype: Any) -> None:
    """Lattice noise has 20 bits after the point: in 32 bits 2,048 would run over, and be far from its neighbour 2,047."""
    distances = np.array([0, 1, 47, 48, 100, 2047, 2048, 30_000])
    distances = distances[distances <= np.iinfo(dtype).max]
    test = StabilityTest(10.0, 1e-6)
    narrow = test.passes(distances.astype(dtype), SimulatedNoise(0))
    assert narrow.tolist() == test.passes(distances, SimulatedNoise(0)).tolist()
    assert narrow[distances >= 100].all()


@pytest.mark.parametrize("wrong", [np.array([-1]), np.array([1.5]), np.array([[3]]), np.array([1 << 50])])
def test_a_distance_is_a_whole_number(wrong: np.ndarray) -> None:
    with pytest.raises(ParameterError, match="stability test takes distances, whole numbers"):
        StabilityTest(10.0, 1e-6).passes(wrong, OSNoise())


@pytest.mark.parametrize(
    ("law", "scale", "delta"), [("gaussian", 0.02, 1e-9), ("laplace", 0.001, 1e-9), ("gaussian", 4.0, 5e-324)]
)
def test_a_slack_too_small_for_a_float_is_not_none(law: Any, scale: float, delta: float) -> None:
    """Else a budget without slack would take a mechanism that no Rényi cost holds for."""
    test = StabilityTest(scale, delta, law)
    assert 0 < test.slack <= delta
    assert test.cost(ORDERS).slack > 0


def test_the_least_threshold() -> None:
    for wanted in (1, 2, 3, 17, 1000):
        assert least_threshold(lambda at, wanted=wanted: float(at < wanted), 0.5) == wanted


@pytest.mark.parametrize(("scale", "delta"), [(0, 1e-6), (2, 0), (2, 0.5), (2, math.nan)])
def test_parameters_are_checked(scale: float, delta: float) -> None:
    with pytest.raises(ParameterError, match="stability test"):
        StabilityTest(scale, delta)


def test_the_mode_is_released_as_it_is_or_not_at_all() -> None:
    test = StabilityTest(3, 1e-6)
    assert private_mode(np.array([3, 900, 80]), test, OSNoise()) == 1
    assert private_mode(np.array([50, 50, 80, 80]), test, OSNoise()) is None
    # Even where the test is passed by chance, a tie has no mode.
    lenient = StabilityTest(3, 0.4)
    assert all(private_mode(np.array([50, 50]), lenient, SimulatedNoise(seed)) is None for seed in range(50))
    with pytest.raises(ParameterError, match="two values"):
        private_mode(np.array([5]), test, OSNoise())


@given(st.lists(st.integers(0, 6), min_size=1, max_size=5).filter(lambda v: len(v) % 2 == 1), st.integers(0, 5))
def test_the_distance_of_a_median_by_trying_all_data_sets(values: list[int], bound: int) -> None:
    def local_sensitivity(data: tuple[int, ...]) -> int:
        middle = sorted(data)[len(data) // 2]
        return max(
            abs(sorted((*data[:i], x, *data[i + 1 :]))[len(data) // 2] - middle) for i in range(len(data)) for x in range(7)
        )

    def changes(data: tuple[int, ...]) -> int:
        # Multisets differ by what is left after all that is common is taken away.
        left = list(values)
        for each in data:
            if each in left:
                left.remove(each)
        return len(left)

    every = itertools.combinations_with_replacement(range(7), len(values))
    found = min((changes(data) for data in every if local_sensitivity(data) > bound), default=len(values))
    assert median_distance(values, bound, 0, 6) == found


def test_a_median_needs_an_odd_number_inside_its_range() -> None:
    with pytest.raises(ParameterError, match="odd"):
        median_distance([1, 2], 1, 0, 9)
    with pytest.raises(ParameterError, match="clip"):
        median_distance([1, 2, 30], 1, 0, 9)


def test_propose_test_release_adds_the_costs_up() -> None:
    test = StabilityTest(3.0, 1e-6)
    ptr = ProposeTestRelease(2, test, 20.0)
    total = ptr.cost(ORDERS)
    np.testing.assert_allclose(total.values, test.cost(ORDERS).values + ORDERS * (2 / 20) ** 2 / 2)
    assert Fraction(total.slack) == Fraction(test.slack)
    assert ProposeTestRelease(2, test, 20.0, "laplace").cost(ORDERS).values[-1] > test.cost(ORDERS).values[-1]


@pytest.mark.parametrize("value", [3.5, 51.0, math.nan, 1 << 40, "51"])
def test_propose_test_release_refuses_what_noise_would_be_rounded_on(value: Any) -> None:
    with pytest.raises(ParameterError, match="releases a whole number"):
        ProposeTestRelease(2, StabilityTest(3.0, 1e-6), 20.0).release(value, 50, OSNoise())


def test_propose_test_release_on_a_median() -> None:
    """Far from any data set of large local sensitivity it answers near the median; at distance 0 it does not."""
    values = [50] * 40 + [51] * 41 + [52] * 40
    ptr = ProposeTestRelease(1, StabilityTest(2.0, 1e-6), 1.0)
    far = median_distance(values, 1, 0, 1000)
    released = ptr.release(51, far, SimulatedNoise(1))
    assert released is not None
    assert abs(released - 51) < 10
    assert all(ptr.release(51, 0, SimulatedNoise(seed)) is None for seed in range(50))
