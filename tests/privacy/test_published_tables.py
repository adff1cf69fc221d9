"""The published epsilons of the first MNIST queries, 250 teachers, delta 1e-5, at whole orders (docs/accounting.md)."""

from __future__ import annotations

import math
import time

import numpy as np
import pytest

from pate.arrays import FloatArray, IntArray
from pate.privacy.curve import DEFAULT_ORDERS, Conversion, RdpCurve
from pate.privacy.published import (
    confident_expected_rdp,
    confident_independent_rdp,
    confident_worst_rdp,
    gnmax_logq,
    gnmax_rdp,
    lnmax_log_moments,
    lnmax_log_moments_2017,
    lnmax_logq,
    lnmax_q,
    proposition8,
)

WHOLE_ORDERS = np.arange(2.0, 65.0)
LOG_INVERSE_DELTA = math.log(1e5)
PRINTED = 6e-4  # the tables have three decimals


def epsilons(total: FloatArray, orders: FloatArray = WHOLE_ORDERS) -> list[float]:
    curve = RdpCurve(orders, total)
    conversions: tuple[Conversion, Conversion] = ("classic", "improved")
    return [curve.epsilon(1e-5, conversion).epsilon for conversion in conversions]


def test_gnmax(mnist_votes: IntArray) -> None:
    total = gnmax_rdp(gnmax_logq(mnist_votes[:640], 40.0), 40.0, WHOLE_ORDERS).sum(axis=0)
    assert epsilons(total) == pytest.approx([1.649, 1.389], abs=PRINTED)


@pytest.mark.parametrize(
    ("threshold", "sigma1", "expected", "worst"),
    [(200.0, 150.0, [1.293, 1.068], [1.866, 1.582]), (300.0, 200.0, [0.998, 0.806], [1.773, 1.501])],
)
def test_confident(mnist_votes: IntArray, threshold: float, sigma1: float, expected: list[float], worst: list[float]) -> None:
    setting = (mnist_votes[:640], threshold, sigma1, 40.0, WHOLE_ORDERS)
    assert epsilons(confident_expected_rdp(*setting).sum(axis=0)) == pytest.approx(expected, abs=PRINTED)
    assert epsilons(confident_worst_rdp(*setting).sum(axis=0)) == pytest.approx(worst, abs=PRINTED)


def test_data_independent() -> None:
    assert epsilons(640 * proposition8(40.0, WHOLE_ORDERS)) == pytest.approx([4.703, 4.162], abs=PRINTED)
    assert epsilons(640 * confident_independent_rdp(200.0, 40.0, WHOLE_ORDERS)) == pytest.approx([4.751, 4.210], abs=PRINTED)
    many = 3098 * confident_independent_rdp(200.0, 40.0, DEFAULT_ORDERS)
    # The best order is near 3, so a grid of quarters matters: 10.68 on a coarser one.
    assert epsilons(many, DEFAULT_ORDERS) == pytest.approx([11.518, 10.644], abs=PRINTED)


def test_the_finer_default_grid_is_never_worse(mnist_votes: IntArray) -> None:
    logq = gnmax_logq(mnist_votes[:640], 40.0)
    fine = epsilons(gnmax_rdp(logq, 40.0, DEFAULT_ORDERS).sum(axis=0), DEFAULT_ORDERS)
    whole = epsilons(gnmax_rdp(logq, 40.0, WHOLE_ORDERS).sum(axis=0))
    assert all(finer <= coarser for finer, coarser in zip(fine, whole, strict=True))


def lnmax_epsilon(total: FloatArray, moments: FloatArray) -> float:
    return float(((total + LOG_INVERSE_DELTA) / moments).min())


def test_lnmax(mnist_votes: IntArray) -> None:
    moments = np.arange(1.0, 9.0)
    total = lnmax_log_moments_2017(lnmax_q(mnist_votes[:640], 0.05), 0.05, moments).sum(axis=0)
    assert lnmax_epsilon(total, moments) == pytest.approx(3.321, abs=PRINTED)


@pytest.mark.parametrize(("last_moment", "epsilon"), [(8, 1.648), (400, 0.762)])
def test_lnmax_needs_moments_far_above_eight(mnist_votes: IntArray, last_moment: int, epsilon: float) -> None:
    moments = np.arange(1.0, last_moment + 1)
    total = lnmax_log_moments(lnmax_logq(mnist_votes[:100], 0.05), 0.05, moments).sum(axis=0)
    assert lnmax_epsilon(total, moments) == pytest.approx(epsilon, abs=PRINTED)


def test_ten_thousand_queries_take_less_than_a_second(mnist_votes: IntArray) -> None:
    """About 0.05 s on one core; the reference's per-query loop takes over a second."""
    votes = np.concatenate([mnist_votes, mnist_votes[:1000]])
    start = time.process_time()
    gnmax_rdp(gnmax_logq(votes, 40.0), 40.0, WHOLE_ORDERS)
    assert time.process_time() - start < 1
