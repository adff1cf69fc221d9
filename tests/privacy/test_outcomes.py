"""The exact cost of anything that states its outcomes, against plain arithmetic."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pate.arrays import FloatArray, IntArray
from pate.errors import ParameterError
from pate.privacy.outcomes import moved_votes, numeric_margin, rdp_from_outcomes, renyi_divergence

ORDERS = np.array([1.05, 1.5, 2.0, 8.0, 64.0, 1024.0])


def _mpmath_divergence(p: list[mpmath.mpf], q: list[mpmath.mpf], order: float) -> mpmath.mpf:
    a = mpmath.mpf(order)
    return mpmath.log(mpmath.fsum(x**a * y ** (1 - a) for x, y in zip(p, q, strict=True))) / (a - 1)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.floats(-30, 0), st.floats(-2, 2)), min_size=2, max_size=6))
def test_divergence_agrees_with_50_digits(parts: list[tuple[float, float]]) -> None:
    with mpmath.workdps(50):
        raw_p = [mpmath.exp(x) for x, _ in parts]
        raw_q = [mpmath.exp(x + y) for x, y in parts]
        p, q = ([x / mpmath.fsum(raw) for x in raw] for raw in (raw_p, raw_q))
        expected = [float(_mpmath_divergence(p, q, order)) for order in ORDERS]
        log_p, log_q = ([float(mpmath.log(x)) for x in side] for side in (p, q))
    # A log near -30 is stored to 4e-15, and an error of η in it moves D by (2 + 1/(a-1)) η.
    np.testing.assert_allclose(
        renyi_divergence(log_p, log_q, ORDERS), expected, rtol=1e-12, atol=float(numeric_margin(ORDERS, 1e-14).max())
    )


def test_tiny_divergence_keeps_its_digits() -> None:
    shift = 1e-9
    log_p, log_q = np.log([0.5, 0.5]), [math.log(0.5) + math.log1p(shift), math.log(0.5) + math.log1p(-shift)]
    # D_2 = log(Σ P²/Q) = -log(1 - shift²); a plain sum of squares would see nothing at all.
    np.testing.assert_allclose(renyi_divergence(log_p, log_q, [2.0]), shift**2, rtol=1e-6)


def test_impossible_outcomes() -> None:
    sure, coin = np.array([0.0, -np.inf]), np.log([0.5, 0.5])
    assert np.isinf(renyi_divergence(coin, sure, ORDERS)).all()
    np.testing.assert_allclose(renyi_divergence(sure, coin, ORDERS), math.log(2))
    np.testing.assert_array_equal(renyi_divergence(sure, sure, ORDERS), 0.0)


def test_huge_divergence_does_not_overflow() -> None:
    log_p, log_q = np.array([-5000.0, 0.0]), np.array([0.0, -5000.0])
    np.testing.assert_allclose(renyi_divergence(log_p, log_q, [2.0, 1024.0]), 5000.0)


def test_moved_votes_are_all_neighbours() -> None:
    neighbours = moved_votes(np.array([3, 0, 1]))
    assert {tuple(row) for row in neighbours.tolist()} == {(2, 1, 1), (2, 0, 2), (4, 0, 0), (3, 1, 0)}
    assert (neighbours.sum(axis=1) == 4).all()


def _randomised_response(counts: IntArray) -> FloatArray:
    """The majority of two classes with probability 3/4, but class 0 wins ties: not symmetric."""
    truth = counts[:, 0] >= counts[:, 1]
    log = np.log([[0.25, 0.75], [0.75, 0.25]])
    return log[truth.astype(np.int64)]


def test_maximum_over_neighbours_and_both_directions() -> None:
    counts = np.array([[5, 0], [3, 2], [2, 3], [3, 2]])
    cost = rdp_from_outcomes(_randomised_response, counts, [2.0])
    flip = math.log(0.75**2 / 0.25 + 0.25**2 / 0.75)
    assert cost is not None
    np.testing.assert_allclose(cost[:, 0], [0.0, flip, flip, flip], atol=1e-11)
    assert (cost[1:, 0] > flip).all(), "the margin keeps the value above the truth"


def test_one_sided_outcome_costs_infinity() -> None:
    def certain(counts: IntArray) -> FloatArray:
        return np.where(np.arange(2) == np.argmax(counts, axis=1)[:, None], 0.0, -np.inf)

    cost = rdp_from_outcomes(certain, np.array([[3, 2], [5, 0]]), [2.0])
    assert cost is not None
    assert np.isinf(cost[0, 0])
    assert cost[1, 0] < 1e-11


def test_unknown_outcomes_give_no_cost() -> None:
    assert rdp_from_outcomes(lambda counts: None, np.array([[3, 2]]), [2.0]) is None


def test_missing_outcome_is_refused() -> None:
    with pytest.raises(ParameterError, match="abstention included"):
        rdp_from_outcomes(lambda counts: np.log(np.full(counts.shape, 0.4)), np.array([[3, 2]]), [2.0])
    with pytest.raises(ParameterError, match="NaN"):
        rdp_from_outcomes(lambda counts: np.full(counts.shape, np.nan), np.array([[3, 2]]), [2.0])
    with pytest.raises(ParameterError, match="rows"):
        rdp_from_outcomes(lambda counts: np.log([[0.5, 0.5]]), np.array([[3, 2]]), [2.0])
