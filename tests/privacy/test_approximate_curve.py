"""Approximate RDP: slacks add up, round up, take their share of delta, and cover the true hockey-stick divergence."""

from __future__ import annotations

import copy
import itertools
import math
import pickle
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pate.errors import ParameterError
from pate.privacy.composition import group_rdp, rdp_to_tcdp
from pate.privacy.curve import DEFAULT_ORDERS, RdpCurve, delta_beside
from pate.privacy.mechanisms import pure_dp_rdp

GAUSSIAN = RdpCurve.of(lambda orders: orders / 40.0**2)
SLACKS = st.one_of(st.just(0.0), st.floats(1e-18, 0.4))


def leaky_response(epsilon: float, delta: float) -> tuple[np.ndarray, np.ndarray]:
    """Both laws of the worst (epsilon, delta)-DP pair: the secret bit itself with probability delta, else as randomised."""
    right = (1 - delta) * math.exp(epsilon) / (1 + math.exp(epsilon))
    wrong = (1 - delta) / (1 + math.exp(epsilon))
    return np.array([delta, 0.0, right, wrong]), np.array([0.0, delta, wrong, right])


def true_delta(pairs: list[tuple[np.ndarray, np.ndarray]], epsilon: float) -> float:
    """sup_S P(S) - e^epsilon Q(S) of a composition, by a plain loop over all joint outcomes."""
    total = 0.0
    for outcome in itertools.product(*(range(len(p)) for p, _ in pairs)):
        p = math.prod(pair[0][i] for pair, i in zip(pairs, outcome, strict=True))
        q = math.prod(pair[1][i] for pair, i in zip(pairs, outcome, strict=True))
        total += max(p - math.exp(epsilon) * q, 0.0)
    return total


@given(
    st.lists(st.tuples(st.floats(0.01, 2), st.floats(1e-6, 0.2)), min_size=1, max_size=4),
    st.floats(0, 5),
)
def test_a_composition_of_approximate_mechanisms_is_covered(parts: list[tuple[float, float]], epsilon: float) -> None:
    curves = [RdpCurve.of_approximate(*part) for part in parts]
    claimed = sum(curves[1:], start=curves[0]).delta(epsilon)
    assert claimed >= true_delta([leaky_response(*part) for part in parts], epsilon) * (1 - 1e-12)


@given(st.floats(0.01, 2), st.floats(1e-6, 0.2), st.floats(0.01, 2), st.floats(0, 4))
def test_approximate_and_plain_mechanisms_add_up(epsilon: float, delta: float, pure: float, asked: float) -> None:
    both = RdpCurve.of_approximate(epsilon, delta) + RdpCurve.of(lambda orders: pure_dp_rdp(pure, orders))
    pairs = [leaky_response(epsilon, delta), leaky_response(pure, 0.0)]
    assert both.delta(asked) >= true_delta(pairs, asked) * (1 - 1e-12)


def test_the_oracle_finds_a_slack_that_was_forgotten() -> None:
    parts = [(0.5, 0.01)] * 3
    forgotten = RdpCurve(DEFAULT_ORDERS, 3 * RdpCurve.of_approximate(0.5, 0.01).values)
    assert forgotten.delta(1.6) < true_delta([leaky_response(*part) for part in parts], 1.6)


def test_delta_pays_for_the_slack_first() -> None:
    loose = RdpCurve(DEFAULT_ORDERS, GAUSSIAN.values, 4e-6)
    assert loose.epsilon(1e-5) == GAUSSIAN.epsilon(delta_beside(1e-5, 4e-6))
    assert loose.epsilon(1e-5).epsilon > GAUSSIAN.epsilon(1e-5).epsilon
    assert loose.delta(0.3) >= GAUSSIAN.delta(0.3) + 4e-6


@pytest.mark.parametrize("slack", [1e-5, 2e-5, 1.0])
def test_a_slack_that_takes_all_of_delta_leaves_no_claim(slack: float) -> None:
    assert RdpCurve(DEFAULT_ORDERS, GAUSSIAN.values, slack).epsilon(1e-5).epsilon == math.inf


def test_a_slack_alone_is_a_total_variation_distance() -> None:
    assert RdpCurve(DEFAULT_ORDERS, np.zeros(DEFAULT_ORDERS.size), 1e-6).epsilon(1e-5).epsilon == 0.0


@given(SLACKS, SLACKS)
def test_slacks_are_added_upwards_to_the_next_float(one: float, two: float) -> None:
    total = (RdpCurve(DEFAULT_ORDERS, GAUSSIAN.values, one) + RdpCurve(DEFAULT_ORDERS, GAUSSIAN.values, two)).slack
    assert Fraction(total) >= Fraction(one) + Fraction(two)
    assert Fraction(math.nextafter(total, 0.0)) < Fraction(one) + Fraction(two) or total == 0


@given(SLACKS, st.integers(0, 10_000))
def test_repeating_multiplies_the_slack(slack: float, times: int) -> None:
    total = (times * RdpCurve(DEFAULT_ORDERS, GAUSSIAN.values, slack)).slack
    assert Fraction(total) >= min(Fraction(1), times * Fraction(slack))
    assert total <= min(1.0, times * slack * (1 + 1e-15))


@given(st.floats(1e-12, 0.5), SLACKS)
def test_what_is_left_of_delta_is_rounded_down(delta: float, slack: float) -> None:
    assert Fraction(delta_beside(delta, slack)) <= Fraction(delta) - Fraction(slack)


def test_without_slack_nothing_changes() -> None:
    assert GAUSSIAN.slack == 0.0
    assert "slack" not in repr(GAUSSIAN)
    assert (3 * GAUSSIAN + GAUSSIAN).slack == 0.0


def test_copies_keep_the_slack() -> None:
    curve = RdpCurve(DEFAULT_ORDERS, GAUSSIAN.values, 1e-6)
    for twin in (pickle.loads(pickle.dumps(curve)), copy.deepcopy(curve)):
        assert twin.slack == 1e-6
        np.testing.assert_array_equal(twin.values, curve.values)
    assert repr(curve).endswith("slack 1e-06)")


def test_what_is_not_known_of_slacks_is_refused() -> None:
    curve = RdpCurve(DEFAULT_ORDERS, GAUSSIAN.values, 1e-6)
    for ask in (lambda: group_rdp(curve, 2), lambda: rdp_to_tcdp(curve)):
        with pytest.raises(ParameterError, match="slack"):
            ask()


@pytest.mark.parametrize("slack", [-1e-9, 1.1, math.nan])
def test_a_slack_is_a_probability(slack: float) -> None:
    with pytest.raises(ParameterError, match=r"slack.*\[0, 1\]"):
        RdpCurve(DEFAULT_ORDERS, GAUSSIAN.values, slack)
