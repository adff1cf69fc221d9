"""Composition, zCDP, groups and subsampling: identities, exact small cases, and the order between bounds."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pate.errors import ParameterError
from pate.privacy.composition import (
    Guarantee,
    advanced_composition,
    amplify_poisson,
    amplify_without_replacement,
    basic_composition,
    group_approximate,
    group_pure,
    group_rdp,
    group_zcdp,
    optimal_composition,
    optimal_composition_delta,
    rdp_to_tcdp,
    zcdp_compose,
    zcdp_epsilon,
    zcdp_of_gaussian,
    zcdp_of_pure,
    zcdp_to_rdp,
)
from pate.privacy.curve import DEFAULT_ORDERS, RdpCurve
from pate.privacy.mechanisms import gaussian_epsilon, gaussian_rdp, pure_dp_rdp

epsilons = st.floats(1e-3, 3)
deltas = st.floats(1e-9, 1e-3)
times = st.integers(1, 300)


def hockey_stick(p: np.ndarray, q: np.ndarray, epsilon: float) -> float:
    return float(np.maximum(p - math.exp(epsilon) * q, 0).sum())


def test_basic_composition_adds() -> None:
    assert basic_composition([0.5, 0.25], [1e-5, 1e-6]) == Guarantee(0.75, pytest.approx(1.1e-5))
    assert basic_composition([0.5, 0.25, 1.0], 1e-5) == Guarantee(1.75, pytest.approx(3e-5))
    assert basic_composition(0.5) == Guarantee(0.5, 0.0)
    assert basic_composition([1.0] * 3, 0.5).delta == 1.0


def test_advanced_composition_is_the_theorem() -> None:
    total = advanced_composition(0.1, 1e-7, 100, 1e-6)
    assert total.epsilon == pytest.approx(0.1 * math.sqrt(200 * math.log(1e6)) + 10 * (math.exp(0.1) - 1))
    assert total.delta == pytest.approx(1.1e-5)


def test_optimal_composition_is_randomised_response_by_enumeration() -> None:
    """Ten rounds of randomised response, all 1,024 outcomes."""
    epsilon, k = 0.4, 10
    truth = math.exp(epsilon) / (1 + math.exp(epsilon))
    flips = np.array([sum(outcome) for outcome in itertools.product((0, 1), repeat=k)])
    p, q = truth ** (k - flips) * (1 - truth) ** flips, truth**flips * (1 - truth) ** (k - flips)
    for target in (0.0, 0.3, 0.8, 1.61, 3.9, 4.0, 7.0):
        assert optimal_composition_delta(epsilon, k, target) == pytest.approx(hockey_stick(p, q, target), rel=1e-10, abs=1e-15)


@pytest.mark.filterwarnings("ignore::pate.privacy.curve.GridEdgeWarning")
@settings(max_examples=50)
@given(epsilons, times, st.sampled_from([1e-3, 1e-6]))
def test_optimal_composition_is_never_above_the_others(epsilon: float, k: int, slack: float) -> None:
    best = optimal_composition(epsilon, 0.0, k, slack)
    assert best.epsilon <= basic_composition([epsilon] * k).epsilon * (1 + 1e-9)
    assert best.epsilon <= advanced_composition(epsilon, 0.0, k, slack).epsilon * (1 + 1e-9)
    assert best.epsilon <= RdpCurve(DEFAULT_ORDERS, k * pure_dp_rdp(epsilon, DEFAULT_ORDERS)).epsilon(slack).epsilon * (
        1 + 1e-9
    )
    assert optimal_composition_delta(epsilon, k, best.epsilon) <= slack


def test_optimal_composition_of_one_step_is_the_step() -> None:
    assert optimal_composition(0.7, 1e-4, 1, 1e-12) == Guarantee(pytest.approx(0.7), pytest.approx(1e-4, rel=1e-6))


@pytest.mark.filterwarnings("ignore::pate.privacy.curve.GridEdgeWarning")
@given(st.floats(1e-6, 10), st.sampled_from([1e-3, 1e-5, 1e-9]))
def test_zcdp_conversions_are_ordered(rho: float, delta: float) -> None:
    classic, improved = zcdp_epsilon(rho, delta, "classic"), zcdp_epsilon(rho, delta)
    assert classic == pytest.approx(rho + 2 * math.sqrt(rho * math.log(1 / delta)))
    assert improved <= classic
    assert improved <= zcdp_to_rdp(rho, DEFAULT_ORDERS).epsilon(delta).epsilon + 1e-9
    assert improved >= gaussian_epsilon(1.0, 1 / math.sqrt(2 * rho), delta)


@given(st.lists(st.floats(0, 5), min_size=1, max_size=5))
def test_zcdp_composition_is_rdp_composition(rhos: list[float]) -> None:
    curves = [zcdp_to_rdp(rho, DEFAULT_ORDERS) for rho in rhos]
    total = sum(curves[1:], curves[0])
    np.testing.assert_allclose(zcdp_to_rdp(zcdp_compose(rhos), DEFAULT_ORDERS).values, total.values, rtol=1e-12, atol=1e-300)


def test_zcdp_of_the_elementary_mechanisms_covers_their_rdp() -> None:
    np.testing.assert_allclose(zcdp_of_gaussian(2.0, 5.0) * DEFAULT_ORDERS, gaussian_rdp(2.0, 5.0, DEFAULT_ORDERS), rtol=1e-14)
    assert (pure_dp_rdp(0.3, DEFAULT_ORDERS) <= zcdp_of_pure(0.3) * DEFAULT_ORDERS).all()
    assert zcdp_epsilon(0.0, 1e-5) == 0


@given(epsilons)
def test_tcdp_of_a_coarse_curve_covers_every_order_up_to_its_last(epsilon: float) -> None:
    coarse = RdpCurve.of(lambda orders: pure_dp_rdp(epsilon, orders), [1.5, 2, 4, 16, 64])
    rho, omega = rdp_to_tcdp(coarse)
    assert omega == 64
    fine = np.linspace(1.0001, 63.999, 500)
    assert (pure_dp_rdp(epsilon, fine) <= rho * fine * (1 + 1e-12)).all()


def test_group_privacy_of_one_is_the_guarantee_itself() -> None:
    curve = RdpCurve.of(lambda orders: gaussian_rdp(1.0, 5.0, orders))
    assert group_pure(0.3, 1) == 0.3
    assert group_approximate(0.3, 1e-5, 1) == Guarantee(0.3, pytest.approx(1e-5))
    np.testing.assert_array_equal(group_rdp(curve, 1).values, curve.values)
    assert group_zcdp(0.2, 1) == 0.2


@given(epsilons, deltas, st.integers(2, 8))
def test_group_approximate_is_the_geometric_sum(epsilon: float, delta: float, size: int) -> None:
    total = group_approximate(epsilon, delta, size)
    plain = delta * sum(math.exp(i * epsilon) for i in range(size))
    assert total.epsilon == size * epsilon
    assert total.delta == pytest.approx(min(1, plain), rel=1e-9)
    assert total.delta <= size * math.exp((size - 1) * epsilon) * delta * (1 + 1e-9)


def test_group_approximate_at_the_ends() -> None:
    assert group_approximate(0.0, 1e-5, 4) == Guarantee(0.0, pytest.approx(4e-5))
    assert group_approximate(400.0, 1e-9, 5).delta == 1.0
    assert group_approximate(400.0, 0.0, 5) == Guarantee(2000.0, 0.0)


def test_advanced_composition_of_a_huge_epsilon_is_infinite() -> None:
    assert advanced_composition(1000.0, 0.0, 3, 1e-6).epsilon == math.inf


@pytest.mark.parametrize("size", [2, 3, 4, 7])
def test_group_rdp_covers_gaussian_noise_with_the_group_s_sensitivity(size: int) -> None:
    grown = group_rdp(RdpCurve.of(lambda orders: gaussian_rdp(1.0, 20.0, orders)), size)
    assert grown.orders[0] >= 2
    assert (gaussian_rdp(size, 20.0, grown.orders) <= grown.values).all()
    assert group_zcdp(zcdp_of_gaussian(1.0, 20.0), size) == pytest.approx(zcdp_of_gaussian(size, 20.0))


def test_group_rdp_needs_high_orders() -> None:
    with pytest.raises(ParameterError, match="at least 8"):
        group_rdp(RdpCurve([2.0, 4.0], [1.0, 2.0]), 4)


@given(st.floats(0, 60), st.floats(0, 0.1), st.floats(1e-6, 1))
def test_subsampling_never_costs(epsilon: float, delta: float, rate: float) -> None:
    less = amplify_poisson(epsilon, delta, rate)
    assert less.epsilon <= epsilon * (1 + 1e-12)
    assert less.delta == rate * delta
    if epsilon < 30:
        assert less.epsilon == pytest.approx(math.log1p(rate * math.expm1(epsilon)), rel=1e-9, abs=1e-15)


def test_subsampling_everything_changes_nothing() -> None:
    assert amplify_poisson(2.0, 1e-5, 1.0) == Guarantee(2.0, 1e-5)
    assert amplify_without_replacement(0.5, 1e-5, 100, 100) == Guarantee(pytest.approx(0.5), 1e-5)


def test_poisson_amplification_is_attained_by_randomised_response() -> None:
    """Randomised response on "is the record in the sample": the largest log-ratio is exactly the new epsilon."""
    epsilon, rate = 1.2, 0.1
    truth = math.exp(epsilon) / (1 + math.exp(epsilon))
    absent = np.array([1 - truth, truth])
    sampled = rate * absent[::-1] + (1 - rate) * absent
    amplified = amplify_poisson(epsilon, 0.0, rate).epsilon
    assert max(np.log(sampled / absent)) == pytest.approx(amplified, rel=1e-12)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: basic_composition([-0.1]), "epsilon"),
        (lambda: basic_composition([0.1], 1.5), "delta"),
        (lambda: advanced_composition(0.1, 0.0, 0, 1e-5), "times"),
        (lambda: advanced_composition(0.1, 0.0, 5, 0.0), "delta"),
        (lambda: optimal_composition(0.1, -1e-9, 5, 1e-5), "delta"),
        (lambda: optimal_composition_delta(0.1, 2.5, 0.1), "times"),  # type: ignore[arg-type]
        (lambda: zcdp_compose([0.1, -0.1]), "rho"),
        (lambda: zcdp_epsilon(math.nan, 1e-5), "rho"),
        (lambda: zcdp_epsilon(0.1, 1.0), "delta"),
        (lambda: group_pure(0.1, 0), "size"),
        (lambda: amplify_poisson(0.1, 0.0, 0.0), "rate"),
        (lambda: amplify_without_replacement(0.1, 0.0, 11, 10), "n_sampled"),
    ],
)
def test_bad_inputs_are_refused(call: object, message: str) -> None:
    assert callable(call)
    with pytest.raises(ParameterError, match=message):
        call()
