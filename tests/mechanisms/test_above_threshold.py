"""AboveThreshold: its cost against the true divergence, by quadrature; its releases against their law; the certified V_n."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import log_ndtr, ndtr
from scipy.stats import binom
from svt_oracle import largest_ratio, outcomes, renyi

from pate.errors import ParameterError
from pate.mechanisms import AboveThreshold
from pate.mechanisms.crossings import log_crossing_moments
from pate.noise import OSNoise, SimulatedNoise
from pate.privacy.curve import DEFAULT_ORDERS

ORDERS = np.array([1.2, 2.0, 4.0, 16.0, 64.0])
NUMERIC = 1e-6
"""Relative error of the quadrature, with room."""


def mechanisms(**fixed: Any) -> st.SearchStrategy[AboveThreshold]:
    scales = st.sampled_from([0.7, 1.5, 4.0])
    options = {
        "threshold": st.integers(-1, 2),
        "threshold_scale": scales,
        "query_scale": scales,
        "tops": st.integers(1, 3),
        "law": st.sampled_from(["laplace", "gaussian"]),
        "refresh": st.booleans(),
    }
    return st.builds(AboveThreshold, **{**options, **{key: st.just(value) for key, value in fixed.items()}})


pairs = st.lists(st.tuples(st.integers(-3, 3), st.sampled_from([-1, 0, 1])), min_size=1, max_size=5)


def check_cost(svt: AboveThreshold, one: list[int], two: list[int]) -> float:
    """Both directions at every order; returns the largest share of the claim that is really spent."""
    p, q = outcomes(svt, one), outcomes(svt, two)
    claimed = svt.cost(len(one), ORDERS).values
    true = np.array([max(renyi(p, q, a), renyi(q, p, a)) for a in ORDERS])
    assert (true <= claimed * (1 + NUMERIC) + 1e-9).all(), (true, claimed)
    return float((true / claimed).max())


@settings(max_examples=30)
@given(mechanisms(), pairs)
def test_the_cost_is_never_below_the_true_divergence(svt: AboveThreshold, queries: list[tuple[int, int]]) -> None:
    check_cost(svt, [value for value, _ in queries], [value + change for value, change in queries])


@settings(max_examples=15)
@given(mechanisms(monotonic=True), st.lists(st.tuples(st.integers(-3, 3), st.sampled_from([0, 1])), min_size=1, max_size=5))
def test_queries_that_all_move_the_same_way_cost_less(svt: AboveThreshold, queries: list[tuple[int, int]]) -> None:
    check_cost(svt, [value for value, _ in queries], [value + change for value, change in queries])
    general = replace(svt, monotonic=False)
    assert (svt.cost(10, ORDERS).values <= general.cost(10, ORDERS).values).all()


@pytest.mark.parametrize("law", ["laplace", "gaussian"])
def test_much_of_the_claim_is_really_spent(law: Any) -> None:
    """Else the comparison above could not fail. Below for all on one side, and one that crosses against it."""
    svt = AboveThreshold(2, 1.5, 1.5, law=law)
    assert check_cost(svt, [0, 0, 0, 0, 1], [1, 1, 1, 1, 0]) > 0.25


def test_the_comparison_finds_half_the_noise() -> None:
    loud, quiet = AboveThreshold(2, 3.0, 3.0), AboveThreshold(2, 1.0, 1.0)
    p, q = outcomes(quiet, [0, 0, 0, 0, 1]), outcomes(quiet, [1, 1, 1, 1, 0])
    assert renyi(p, q, 16.0) > loud.cost(5, ORDERS).values[3]


@settings(max_examples=15)
@given(mechanisms(law="laplace"), pairs)
def test_laplace_noise_is_pure(svt: AboveThreshold, queries: list[tuple[int, int]]) -> None:
    p = outcomes(svt, [value for value, _ in queries])
    q = outcomes(svt, [value + change for value, change in queries])
    assert max(largest_ratio(p, q), largest_ratio(q, p)) <= svt.epsilon * (1 + NUMERIC)


def test_queries_below_are_free_with_laplace_noise_and_nearly_so_with_gaussian() -> None:
    laplace = AboveThreshold(100, 20, 40)
    np.testing.assert_array_equal(laplace.cost(10).values, laplace.cost(10**6).values)
    gaussian = replace(laplace, law="gaussian")
    few, many = (gaussian.cost(n).values[20] for n in (100, 10_000))
    assert few < many < 2 * few
    assert not gaussian.cost(0).values.any()


def test_halting_later_costs_more() -> None:
    for law in ("laplace", "gaussian"):
        costs = [AboveThreshold(100, 20, 40, tops=tops, law=law).cost(50).values for tops in (1, 2, 5)]  # type: ignore[arg-type]
        assert (costs[0] < costs[1]).all()
        assert (costs[1] < costs[2]).all()


def naive_moment(shift: float, n_queries: int, order: float) -> float:
    """V_n as it is defined, by a plain loop over a fine grid: never above the supremum."""
    u = np.linspace(-6, 20 + (order - 1) * shift, 100_001)
    tail = ndtr(-u)
    crossing = np.exp(order * log_ndtr(-u) - (order - 1) * log_ndtr(-u - shift))
    value = 1.0
    for _ in range(n_queries):
        value = float((crossing + (1 - tail) * value).max())
    return float(np.log(value))


@pytest.mark.parametrize("shift", [0.02, 0.1, 0.5])
@pytest.mark.parametrize("n_queries", [1, 7, 60])
def test_v_n_is_certified_and_tight(shift: float, n_queries: int) -> None:
    orders = np.array([1.1, 2.0, 8.0, 32.0])
    found = log_crossing_moments(shift, n_queries, orders)
    for order, value in zip(orders, found, strict=True):
        naive = naive_moment(shift, n_queries, order)
        assert naive * (1 - 1e-9) <= value <= naive * 1.02


def test_between_its_knots_v_n_is_above_as_well() -> None:
    orders = np.array([1.05, 1.75, 3.3, 9.0, 27.0])
    for order, value in zip(orders, log_crossing_moments(0.1, 20, orders), strict=True):
        assert value >= naive_moment(0.1, 20, order)


@pytest.mark.parametrize("law", ["laplace", "gaussian"])
@pytest.mark.parametrize("refresh", [False, True])
def test_releases_have_the_law_of_the_proof(law: Any, refresh: bool) -> None:
    """600 releases; every outcome within an exact binomial interval; false-alarm rate 1e-6 in all."""
    svt = AboveThreshold(1, 1.5, 1.5, tops=2, law=law, refresh=refresh)
    values, noise, n = [0, 1, 2, 0], SimulatedNoise(3), 600
    seen: Counter[tuple[bool, ...]] = Counter()
    for _ in range(n):
        told = svt.release(np.array(values), noise)
        seen[tuple(told.above[: told.asked].tolist())] += 1
        assert not told.above[told.asked :].any()
    law_of_outcomes = outcomes(svt, values)
    assert sum(law_of_outcomes.values()) == pytest.approx(1, abs=1e-4)
    assert set(seen) <= set(law_of_outcomes)
    for outcome, probability in law_of_outcomes.items():
        chance = 2 * min(binom.cdf(seen[outcome], n, probability), binom.sf(seen[outcome] - 1, n, probability))
        assert chance > 1e-6 / len(law_of_outcomes), (outcome, seen[outcome], n * probability)


def test_it_halts_and_says_so() -> None:
    svt = AboveThreshold(100, 1, 1, tops=2)
    told = svt.release(np.array([0, 900, 900, 900]), OSNoise())
    assert told.above.tolist() == [False, True, True, False]
    assert told.asked == 3
    nothing = svt.release(np.zeros(0, dtype=np.int64), OSNoise())
    assert (nothing.above.size, nothing.asked) == (0, 0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"threshold": 1.5}, "whole number"),
        ({"threshold": float("nan")}, "whole number"),
        ({"threshold": float("inf")}, "whole number"),
        ({"tops": 0}, "tops"),
        ({"threshold_scale": 0.0}, "threshold_scale"),
        ({"query_scale": -1.0}, "query_scale"),
        ({"law": "uniform"}, "'laplace' or 'gaussian'"),
        ({"sensitivity": 0}, "sensitivity"),
    ],
)
def test_what_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        AboveThreshold(**{"threshold": 1, "threshold_scale": 1.0, "query_scale": 1.0, **change})


def test_values_must_be_whole() -> None:
    with pytest.raises(ParameterError, match="whole numbers"):
        AboveThreshold(1, 1, 1).release(np.array([0.5]), OSNoise())
    with pytest.raises(ParameterError, match=r"at most 2\*\*32"):  # beyond, a float would round what noise falls on
        AboveThreshold(1, 1, 1).release(np.array([1 << 53]), OSNoise())


@pytest.mark.parametrize("n_queries", [-3, 2.5])
def test_a_number_of_queries_must_be_whole(n_queries: Any) -> None:
    with pytest.raises(ParameterError, match="n_queries must be a whole number"):
        AboveThreshold(1, 1, 1).cost(n_queries)


def test_gaussian_noise_has_no_pure_epsilon() -> None:
    with pytest.raises(ParameterError, match="no pure epsilon"):
        _ = AboveThreshold(1, 1, 1, law="gaussian").epsilon


def test_costs_stand_on_the_default_orders() -> None:
    curve = AboveThreshold(10, 20, 40, law="gaussian").cost(1000)
    assert np.array_equal(curve.orders, DEFAULT_ORDERS)
    assert curve.slack == 0
    assert (np.diff(curve.values) >= -1e-12).all()
