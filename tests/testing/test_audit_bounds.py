"""Lower bounds on epsilon, against exact enumeration, brute force and mechanisms whose epsilon is known."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from pate import RdpCurve
from pate.errors import ParameterError
from pate.testing.bounds import (
    Box,
    best_one_run,
    box,
    epsilon_floor,
    lower_bound,
    one_run_lower_bound,
    one_run_p_value,
    proven_share,
    renyi_floor,
)


def true_epsilon(p: float, q: float, delta: float) -> float:
    """The least epsilon of a mechanism with one event: four inequalities, as they stand in the definition."""
    pairs = ((p, q), (q, p), (1 - p, 1 - q), (1 - q, 1 - p))
    if any(a > delta and b == 0 for a, b in pairs):
        return math.inf
    return max([0.0, *(math.log((a - delta) / b) for a, b in pairs if a > delta)])


@pytest.mark.parametrize(
    ("p", "q", "delta"), [(0.75, 0.25, 0.0), (0.25, 0.75, 0.0), (0.5, 0.5, 0.0), (0.15, 0.05, 0.1), (0.97, 0.6, 0.01)]
)
def test_the_bound_is_too_large_no_more_often_than_stated(p: float, q: float, delta: float) -> None:
    """The exact chance, summed over all outcomes of 12 and 15 runs."""
    truth = true_epsilon(p, q, delta)
    chance = 0.0
    for one in range(13):
        for two in range(16):
            if lower_bound(one, 12, two, 15, delta=delta, confidence=0.8) > truth:
                chance += binom.pmf(one, 12, p) * binom.pmf(two, 15, q)
    assert chance <= 0.2


@given(
    low=st.floats(0.0, 1.0),
    high=st.floats(0.0, 1.0),
    delta=st.sampled_from([0.0, 1e-5, 0.1]),
    more=st.floats(0.0, 1.0),
    less=st.floats(0.0, 1.0),
)
def test_no_worlds_inside_the_box_have_a_smaller_epsilon(
    low: float, high: float, delta: float, more: float, less: float
) -> None:
    p, q = low + more * (1 - low), high * less
    floor = float(epsilon_floor(Box(np.array([low]), np.array([high])), delta)[0])
    assert floor <= true_epsilon(min(p, 1.0), q, delta) + 1e-9


@given(low=st.floats(0.01, 0.99), high=st.floats(0.01, 0.99), more=st.floats(0.0, 1.0), less=st.floats(0.01, 1.0))
def test_no_worlds_inside_the_box_have_a_smaller_divergence(low: float, high: float, more: float, less: float) -> None:
    orders = np.array([1.1, 2.0, 16.0])
    p, q = low + more * (0.999 - low) if low < 0.999 else low, high * less
    found = renyi_floor(Box(np.array([low]), np.array([high])), orders)[0]
    for order, floor in zip(orders, found, strict=True):
        there, back = (
            math.log(a**order * b ** (1 - order) + (1 - a) ** order * (1 - b) ** (1 - order)) / (order - 1)
            for a, b in ((p, q), (q, p))
        )
        assert floor <= max(there, back) + 1e-9


def test_the_divergence_of_known_worlds_is_found() -> None:
    known = Box(np.array([0.8, 0.3]), np.array([0.2, 0.3]))
    expected = math.log(0.8**2 / 0.2 + 0.2**2 / 0.8)
    np.testing.assert_allclose(renyi_floor(known, np.array([2.0])), [[expected], [0.0]], atol=1e-12)


def test_a_share_above_one_refutes_and_a_slack_is_allowed_for() -> None:
    known = Box(np.array([0.5]), np.array([0.1]))
    small = RdpCurve(np.array([2.0, 4.0]), np.array([0.1, 0.2]))
    share, order = proven_share(known, small)
    assert share[0] > 1
    assert order[0] in (2.0, 4.0)
    # All of the difference may be the slack: P = 0.4 + 0.6 P' with P' = Q' = 1/6.
    excused = RdpCurve(np.array([2.0, 4.0]), np.array([0.1, 0.2]), 0.4)
    assert proven_share(known, excused)[0][0] == pytest.approx(0.0, abs=1e-9)


def test_one_sided_boxes_hold() -> None:
    """The exact chance that either side misses, over all outcomes of 60 runs in each world."""
    p, q, chance = 0.4, 0.2, 0.0
    for one in range(61):
        known = box(np.full(61, one), 60, np.arange(61), 60, 0.1)
        missed = (known.low > p) | (known.high < q)
        chance += binom.pmf(one, 60, p) * binom.pmf(np.arange(61), 60, q)[missed].sum()
    assert chance <= 0.1


# One run --------------------------------------------------------------------------------------------------------------------


def naive_p_value(m: int, r: int, v: int, epsilon: float, delta: float) -> float:
    """Theorem 5.2 by plain loops."""
    share = math.exp(epsilon) / (1 + math.exp(epsilon))

    def tail(least: int) -> float:
        return sum(math.comb(r, w) * share**w * (1 - share) ** (r - w) for w in range(max(least, 0), r + 1))

    gained = max(((tail(v - i) - tail(v)) / i for i in range(1, m + 1)), default=0.0)
    return min(1.0, tail(v) + 2 * m * delta * gained)


@pytest.mark.parametrize(("m", "r"), [(20, 20), (40, 12)])
@pytest.mark.parametrize("delta", [0.0, 1e-3])
@pytest.mark.parametrize("epsilon", [0.0, 0.7, 3.0])
def test_the_p_value_is_the_theorem(m: int, r: int, delta: float, epsilon: float) -> None:
    for v in range(r + 1):
        assert one_run_p_value(m, r, v, epsilon, delta) == pytest.approx(naive_p_value(m, r, v, epsilon, delta), abs=1e-12)


@pytest.mark.parametrize("epsilon", [0.0, 0.5, 2.0])
@pytest.mark.parametrize("delta", [0.0, 0.002])
def test_the_theorem_holds_for_mechanisms_that_spend_all(epsilon: float, delta: float) -> None:
    """Randomised response of every coin that gives a coin away with probability delta, or all of them at once."""
    m, share = 60, 1 / (1 + math.exp(-epsilon))
    for v in range(m + 1):
        claimed = one_run_p_value(m, m, v, epsilon, delta)
        each = binom.sf(v - 1, m, delta + (1 - delta) * share)
        together = delta + (1 - delta) * binom.sf(v - 1, m, share)
        assert max(each, together) <= claimed + 1e-12


@given(
    canaries=st.integers(1, 200),
    data=st.data(),
    low=st.floats(0.0, 6.0),
    more=st.floats(0.0, 3.0),
    delta=st.sampled_from([0.0, 1e-6, 1e-3]),
)
def test_a_larger_epsilon_is_never_refuted_before_a_smaller(
    canaries: int, data: st.DataObject, low: float, more: float, delta: float
) -> None:
    """The bisection counts on it."""
    guesses = data.draw(st.integers(0, canaries))
    correct = data.draw(st.integers(0, guesses))
    p_values = [one_run_p_value(canaries, guesses, correct, epsilon, delta) for epsilon in (low, low + more)]
    assert p_values[0] <= p_values[1] * (1 + 1e-9) + 1e-12


@pytest.mark.parametrize("delta", [0.0, 1e-4])
def test_the_one_run_bound_is_too_large_no_more_often_than_stated(delta: float) -> None:
    """The exact chance over the number of right guesses of 40, under randomised response."""
    epsilon, correct = 1.0, np.arange(41)
    bounds = np.array([one_run_lower_bound(40, 40, int(v), delta=delta, confidence=0.9) for v in correct])
    share = delta + (1 - delta) / (1 + math.exp(-epsilon))
    assert binom.pmf(correct, 40, share)[bounds > epsilon].sum() <= 0.1
    assert (np.diff(bounds) >= 0).all()
    assert bounds[-1] > epsilon


def test_the_best_of_several_numbers_of_guesses_pays_for_the_choice() -> None:
    scores, present = np.arange(100.0), np.arange(100) >= 50
    alone = one_run_lower_bound(100, 100, 100, delta=0.0, confidence=0.95)
    best, guesses, right = best_one_run(scores, present, [20, 100], delta=0.0, confidence=0.95)
    assert (guesses, right) == (100, 100)
    assert best == pytest.approx(one_run_lower_bound(100, 100, 100, delta=0.0, confidence=0.975))
    assert 0 < best < alone


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: lower_bound(5, 4, 1, 4, delta=0.0), "in 0 to 4 of 4 runs, got 5"),
        (lambda: lower_bound(1, 4, 1, 4, delta=1.0), "delta must lie in"),
        (lambda: lower_bound(1, 4, 1, 4, delta=0.0, confidence=1.0), "confidence must lie strictly between"),
        (lambda: one_run_lower_bound(5, 6, 1, delta=0.0), "got 6 guesses"),
        (lambda: best_one_run([1.0], [True, False], [2], delta=0.0), "one entry a canary"),
        (lambda: best_one_run([1.0, 2.0], [True, False], [4], delta=0.0), "numbers from 2 to the 2 canaries"),
    ],
)
def test_mistakes(call: object, message: str) -> None:
    assert callable(call)
    with pytest.raises(ParameterError, match=message):
        call()
