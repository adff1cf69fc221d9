"""What must hold for every histogram: bounds, symmetry, monotony. 6,000 histograms and more, chosen by hypothesis."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from pate.arrays import IntArray
from pate.experiments.bench.published_loop import gnmax_bound_loop
from pate.privacy.exact import NoisyMax, ThresholdTest, gaussian_max_rdp, laplace_max_rdp, noisy_max_rdp
from pate.privacy.outcomes import numeric_margin
from pate.privacy.published.gnmax import gnmax_logq, gnmax_rdp

ORDERS = np.array([1.05, 1.25, 2.0, 4.5, 16.0, 50.0, 200.0, 1024.0])
MARGIN = 10 * numeric_margin(ORDERS)
ROWS = 100


@st.composite
def histograms(draw: st.DrawFn) -> IntArray:
    """int64[100, class]: from unanimous to level votes, 2 to 12 classes, 2 to 400 teachers."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    n_classes = draw(st.integers(2, 12))
    teachers = draw(st.integers(2, 400))
    concentration = draw(st.sampled_from([0.05, 0.3, 1.0, 30.0]))
    return rng.multinomial(teachers, rng.dirichlet(np.full(n_classes, concentration), ROWS)).astype(np.int64)


sigmas = st.floats(0.5, 200.0)


@settings(max_examples=60, deadline=None)
@given(histograms(), sigmas)
def test_gaussian_is_below_the_published_bounds(counts: IntArray, sigma: float) -> None:
    cost = gaussian_max_rdp(counts, sigma, ORDERS)
    size = np.maximum(1.0, (counts.max() / sigma) ** 2 / 1000)  # the margin grows with log-probabilities beyond -1000
    assert (cost.forward <= gnmax_bound_loop(counts, sigma, ORDERS) * (1 + 1e-12) + size * MARGIN).all()
    assert (cost.forward <= gnmax_rdp(gnmax_logq(counts, sigma), sigma, ORDERS) * (1 + 1e-12) + size * MARGIN).all()
    # Proposition 8 of arXiv:1802.08908 holds in both directions.
    assert (cost.worst <= ORDERS / sigma**2 * (1 + 1e-12) + size * MARGIN).all()


@settings(max_examples=25, deadline=None)
@given(histograms(), st.floats(0.01, 2.0))
def test_laplace_is_below_pure_dp(counts: IntArray, gamma: float) -> None:
    """One vote moves two counts by one, so the winner is 2*gamma-DP and D <= min(2*gamma, a*(2*gamma)²/2).

    Bun and Steinke 2016 (arXiv:1605.02065), Proposition 3.3.
    """
    cost = laplace_max_rdp(counts[:20], gamma, ORDERS).worst
    assert (cost <= np.minimum(2 * gamma, ORDERS * 2 * gamma**2) * (1 + 1e-12) + MARGIN).all()


mechanisms = st.one_of(
    st.builds(NoisyMax, st.just("gaussian"), sigmas),
    st.builds(NoisyMax, st.just("gaussian"), sigmas, st.builds(ThresholdTest, st.floats(-50, 500), st.floats(1.0, 200.0))),
    st.builds(NoisyMax, st.just("laplace"), st.floats(0.01, 2.0)),
)


@settings(max_examples=30, deadline=None)
@given(histograms(), mechanisms)
def test_order_of_classes_does_not_matter(counts: IntArray, mechanism: NoisyMax) -> None:
    some = counts[:20]
    shuffled = np.random.default_rng(some.sum()).permuted(some, axis=1)
    np.testing.assert_array_equal(
        noisy_max_rdp(mechanism, some, ORDERS).worst, noisy_max_rdp(mechanism, shuffled, ORDERS).worst
    )


@settings(max_examples=30, deadline=None)
@given(histograms(), mechanisms)
def test_cost_grows_with_the_order(counts: IntArray, mechanism: NoisyMax) -> None:
    test = mechanism.confident
    size = max(1.0, (counts.max() / mechanism.scale) ** 2 / 1000) if mechanism.noise == "gaussian" else 1.0
    size = max(size, 0.0 if test is None else (600 / test.sigma) ** 2 / 1000)
    for cost in noisy_max_rdp(mechanism, counts[:30], ORDERS):
        assert (cost > 0).all(), "the margin alone is above zero"
        # D never falls with the order; the margin does, by design, and it is larger where log-probabilities are.
        assert (np.diff(cost, axis=1) >= -1e-11 * cost[:, :-1] - size * MARGIN[:-1]).all()


@settings(max_examples=25, deadline=None)
@given(histograms(), sigmas, st.floats(-50, 500), st.floats(1.0, 200.0))
def test_joint_confident_is_below_threshold_plus_argmax(
    counts: IntArray, sigma: float, threshold: float, sigma1: float
) -> None:
    """The test moves by one vote, a/(2 sigma1²), and the winner is released at most: a post-processing of both."""
    cost = gaussian_max_rdp(counts, sigma, ORDERS, ThresholdTest(threshold, sigma1)).worst
    size = np.maximum(1.0, max((counts.max() / sigma) ** 2, (600 / sigma1) ** 2) / 1000)
    assert (cost <= (ORDERS / sigma**2 + ORDERS / (2 * sigma1**2)) * (1 + 1e-12) + size * MARGIN).all()
