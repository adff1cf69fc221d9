"""The threshold step and Confident-GNMax as published, and why the expected cost is no bound."""

from __future__ import annotations

import itertools
import math
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import log_ndtr, logsumexp

from pate.arrays import FloatArray, IntArray
from pate.errors import ParameterError
from pate.privacy.curve import DEFAULT_ORDERS
from pate.privacy.published import (
    confident_expected_rdp,
    confident_independent_rdp,
    confident_worst_rdp,
    gnmax_logq,
    gnmax_rdp,
    threshold_log_answered,
    threshold_rdp,
    threshold_rdp_independent,
)

CLOSED_FORM = 1e-9


def test_threshold_matches_the_2018_code(reference: dict[str, Any]) -> None:
    for case in reference["threshold"]:
        log_answered = threshold_log_answered([case["counts"]], case["threshold"], case["sigma1"])
        assert log_answered[0] == pytest.approx(case["logpr_answered"], rel=CLOSED_FORM)
        rdp = threshold_rdp(log_answered, case["sigma1"], reference["orders"])[0]
        np.testing.assert_allclose(rdp, case["rdp_threshold"], rtol=CLOSED_FORM)


def test_independent_threshold_matches_the_2018_code(reference: dict[str, Any]) -> None:
    for case in reference["data_independent"]:
        rdp = threshold_rdp_independent(case["sigma"], reference["orders"])
        np.testing.assert_allclose(rdp, case["threshold_rdp"], rtol=CLOSED_FORM)


def test_confident_per_query_matches_the_2018_scripts(reference: dict[str, Any]) -> None:
    orders = reference["orders"]
    for case in reference["confident_gnmax"]:
        votes, sigma1, sigma2 = case["votes"], case["sigma1"], case["sigma2"]
        log_answered = threshold_log_answered(votes, case["threshold"], sigma1)
        logq = gnmax_logq(votes, sigma2)
        found = {
            "logpr_answered": log_answered,
            "logq": logq,
            "rdp_step1": threshold_rdp(log_answered, sigma1, orders),
            "rdp_step2": gnmax_rdp(logq, sigma2, orders),
            "rdp_expected": confident_expected_rdp(votes, case["threshold"], sigma1, sigma2, orders),
        }
        for name, values in found.items():
            np.testing.assert_allclose(values, [query[name] for query in case["per_query"]], rtol=CLOSED_FORM, err_msg=name)


@pytest.mark.parametrize("section", ["confident_gnmax", "mnist_votes_confident"])
def test_confident_totals_match_the_2018_scripts(reference: dict[str, Any], section: str) -> None:
    orders = reference["orders"]
    for case in reference[section]:
        setting = (case["votes"], case["threshold"], case["sigma1"], case["sigma2"], orders)
        expected, worst = confident_expected_rdp(*setting), confident_worst_rdp(*setting)
        np.testing.assert_allclose(expected.sum(axis=0), case["rdp_total_expected"], rtol=CLOSED_FORM)
        both_steps = np.add(case["rdp_total_step1"], case["rdp_total_gnmax_only"])
        np.testing.assert_allclose(worst.sum(axis=0), both_steps, rtol=CLOSED_FORM)
        log_answered = threshold_log_answered(*setting[:3])
        answered = np.exp(log_answered)[:, None]
        assert answered.sum() == pytest.approx(case["expected_answered"], rel=CLOSED_FORM)
        squares = answered * worst**2 + (1 - answered) * threshold_rdp(log_answered, case["sigma1"], orders) ** 2
        np.testing.assert_allclose(squares.sum(axis=0), case["rdp_total_sq"], rtol=CLOSED_FORM)


def test_the_vectors_hold_the_rows_of_the_votes_file(reference: dict[str, Any], mnist_votes: IntArray) -> None:
    for case in reference["mnist_votes_confident"]:
        first, last = case["rows"]
        np.testing.assert_array_equal(mnist_votes[first:last], case["votes"])


def exact_log_outcomes(counts: list[int], threshold: float, sigma1: float, sigma2: float) -> FloatArray:
    """log-probability of each label and of abstention, by a fine trapezoid rule over the winner's noisy count."""
    n = np.asarray(counts, dtype=np.float64)
    x, step = np.linspace(n.min() - 12 * sigma2, n.max() + 12 * sigma2, 6001, retstep=True)
    z = (x[:, None] - n) / sigma2
    below = log_ndtr(z)
    others = below.sum(axis=1, keepdims=True) - below
    labels = logsumexp(others - z**2 / 2, axis=0) + math.log(step / sigma2) - math.log(2 * math.pi) / 2
    margin = (n.max() - threshold) / sigma1
    return np.append(log_ndtr(margin) + labels, log_ndtr(-margin))


def test_the_expected_cost_is_no_upper_bound() -> None:
    """Rule 1 of docs/accounting.md: the scripts' number is 0.149, the true divergence 2.008, the worst case 3.624."""
    counts, order, setting = [30, 28, 2], 32.0, (60.0, 15.0, 3.0)
    here = exact_log_outcomes(counts, *setting)
    assert logsumexp(here) == pytest.approx(0, abs=1e-12)
    true = 0.0
    for source, target in itertools.permutations(range(3), 2):
        moved = list(counts)
        moved[source] -= 1
        moved[target] += 1
        there = exact_log_outcomes(moved, *setting)
        true = max(true, float(logsumexp(order * here + (1 - order) * there)) / (order - 1))
    expected = confident_expected_rdp([counts], *setting, [order])[0, 0]
    worst = confident_worst_rdp([counts], *setting, [order])[0, 0]
    assert expected == pytest.approx(0.149, abs=5e-4)
    assert true == pytest.approx(2.008, abs=5e-4)
    assert expected < true < worst


@given(
    st.lists(st.integers(0, 300), min_size=2, max_size=8),
    st.floats(-50, 400),
    st.floats(0.5, 300),
    st.floats(0.5, 300),
)
def test_expected_is_below_worst_is_below_independent(row: list[int], threshold: float, sigma1: float, sigma2: float) -> None:
    setting = ([row], threshold, sigma1, sigma2, DEFAULT_ORDERS)
    expected, worst = confident_expected_rdp(*setting), confident_worst_rdp(*setting)
    assert (expected <= worst).all()
    assert (worst <= confident_independent_rdp(sigma1, sigma2, DEFAULT_ORDERS) * (1 + 1e-14)).all()


def test_the_rarer_bit_decides_what_the_threshold_costs() -> None:
    orders = np.array([2.0, 16.0])
    below, above = threshold_rdp(threshold_log_answered([[100, 0], [200, 0]], 150.0, 20.0), 20.0, orders)
    np.testing.assert_allclose(below, above, rtol=1e-12)


def test_an_abstention_too_rare_for_a_float_still_costs() -> None:
    """Pr[abstain] = Phi(-40) is 4e-350: as a float it is 0, its cost at a small sigma1 and a high order is not."""
    log_answered = threshold_log_answered([[40, 0]], 0.0, 1.0)
    assert log_answered[0] == 0
    cost = threshold_rdp(log_answered, 1.0, [30.0])[0, 0]
    with mpmath.workdps(400):
        here, there = mpmath.erfc(40 / mpmath.sqrt(2)) / 2, mpmath.erfc(41 / mpmath.sqrt(2)) / 2
        moment = here**30 * there ** (-29) + (1 - here) ** 30 * (1 - there) ** (-29)
        assert 0 < mpmath.log(moment) / 29 <= cost


@pytest.mark.parametrize(("threshold", "sigma1"), [(math.nan, 1.0), (math.inf, 1.0), (1.0, 0.0), (1.0, math.nan)])
def test_bad_thresholds_are_refused(threshold: float, sigma1: float) -> None:
    with pytest.raises(ParameterError, match="must be a finite number"):
        threshold_log_answered([[3, 1]], threshold, sigma1)
