"""The certified suprema for Laplace noise: ingredients against mpmath, every step of the proof, brackets against search."""

from __future__ import annotations

import time
from collections.abc import Callable

import mpmath
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from pate.arrays import FloatArray
from pate.errors import ParameterError
from pate.privacy.certify import FLOAT_MARGIN
from pate.privacy.certify_laplace import (
    LARGEST_SHIFT,
    LARGEST_TILT,
    SMALLEST_SHIFT,
    TOLERANCE,
    box_excess,
    box_slack,
    certify_laplace_max,
    certify_laplace_one_count,
    moved_terms,
)
from pate.privacy.curve import DEFAULT_ORDERS
from pate.privacy.laplace_outcomes import exponential_rest, known_rest, only_a, only_b, some_rest, two_classes
from pate.privacy.mechanisms import pure_dp_rdp

LogProbs = Callable[[FloatArray], FloatArray]

ORDERS = np.array([1.05, 1.5, 2.0, 8.0, 32.0, 64.0, 128.0])
EVERY_KIND = (exponential_rest, known_rest, two_classes, only_a, only_b)


def excess_at(points: FloatArray, a: float, d: float, log_probs: LogProbs = exponential_rest) -> FloatArray:
    """The excess of D_a( t(m) || t(m + s) ) at points float64[point, 2], as the search computes it."""
    return box_excess(np.full(len(points), a), *moved_terms(log_probs, points, d), eta=0.0)


def divergence_at(points: FloatArray, a: float, d: float) -> FloatArray:
    result: FloatArray = np.log1p(excess_at(points, a, d)) / (a - 1)
    return result


def mp_log_wins(u: mpmath.mpf, v: mpmath.mpf, known: bool) -> list[mpmath.mpf]:
    """The three log-probabilities at 50 digits: integrals over the winner's place, cut where the integrand has a kink."""

    def density(x: mpmath.mpf) -> mpmath.mpf:
        return mpmath.exp(-abs(x)) / 2

    def below(x: mpmath.mpf) -> mpmath.mpf:
        return mpmath.exp(x) / 2 if x < 0 else 1 - mpmath.exp(-x) / 2

    def rest_below(x: mpmath.mpf) -> mpmath.mpf:
        return mpmath.mpf(1) if known else -mpmath.expm1(-x)

    kinks = sorted({mpmath.mpf(0), *(z for z in (u, v) if z > 0)})
    last = kinks[-1]
    cuts = [*kinks, *(last + step for step in (2, 5, 10, 20, 40, 80, 160))]

    def integral(integrand: Callable[[mpmath.mpf], mpmath.mpf]) -> mpmath.mpf:
        height = max(integrand(z) for z in (*cuts[:-5], cuts[0] + 1))
        return mpmath.log(height) + mpmath.log(mpmath.quad(lambda z: integrand(z) / height, cuts))

    wins = [integral(lambda z, x=x, y=y: density(z - x) * below(z - y) * rest_below(z)) for x, y in ((u, v), (v, u))]
    if known:
        return [*wins, mpmath.log(below(-u) * below(-v))]
    return [*wins, integral(lambda z: mpmath.exp(-z) * below(z - u) * below(z - v))]


# (order, gamma, u, v): the usual maximisers, every piece of the closed forms, small and large noise, high order.
POINTS = [
    (2.0, 0.05, 0.03, -0.015),
    (1.05, 1e-4, 6.5e-5, -3.5e-5),
    (1.0001, 1e-3, 5e-4, 1e-4),
    (64.0, 0.05, 0.75, 1.75),
    (1024.0, 0.05, 0.0025, 6.15),
    (1024.0, 0.2, 0.01, 13.2),
    (4.0, 2.0, 0.5, 1.1),
    (12.0, 10.0, 0.3, 20.0),
    (3.0, 0.7, -2.0, -3.0),
    (3.0, 0.7, -2.0, 3.0),
    (3.0, 0.7, 2.0, -3.0),
    (3.0, 0.7, 4.0, 1.5),
    (3.0, 0.7, 1.5, 4.0),
    (3.0, 0.7, 0.0, 0.0),
]


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize(("a", "gamma", "u", "v"), POINTS)
def test_float_error_is_far_below_the_margin(a: float, gamma: float, u: float, v: float, known: bool) -> None:
    log_probs = known_rest if known else exponential_rest
    here, there = points = np.array([[u, v], [u - gamma, v + gamma]])
    with mpmath.workdps(50):
        here_mp, there_mp = (mp_log_wins(mpmath.mpf(float(x)), mpmath.mpf(float(y)), known) for x, y in (here, there))
        assert abs(sum(map(mpmath.exp, here_mp)) - 1) < 1e-25  # the oracle itself is right
        order = mpmath.mpf(a)
        moment = sum(mpmath.exp(order * p - (order - 1) * q) for p, q in zip(here_mp, there_mp, strict=True))
        expected = float(mpmath.log(moment) / (order - 1))
    np.testing.assert_allclose(log_probs(points), np.array([here_mp, there_mp], dtype=float), rtol=1e-15, atol=5e-15)
    found = np.log1p(excess_at(points[:1], a, gamma, log_probs)[0]) / (a - 1)
    assert found == pytest.approx(expected, rel=FLOAT_MARGIN / 1000)


def test_limits_of_the_closed_forms() -> None:
    """Two classes are far above the rest; one count is alone when the other is far below it."""
    points = np.random.default_rng(3).uniform(-5, 8, (500, 2))
    near, far = exponential_rest(points + 60), exponential_rest(points * [1, 0] - [0, 60])
    np.testing.assert_allclose(np.exp(near[:, :2]), np.exp(two_classes(points)), atol=1e-14)
    np.testing.assert_allclose(np.exp(far[:, [0, 2]]), np.exp(only_a(points)), atol=1e-14)
    np.testing.assert_array_equal(only_b(points[:, ::-1]), only_a(points))
    both = np.exp(some_rest(points, (0.0, 0.25, 0.75)))
    np.testing.assert_allclose(
        both[:, :3] + both[:, 3:], np.exp(known_rest(points)) / 4 + np.exp(exponential_rest(points)) * 0.75
    )


places = st.floats(-6, 12)
shifts = st.floats(-4, 1).map(lambda x: 10**x)
some_orders = st.floats(-1.3, 2).map(lambda x: 1 + 10**x)


@settings(max_examples=500, deadline=None)
@given(st.lists(st.floats(-30, 30), min_size=1, max_size=8), st.floats(-40, 40), st.floats(0, 5))
def test_the_rest_is_a_mixture_of_exponential_variables(counts: list[float], x: float, step: float) -> None:
    """Section 9.1: e^x times the density of (largest noisy count is x, and it is that of class j) never falls."""

    def log_density(at: float) -> FloatArray:
        z = at - np.array(counts)
        below = np.where(z < 0, np.minimum(z, 0) - np.log(2), np.log1p(-np.exp(-np.abs(z)) / 2))
        result: FloatArray = -np.abs(z) + below.sum() - below
        return result

    assert (log_density(x + step) + step >= log_density(x) - 1e-12).all()


@settings(max_examples=300, deadline=None)
@given(places, places, shifts)
def test_steps_of_the_proof_that_bound_ratios(u: float, v: float, d: float) -> None:
    """Chances sum to 1; their logs have slope at most 1 in each coordinate; a falls and b rises by the move."""
    for log_probs in EVERY_KIND:
        here, right, up, there = log_probs(np.array([(u, v), (u + d, v), (u, v + d), (u - d, v + d)]))
        assert np.exp(here).sum() == pytest.approx(1, abs=1e-14)
        assert np.abs(right - here).max() <= d + 1e-14
        assert np.abs(up - here).max() <= d + 1e-14
        if log_probs is not only_b:
            assert there[0] <= here[0] + 1e-14
        if log_probs not in (only_a, only_b):
            assert there[1] >= here[1] - 1e-14


@settings(max_examples=300, deadline=None)
@given(places, places, st.floats(0.001, 0.5), st.floats(0.001, 0.5))
def test_interpolation_is_within_the_slack(u: float, v: float, width: float, height: float) -> None:
    """Section 9.4, across kinks too: every chance on a box against the bilinear interpolation of its corners."""
    x, y = (grid.ravel() for grid in np.meshgrid(np.linspace(0, 1, 9), np.linspace(0, 1, 9)))
    for log_probs in EVERY_KIND:
        inside = np.exp(log_probs(np.stack([u + x * width, v + y * height], axis=1)))
        corners = np.exp(log_probs(np.array([(u + i * width, v + j * height) for i in (0, 1) for j in (0, 1)])))
        flat = np.stack([(1 - x) * (1 - y), (1 - x) * y, x * (1 - y), x * y], axis=1) @ corners
        assert (np.abs(inside / flat - 1) <= box_slack(np.array([width, height])) + 1e-14).all()


def test_the_slack_is_of_the_right_size() -> None:
    """Far below the rest a chance is e^u, which uses the slack up: a factor lost in it would show."""
    w = 0.01
    middle, *corners = np.exp(exponential_rest(np.array([(-6 + w / 2, -6.0), (-6, -6.0), (-6 + w, -6.0)])))
    assert abs(middle[0] / np.mean(corners, axis=0)[0] - 1) > 0.9 * box_slack(np.array([w]))


@settings(max_examples=500, deadline=None)
@given(places, places, st.floats(0.001, 0.3), st.floats(0.001, 0.3), shifts, some_orders)
def test_box_bound_holds_inside_the_box(u: float, v: float, width: float, height: float, d: float, a: float) -> None:
    x, y = (grid.ravel() for grid in np.meshgrid(np.linspace(0, 1, 7), np.linspace(0, 1, 7)))
    corners = np.array([(u + i * width, v + j * height) for i in (0, 1) for j in (0, 1)])
    for log_probs in (exponential_rest, known_rest):
        inside = excess_at(np.stack([u + x * width, v + y * height], axis=1), a, d, log_probs)
        terms = moved_terms(log_probs, corners, d)
        bound = box_excess(np.full(4, a), *terms, eta=box_slack(np.array([width, height]))).max()
        assert (inside <= bound * (1 + 1e-9) + 1e-15).all()


@settings(max_examples=600, deadline=None)
@given(places, places, shifts, some_orders)
def test_each_step_of_the_reduction(u: float, v: float, d: float, a: float) -> None:
    """Section 9.3: outside the two strips, what a point costs is at most what the proof says."""
    assume(a * d <= LARGEST_TILT)
    point = np.array([(u, v)])
    here = excess_at(point, a, d)[0]
    if u < 0:
        bound = max(excess_at(np.array([(0.0, v)]), a, d)[0], excess_at(point, a, d, only_b)[0])
    elif v < -d:
        bound = max(excess_at(np.array([(u, -d)]), a, d)[0], excess_at(point, a, d, only_a)[0])
    elif u > d and v > 0:
        depth = min(u - d, v)
        start, share = point - depth, np.exp(-depth)
        two, known, exponential = (excess_at(start, a, d, kind)[0] for kind in (two_classes, known_rest, exponential_rest))
        bound = (1 - share) ** 2 * two + share * (1 - share) * known + share * exponential
        pieces = [two, exponential]
        for j in range(4):  # the control values of four pieces
            s, t = j / 4, (j + 1) / 4
            mixed = (s * (1 - t) + t * (1 - s)) / 2
            pieces.append((1 - s) * (1 - t) * two + mixed * known + (mixed + s * t) * exponential)
            weights = ((1 - s) * (1 - t), mixed, mixed + s * t)
            blended = excess_at(start, a, d, lambda m, w=weights: some_rest(m, w))[0]
            assert blended == pytest.approx(pieces[-1], rel=1e-7, abs=1e-15)
        assert bound <= max(pieces) * (1 + 1e-9)
        assert max(pieces) <= max(two, (known + exponential) / 2, exponential) * (1 + 1e-9)
    else:
        return
    assert here <= bound * (1 + 1e-9) + 1e-15


@pytest.mark.parametrize("gamma", [1e-4, 1e-3, 0.05, 0.3, 1.0, 4.0])
def test_bracket_and_local_search_over_the_plane(gamma: float) -> None:
    orders = ORDERS[ORDERS * gamma <= LARGEST_TILT]
    lower, upper = certify_laplace_max(gamma, orders)
    assert (lower <= upper).all()
    assert (upper <= lower * 1.03).all()
    low_orders = orders * gamma < 0.5
    assert (upper <= lower * (1 + 1.1 * TOLERANCE))[low_orders].all()
    starts = np.array([(0.5, 0.5), (0.6 * gamma, 0.5), (0.8, 1.8), (0.3 * gamma, 4.0), (-0.5, 0.5), (2.0, 2.5), (9.0, 9.0)])
    simplex = np.array([(0, 0), (0.2, 0), (0, 0.2)])
    for a, low, high in zip(orders, lower, upper, strict=True):

        def loss(m: FloatArray, a: float = a) -> float:
            return -float(divergence_at(m[None], a, gamma)[0]) / (a * gamma**2)

        tries = [minimize(loss, s, method="Nelder-Mead", options={"initial_simplex": s + simplex}).fun for s in starts]
        found = -min(tries) * a * gamma**2
        assert found <= high
        assert found >= low * 0.99


@pytest.mark.parametrize("gamma", [0.002, 0.05, 0.4, 2.0])
def test_no_point_of_a_wide_grid_is_above_the_bracket(gamma: float) -> None:
    near = np.linspace(-2, 3, 31) * gamma
    u = np.concatenate([near, np.linspace(-8, 15, 93)])
    v = np.concatenate([-near, np.linspace(-8, 40, 193)])
    points = np.stack(np.meshgrid(u, v), axis=-1).reshape(-1, 2)
    upper = certify_laplace_max(gamma, ORDERS).upper
    for a, high in zip(ORDERS[ORDERS * gamma <= LARGEST_TILT], upper, strict=False):
        assert divergence_at(points, a, gamma).max() <= high


@pytest.mark.parametrize("gamma", [1e-4, 0.05, 1.0, 9.0])
def test_one_count_bracket_against_a_dense_grid(gamma: float) -> None:
    dense = np.concatenate([np.linspace(-12 - gamma, 30, 40_001), np.linspace(-1.5, 2.5, 4001) * gamma])
    points = np.stack([dense, dense], axis=1)
    orders = ORDERS[ORDERS * gamma <= LARGEST_TILT]
    lower, upper = certify_laplace_one_count(gamma, orders)
    for a, low, high in zip(orders, lower, upper, strict=True):
        excess = max(excess_at(points, a, gamma, kind).max() for kind in (only_a, only_b))
        found = np.log1p(excess) / (a - 1)
        assert found <= high <= found * (1 + 3 * TOLERANCE)
        assert low <= found * (1 + 1e-5)


def test_infinite_where_no_search_is_made() -> None:
    for certify in (certify_laplace_max, certify_laplace_one_count):
        for gamma in (SMALLEST_SHIFT / 2, LARGEST_SHIFT * 2):
            assert np.isinf(certify(gamma, ORDERS).upper).all()
        bracket = certify(4.0, ORDERS)
        np.testing.assert_array_equal(np.isinf(bracket.upper), ORDERS * 4 > LARGEST_TILT)
        assert (bracket.lower[np.isinf(bracket.upper)] == 0).all()


def test_the_cap_is_near_the_supremum_where_it_is_kept() -> None:
    for gamma in (0.3, 2.0, 10.0):
        order = np.array([LARGEST_TILT / gamma])
        assert certify_laplace_max(gamma, order).lower[0] > 0.93 * pure_dp_rdp(2 * gamma, order)[0]


def test_a_huge_order_overflows_into_a_valid_answer() -> None:
    bracket = certify_laplace_max(2e-4, np.array([2.0, 1e6]))
    assert bracket.upper[1] >= bracket.lower[1] > 0


@pytest.mark.parametrize("gamma", [1e-4, 0.05, 0.5, 10.0])
def test_a_fresh_bracket_takes_a_moment(gamma: float) -> None:
    started = time.process_time()
    certify_laplace_max(gamma, DEFAULT_ORDERS)
    assert time.process_time() - started < 3  # 0.1 to 0.3 s when nothing else runs


@pytest.mark.parametrize("gamma", [0.0, -1.0, np.inf, np.nan])
def test_gamma_must_be_positive(gamma: float) -> None:
    for certify in (certify_laplace_max, certify_laplace_one_count):
        with pytest.raises(ParameterError, match="gamma, the inverse scale of the noise, must be a finite number greater"):
            certify(gamma, ORDERS)
