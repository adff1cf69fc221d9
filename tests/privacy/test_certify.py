"""The certified suprema: their ingredients against mpmath, the bracket against plain search, the table against a fresh run."""

from __future__ import annotations

import itertools
from pathlib import Path

import mpmath
import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import log_ndtr

from pate.arrays import FloatArray
from pate.errors import ParameterError
from pate.privacy import certify
from pate.privacy.certify import FLOAT_MARGIN, TABLE_PATH, TOLERANCE, certify_noisy_max, certify_one_count
from pate.privacy.curve import DEFAULT_ORDERS
from pate.privacy.excess import curvature, excess_terms, relative_excess, side_log_probs, winner_log_probs

ORDERS = np.array([1.05, 1.5, 2.0, 8.0, 32.0, 64.0, 128.0])


def divergence_at(point: FloatArray, a: float, d: float) -> float:
    """D_a( t(u, v) || t(u - d, v + d) ) as the search computes it."""
    here, there = (winner_log_probs(np.array([point]) + move) for move in (0.0, np.array([-d, d])))
    return float(np.log1p(excess_terms(a, there, here - there).sum()) / (a - 1))


def mp_log_wins(u: mpmath.mpf, v: mpmath.mpf) -> list[mpmath.mpf]:
    """The three log-probabilities at 50 digits, by an integral cut into short panels."""

    def first_wins(x: mpmath.mpf, y: mpmath.mpf) -> mpmath.mpf:
        near = max(mpmath.mpf(0), x, (x + y) / 2)
        cuts = [mpmath.mpf(0), *(near + step for step in (-12, -8, -5, -3, -1, 0, 1, 3, 5, 8, 12) if near + step > 0)]
        # quad works to an absolute error, so the integrand is scaled to about 1.
        height = mpmath.npdf(near - x) * mpmath.ncdf(near - y)
        return mpmath.log(height) + mpmath.log(mpmath.quad(lambda z: mpmath.npdf(z - x) * mpmath.ncdf(z - y) / height, cuts))

    return [first_wins(u, v), first_wins(v, u), mpmath.log(mpmath.ncdf(-u) * mpmath.ncdf(-v))]


# (order, sigma, u, v): the usual maximiser, both tails, small and large noise, high order.
POINTS = [
    (2.0, 40.0, 0.75, 0.75),
    (1.05, 2000.0, 0.7, 0.8),
    (1.05, 2000.0, -5.5, 6.25),
    (64.0, 40.0, -1.0, 3.5),
    (1024.0, 200.0, -6.0, 8.0),
    (4.0, 0.5, -3.0, 1.0),
    (300.0, 40.0, -9.0, 14.0),
]


@pytest.mark.parametrize(("a", "sigma", "u", "v"), POINTS)
def test_float_error_is_far_below_the_margin(a: float, sigma: float, u: float, v: float) -> None:
    d = 1 / sigma
    there = np.array([u - d, v + d])
    with mpmath.workdps(50):
        here_mp = mp_log_wins(mpmath.mpf(u), mpmath.mpf(v))
        there_mp = mp_log_wins(mpmath.mpf(float(there[0])), mpmath.mpf(float(there[1])))
        assert abs(sum(map(mpmath.exp, here_mp)) - 1) < 1e-25  # the oracle itself is right
        order = mpmath.mpf(a)
        moment = sum(mpmath.exp(order * p - (order - 1) * q) for p, q in zip(here_mp, there_mp, strict=True))
        expected = float(mpmath.log(moment) / (order - 1))
    logs = winner_log_probs(np.array([[u, v], there]))
    assert np.abs(logs[0] - np.array(here_mp, dtype=float)).max() < 1e-12
    assert divergence_at(np.array([u, v]), a, d) == pytest.approx(expected, rel=FLOAT_MARGIN / 1000)


@pytest.mark.parametrize("a", [1 + 1e-9, 1.05, 2.0, 31.5, 1024.0])
def test_relative_excess_matches_mpmath(a: float) -> None:
    ratios = np.concatenate([s * np.array([1e-9, 1e-5, 0.0099, 0.0101, 0.5, 5.0, 200.0]) / a for s in (-1, 1)])
    with mpmath.workdps(50):
        points = [mpmath.mpf(x) for x in ratios]
        order = mpmath.mpf(a)
        exact = [(mpmath.expm1(order * x) - order * mpmath.expm1(x)) / (order * (order - 1) / 2 * x**2) for x in points]
    np.testing.assert_allclose(relative_excess(a, ratios), np.array(exact, dtype=float), rtol=1e-10)
    assert relative_excess(a, np.zeros(1))[0] == 1


def test_excess_terms_in_logs_and_directly_agree() -> None:
    ratio = np.array([29.9, 30.1]) / 8
    direct = np.expm1(8 * ratio) - 8 * np.expm1(ratio)
    np.testing.assert_allclose(excess_terms(8.0, np.full(2, -3.0), ratio), np.exp(-3) * direct, rtol=1e-13)
    # q underflows, q e^(a l) does not.
    np.testing.assert_allclose(excess_terms(8.0, np.array([-800.0]), np.array([100.0])), 1 - 8 * np.exp(-700), rtol=1e-13)


def test_curvature_bounds_the_second_derivative() -> None:
    rng = np.random.default_rng(2)
    h = 1e-2
    moves = h * np.array([(0, 0), (1, 0), (-1, 0), (0, 1), (0, -1), (1, 1), (1, -1), (-1, 1), (-1, -1)])
    closest = 0.0
    for _ in range(300):
        d = 10 ** rng.uniform(-2.5, 0.3)
        a = min(1 + 10 ** rng.uniform(-1.3, 3), 8 / d)
        points = np.array([rng.uniform(-4 - a * d, 6), rng.uniform(-5, 6)]) + moves
        log_q = winner_log_probs(points + np.array([-d, d]))
        ratio = winner_log_probs(points) - log_q
        f = excess_terms(a, log_q, ratio)
        uu, vv = (f[1] + f[2] - 2 * f[0]) / h**2, (f[3] + f[4] - 2 * f[0]) / h**2
        uv = (f[5] - f[6] - f[7] + f[8]) / (4 * h**2)
        smallest = (uu + vv) / 2 - np.hypot((uu - vv) / 2, uv)
        allowed = np.exp(log_q.max(0)) * curvature(a, ratio.min(0), ratio.max(0), np.sqrt(2) * d)
        noise = 1e-9 * np.abs(f).max()
        assert (smallest >= -allowed - noise).all()
        closest = max(closest, float((-smallest[f[0] > noise] / allowed[f[0] > noise]).max(initial=0)))
    assert closest > 0.3  # the bound is of the right size, so a factor lost in it would show


@pytest.mark.parametrize("a", [1.05, 2.0, 40.0])
def test_curvature_grows_with_the_interval(a: float) -> None:
    grid = np.linspace(-3, 3, 601) / a
    pointwise = curvature(a, grid, grid, 0.3)
    for low, high in itertools.combinations(range(0, 601, 50), 2):
        over_interval = curvature(a, grid[[low]], grid[[high]], 0.3)[0]
        assert over_interval >= pointwise[low : high + 1].max() * (1 - 1e-12)


@pytest.mark.parametrize("sigma", [0.7, 5.0, 40.0, 300.0])
def test_bracket_is_narrow_and_local_search_stays_inside(sigma: float) -> None:
    orders = np.array([1.05, 8.0, 128.0])
    orders = orders[orders * np.sqrt(2) / sigma < 12]
    lower, upper = certify_noisy_max(sigma, orders)
    assert (lower <= upper).all()
    assert (upper <= lower * (1 + 1.1 * TOLERANCE)).all()
    starts = [(0.75, 0.75), (-1.0, 1.0), (4.0, 6.0)]
    for a, low, high in zip(orders, lower, upper, strict=True):

        def loss(point: FloatArray, a: float = a) -> float:
            return -divergence_at(point, a, 1 / sigma) * sigma**2 / a

        best = -min(minimize(loss, start, method="Nelder-Mead").fun for start in starts) * a / sigma**2
        assert best <= high
        # Nelder-Mead finds the supremum unless it lies at infinity (the two-class limit), where it comes near.
        assert best >= low * (1 - 2e-3)


def test_no_point_of_a_wide_cloud_is_above_the_bracket() -> None:
    rng = np.random.default_rng(3)
    for sigma in (0.5, 10.0, 150.0):
        upper = certify_noisy_max(sigma, ORDERS).upper
        cloud = np.concatenate([rng.uniform(-12, 14, (10_000, 2)), rng.normal(0.7, 1.5, (10_000, 2))])
        log_q = winner_log_probs(cloud + np.array([-1, 1]) / sigma)
        ratio = winner_log_probs(cloud) - log_q
        for a, high in zip(ORDERS, upper, strict=True):
            if high < a / sigma**2:
                assert np.log1p(excess_terms(a, log_q, ratio).sum(1).max()) / (a - 1) <= high


@pytest.mark.parametrize("sigma", [0.4, 1.0, 40.0, 5000.0])
def test_one_count_bracket_against_a_dense_grid(sigma: float) -> None:
    d = 1 / sigma
    u = np.linspace(-14, 9, 40_001)[:, None]
    lower, upper = certify_one_count(sigma, ORDERS)
    log_q = side_log_probs(u - d)
    searched = upper < ORDERS * d**2 / 2
    assert searched[:3].all()
    for a, low, high in zip(ORDERS[searched], lower[searched], upper[searched], strict=True):
        dense = np.log1p(excess_terms(a, log_q, side_log_probs(u) - log_q).sum(1).max()) / (a - 1)
        assert low <= dense * (1 + 1e-6)
        assert dense <= high <= dense * (1 + 1.1 * TOLERANCE)


def test_two_classes_are_the_limit_at_infinity() -> None:
    far = np.array([30.0, 30.0])
    p, q = log_ndtr(np.array([0.0, 0.0])), log_ndtr(np.array([-1.0, 1.0]) * np.sqrt(2) / 5)
    assert divergence_at(far, 3.0, 1 / 5) == pytest.approx(np.log(np.exp(3 * p - 2 * q).sum()) / 2, rel=1e-9)
    noisy_max, two_classes = certify_noisy_max(40, ORDERS), certify_one_count(40 / np.sqrt(2), ORDERS)
    assert (noisy_max.upper >= two_classes.lower).all()


def test_table_entries_are_certified_again_from_scratch() -> None:
    with np.load(TABLE_PATH) as table:
        sigmas, orders, millionths = table["sigmas"], table["orders"], table["millionths"]
    np.testing.assert_array_equal(orders, DEFAULT_ORDERS)
    np.testing.assert_allclose(sigmas, certify.table_sigmas(), rtol=1e-12)
    assert millionths.shape == (sigmas.size, orders.size)
    assert millionths.min() >= 636_619  # 2/pi, the two-class limit at low orders
    assert millionths.max() == 1_000_000
    rng = np.random.default_rng(4)
    for node in (0, sigmas.size - 1, int(np.argmin(np.abs(sigmas - 40))), *rng.choice(sigmas.size, 5, replace=False)):
        some = np.sort(rng.choice(orders.size, 8, replace=False))
        share = certify_noisy_max(sigmas[node], orders[some]).upper * sigmas[node] ** 2 / orders[some]
        # One millionth of slack: another libm may round the last bit the other way.
        np.testing.assert_allclose(millionths[node, some], np.ceil(share * 1e6), atol=1)


def test_capped_where_the_search_does_not_go() -> None:
    orders = np.array([2.0, 500.0])
    np.testing.assert_allclose(certify_noisy_max(0.2, orders).upper, orders / 0.04)
    np.testing.assert_allclose(certify_one_count(0.2, orders).upper, orders / 0.08)
    assert certify_noisy_max(5, orders).upper[1] == pytest.approx(500 / 25)


@pytest.mark.parametrize("sigma", [0.0, -1.0, np.inf, np.nan])
def test_sigma_must_be_positive(sigma: float) -> None:
    with pytest.raises(ParameterError, match="sigma must be a finite number above 0"):
        certify_noisy_max(sigma, ORDERS)


def test_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(certify, "DEFAULT_ORDERS", np.array([2.0, 3.0]))
    monkeypatch.setattr(certify, "table_sigmas", lambda: np.array([1.0, 0.5]))
    certify.main(["--sigma", "0.5"])
    assert "order    2.00   0.8337" in capsys.readouterr().out
    certify.main(["--output", str(tmp_path / "table.npz")])
    with np.load(tmp_path / "table.npz") as table:
        assert table["millionths"].shape == (2, 2)
        assert table["millionths"][0, 0] == pytest.approx(692_100, abs=60)
