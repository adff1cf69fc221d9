"""The cost of a DP-SGD step against mpmath, the vectors, and Gaussian noise."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pate.errors import ParameterError
from pate.privacy.curve import DEFAULT_ORDERS
from pate.privacy.mechanisms import gaussian_rdp
from pate.privacy.subsampled import replace_rdp, subsampled_gaussian_rdp

SECTION: dict[str, Any] = json.loads((Path(__file__).parents[1] / "golden" / "reference.json").read_text())["dpsgd"]
ORDERS = np.array(SECTION["orders"], dtype=np.float64)
WHOLE = np.round(ORDERS) == ORDERS


def numbers(values: list[Any]) -> np.ndarray:
    return np.array([float(value) for value in values])


def divergence(order: float, weights_p: list[float], weights_q: list[float], means: list[float], sigma: float) -> float:
    """D_order of two mixtures of normal laws on the same means, by mpmath at 30 digits."""
    with mpmath.workdps(30):
        a, s = mpmath.mpf(order), mpmath.mpf(sigma)

        def density(x: Any, weights: list[float]) -> Any:
            return mpmath.fsum(w * mpmath.npdf(x, m, s) for w, m in zip(weights, means, strict=True))

        reach = [-12 * sigma - 2, -3 * sigma, 0, 1, 3 * sigma, order / 2, order, order + 12 * sigma + 2]
        knots = sorted({float(each) for each in reach})
        moment = mpmath.quad(lambda x: density(x, weights_p) ** a * density(x, weights_q) ** (1 - a), knots)
        return float(mpmath.log(moment) / (a - 1))


@pytest.mark.parametrize("case", SECTION["cases"], ids=lambda case: f"q{case['q']}-s{case['sigma']}-{case['steps']}")
def test_the_vectors_are_met(case: dict[str, Any]) -> None:
    rdp = case["steps"] * subsampled_gaussian_rdp(case["q"], case["sigma"], ORDERS)
    assert rdp[WHOLE] == pytest.approx(numbers(case["rdp_dp_accounting"])[WHOLE], rel=1e-8)
    # The quadrature of the vectors works on the logarithm itself, so it is off by up to 1e-12 a step where costs are tiny.
    allowed = 1e-12 * case["steps"] / (ORDERS - 1)
    assert (np.abs(rdp - numbers(case["rdp_quadrature"])) <= allowed + 1e-8 * rdp).all()


@pytest.mark.parametrize("order", [1.05, 1.5, 2.25, 7.5, 30.0])
@pytest.mark.parametrize(("rate", "sigma"), [(0.01, 1.0), (0.2, 4.0), (0.5, 0.4)])
def test_it_is_the_divergence_and_the_other_direction_is_no_larger(rate: float, sigma: float, order: float) -> None:
    found = subsampled_gaussian_rdp(rate, sigma, [order])[0]
    with_record, without = [1 - rate, rate], [1.0, 0.0]
    forward = divergence(order, with_record, without, [0.0, 1.0], sigma)
    assert found == pytest.approx(forward, rel=1e-9)
    assert found >= forward * (1 - 1e-13)
    assert divergence(order, without, with_record, [0.0, 1.0], sigma) <= found * (1 + 1e-12)


@given(rate=st.floats(1e-5, 1.0), sigma=st.floats(0.2, 200))
def test_a_step_costs_at_most_what_it_costs_unsampled_and_grows_with_the_order(rate: float, sigma: float) -> None:
    rdp = subsampled_gaussian_rdp(rate, sigma, DEFAULT_ORDERS)
    assert np.isfinite(rdp).all()
    assert (rdp > 0).all()
    assert (rdp <= gaussian_rdp(1.0, sigma, DEFAULT_ORDERS)).all()
    assert (np.diff(rdp) >= -1e-12 * rdp[1:]).all()


def test_the_smallest_noise_still_has_a_bound() -> None:
    assert np.isfinite(subsampled_gaussian_rdp(0.01, 1e-3, DEFAULT_ORDERS)).all()


def test_replacing_is_exact_for_gaussian_noise() -> None:
    replaced = replace_rdp(lambda orders: gaussian_rdp(1.0, 3.0, orders), DEFAULT_ORDERS)
    assert replaced == pytest.approx(gaussian_rdp(2.0, 3.0, DEFAULT_ORDERS), rel=1e-12)


@pytest.mark.parametrize("order", [1.5, 4.0, 16.0])
def test_replacing_covers_two_opposite_records(order: float) -> None:
    rate, sigma = 0.1, 2.0
    true = divergence(order, [1 - rate, rate, 0.0], [1 - rate, 0.0, rate], [0.0, 1.0, -1.0], sigma)
    bound = replace_rdp(lambda orders: subsampled_gaussian_rdp(rate, sigma, orders), [order])[0]
    assert true <= bound


@pytest.mark.parametrize(("rate", "sigma"), [(0.0, 1.0), (1.01, 1.0), (float("nan"), 1.0), (0.1, 0.0), (0.1, -1.0)])
def test_what_has_no_meaning_is_refused(rate: float, sigma: float) -> None:
    with pytest.raises(ParameterError, match=r"rate|noise multiplier"):
        subsampled_gaussian_rdp(rate, sigma, [2.0])
