"""The exponential mechanism, permute-and-flip and noisy counts: exact laws, and costs against the true divergence."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom, laplace

from pate.errors import ParameterError
from pate.mechanisms import ExponentialMechanism, NoisyCounts, PermuteAndFlip
from pate.mechanisms.coins import Coins
from pate.noise import OSNoise, SimulatedNoise
from pate.privacy.mechanisms import gaussian_rdp, pure_dp_rdp
from pate.privacy.outcomes import renyi_divergence

ORDERS = np.array([1.1, 2.0, 5.0, 20.0, 200.0])
CHOICES = [ExponentialMechanism, PermuteAndFlip]
scores = st.lists(st.tuples(st.integers(-4, 4), st.sampled_from([-1, 0, 1])), min_size=2, max_size=6)


def within(seen: int, n: int, probability: float, false_alarm: float) -> bool:
    """Whether a count is inside an exact two-sided binomial interval."""
    return 2 * min(binom.cdf(seen, n, probability), binom.sf(seen - 1, n, probability)) > false_alarm


@pytest.mark.parametrize("x", [Fraction(0), Fraction(1, 3), Fraction(1), Fraction(0.1), Fraction(7, 2)])
def test_coins_have_the_probability_e_to_the_minus_x(x: Fraction) -> None:
    """20,000 coins, exact binomial interval, false-alarm rate 1e-7 each."""
    coins, n = Coins(SimulatedNoise(5)), 20_000
    assert within(sum(coins.exp_minus(x) for _ in range(n)), n, math.exp(-x), 1e-7)


@pytest.mark.parametrize("n", [1, 2, 5, 2**64 + 1])
def test_whole_numbers_are_uniform(n: int) -> None:
    """The lower half comes up half of the time: 4,000 draws, false-alarm rate 1e-7."""
    coins = Coins(SimulatedNoise(2))
    drawn = [coins.below(n) for _ in range(4000)]
    assert all(0 <= each < n for each in drawn)
    half = -(-n // 2)
    assert within(sum(each < half for each in drawn), 4000, half / n, 1e-7)


@pytest.mark.parametrize("kind", CHOICES)
def test_choices_have_their_law(kind: Any) -> None:
    """5,000 choices, exact binomial intervals, false-alarm rate 1e-6 in all."""
    mechanism, given_scores, n = kind(epsilon=1.5), np.array([5, 3, 4, 0]), 5000
    noise = SimulatedNoise(1)
    seen = np.bincount([mechanism.choose(given_scores, noise) for _ in range(n)], minlength=4)
    for count, log_probability in zip(seen, mechanism.log_probs(given_scores), strict=True):
        assert within(int(count), n, math.exp(log_probability), 1e-6 / 4)


@given(st.lists(st.integers(-5, 5), min_size=1, max_size=5), st.floats(0.1, 4))
def test_the_law_of_permute_and_flip_by_trying_every_order(values: list[int], epsilon: float) -> None:
    mechanism = PermuteAndFlip(epsilon)
    keep = [math.exp(mechanism.rate * (value - max(values))) for value in values]
    law = np.zeros(len(values))
    for order in itertools.permutations(range(len(values))):
        reached = 1.0
        for index in order:
            law[index] += reached * keep[index] / math.factorial(len(values))
            reached *= 1 - keep[index]
    np.testing.assert_allclose(np.exp(mechanism.log_probs(np.array(values))), law, rtol=1e-9)


@given(scores, st.floats(0.05, 6), st.booleans(), st.sampled_from(CHOICES))
def test_the_cost_of_a_choice_is_never_below_the_true_divergence(
    pairs: list[tuple[int, int]], epsilon: float, monotonic: bool, kind: Any
) -> None:
    mechanism = kind(epsilon, monotonic=monotonic)
    one = np.array([value for value, _ in pairs])
    two = one + np.array([abs(change) if monotonic else change for _, change in pairs])
    p, q = mechanism.log_probs(one), mechanism.log_probs(two)
    assert np.abs(p - q).max() <= epsilon * (1 + 1e-9) + 1e-12
    claimed = mechanism.cost(ORDERS).values
    for left, right in ((p, q), (q, p)):
        assert (renyi_divergence(left, right, ORDERS) <= claimed * (1 + 1e-9) + 1e-12).all()


def test_a_bounded_range_is_worth_a_factor_of_four() -> None:
    orders = np.array([2.0, 4.0])
    ratio = ExponentialMechanism(0.1).cost(orders).values / PermuteAndFlip(0.1).cost(orders).values
    np.testing.assert_allclose(ratio, 0.25, rtol=0.03)
    # And it is attained: two choices, one of which gains a point where the other loses one.
    mechanism = ExponentialMechanism(0.1)
    p, q = mechanism.log_probs(np.array([0, 1])), mechanism.log_probs(np.array([1, 0]))
    assert renyi_divergence(p, q, orders)[0] > 0.99 * mechanism.cost(orders).values[0]
    # Permute-and-flip may not claim it.
    other = PermuteAndFlip(1.0)
    p, q = other.log_probs(np.array([0, 1])), other.log_probs(np.array([1, 0]))
    assert renyi_divergence(p, q, orders)[0] > ExponentialMechanism(1.0).cost(orders).values[0]


@pytest.mark.parametrize("kind", CHOICES)
def test_choices_refuse_what_they_cannot_take(kind: Any) -> None:
    for wrong in (np.array([0.5]), np.zeros(0, dtype=np.int64), np.zeros((2, 2), dtype=np.int64)):
        with pytest.raises(ParameterError, match="whole numbers"):
            kind(1.0).choose(wrong, OSNoise())
    with pytest.raises(ParameterError, match="epsilon"):
        kind(0.0)


@pytest.mark.parametrize(("neighbours", "groups", "moved"), [("replace", 3, 2), ("replace", 1, 1), ("add-remove", 3, 1)])
def test_counts_cost_what_the_noise_on_those_that_change_costs(neighbours: Any, groups: int, moved: int) -> None:
    gaussian = NoisyCounts(5.0, "gaussian", neighbours)
    np.testing.assert_allclose(gaussian.cost(groups, ORDERS).values, gaussian_rdp(math.sqrt(moved), 5.0, ORDERS))
    noisy = NoisyCounts(5.0, "laplace", neighbours)
    assert noisy.epsilon(groups) == moved / 5.0
    # By the integral of p^a q^(1-a), one count at a time.
    x = np.linspace(-400, 400, 800_001)
    for order, claimed in zip(ORDERS[:4], noisy.cost(groups, ORDERS[:4]).values, strict=True):
        logs = order * laplace.logpdf(x, scale=5.0) - (order - 1) * laplace.logpdf(x - 1, scale=5.0)
        one = math.log(np.trapezoid(np.exp(logs), x)) / (order - 1)
        assert claimed == pytest.approx(moved * one, rel=1e-5)
        assert claimed <= pure_dp_rdp(moved / 5.0, np.array([order]))[0]


@pytest.mark.parametrize("law", ["laplace", "gaussian"])
def test_counts_are_rounded_and_unbiased(law: Any) -> None:
    """The mean of 20,000 noisy counts lies within 6 standard errors: false-alarm rate 2e-9."""
    counts = np.full(20_000, 1234)
    noisy = NoisyCounts(3.0, law).release(counts, SimulatedNoise(9))
    assert noisy.dtype == np.int64
    spread = 3.0 * (math.sqrt(2) if law == "laplace" else 1.0)
    assert abs(noisy.mean() - 1234) < 6 * math.hypot(spread, 0.3) / math.sqrt(20_000)
    assert noisy.std() == pytest.approx(math.hypot(spread, 1 / math.sqrt(12)), rel=0.05)


@pytest.mark.parametrize("kind", CHOICES)
@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.uint64])
def test_the_type_of_the_scores_does_not_matter(kind: Any, dtype: Any) -> None:
    scores = np.array([3, 100, 99])
    np.testing.assert_array_equal(kind(1.0).log_probs(scores.astype(dtype)), kind(1.0).log_probs(scores))
    wide = np.array([-100, 27, 100])
    np.testing.assert_array_equal(kind(1.0).log_probs(wide.astype(np.int8)), kind(1.0).log_probs(wide))
    assert kind(1.0).choose(np.array([0, 2**50]), SimulatedNoise(1)) == 1


def test_counts_refuse_what_they_cannot_take() -> None:
    with pytest.raises(ParameterError, match="neighbours"):
        NoisyCounts(1.0, neighbours="any")  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="whole numbers"):
        NoisyCounts(1.0).release(np.array([1.5]), OSNoise())
    with pytest.raises(ParameterError, match="no pure epsilon"):
        NoisyCounts(1.0, "gaussian").epsilon(2)
