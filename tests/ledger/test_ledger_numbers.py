"""Integers that never under-count, and budgets that never over-promise."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mpmath import mp, mpf

from pate.errors import LedgerError, ParameterError
from pate.ledger import Budget
from pate.ledger.budget import cost_units, rdp_caps
from pate.ledger.units import INFINITE, UNIT_BITS, decode, encode, float_down, float_up, units_down, units_up
from pate.privacy.curve import DEFAULT_ORDERS, RdpCurve

UNIT = Fraction(1, 1 << UNIT_BITS)
COSTS = st.floats(min_value=0.0, allow_nan=False, allow_infinity=False)


def test_ten_times_a_tenth_is_at_least_one() -> None:
    assert sum([0.1] * 10) < 1.0  # the trap: floats under-count
    assert sum([units_up(0.1)] * 10) >= 1 << UNIT_BITS


@given(st.lists(COSTS, max_size=50))
def test_a_sum_of_units_is_never_below_the_true_sum(costs: list[float]) -> None:
    total = sum(map(units_up, costs)) * UNIT
    true = sum(map(Fraction, costs), Fraction(0))
    assert true <= total <= true + len(costs) * UNIT


@given(COSTS)
def test_rounding_goes_the_safe_way_and_no_further_than_one_unit(cost: float) -> None:
    assert units_down(cost) * UNIT <= Fraction(cost) <= units_up(cost) * UNIT
    assert units_up(cost) - units_down(cost) <= 1


@given(st.integers(min_value=0, max_value=1 << 90))
def test_units_become_floats_on_the_safe_side(units: int) -> None:
    assert Fraction(float_down(units)) <= units * UNIT <= Fraction(float_up(units))
    assert math.nextafter(float_up(units), 0) < units * UNIT or float_up(units) == units * UNIT
    assert Fraction(float_up(units)) == Fraction(float_down(units)) or math.nextafter(float_down(units), math.inf) == float_up(
        units
    )


def test_infinity_survives_sums_and_leaves_no_trace_when_taken_off() -> None:
    assert units_up(math.inf) == INFINITE > units_up(1.7976931348623157e308) * 1000
    assert float_up(INFINITE + 5) == math.inf
    assert INFINITE + 5 - INFINITE == 5
    assert encode((3, INFINITE)) == [3, "inf"]
    assert decode([3, "inf"], 2) == (3, INFINITE)


@pytest.mark.parametrize("values", [[1], [1, -1], [1, 1.5], [1, True], [1, None], [1, INFINITE]])
def test_a_recorded_cost_must_be_whole_numbers(values: list[object]) -> None:
    with pytest.raises(LedgerError, match="recorded cost"):
        decode(values, 2)


@given(st.floats(0.05, 50), st.floats(1e-12, 0.1))
def test_the_cap_implies_epsilon_and_delta(epsilon: float, delta: float) -> None:
    budget = Budget(epsilon, delta)
    with mp.workdps(40):
        order = mpf(budget.order)
        spent = mpf(budget.cap_units) / 2**UNIT_BITS
        # Canonne, Kamath, Steinke 2020 (arXiv:2004.00010), Proposition 12 in v4, at 40 digits.
        claim = spent + mp.log1p(-1 / order) - (mp.log(mpf(delta)) + mp.log(order)) / (order - 1)
        assert claim <= mpf(epsilon)
        assert claim > mpf(epsilon) - mpf(10) ** -9


def test_the_order_depends_on_the_budget_alone_and_buys_most_for_gaussian_costs() -> None:
    gaussian = RdpCurve.of(lambda orders: orders / 2000.0)
    chosen = Budget(1.0, 1e-5)
    bought = [
        Budget(1.0, 1e-5, order=order).queries_affordable(gaussian)
        for order, cap in zip(DEFAULT_ORDERS.tolist(), rdp_caps(1.0, 1e-5), strict=True)
        if cap > 0
    ]
    assert chosen.queries_affordable(gaussian) == max(bought)
    assert chosen == Budget(1.0, 1e-5, order=chosen.order)


@given(st.floats(1e-6, 1.0), st.floats(0.05, 20))
def test_what_is_affordable_fits_and_one_more_does_not(rate: float, epsilon: float) -> None:
    budget, query = Budget(epsilon, 1e-5), RdpCurve.of(lambda orders: rate * orders)
    number = budget.queries_affordable(query)
    index = budget.order_index
    assert number * cost_units(query)[index] <= budget.cap_units < (number + 1) * cost_units(query)[index]
    assert cost_units(number * query)[index] <= budget.cap_units


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0.0, 1e-5), "above 0"),
        ((math.inf, 1e-5), "finite"),
        ((math.nan, 1e-5), "above 0"),
        ((1.0, 0.0), "delta"),
        ((1.0, 1.0), "delta"),
        ((0.001, 1e-5), "leaves nothing to spend at any order"),
        ((1.0, 1e-5, 2.0), "leaves nothing to spend at order 2"),
        ((1.0, 1e-5, 18.3), "the nearest is 18"),
    ],
)
def test_impossible_budgets_are_refused(arguments: tuple[float, ...], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        Budget(*arguments)


def test_costs_of_nothing_of_everything_and_on_other_orders() -> None:
    budget = Budget(1.0, 1e-5)
    assert budget.queries_affordable(RdpCurve.of(np.full(DEFAULT_ORDERS.size, np.inf))) == 0
    with pytest.raises(ParameterError, match="for ever"):
        budget.queries_affordable(RdpCurve.zero())
    with pytest.raises(ParameterError, match="DEFAULT_ORDERS"):
        budget.queries_affordable(RdpCurve.zero([2.0, 3.0]))
