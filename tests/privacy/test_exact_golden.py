"""Exact noisy max against ball arithmetic (tests/golden), 50-digit mpmath, and the known table on MNIST votes."""

from __future__ import annotations

from typing import Any

import mpmath
import numpy as np
import pytest

from pate.arrays import FloatArray, IntArray
from pate.privacy.curve import DEFAULT_ORDERS, RdpCurve
from pate.privacy.exact import NoisyMax, ThresholdTest, gaussian_max_rdp, noisy_max_log_probs, noisy_max_rdp
from pate.privacy.exact.divergence import PRUNING_SLACK
from pate.privacy.exact.engine import distinct_costs, kernel
from pate.privacy.exact.rows import sorted_rows
from pate.privacy.outcomes import moved_votes, numeric_margin

N_CASES = 13


def _mechanism(case: dict[str, Any]) -> NoisyMax:
    confident = None if case["confident"] is None else ThresholdTest(*case["confident"])
    return NoisyMax(case["noise"], case["scale"], confident)


def test_all_golden_cases_are_used(reference: dict[str, Any]) -> None:
    assert len(reference["exact_noisy_max"]) == N_CASES


@pytest.mark.parametrize("number", range(N_CASES))
def test_golden(reference: dict[str, Any], number: int) -> None:
    case = reference["exact_noisy_max"][number]
    mechanism, counts, orders = _mechanism(case), np.array([case["counts"]]), np.array(case["orders"])
    np.testing.assert_allclose(noisy_max_log_probs(mechanism, counts)[0], case["log_prob"], rtol=1e-10)
    # Before the margin, since one case costs 4e-188, far below it.
    bare = distinct_costs(mechanism, sorted_rows(counts), orders, margin=False, compiled=False)[:, 0, 0]
    np.testing.assert_allclose(bare[0], case["rdp_forward"], rtol=1e-10)
    np.testing.assert_allclose(bare[1], case["rdp_reverse"], rtol=1e-10)
    margin = numeric_margin(orders)
    truths = (case["rdp_forward"], case["rdp_reverse"])
    for reported, truth in zip(noisy_max_rdp(mechanism, counts, orders), truths, strict=True):
        assert (reported[0] >= truth).all(), "a reported cost is never below the true one"
        assert (reported[0] <= np.array(truth) * (1 + 1e-10) + 1.01 * margin).all()


def _gaussian_probs(counts: IntArray, sigma: float) -> list[mpmath.mpf]:
    """Trapezoid rule with a step so small that its error is below 1e-40, in 50 digits."""
    n = [mpmath.mpf(int(c)) / mpmath.mpf(sigma) for c in counts]
    # relative error 2 exp(-2π²/(k h²)): h = 0.25 and k = 3 give 2e-46
    h = mpmath.mpf(1) / 4
    low, high = int(min(n) / h) - 60, int(max(n) / h) + 60
    probs = [mpmath.mpf(0)] * len(n)
    for i in range(low, high + 1):
        x = i * h
        cdf = [mpmath.ncdf(x - c) for c in n]
        for j, c in enumerate(n):
            term = mpmath.npdf(x - c)
            for m, f in enumerate(cdf):
                if m != j:
                    term *= f
            probs[j] += term * h
    return probs


@pytest.mark.parametrize(("seed", "sigma"), [(0, 7.3), (1, 2.0), (2, 25.0), (3, 0.9)])
def test_gaussian_against_mpmath(seed: int, sigma: float) -> None:
    rng = np.random.default_rng(seed)
    counts = rng.multinomial(20, rng.dirichlet(np.ones(3)))
    orders = np.array([1.1, 2.0, 32.0, 500.0])
    with mpmath.workdps(50):
        p = _gaussian_probs(counts, sigma)
        neighbours = [_gaussian_probs(row, sigma) for row in moved_votes(counts)]

        def divergence(x: list[mpmath.mpf], y: list[mpmath.mpf], order: float) -> float:
            a = mpmath.mpf(order)
            return float(mpmath.log(mpmath.fsum(u**a * v ** (1 - a) for u, v in zip(x, y, strict=True))) / (a - 1))

        forward = [max(divergence(p, q, order) for q in neighbours) for order in orders]
        reverse = [max(divergence(q, p, order) for q in neighbours) for order in orders]
        log_p = [float(mpmath.log(x)) for x in p]
    np.testing.assert_allclose(noisy_max_log_probs(NoisyMax("gaussian", sigma), counts[None])[0], log_p, rtol=1e-12)
    bare = distinct_costs(NoisyMax("gaussian", sigma), sorted_rows(counts[None]), orders, margin=False, compiled=False)[:, 0, 0]
    np.testing.assert_allclose(bare, [forward, reverse], rtol=1e-10, atol=1.01 * PRUNING_SLACK)


@pytest.mark.parametrize(
    ("mechanism", "epsilon"),
    [
        (NoisyMax("gaussian", 40.0), 0.886),
        (NoisyMax("gaussian", 40.0, ThresholdTest(200, 150)), 0.732),
        (NoisyMax("gaussian", 40.0, ThresholdTest(300, 200)), 0.559),
        (NoisyMax("laplace", 0.05), 1.063),
    ],
)
def test_epsilon_of_640_mnist_queries(mnist_votes: IntArray, mechanism: NoisyMax, epsilon: float) -> None:
    """Known values from an independent implementation, delta 1e-5, improved conversion."""
    worst = noisy_max_rdp(mechanism, mnist_votes[:640], DEFAULT_ORDERS).worst
    assert RdpCurve(DEFAULT_ORDERS, worst.sum(axis=0)).epsilon(1e-5).epsilon == pytest.approx(epsilon, abs=6e-4)


def test_expected_cost_of_confident_is_no_bound() -> None:
    """n=(30,28,2), T=60, s1=15, s2=3, order 32: the 2018 scripts' expected cost is 0.149, the truth is 2.008."""
    cost = gaussian_max_rdp([[30, 28, 2]], 3.0, [32.0], ThresholdTest(60, 15))
    assert float(cost.worst[0, 0]) == pytest.approx(2.008, abs=5e-4)


@pytest.mark.skipif(kernel() is None, reason="numba is not installed")
def test_compiled_golden(reference: dict[str, Any]) -> None:
    for case in reference["exact_noisy_max"]:
        orders = np.array(case["orders"])
        bare: FloatArray = distinct_costs(
            _mechanism(case), sorted_rows(np.array([case["counts"]])), orders, margin=False, compiled=True
        )[:, 0, 0]
        truth = np.array([case["rdp_forward"], case["rdp_reverse"]])
        assert (np.abs(bare - truth) <= 1e-13 * (1 + 1 / (orders - 1)) * (1 + truth)).all()
