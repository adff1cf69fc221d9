"""Elementary mechanisms against mpmath, plain integrals and dp_accounting."""

from __future__ import annotations

import math
from collections.abc import Callable

import mpmath
import numpy as np
import pytest
from dp_accounting import dp_event
from dp_accounting.rdp import RdpAccountant
from hypothesis import given
from hypothesis import strategies as st

from pate.errors import ParameterError
from pate.privacy.curve import DEFAULT_ORDERS, RdpCurve
from pate.privacy.mechanisms import (
    gaussian_delta,
    gaussian_epsilon,
    gaussian_rdp,
    laplace_epsilon,
    laplace_rdp,
    pure_dp_rdp,
    smallest_epsilon,
)

ORDERS = np.array([1.05, 1.5, 2, 3, 8, 32, 256])
scales = st.floats(1e-3, 1e4)


def renyi_by_quadrature(log_p: Callable[[mpmath.mpf], mpmath.mpf], shift: float, order: float, knots: list[float]) -> float:
    """D_order of a density against its own shift, by mpmath's adaptive quadrature at 30 digits."""
    with mpmath.workdps(30):
        a = mpmath.mpf(order)
        moment = mpmath.quad(lambda x: mpmath.exp(a * log_p(x) + (1 - a) * log_p(x - shift)), knots)
        return float(mpmath.log(moment) / (a - 1))


@pytest.mark.parametrize("order", [1.5, 2.0, 5.0])
@pytest.mark.parametrize("shift", [0.1, 1.0, 2.0])
def test_gaussian_rdp_is_the_divergence(order: float, shift: float) -> None:
    sigma = 1.7
    log_density = lambda x: -((x / sigma) ** 2) / 2 - mpmath.log(sigma * mpmath.sqrt(2 * mpmath.pi))  # noqa: E731
    knots = [-60, -20, -5, 0, 5, 20, 60]
    exact = renyi_by_quadrature(log_density, shift, order, knots)
    assert gaussian_rdp(shift, sigma, [order])[0] == pytest.approx(exact, rel=1e-10)


@pytest.mark.parametrize("order", [1.5, 2.0, 20.0])
@pytest.mark.parametrize("shift", [0.1, 1.0, 4.0])
def test_laplace_rdp_is_the_divergence(order: float, shift: float) -> None:
    scale = 1.3
    log_density = lambda x: -abs(x) / scale - mpmath.log(2 * scale)  # noqa: E731
    exact = renyi_by_quadrature(log_density, shift, order, [-150, -20, 0, shift, 20, 150])
    assert laplace_rdp(shift, scale, [order])[0] == pytest.approx(exact, rel=1e-10)


@pytest.mark.parametrize("epsilon", [1e-9, 1e-4, 0.01, 0.3, 0.99, 1.01, 5.0, 80.0])
def test_laplace_rdp_at_fifty_digits(epsilon: float) -> None:
    with mpmath.workdps(60):
        e = mpmath.mpf(epsilon)
        exact = [
            float(mpmath.log(a / (2 * a - 1) * mpmath.exp((a - 1) * e) + (a - 1) / (2 * a - 1) * mpmath.exp(-a * e)) / (a - 1))
            for a in map(mpmath.mpf, ORDERS)
        ]
    np.testing.assert_allclose(laplace_rdp(epsilon, 1.0, ORDERS), exact, rtol=1e-13)


@pytest.mark.parametrize("epsilon", [1e-9, 1e-4, 0.01, 0.3, 1.0, 5.0, 80.0])
def test_pure_dp_rdp_is_randomised_response_at_fifty_digits(epsilon: float) -> None:
    with mpmath.workdps(60):
        truth = 1 / (1 + mpmath.exp(-mpmath.mpf(epsilon)))
        lie = 1 - truth
        exact = [
            float(mpmath.log(truth**a * lie ** (1 - a) + lie**a * truth ** (1 - a)) / (a - 1)) for a in map(mpmath.mpf, ORDERS)
        ]
    np.testing.assert_allclose(pure_dp_rdp(epsilon, ORDERS), exact, rtol=1e-13)


@given(st.floats(0.01, 0.99), st.floats(0.01, 0.99))
def test_pure_dp_rdp_bounds_every_pair_of_coins(p: float, q: float) -> None:
    epsilon = max(abs(math.log(p / q)), abs(math.log((1 - p) / (1 - q))))
    for order, bound in zip(ORDERS, pure_dp_rdp(epsilon, ORDERS), strict=True):
        terms = order * np.log([p, 1 - p]) + (1 - order) * np.log([q, 1 - q])
        assert np.logaddexp(*terms) / (order - 1) <= bound + 1e-12 / (order - 1)


@given(st.floats(1e-6, 50))
def test_pure_dp_rdp_is_below_the_usual_simplification(epsilon: float) -> None:
    loose = np.minimum(epsilon, epsilon**2 / 2 * DEFAULT_ORDERS)
    assert (pure_dp_rdp(epsilon, DEFAULT_ORDERS) <= loose * (1 + 1e-12)).all()


@given(scales, scales)
def test_laplace_costs_less_than_any_mechanism_of_its_epsilon(sensitivity: float, scale: float) -> None:
    epsilon = laplace_epsilon(sensitivity, scale)
    assert epsilon == sensitivity / scale
    tight = pure_dp_rdp(epsilon, DEFAULT_ORDERS)
    laplace = laplace_rdp(sensitivity, scale, DEFAULT_ORDERS)
    assert (laplace >= 0).all()
    assert (laplace <= tight * (1 + 1e-12)).all()


@given(scales, scales)
def test_costs_never_fall_with_the_order(sensitivity: float, scale: float) -> None:
    for rdp in (gaussian_rdp, laplace_rdp):
        values = rdp(sensitivity, scale, DEFAULT_ORDERS)
        assert (np.diff(values) >= -1e-12 * values[1:]).all()


@pytest.mark.parametrize("noise_multiplier", [0.8, 5.0, 40.0])
def test_rdp_matches_dp_accounting(noise_multiplier: float) -> None:
    events = {
        dp_event.GaussianDpEvent(noise_multiplier): gaussian_rdp(1.0, noise_multiplier, ORDERS),
        dp_event.LaplaceDpEvent(noise_multiplier): laplace_rdp(1.0, noise_multiplier, ORDERS),
    }
    for event, rdp in events.items():
        theirs = RdpAccountant(orders=ORDERS).compose(event, 30).get_epsilon(1e-6)
        assert RdpCurve(ORDERS, 30 * rdp).epsilon(1e-6).epsilon == pytest.approx(theirs, rel=1e-9)


@pytest.mark.parametrize("epsilon", [0.0, 0.1, 1.0, 8.0])
@pytest.mark.parametrize("sigma", [0.3, 1.0, 30.0])
def test_gaussian_delta_at_fifty_digits_and_rounded_up(sigma: float, epsilon: float) -> None:
    with mpmath.workdps(50):
        s, e = mpmath.mpf(sigma), mpmath.mpf(epsilon)
        exact = mpmath.ncdf(1 / (2 * s) - e * s) - mpmath.exp(e) * mpmath.ncdf(-1 / (2 * s) - e * s)
        found = gaussian_delta(1.0, sigma, epsilon)
        assert exact <= found
        if exact > 1e-300:
            assert found == pytest.approx(float(exact), rel=1e-7)


@given(st.floats(0.05, 100), st.sampled_from([1e-2, 1e-5, 1e-9]))
def test_gaussian_epsilon_is_the_inverse_and_below_rdp(sigma: float, delta: float) -> None:
    epsilon = gaussian_epsilon(1.0, sigma, delta)
    assert gaussian_delta(1.0, sigma, epsilon) <= delta
    if epsilon > 0:
        assert gaussian_delta(1.0, sigma, epsilon * (1 - 1e-6)) > delta
    implied = RdpCurve(DEFAULT_ORDERS, gaussian_rdp(1.0, sigma, DEFAULT_ORDERS))
    assert implied.delta(epsilon) >= delta * (1 - 1e-6) or epsilon == 0


def test_smallest_epsilon_says_when_there_is_none() -> None:
    with pytest.raises(ParameterError, match="larger delta"):
        smallest_epsilon(lambda _: 0.5, 1e-5)


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
def test_bad_noise_and_sensitivity_are_refused(bad: float) -> None:
    for call in (gaussian_rdp, laplace_rdp):
        with pytest.raises(ParameterError, match="sensitivity"):
            call(bad, 1.0, [2.0])
        with pytest.raises(ParameterError, match=r"sigma|scale"):
            call(1.0, bad, [2.0])
    with pytest.raises(ParameterError, match="sigma"):
        gaussian_delta(1.0, bad, 1.0)


@pytest.mark.parametrize("bad", [-1e-9, math.nan, math.inf])
def test_bad_epsilons_are_refused(bad: float) -> None:
    with pytest.raises(ParameterError, match="epsilon"):
        pure_dp_rdp(bad, [2.0])
    with pytest.raises(ParameterError, match="epsilon"):
        gaussian_delta(1.0, 1.0, bad)


def test_zero_epsilon_costs_nothing() -> None:
    np.testing.assert_array_equal(pure_dp_rdp(0.0, ORDERS), np.zeros(ORDERS.size))
