"""LNMax as published, against the 2017 and 2018 reference codes; where the 2017 code is wrong, the test says so."""

from __future__ import annotations

import math
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pate.errors import ParameterError
from pate.privacy.curve import DEFAULT_ORDERS
from pate.privacy.mechanisms import pure_dp_rdp
from pate.privacy.published import (
    lnmax_independent_log_moments,
    lnmax_independent_rdp,
    lnmax_log_moments,
    lnmax_log_moments_2017,
    lnmax_logq,
    lnmax_q,
    lnmax_q_approx,
    lnmax_rdp_2018,
)

CLOSED_FORM = 1e-9


def test_q_and_moments_match_the_2017_code(reference: dict[str, Any]) -> None:
    for case in reference["lnmax"]:
        counts, gamma = [case["counts"]], case["noise_eps"]
        assert lnmax_q(counts, gamma)[0] == pytest.approx(case["q"], rel=CLOSED_FORM)
        assert lnmax_q_approx(counts, gamma)[0] == pytest.approx(case["q_approx"], rel=CLOSED_FORM)
        moments = lnmax_log_moments_2017([case["q"]], gamma, case["l"])[0]
        np.testing.assert_allclose(moments, case["logmgf"], rtol=CLOSED_FORM)


def test_rdp_matches_the_2018_code(reference: dict[str, Any]) -> None:
    for case in reference["lnmax"]:
        logq = lnmax_logq([case["counts"]], case["noise_eps"])
        assert logq[0] == pytest.approx(case["logq_2018"], rel=CLOSED_FORM)
        rdp = lnmax_rdp_2018(logq, case["noise_eps"], reference["orders"])[0]
        np.testing.assert_allclose(rdp, case["rdp_pure_eps_2018"], rtol=CLOSED_FORM)


def test_independent_moments_match_the_2017_code(reference: dict[str, Any]) -> None:
    for case in reference["data_independent_laplace_2017"]:
        moments = lnmax_independent_log_moments(case["noise_eps"], case["l"])
        np.testing.assert_allclose(moments, case["logmgf"], rtol=CLOSED_FORM)


def test_totals_match_the_2017_code(reference: dict[str, Any]) -> None:
    for case in reference["lnmax_2017_totals"]:
        gamma, moments, log_inverse_delta = case["noise_eps"], np.array(case["l"]), -math.log(case["delta"])
        total = lnmax_log_moments_2017(lnmax_q(case["votes"], gamma), gamma, moments).sum(axis=0)
        np.testing.assert_allclose(total, case["total_logmgf"], rtol=CLOSED_FORM)
        per_moment = (total + log_inverse_delta) / moments
        np.testing.assert_allclose(per_moment, case["eps_per_l"], rtol=CLOSED_FORM)
        assert per_moment.min() == pytest.approx(case["eps"], rel=CLOSED_FORM)
        independent = len(case["votes"]) * lnmax_independent_log_moments(gamma, moments)
        np.testing.assert_allclose(independent, case["data_independent_logmgf"], rtol=CLOSED_FORM)
        assert ((independent + log_inverse_delta) / moments).min() == pytest.approx(
            case["eps_data_independent"], rel=CLOSED_FORM
        )


def test_the_2017_condition_on_q_is_wrong() -> None:
    """Outcomes (0.6, 0.4) against (0.6 e^-2, the rest) are 2-DP, and cost more than the 2017 code says they can."""
    q, gamma, moment = 0.4, 1.0, 2
    here = np.array([1 - q, q])
    there = np.array([(1 - q) * math.exp(-2), 1 - (1 - q) * math.exp(-2)])
    assert np.abs(np.log(here / there)).max() <= 2 * gamma + 1e-12
    true = math.log(float((here ** (moment + 1) * there ** (-moment)).sum()))
    assert q < 0.5
    assert q > 1 / (math.exp(2 * gamma) + 1)
    assert lnmax_log_moments_2017([q], gamma, [moment])[0, 0] < true - 0.3
    assert lnmax_log_moments([math.log(q)], gamma, [moment])[0, 0] >= true


def test_where_the_2017_code_is_too_small(reference: dict[str, Any]) -> None:
    """Two faults show in its own vectors: the condition on q, and a cost that cancels to 0 when q is tiny."""
    wrong_condition = lost_to_rounding = 0
    for case in reference["lnmax"]:
        q, old = case["q"], np.array(case["logmgf"])
        right = lnmax_log_moments([math.log(q)], case["noise_eps"], case["l"])[0]
        if (old < right * (1 - 1e-5)).any():
            if 1 / (math.exp(2 * case["noise_eps"]) + 1) < q < 0.5:
                wrong_condition += 1
            else:
                assert q < 1e-12
                lost_to_rounding += 1
    assert wrong_condition == 2
    assert lost_to_rounding > 20


def theorem3_with_mpmath(logq: float, gamma: float, moment: int) -> float:
    """Theorem 3 of arXiv:1610.05755, with its condition and the data-independent cost as its cap, to 50 digits of q."""
    with mpmath.workdps(50 + int(-logq)):
        q, e = mpmath.exp(mpmath.mpf(logq)), 2 * mpmath.mpf(gamma)
        cap = min(e**2 / 2 * moment * (moment + 1), e * moment)
        if q > 1 / (mpmath.exp(e) + 1):
            return float(cap)
        inner = (1 - q) * ((1 - q) / (1 - mpmath.exp(e) * q)) ** moment + q * mpmath.exp(e * moment)
        return float(min(cap, mpmath.log(inner)))


@pytest.mark.parametrize("gamma", [0.01, 0.05, 0.5, 2.0])
@pytest.mark.parametrize("logq", [-0.5, -3.0, -20.0, -300.0, -650.0])
def test_moments_are_theorem3_at_fifty_digits(logq: float, gamma: float) -> None:
    moments = [1, 2, 8, 40, 300]
    expected = [theorem3_with_mpmath(logq, gamma, moment) for moment in moments]
    np.testing.assert_allclose(lnmax_log_moments([logq], gamma, moments)[0], expected, rtol=1e-11)


@given(st.lists(st.floats(-1500, 0), min_size=1, max_size=20), st.floats(0.001, 20))
def test_data_dependent_lies_between_zero_and_independent(logs: list[float], gamma: float) -> None:
    costs = lnmax_rdp_2018(logs, gamma, DEFAULT_ORDERS)
    assert (costs >= 0).all()
    assert (costs <= lnmax_independent_rdp(gamma, DEFAULT_ORDERS)).all()


@given(st.floats(0.001, 20))
def test_the_tight_pure_bound_is_never_above_the_published_one(gamma: float) -> None:
    tight = pure_dp_rdp(2 * gamma, DEFAULT_ORDERS)
    assert (tight <= lnmax_independent_rdp(gamma, DEFAULT_ORDERS) * (1 + 1e-12)).all()


@given(st.lists(st.integers(0, 400), min_size=2, max_size=12), st.floats(0.001, 5))
def test_the_approximate_q_is_never_smaller(row: list[int], gamma: float) -> None:
    assert lnmax_q_approx([row], gamma)[0] >= lnmax_q([row], gamma)[0] * (1 - 1e-12)


def test_q_is_exact_for_two_classes() -> None:
    """Pr[Lap - Lap > gap] in closed form against a plain integral over the runner-up's noise."""
    gamma, gap = mpmath.mpf("0.3"), 7

    def density_times_loss(x: mpmath.mpf) -> mpmath.mpf:
        t = gamma * (x - gap)
        winner_is_below = mpmath.exp(t) / 2 if t < 0 else 1 - mpmath.exp(-t) / 2
        return gamma / 2 * mpmath.exp(-gamma * abs(x)) * winner_is_below

    integral = mpmath.quad(density_times_loss, [-200, 0, gap, 300])
    assert lnmax_q([[10, 3]], 0.3)[0] == pytest.approx(float(integral), rel=1e-9)


@pytest.mark.parametrize("moments", [[], [0], [-1], [2, 1], [[1]], [math.nan]])
def test_bad_moments_are_refused(moments: list[Any]) -> None:
    with pytest.raises(ParameterError, match=r"orders|moments"):
        lnmax_log_moments([-1.0], 0.05, moments)


@pytest.mark.parametrize("gamma", [0.0, -1.0, math.nan, math.inf])
def test_bad_gamma_is_refused(gamma: float) -> None:
    for call in (lambda: lnmax_logq([[3, 1]], gamma), lambda: lnmax_independent_rdp(gamma, [2.0])):
        with pytest.raises(ParameterError, match="gamma"):
            call()


@pytest.mark.parametrize("q", [[-0.1], [1.1], [math.nan], 0.5])
def test_bad_probabilities_are_refused(q: Any) -> None:
    with pytest.raises(ParameterError, match="q must be"):
        lnmax_log_moments_2017(q, 0.05, [1])
