"""GNMax as published, against the 2018 reference code, mpmath and a plain loop."""

from __future__ import annotations

import math
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pate.arrays import FloatArray
from pate.errors import ParameterError
from pate.privacy.curve import DEFAULT_ORDERS
from pate.privacy.published import gnmax_logq, gnmax_rdp, proposition8

CLOSED_FORM = 1e-9


def test_logq_matches_the_2018_code(reference: dict[str, Any]) -> None:
    for case in reference["gnmax"]:
        assert gnmax_logq([case["counts"]], case["sigma"])[0] == pytest.approx(case["logq"], rel=CLOSED_FORM)


@pytest.mark.parametrize("section", ["gnmax", "gnmax_rdp_from_logq"])
def test_rdp_matches_the_2018_code(reference: dict[str, Any], section: str) -> None:
    for case in reference[section]:
        np.testing.assert_allclose(
            gnmax_rdp([case["logq"]], case["sigma"], reference["orders"])[0], case["rdp"], rtol=CLOSED_FORM
        )


def test_proposition8_matches_the_2018_code(reference: dict[str, Any]) -> None:
    for case in reference["data_independent"]:
        np.testing.assert_allclose(proposition8(case["sigma"], reference["orders"]), case["gnmax_rdp"], rtol=CLOSED_FORM)


def theorem6_with_mpmath(logq: mpmath.mpf, sigma: float, order: float) -> float:
    """Theorem 6 of arXiv:1802.08908 at Proposition 10's orders, written from the paper, to 50 digits of q."""
    with mpmath.workdps(50 + int(-logq)):
        s, a = mpmath.mpf(sigma), mpmath.mpf(order)
        q = mpmath.exp(logq)
        mu2 = s * mpmath.sqrt(-logq)
        mu1 = mu2 + 1
        cap = a / s**2
        if mu2 <= 1 or mu1 <= a:
            return float(cap)
        e1, e2 = mu1 / s**2, mu2 / s**2
        ratio = mu1 / (mu1 - 1) * mu2 / (mu2 - 1)
        if q > mpmath.exp((mu2 - 1) * e2) / ratio**mu2 or q * mpmath.exp(e2) >= 1:
            return float(cap)
        big_a = (1 - q) / (1 - (q * mpmath.exp(e2)) ** ((mu2 - 1) / mu2))
        big_b = mpmath.exp(e1) / q ** (1 / (mu1 - 1))
        return float(min(cap, mpmath.log((1 - q) * big_a ** (a - 1) + q * big_b ** (a - 1)) / (a - 1)))


@pytest.mark.parametrize("sigma", [0.7, 5.0, 40.0, 300.0])
@pytest.mark.parametrize("logq", [-1e-3, -0.5, -2.0, -7.5, -30.0, -700.0])
def test_rdp_is_theorem6_at_fifty_digits(sigma: float, logq: float) -> None:
    orders = np.array([1.05, 1.5, 2, 8, 30, 100, 512])
    expected = [theorem6_with_mpmath(mpmath.mpf(logq), sigma, order) for order in orders]
    np.testing.assert_allclose(gnmax_rdp([logq], sigma, orders)[0], expected, rtol=1e-11)


def test_logq_is_proposition7_at_fifty_digits() -> None:
    counts, sigma = [180, 40, 25, 5, 0], 17.0
    with mpmath.workdps(50):
        q = sum(mpmath.erfc((180 - n) / (2 * mpmath.mpf(sigma))) / 2 for n in counts[1:])
        assert gnmax_logq([counts], sigma)[0] == pytest.approx(float(mpmath.log(q)), rel=1e-13)


histograms = st.lists(st.integers(0, 400), min_size=2, max_size=12).filter(lambda row: sum(row) > 0)
sigmas = st.floats(0.3, 500)


@given(st.lists(st.floats(-2000, 0), min_size=1, max_size=20), sigmas)
def test_theorem6_lies_between_zero_and_proposition8(logs: list[float], sigma: float) -> None:
    costs = gnmax_rdp(logs, sigma, DEFAULT_ORDERS)
    assert costs.shape == (len(logs), DEFAULT_ORDERS.size)
    assert (costs >= 0).all()
    assert (costs <= proposition8(sigma, DEFAULT_ORDERS)).all()


@given(histograms, sigmas)
def test_logq_does_not_depend_on_the_order_of_classes_and_is_capped(row: list[int], sigma: float) -> None:
    there, back = gnmax_logq([row, row[::-1]], sigma)
    assert there == pytest.approx(back, rel=1e-12)
    assert there <= math.log(1 - 1 / len(row)) + 1e-15


@settings(max_examples=25)
@given(st.lists(st.floats(-500, 0), min_size=2, max_size=30), sigmas)
def test_many_queries_cost_what_a_plain_loop_says(logs: list[float], sigma: float) -> None:
    loop = np.concatenate([gnmax_rdp([value], sigma, DEFAULT_ORDERS) for value in logs])
    np.testing.assert_array_equal(gnmax_rdp(logs, sigma, DEFAULT_ORDERS), loop)


def test_chunks_do_not_change_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    logs = -np.geomspace(0.1, 600, 50)
    whole = gnmax_rdp(logs, 40.0, DEFAULT_ORDERS)
    monkeypatch.setattr("pate.privacy.published.gnmax._CHUNK_CELLS", 3 * DEFAULT_ORDERS.size)
    np.testing.assert_array_equal(gnmax_rdp(logs, 40.0, DEFAULT_ORDERS), whole)


def renyi_of_two_classes(gap: int, gap_other: int, sigma: float, order: int) -> float:
    """Exact divergence of GNMax with two classes, where only the gap between the counts matters."""
    with mpmath.workdps(50):

        def outcome(g: int) -> tuple[mpmath.mpf, mpmath.mpf]:
            loses = mpmath.erfc(mpmath.mpf(g) / (2 * sigma)) / 2
            return 1 - loses, loses

        moment = sum(p**order * q ** (1 - order) for p, q in zip(outcome(gap), outcome(gap_other), strict=True))
        return float(mpmath.log(moment) / (order - 1))


@pytest.mark.parametrize(("gap", "order"), [(150, 8), (180, 16), (200, 16), (220, 8)])
def test_theorem6_bounds_the_forward_direction(gap: int, order: int) -> None:
    votes = [(250 + gap) // 2, (250 - gap) // 2]
    bound = gnmax_rdp(gnmax_logq([votes], 20.0), 20.0, [order])[0, 0]
    assert max(renyi_of_two_classes(gap, gap + move, 20.0, order) for move in (-2, 2)) <= bound


def test_the_reverse_direction_can_exceed_theorem6() -> None:
    """Why a cost takes the maximum of both directions (docs/accounting.md, rule 2): 225 to 25 votes, sigma 20, order 16."""
    bound = gnmax_rdp(gnmax_logq([[225, 25]], 20.0), 20.0, [16])[0, 0]
    reverse = max(renyi_of_two_classes(200 + move, 200, 20.0, 16) for move in (-2, 2))
    assert reverse / bound == pytest.approx(1.16, abs=0.005)


def test_no_queries_give_no_rows() -> None:
    assert gnmax_logq(np.zeros((0, 3)), 40.0).shape == (0,)
    assert gnmax_rdp([], 40.0, [2.0, 3.0]).shape == (0, 2)


@pytest.mark.parametrize(
    ("counts", "sigma", "message"),
    [
        ([3, 4], 1.0, "axes"),
        ([[3]], 1.0, "at least 2 classes"),
        ([[3, -1]], 1.0, "not negative"),
        ([[3, math.nan]], 1.0, "finite"),
        ([[3, 1]], 0.0, "sigma"),
        ([[3, 1]], math.inf, "sigma"),
    ],
)
def test_bad_counts_and_sigma_are_refused(counts: list[Any], sigma: float, message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        gnmax_logq(counts, sigma)


@pytest.mark.parametrize("logq", [[0.1], [math.nan], [[-1.0]]])
def test_bad_log_probabilities_are_refused(logq: FloatArray) -> None:
    with pytest.raises(ParameterError, match="logq"):
        gnmax_rdp(logq, 40.0, [2.0])
