"""What the releases cost and how often their bounds fail, against quadrature and simulation; the rule looks at no vote."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import logsumexp
from scipy.stats import norm

from pate.arrays import FloatArray
from pate.errors import ParameterError
from pate.privacy.exact import NoisyMax
from pate.privacy.mechanisms import gaussian_rdp
from pate.privacy.smooth import (
    CostTable,
    bound_factor,
    cost_tables,
    gnss_rdp,
    gnss_rdp_2018,
    gnss_settings,
    growth_settings,
    release_rdp,
    stated_votes,
)
from pate.privacy.smooth.release import largest_beta, largest_order
from pate.privacy.smooth.rule import Tables


def divergence_by_quadrature(shift: float, scale: float, ratio: float, order: float) -> float:
    """D_a( N(0, scale^2) || N(shift, (ratio scale)^2) ) from log densities on a fine grid (trapezoid rule)."""
    wide = 60 * scale * max(1.0, ratio) * order
    x = np.linspace(-wide, wide, 400_001)
    log_p, log_q = norm.logpdf(x, 0, scale), norm.logpdf(x, shift, ratio * scale)
    return float(logsumexp(order * log_p + (1 - order) * log_q) + math.log(x[1] - x[0])) / (order - 1)


@pytest.mark.parametrize(("beta", "sigma", "order"), [(0.1, 3.0, 2.0), (0.02, 10.0, 8.0), (0.3, 2.0, 1.5), (0.01, 20.0, 30.0)])
def test_gnss_costs_the_worst_case_over_all_neighbours(beta: float, sigma: float, order: float) -> None:
    """Every ratio of the smooth sensitivities in [e^-beta, e^beta], the figure moved as far as the smaller one allows."""
    claim = float(gnss_rdp(beta, sigma, [order])[0])
    found = [
        divergence_by_quadrature(min(1.0, ratio), sigma, ratio, order) for ratio in np.exp(np.linspace(-beta, beta, 9)).tolist()
    ]
    assert max(found) <= claim * (1 + 1e-9)
    assert claim == pytest.approx(max(found), rel=1e-7)  # the worst is the smallest ratio, and it is attained
    assert claim < gnss_rdp_2018(beta, sigma, [order])[0]


def test_gnss_is_infinite_from_its_largest_order_on() -> None:
    beta = 0.05
    last = largest_order(beta)
    assert largest_beta(last) == pytest.approx(beta)
    values = gnss_rdp(beta, 10.0, [last * 0.999, last * 1.001, 2 * last])
    assert np.isfinite(values).tolist() == [True, False, False]
    assert np.isinf(gnss_rdp_2018(beta, 10.0, [10.0, 11.0])).all()
    assert (np.diff(gnss_rdp(0.001, 10.0, np.arange(2.0, 400.0, 7.0))) > 0).all()


def test_both_numbers_are_paid_for() -> None:
    orders = [2.0, 8.0]
    np.testing.assert_allclose(
        release_rdp(0.02, 10.0, 20.0, orders), gnss_rdp(0.02, 10.0, orders) + gaussian_rdp(1.0, 20.0, orders)
    )


@pytest.mark.parametrize("tau", [0.0, 0.2, 0.7])
def test_the_bound_fails_as_often_as_it_says(tau: float) -> None:
    """Against nested quadrature at 1e-6, and by 400,000 draws at 1e-2 (five standard errors: false alarm 6e-7)."""
    c = bound_factor(tau, 1e-6)
    exact = quad(lambda y: norm.pdf(y) * norm.sf(c * math.exp(tau * y)), -10, 10, epsabs=1e-13, limit=200)[0]
    assert exact <= 1e-6
    assert exact == pytest.approx(1e-6, rel=1e-5)
    z1, z2 = np.random.default_rng(17).standard_normal((2, 400_000))
    share = float((-z1 > bound_factor(tau, 1e-2) * np.exp(tau * z2)).mean())
    assert share == pytest.approx(1e-2, abs=5 * math.sqrt(1e-2 / 400_000))


@pytest.mark.parametrize(("tau", "failure"), [(0.1, 0.0), (0.1, 0.5), (-0.1, 1e-6), (math.inf, 1e-6), (30.0, 1e-9)])
def test_bounds_that_cannot_be_had_are_refused(tau: float, failure: float) -> None:
    with pytest.raises(ParameterError, match=r"tau|probability"):
        bound_factor(tau, failure)


def tables_of(n: int, k: int) -> Tables:
    def tables(orders: FloatArray) -> list[CostTable]:
        return cost_tables(NoisyMax("gaussian", 8.0), n, k, orders)

    return tables


def test_the_rule_gives_the_same_settings_to_the_same_public_facts() -> None:
    """It is a function of teachers, classes, queries, delta and mechanism: no argument of it depends on a vote."""
    tables = tables_of(50, 3)
    first, second = (growth_settings(tables, 50, 3, 100, 1e-5) for _ in range(2))
    assert (first.order, first.sigma) == (second.order, second.sigma)
    np.testing.assert_array_equal(first.growth.log_cost, second.growth.log_cost)
    assert gnss_settings(tables, 50, 3, 100, 1e-5) == gnss_settings(tables, 50, 3, 100, 1e-5)


def test_gnss_settings_can_be_paid_for_at_the_order_of_a_budget() -> None:
    found = gnss_settings(tables_of(50, 3), 50, 3, 100, 1e-5, charged_at=64.0)
    assert np.isfinite(release_rdp(found.beta, found.sigma, found.scale_sigma, [found.order, 64.0])).all()


@pytest.mark.parametrize(("n", "k"), [(1, 2), (7, 2), (50, 3), (250, 10), (3, 10)])
def test_stated_votes_are_votes(n: int, k: int) -> None:
    for agreement in (4.0, 8.0, 16.0):
        votes = stated_votes(n, k, agreement)
        assert votes.shape == (64, k)
        assert (votes.sum(axis=1) == n).all()
        assert (votes >= 0).all()
