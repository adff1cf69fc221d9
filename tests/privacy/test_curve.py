"""RDP curves: conversions against the reference codes, composition, and what is refused."""

from __future__ import annotations

import copy
import math
import pickle
import warnings
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pate.errors import ParameterError
from pate.privacy.curve import (
    DEFAULT_ORDERS,
    GridEdgeWarning,
    RdpCurve,
    check_delta,
    check_orders,
    deltas_at_orders,
    epsilons_at_orders,
)

orders = st.lists(st.floats(1.01, 2000), min_size=1, max_size=30, unique=True).map(sorted)
deltas = st.floats(1e-12, 0.5)


def curves(size: int = 6) -> st.SearchStrategy[RdpCurve]:
    grid = np.linspace(1.5, 40, size)
    return st.lists(st.floats(0, 1e6), min_size=size, max_size=size).map(lambda values: RdpCurve(grid, np.array(values)))


@pytest.mark.filterwarnings("ignore::pate.privacy.curve.GridEdgeWarning")
def test_epsilon_matches_the_reference_codes(reference: dict[str, Any]) -> None:
    for case in reference["rdp_to_eps"]:
        curve = RdpCurve(reference["orders"], case["rdp"])
        classic, improved = curve.epsilon(case["delta"], "classic"), curve.epsilon(case["delta"])
        assert classic.epsilon == pytest.approx(max(case["eps_classic"], 0), rel=1e-9)
        assert improved.epsilon == pytest.approx(case["eps_improved"], rel=1e-9, abs=1e-12)
        if case["eps_classic"] > 0:
            assert classic.order == case["order_classic"]
        if case["eps_improved"] > 0:
            assert improved.order == case["order_improved"]


def test_delta_matches_the_reference_codes(reference: dict[str, Any]) -> None:
    for case in reference["rdp_to_eps"]:
        curve = RdpCurve(reference["orders"], case["rdp"])
        assert curve.delta(case["eps_query"]) == pytest.approx(case["delta_improved"], rel=1e-9)


@given(orders, st.floats(0, 100), deltas)
def test_improved_is_never_above_classic(grid: list[float], rho: float, delta: float) -> None:
    a = np.array(grid)
    improved, classic = (epsilons_at_orders(a, rho * a, delta, name) for name in ("improved", "classic"))
    assert (improved <= classic).all()
    assert (improved >= 0).all()


@pytest.mark.parametrize("order", [1.05, 2.0, 37.5, 1024.0])
@pytest.mark.parametrize("delta", [1e-12, 1e-5, 0.1])
def test_conversions_at_fifty_digits(order: float, delta: float) -> None:
    rdp = 0.37
    with mpmath.workdps(50):
        a, d = mpmath.mpf(order), mpmath.mpf(delta)
        classic = rdp + mpmath.log(1 / d) / (a - 1)
        improved = rdp + mpmath.log((a - 1) / a) - (mpmath.log(d) + mpmath.log(a)) / (a - 1)
    for name, exact in (("classic", classic), ("improved", improved)):
        found = epsilons_at_orders(np.array([order]), np.array([rdp]), delta, name)[0]
        assert found == pytest.approx(max(float(exact), 0), rel=1e-13)


@given(curves(), deltas, st.sampled_from(["classic", "improved"]))
def test_delta_is_the_inverse_of_epsilon_at_every_order(curve: RdpCurve, delta: float, conversion: Any) -> None:
    implied = epsilons_at_orders(curve.orders, curve.values, delta, conversion)
    # The improved delta may come from the total variation distance instead, which can be smaller.
    for i in np.flatnonzero((implied > 0) & (implied < 1e3)):
        back = deltas_at_orders(curve.orders, curve.values, implied[i], conversion)[i]
        assert back <= delta * (1 + 1e-6)
        if conversion == "classic":
            assert back == pytest.approx(delta, rel=1e-6)


def test_the_improved_epsilon_is_valid_for_randomised_response() -> None:
    """The exact delta of randomised response at the reported epsilon is not above the delta it was reported for."""
    e = 1.5
    truth = math.exp(e) / (1 + math.exp(e))
    p, q = np.array([truth, 1 - truth]), np.array([1 - truth, truth])
    curve = RdpCurve.of(lambda a: np.log((p ** a[:, None] * q ** (1 - a[:, None])).sum(axis=1)) / (a - 1), np.arange(2.0, 40))
    for delta in (0.3, 0.1, 1e-3):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", GridEdgeWarning)
            epsilon = curve.epsilon(delta).epsilon
        assert np.maximum(p - math.exp(epsilon) * q, 0).sum() <= delta


@given(curves(), curves())
def test_addition_commutes_and_zero_is_neutral(one: RdpCurve, two: RdpCurve) -> None:
    np.testing.assert_array_equal((one + two).values, (two + one).values)
    np.testing.assert_array_equal((one + RdpCurve.zero(one.orders)).values, one.values)


@given(curves(), st.integers(0, 50))
def test_multiplication_is_repeated_addition(curve: RdpCurve, times: int) -> None:
    total = RdpCurve.zero(curve.orders)
    for _ in range(times):
        total = total + curve
    np.testing.assert_allclose((times * curve).values, total.values, rtol=1e-12)
    np.testing.assert_array_equal((curve * times).values, (np.int64(times) * curve).values)


def test_nothing_done_costs_nothing_even_at_infinity() -> None:
    infinite = RdpCurve([1.1, 2.0, 3.0], [1.0, 1.0, math.inf])
    np.testing.assert_array_equal((0 * infinite).values, [0, 0, 0])
    assert infinite.epsilon(1e-5, "classic").order == 2
    assert RdpCurve([2.0, 3.0], [math.inf, math.inf]).epsilon(1e-5).epsilon == math.inf


@pytest.mark.parametrize(("rdp", "side"), [(lambda a: a / 1e9, "largest"), (lambda a: a * 1e6, "smallest")])
def test_an_order_at_the_edge_warns(rdp: Any, side: str) -> None:
    with pytest.warns(GridEdgeWarning, match=side):
        RdpCurve.of(rdp).epsilon(1e-5)


def test_an_order_inside_the_grid_does_not_warn() -> None:
    found = RdpCurve.of(lambda a: 100 * a / (2 * 40.0**2)).epsilon(1e-5)
    assert DEFAULT_ORDERS[0] < found.order < DEFAULT_ORDERS[-1]


def test_a_claim_of_zero_epsilon_does_not_warn() -> None:
    assert RdpCurve([2.0, 3.0], [0.0, 0.0]).epsilon(0.9).epsilon == 0


def test_the_default_grid_is_fine_wide_and_fixed() -> None:
    assert DEFAULT_ORDERS.size == 124
    assert (DEFAULT_ORDERS[0], DEFAULT_ORDERS[-1]) == (1.05, 1024)
    assert (np.diff(DEFAULT_ORDERS) > 0).all()
    with pytest.raises(ValueError, match="read-only"):
        DEFAULT_ORDERS[0] = 2


def same(curve: RdpCurve) -> RdpCurve:
    return curve


def pickled(curve: RdpCurve) -> RdpCurve:
    result = pickle.loads(pickle.dumps(curve))
    assert isinstance(result, RdpCurve)
    return result


@pytest.mark.parametrize("through", [same, pickled, copy.deepcopy])
def test_a_curve_is_immutable_also_after_a_journey(through: Any) -> None:
    source = np.array([1.0, 2.0])
    curve = through(RdpCurve([2.0, 3.0], source))
    source[0] = 99
    np.testing.assert_array_equal(curve.values, [1, 2])
    with pytest.raises(ValueError, match="read-only"):
        curve.values[0] = 0
    with pytest.raises(ValueError, match="read-only"):
        curve.orders[0] = 5
    with pytest.raises(AttributeError):
        curve.values = source


@pytest.mark.parametrize("bad", [[], [[2.0]], [1.0, 2.0], [0.5], [math.nan], [math.inf], [3.0, 2.0], [2.0, 2.0], 2.0])
def test_bad_orders_are_refused(bad: Any) -> None:
    with pytest.raises(ParameterError, match="orders"):
        check_orders(bad)


@pytest.mark.parametrize("bad", [0.0, 1.0, -1e-5, 1.5, math.nan])
def test_bad_deltas_are_refused(bad: float) -> None:
    with pytest.raises(ParameterError, match="delta"):
        check_delta(bad)
    with pytest.raises(ParameterError, match="delta"):
        RdpCurve.zero().epsilon(bad)


@pytest.mark.parametrize("values", [[1.0], [1.0, -1e-9], [1.0, math.nan], [[1.0, 2.0]]])
def test_bad_values_are_refused(values: Any) -> None:
    with pytest.raises(ParameterError, match=r"RDP values|one value per order"):
        RdpCurve([2.0, 3.0], values)


@pytest.mark.parametrize("times", [-1, 1.5, math.nan, math.inf])
def test_bad_repetitions_are_refused(times: float) -> None:
    with pytest.raises(ParameterError, match="whole number"):
        times * RdpCurve.zero()


@pytest.mark.parametrize("epsilon", [-0.1, math.nan, math.inf])
def test_bad_epsilons_are_refused(epsilon: float) -> None:
    with pytest.raises(ParameterError, match="epsilon"):
        RdpCurve.zero().delta(epsilon)


def test_an_unknown_conversion_is_refused() -> None:
    name: Any = "best"
    with pytest.raises(ParameterError, match="conversion"):
        RdpCurve.zero().epsilon(1e-5, name)
    with pytest.raises(ParameterError, match="conversion"):
        RdpCurve.zero().delta(1.0, name)


def test_curves_on_other_orders_do_not_add() -> None:
    with pytest.raises(ParameterError, match="equal orders"):
        RdpCurve([2.0], [1.0]) + RdpCurve([3.0], [1.0])
    with pytest.raises(TypeError):
        RdpCurve([2.0], [1.0]) + 1.0  # type: ignore[operator]


def test_repr_shows_the_grid_only() -> None:
    assert repr(RdpCurve([2.0, 3.0], [0.123, 4.56])) == "RdpCurve(2 orders from 2 to 3)"
