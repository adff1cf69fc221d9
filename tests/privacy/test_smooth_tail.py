"""What the winner gives away at most, from the chance of any other: against the exact cost and the sets of its proof."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.special import ndtr, ndtri
from scipy.stats import norm

from pate.arrays import FloatArray, IntArray
from pate.errors import ParameterError
from pate.privacy.exact import gaussian_max_log_probs, gaussian_max_rdp, laplace_max_rdp
from pate.privacy.independent import noisy_max_bound
from pate.privacy.published import gnmax_logq, gnmax_rdp, lnmax_logq
from pate.privacy.smooth import gaussian_tail_excess, laplace_tail_excess
from pate.privacy.smooth.tail import psi

ORDERS = (1.25, 2.0, 8.0, 20.0)


@pytest.mark.parametrize("n_classes", [2, 3, 10])
def test_never_below_the_exact_cost_of_either_direction(n_classes: int) -> None:
    """1,800 pairs of histogram and order each, agreed and split; q both exact and by the union bound."""
    rng = np.random.default_rng(n_classes)
    for sigma in (4.0, 15.0, 40.0):
        counts = rng.multinomial(250, rng.dirichlet(np.full(n_classes, 0.25), 150))
        exact = gaussian_max_rdp(counts, sigma, ORDERS).worst
        logs = gaussian_max_log_probs(counts, sigma)
        top = counts.argmax(axis=1)
        others = np.where(np.arange(n_classes) == top[:, None], 0.0, np.exp(logs)).sum(axis=1)
        for q in (np.minimum(others * (1 + 1e-12), 1.0), np.exp(gnmax_logq(counts, sigma))):
            for i, order in enumerate(ORDERS):
                bound = np.log1p(gaussian_tail_excess(q, sigma, order)) / (order - 1)
                # The exact cost carries a margin for numeric error of its own.
                assert (bound >= exact[:, i] - 1e-11).all()


def test_laplace_never_below_the_exact_cost_of_either_direction() -> None:
    """600 pairs of histogram and order a class count."""
    rng = np.random.default_rng(5)
    for n_classes in (2, 3, 6):
        counts = rng.multinomial(100, rng.dirichlet(np.full(n_classes, 0.3), 150))
        exact = laplace_max_rdp(counts, 0.1, ORDERS).worst
        q = np.exp(lnmax_logq(counts, 0.1))
        for i, order in enumerate(ORDERS):
            assert (np.log1p(laplace_tail_excess(q, 0.1, order)) / (order - 1) >= exact[:, i] - 1e-11).all()


def test_on_real_votes_it_is_far_below_theorem6_which_bounds_one_direction(mnist_votes: IntArray) -> None:
    counts, order = mnist_votes[:640], 8.0
    logq = gnmax_logq(counts, 40.0)
    ours = np.log1p(gaussian_tail_excess(np.exp(logq), 40.0, order)) / (order - 1)
    ours = np.minimum(ours, noisy_max_bound(40.0, [order])[0])
    exact = gaussian_max_rdp(counts, 40.0, [order]).worst[:, 0]
    assert exact.sum() < ours.sum() < 1.35 * exact.sum()
    assert ours.sum() < 0.6 * gnmax_rdp(logq, 40.0, [order]).sum()


def divergences_of_told_sets(q: float, shift: float, order: float) -> FloatArray:
    """float64[split, direction]: D of "the noisy counts inside two tails of total probability q, else one outcome"."""
    found = []
    for split in np.linspace(0.001, 0.999, 61):
        low, high = ndtri(split * q), -ndtri((1 - split) * q)
        row = []
        for power in (1 - order, order):
            tilt = power * shift
            inside = math.exp(power * (power - 1) * shift**2 / 2) * (ndtr(low - tilt) + ndtr(tilt - high))
            told_q = ndtr(low - shift) + ndtr(shift - high)
            outside = (1 - q) * ((1 - told_q) / (1 - q)) ** power
            row.append(math.log(inside + outside) / (order - 1))
        found.append(row)
    return np.array(found)


@pytest.mark.parametrize("order", [2.0, 8.0, 25.0])
@pytest.mark.parametrize("sigma", [10.0, 40.0])
@pytest.mark.parametrize("q", [1e-9, 1e-5, 1e-3, 0.05, 0.3])
def test_above_every_set_of_the_proof_and_hardly_above_the_worst(q: float, sigma: float, order: float) -> None:
    worst = divergences_of_told_sets(q, math.sqrt(2) / sigma, order).max()
    bound = math.log1p(float(gaussian_tail_excess(q, sigma, order))) / (order - 1)
    assert bound >= worst * (1 - 1e-9)
    if q <= 1e-3:
        assert bound <= worst * 1.02


@given(st.floats(1e-9, 0.9), st.floats(1.0, 3.0), st.sampled_from([(3.0, 2.0), (15.0, 8.0), (40.0, 25.0)]))
def test_any_upper_bound_on_q_will_do(q: float, factor: float, setting: tuple[float, float]) -> None:
    sigma, order = setting
    worst = divergences_of_told_sets(q, math.sqrt(2) / sigma, order).max()
    bound = float(gaussian_tail_excess(min(1.0, q * factor), sigma, order))
    assert math.log1p(bound) / (order - 1) >= worst * (1 - 1e-9)


def test_certainty_of_loss_is_the_gaussian_mechanism() -> None:
    excess = float(gaussian_tail_excess(1.0, 40.0, 8.0))
    assert math.log1p(excess) / 7 == pytest.approx(8 / 40**2, rel=1e-6)
    assert excess >= math.expm1(7 * 8 / 40**2)


def test_the_told_part_is_the_integral_it_says() -> None:
    """The best line at q against quadrature of psi over the set where it is largest."""
    shift, order = math.sqrt(2) / 20, 6.0
    for power in (1 - order, order):

        def integrand(x: float, power: float = power) -> float:
            return float(psi(np.array(shift * x - shift**2 / 2), power)) * float(norm.pdf(x))

        cut = 2.0
        whole = quad(integrand, -12, 12, epsabs=1e-14, limit=200)[0]
        assert math.expm1((order - 1) * order / 400) == pytest.approx(whole, rel=1e-8)
        inside = quad(integrand, -12, -cut, epsabs=1e-14)[0] + quad(integrand, cut, 12, epsabs=1e-14)[0]
        q = 2 * float(ndtr(-cut))
        assert float(gaussian_tail_excess(q, 20.0, order)) >= inside


def test_extremes_stay_on_the_safe_side() -> None:
    assert np.isinf(gaussian_tail_excess(0.5, 0.05, 500.0))
    tiny = float(gaussian_tail_excess(0.0, 40.0, 2.0))
    assert 0 < tiny < 1e-15
    assert np.isfinite(laplace_tail_excess([0.0, 0.5], 0.05, 8.0)).all()
    # Nothing is known of a winner that never wins: the caller takes the data-independent cost.
    assert np.isinf(laplace_tail_excess(1.0, 0.05, 8.0))


@pytest.mark.parametrize(("q", "order"), [(-0.1, 2.0), (1.1, 2.0), (math.nan, 2.0), (0.5, 1.0), (0.5, math.inf)])
def test_what_is_no_probability_or_order_is_refused(q: float, order: float) -> None:
    for bound in (gaussian_tail_excess, laplace_tail_excess):
        with pytest.raises(ParameterError, match=r"probabilities|order"):
            bound(q, 10.0, order)
