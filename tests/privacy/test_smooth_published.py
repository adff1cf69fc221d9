"""The published smooth sensitivities and GNSS, against the 2018 reference code and the plain algorithms of the paper."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from scipy.special import ndtr, ndtri

from pate.arrays import FloatArray, IntArray
from pate.errors import ParameterError
from pate.experiments.bench.published_smooth import gnmax_local_sensitivity_loop
from pate.privacy.smooth import (
    Conditions,
    check_conditions,
    discounted_max,
    gnmax_conditions,
    gnmax_local_sensitivity,
    gnmax_logq0,
    gnmax_logq1,
    gnss_rdp_2018,
    threshold_local_sensitivity,
)

TIGHT = 1e-7


def test_gnmax_matches_the_2018_code(reference: dict[str, Any]) -> None:
    def setting(case: dict[str, Any]) -> tuple[float, float, int, int]:
        return case["sigma"], case["order"], len(case["counts"]), case["num_teachers"]

    cases = sorted(reference["smooth_sensitivity_gnmax"], key=setting)
    for (sigma, order, k, _), group in itertools.groupby(cases, setting):
        together = list(group)
        found = gnmax_local_sensitivity([case["counts"] for case in together], sigma, order)
        for case, local in zip(together, found, strict=True):
            assert gnmax_logq0(sigma, order) == pytest.approx(case["logq0"], rel=TIGHT)
            assert gnmax_logq1(sigma, order, k) == pytest.approx(case["logq1"], rel=TIGHT)
            assert gnmax_conditions(sigma, k, order) == Conditions(*case["conditions_C5_C6"])
            expected = case["ls_head"] + [case["ls_plateau"]] * (case["ls_len"] - len(case["ls_head"]))
            np.testing.assert_allclose(local, expected, rtol=TIGHT, atol=0)
            smooth = [float(discounted_max(beta, local)) for beta in case["betas"]]
            np.testing.assert_allclose(smooth, case["smooth_sensitivity"], rtol=TIGHT)


def test_threshold_matches_the_2018_code(reference: dict[str, Any]) -> None:
    for case in reference["smooth_sensitivity_threshold"]:
        setting = (case["num_teachers"], case["threshold"], case["sigma1"], case["order"])
        local = threshold_local_sensitivity([case["counts"]], *setting)[0]
        np.testing.assert_allclose(local, case["ls"], rtol=TIGHT, atol=0)
        smooth = [float(discounted_max(beta, local)) for beta in case["betas"]]
        np.testing.assert_allclose(smooth, case["smooth_sensitivity"], rtol=TIGHT)


def test_gnss_matches_the_2018_code(reference: dict[str, Any]) -> None:
    for case in reference["gnss_rdp"]:
        assert gnss_rdp_2018(case["beta"], case["sigma_ss"], [case["order"]])[0] == pytest.approx(case["rdp"], rel=1e-12)


def test_all_queries_at_once_are_the_plain_loop(mnist_votes: IntArray) -> None:
    """Repeated histograms, agreed ones and split ones, in any order."""
    counts = np.concatenate([mnist_votes[:4], mnist_votes[3:5], [[30, 30, 30, 30, 30, 30, 30, 40, 0, 0]]])
    for sigma, order in ((40.0, 8.0), (100.0, 4.0)):
        np.testing.assert_allclose(
            gnmax_local_sensitivity(counts, sigma, order), gnmax_local_sensitivity_loop(counts, sigma, order), rtol=1e-9, atol=0
        )


def test_smooth_sensitivity_of_a_batch_is_smooth_and_above_the_local_one(mnist_votes: IntArray) -> None:
    """On a path of neighbours: one vote of every query moves at each step."""
    beta, sigma, order = 0.03, 40.0, 8.0
    counts = mnist_votes[:8].copy()
    before = None
    for _ in range(8):
        local = gnmax_local_sensitivity(counts, sigma, order).sum(axis=0)
        smooth = float(discounted_max(beta, local))
        assert smooth >= local[0]
        assert before is None or abs(math.log(smooth / before)) <= beta * (1 + 1e-9)
        before = smooth
        rows = np.arange(len(counts))
        top = counts.argmax(axis=1)
        counts[rows, top] -= 1
        counts[rows, (top + 1) % 10] += 1


def test_two_votes_of_gap_move_q_by_at_most_the_published_bounds() -> None:
    """B_U and B_L of the paper, from 10,000 random histograms and a move in each (the bounds are per class, q their sum)."""
    rng = np.random.default_rng(11)
    sigma, k = 15.0, 5
    counts = np.sort(rng.multinomial(80, rng.dirichlet(np.full(k, 0.5), 10_000)), axis=1)[:, ::-1]
    counts = counts[counts[:, 0] > counts[:, 1] + 2]

    def q_of(table: IntArray) -> FloatArray:
        found: FloatArray = ndtr(-(table[:, :1] - table[:, 1:]) / (sigma * math.sqrt(2))).sum(axis=1)
        return found

    q = q_of(counts)
    usable = q < (k - 1) / 2 * 0.99
    moved = counts.copy()
    moved[:, 0] -= 1
    moved[:, 1] += 1
    upper = (k - 1) * ndtr(ndtri(np.minimum(q / (k - 1), 1)) + math.sqrt(2) / sigma)
    assert usable.sum() > 5000
    assert (q_of(moved)[usable] <= upper[usable] * (1 + 1e-12)).all()


def test_where_the_conditions_fail_it_is_refused() -> None:
    check_conditions(30.0, 10, 25.0)
    with pytest.raises(ParameterError, match="C5 and C6"):
        check_conditions(20.0, 10, 25.0)


@pytest.mark.parametrize("counts", [[[3, 4], [3, 5]], np.zeros((0, 3)), [[0, 0]]])
def test_rows_that_are_not_votes_of_the_same_teachers_are_refused(counts: Any) -> None:
    with pytest.raises(ParameterError, match="same sum"):
        gnmax_local_sensitivity(counts, 10.0, 4.0)
