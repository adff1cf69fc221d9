"""One harness compares every path of the exact accountant with a naive oracle, query by query, move by move."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import log_ndtr

from pate.arrays import FloatArray, IntArray
from pate.errors import ParameterError, VotesError
from pate.privacy.exact import (
    ExactRdp,
    NoisyMax,
    ThresholdTest,
    engine,
    gaussian_max_log_probs,
    gaussian_max_rdp,
    laplace_max_log_probs,
    noisy_max_log_probs,
    noisy_max_rdp,
)
from pate.privacy.exact.engine import distinct_costs, kernel
from pate.privacy.exact.gaussian import widest_spread
from pate.privacy.exact.rows import sorted_rows
from pate.privacy.outcomes import moved_votes, numeric_margin, rdp_from_outcomes, renyi_divergence

ORDERS = np.array([1.05, 1.5, 2.0, 3.0, 7.5, 20.0, 64.0, 300.0, 1024.0])

MECHANISMS = [
    NoisyMax("gaussian", 40.0),
    NoisyMax("gaussian", 3.7),
    NoisyMax("gaussian", 0.5),
    NoisyMax("gaussian", 10_000.0),
    NoisyMax("gaussian", 20.0, ThresholdTest(30.0, 12.5)),
    NoisyMax("gaussian", 5.0, ThresholdTest(60.0, 0.7)),
    NoisyMax("laplace", 0.05),
    NoisyMax("laplace", 1.3),
    NoisyMax("laplace", 0.2, ThresholdTest(30.0, 12.5)),
]


def _rows(n_classes: int, teachers: int, n_rows: int, seed: int) -> IntArray:
    rng = np.random.default_rng(seed)
    shares = rng.dirichlet(np.full(n_classes, 0.5), n_rows)
    drawn = rng.multinomial(teachers, shares)
    alone = np.zeros((1, n_classes), dtype=np.int64)
    alone[0, 0] = teachers
    level = np.full((1, n_classes), teachers // n_classes)
    return np.concatenate([drawn, alone, level]).astype(np.int64)


def _oracle(mechanism: NoisyMax, counts: IntArray, orders: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Every neighbour of every query by itself, nothing merged or pruned. float64[query, order] each."""
    forward, reverse = [], []
    for row in counts:
        p = noisy_max_log_probs(mechanism, row[None])
        q = noisy_max_log_probs(mechanism, moved_votes(row))
        forward.append(renyi_divergence(np.broadcast_to(p, q.shape), q, orders).max(axis=0))
        reverse.append(renyi_divergence(q, np.broadcast_to(p, q.shape), orders).max(axis=0))
    return np.array(forward), np.array(reverse)


@pytest.mark.parametrize("compiled", [False, pytest.param(True, marks=pytest.mark.skipif(kernel() is None, reason="no numba"))])
@pytest.mark.parametrize("mechanism", MECHANISMS, ids=str)
@pytest.mark.parametrize(("n_classes", "teachers"), [(2, 50), (3, 20), (7, 60)])
def test_every_path_agrees_with_the_oracle(mechanism: NoisyMax, n_classes: int, teachers: int, compiled: bool) -> None:
    counts = _rows(n_classes, teachers, 6, seed=n_classes)
    got = distinct_costs(mechanism, sorted_rows(counts), ORDERS, margin=False, compiled=compiled)[:, :, 0]
    # Logs of magnitude m are stored to about m * 1e-16, in the oracle more than in what it judges.
    size = np.abs(noisy_max_log_probs(mechanism, counts)).max()
    tolerance = numeric_margin(ORDERS, 3e-13 * max(1.0, size / 1000))
    for mine, truth in zip(got, _oracle(mechanism, counts, ORDERS), strict=True):
        assert (np.abs(mine - truth) <= 1e-11 * truth + tolerance).all()


@pytest.mark.parametrize("orders", [[32.0], [1.05], [1.9], [1.3, 700.0], [2.0, 2.001]])
@pytest.mark.parametrize("mechanism", MECHANISMS[:5:2], ids=str)
def test_any_orders(mechanism: NoisyMax, orders: list[float]) -> None:
    """A cost at an order does not depend on which other orders are asked for."""
    counts = _rows(5, 40, 5, seed=1)
    several = noisy_max_rdp(mechanism, counts, np.union1d(ORDERS, orders)).worst[:, np.isin(np.union1d(ORDERS, orders), orders)]
    alone = noisy_max_rdp(mechanism, counts, orders).worst
    np.testing.assert_allclose(alone, several, rtol=1e-11, atol=4e-13)


def test_generic_cost_agrees() -> None:
    """rdp_from_outcomes knows nothing of noisy max, and must find the same."""
    counts = _rows(4, 30, 10, seed=5)
    for mechanism in (NoisyMax("gaussian", 6.0, ThresholdTest(20, 5)), NoisyMax("laplace", 0.3)):
        generic = rdp_from_outcomes(lambda rows, m=mechanism: noisy_max_log_probs(m, rows), counts, ORDERS)
        np.testing.assert_allclose(noisy_max_rdp(mechanism, counts, ORDERS).worst, generic, rtol=1e-11, atol=1e-11)


def test_log_probs_are_distributions() -> None:
    counts = _rows(6, 500, 20, seed=2)
    for log_probs in (gaussian_max_log_probs(counts, 13.0), laplace_max_log_probs(counts, 0.04)):
        assert log_probs.shape == counts.shape
        np.testing.assert_allclose(np.exp(log_probs).sum(axis=1), 1.0, rtol=1e-13)
    joint = noisy_max_log_probs(NoisyMax("gaussian", 13.0, ThresholdTest(200, 50)), counts)
    assert joint.shape == (22, 7)
    np.testing.assert_allclose(np.exp(joint).sum(axis=1), 1.0, rtol=1e-13)


def test_two_classes_have_a_closed_form() -> None:
    """For k=2 the winner is decided by one Gaussian of width sigma√2: log P = log Φ(±gap/(sigma√2))."""
    counts = np.array([[250, 0], [130, 120], [2000, 0]])
    gap = (counts[:, 0] - counts[:, 1]) / (5 * np.sqrt(2))
    np.testing.assert_allclose(
        gaussian_max_log_probs(counts, 5.0), np.column_stack([log_ndtr(gap), log_ndtr(-gap)]), rtol=1e-12
    )


def test_far_classes_keep_relative_accuracy() -> None:
    log_probs = gaussian_max_log_probs([[250] + [0] * 9], 2.5)[0]
    assert log_probs[1] < -2400
    assert -1e-300 <= log_probs[0] <= 0
    cost = gaussian_max_rdp([[250] + [0] * 9], 2.5, [2.0])
    assert cost.worst[0, 0] < 1e-10


def test_too_wide_for_ratios() -> None:
    """A spread at which neighbours' probabilities differ by more than a double can hold still has a cost."""
    cost = gaussian_max_rdp([[3000, 5], [1503, 1502]], 0.5, [2.0, 1000.0])
    assert np.isfinite(cost.worst).all()
    assert (cost.worst <= np.array([2.0, 1000.0]) / 0.25 + 1e-6).all()
    assert cost.worst[0, 0] < 1e-6 < 1 < cost.worst[1, 0]


@pytest.mark.parametrize("compiled", [False, pytest.param(True, marks=pytest.mark.skipif(kernel() is None, reason="no numba"))])
def test_both_sides_of_the_widest_spread(compiled: bool) -> None:
    """The fast paths and the slow one meet where one hands over to the other."""
    edge = widest_spread(1.0)
    counts = np.array([[edge + shift, 5, 0] for shift in (-1, 0, 1, 2)])
    orders = np.array([2.0, 100.0, 240.0, 500.0])
    mechanism = NoisyMax("gaussian", 1.0)
    got = distinct_costs(mechanism, counts, orders, margin=False, compiled=compiled)[:, :, 0]
    size = np.abs(noisy_max_log_probs(mechanism, counts)).max()
    for mine, truth in zip(got, _oracle(mechanism, counts, orders), strict=True):
        assert (np.abs(mine - truth) <= 1e-12 * truth + numeric_margin(orders, 1e-12 * size / 1000)).all()
    assert (got[:, :, 2] > 200).all(), "order 240 sees the far class, the one that the ratios could not hold"


@pytest.mark.parametrize("compiled", [False, pytest.param(True, marks=pytest.mark.skipif(kernel() is None, reason="no numba"))])
@pytest.mark.parametrize("sigma", [2.0, 40.0])
def test_company_does_not_matter(sigma: float, compiled: bool) -> None:
    """Rows share tables and numbers of nodes. These two kinds have equal spreads, but their integrals begin far apart."""
    spreads = np.array([1, 20, 60, 100, 150, 300])
    rows = np.zeros((2 * spreads.size, 10), dtype=np.int64)
    rows[: spreads.size, 0] = spreads
    rows[spreads.size :, :9] = spreads[:, None]
    mechanism = NoisyMax("gaussian", sigma)
    together = distinct_costs(mechanism, rows, ORDERS, margin=False, compiled=compiled)
    alone = [distinct_costs(mechanism, row[None], ORDERS, margin=False, compiled=compiled) for row in rows]
    np.testing.assert_allclose(together, np.concatenate(alone, axis=1), rtol=1e-11, atol=4e-13)


def test_many_classes() -> None:
    rng = np.random.default_rng(3)
    counts = rng.multinomial(400, rng.dirichlet(np.full(200, 0.05), 2)).astype(np.int64)
    cost = gaussian_max_rdp(counts, 20.0, [1.05, 8.0])
    assert (cost.worst <= np.array([1.05, 8.0]) / 400 + 1e-10).all()
    np.testing.assert_allclose(np.exp(gaussian_max_log_probs(counts, 20.0)).sum(axis=1), 1.0, rtol=1e-13)


def test_duplicates_and_no_queries() -> None:
    counts = _rows(4, 30, 3, seed=9)
    once = noisy_max_rdp(MECHANISMS[0], counts, ORDERS).worst
    np.testing.assert_array_equal(noisy_max_rdp(MECHANISMS[0], np.tile(counts, (3, 1)), ORDERS).worst, np.tile(once, (3, 1)))
    empty = noisy_max_rdp(MECHANISMS[0], np.zeros((0, 4), dtype=np.int64), ORDERS)
    assert empty.forward.shape == empty.reverse.shape == (0, ORDERS.size)


def test_worst_is_the_larger_direction() -> None:
    cost = ExactRdp(np.array([[1.0, 4.0]]), np.array([[3.0, 2.0]]))
    np.testing.assert_array_equal(cost.worst, [[3.0, 4.0]])


@pytest.mark.parametrize(
    ("counts", "error"),
    [([[3, -1]], "negative"), ([[1.5, 2.5]], "integer"), ([[3]], "2 classes"), ([3, 4], "axes")],
)
def test_bad_counts(counts: list[object], error: str) -> None:
    with pytest.raises(VotesError, match=error):
        gaussian_max_rdp(counts, 40.0, ORDERS)  # type: ignore[arg-type]


def test_bad_parameters() -> None:
    for bad in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(ParameterError, match="sigma must be"):
            NoisyMax("gaussian", bad)
        with pytest.raises(ParameterError, match="threshold test's sigma"):
            NoisyMax("laplace", 1.0, ThresholdTest(10, bad))
    with pytest.raises(ParameterError, match="threshold must be"):
        NoisyMax("laplace", 1.0, ThresholdTest(float("nan"), 1.0))
    with pytest.raises(ParameterError, match="noise must be"):
        NoisyMax("gumbel", 1.0)  # type: ignore[arg-type]


@pytest.mark.skipif(kernel() is None, reason="numba is not installed")
def test_no_folder_for_machine_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a read-only install numba finds no place for its cache and says so; the kernel then runs uncached."""
    from numba.core.caching import CacheImpl

    from pate.privacy.exact import compiled

    monkeypatch.setattr(CacheImpl, "_locator_classes", [])
    assert compiled._entry_point() is compiled._rows


def test_without_numba(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = _rows(4, 30, 10, seed=7)
    expected = noisy_max_rdp(MECHANISMS[0], counts, ORDERS).worst
    monkeypatch.setattr(engine, "WORTH_COMPILING", 0)
    monkeypatch.setattr(engine, "kernel", lambda: None)
    np.testing.assert_array_equal(noisy_max_rdp(MECHANISMS[0], counts, ORDERS).worst, expected)
