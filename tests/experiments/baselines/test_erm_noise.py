"""Noise vectors and the exponential mechanism against the laws they are to have."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest
from erm_oracles import hoeffding
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from pate.arrays import FloatArray
from pate.experiments.baselines.erm.noise import COARSEST, LatticeNoise, Reals, _Parts, gaussian_vector, length_vector, longest
from pate.experiments.baselines.erm.tuning import choice_of, right_persons
from pate.noise import SimulatedNoise
from pate.sampling import GAUSSIAN, LAPLACE

ALARM = 1e-6
PERSON = st.lists(st.booleans(), min_size=1, max_size=4)  # which of one's records are taken for another class


def vectors(scale: float, size: int, count: int) -> FloatArray:
    noise = SimulatedNoise(size)
    return np.array([length_vector(scale, size, noise).values for _ in range(count)])


@pytest.mark.parametrize("size", [1, 3, 20])
def test_a_vector_has_the_length_and_direction_of_its_density(size: int) -> None:
    """n = 1,000; Kolmogorov-Smirnov, false-alarm rate 1e-6 each: density exp(-|b|/scale) has |b| ~ Gamma(size, scale)."""
    drawn = vectors(0.3, size, 1000)
    lengths = np.linalg.norm(drawn, axis=1)
    assert stats.kstest(lengths, stats.gamma(size, scale=0.3).cdf).pvalue > ALARM
    first = drawn[:, 0] / lengths
    if size == 1:
        assert abs((first > 0).mean() - 0.5) < hoeffding(1000, ALARM)
    else:  # of a direction drawn evenly, (1 + x)/2 is a Beta number
        assert stats.kstest((1 + first) / 2, stats.beta((size - 1) / 2, (size - 1) / 2).cdf).pvalue > ALARM
    assert abs(np.corrcoef(lengths, first)[0, 1]) < 5 / math.sqrt(1000), "independent of each other"
    wrong = stats.gamma(size, scale=0.15).cdf
    assert stats.kstest(lengths, wrong).pvalue < ALARM, "half the noise would be seen"


def test_gaussian_vectors_are_gaussian() -> None:
    drawn = np.concatenate([gaussian_vector(2.0, 500, SimulatedNoise(seed)).values for seed in range(4)])
    assert stats.kstest(drawn, stats.norm(scale=2.0).cdf).pvalue > ALARM


@pytest.mark.parametrize("scale", [1e-9, 0.3, 0.5, 1.0, 1.0001, 7e5])
def test_noise_lies_on_a_fine_lattice(scale: float) -> None:
    for found in (length_vector(scale, 5, SimulatedNoise(1)), gaussian_vector(scale, 5, SimulatedNoise(1))):
        assert math.log2(found.step) == round(math.log2(found.step))
        assert COARSEST / 4 <= found.step / scale <= COARSEST
        weights = np.random.default_rng(0).normal(size=5) * 100 * scale
        whole = found.added_to(weights) / found.step
        assert np.array_equal(whole, np.rint(whole))
        assert np.abs(found.added_to(weights) - weights - found.values).max() <= found.step


def test_weights_far_beyond_the_noise_are_kept() -> None:
    noise = LatticeNoise(np.array([3, -3]), 2.0**-90)
    assert np.array_equal(noise.added_to(np.array([1e5, -0.1])), np.array([1e5, -0.1]))
    assert np.array_equal(LatticeNoise(np.array([3]), 0.25).added_to(np.array([0.3])), np.array([1.0]))


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 6), st.floats(1.0, 2.0**30))
def test_the_fast_floor_is_the_exact_one(seed: int, size: int, ratio: float) -> None:
    noise = SimulatedNoise(seed)
    parts = _Parts(Reals(LAPLACE, 1.0, (size,), noise.words), Reals(GAUSSIAN, 1.0, (size,), noise.words))
    found = parts.floors(ratio)
    sizes = np.where(parts._gaussians._negative, -found - 1, found)
    assert [parts._exact(index, Fraction(ratio)) for index in range(size)] == sizes.tolist()


def test_the_exact_floor_asks_for_bits_until_it_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a lattice of 2^-80 the first 64 bits do not decide."""
    noise = SimulatedNoise(4)
    parts = _Parts(Reals(LAPLACE, 1.0, (2,), noise.words), Reals(GAUSSIAN, 1.0, (2,), noise.words))
    coarse, fine = parts._exact(0, Fraction(2**20)), parts._exact(0, Fraction(2**80))
    assert fine >> 60 == coarse
    assert parts._exponentials._longer, "more bits were revealed"


def test_the_longest_vector_is_longer_than_any() -> None:
    for size in (1, 10, 500):
        assert stats.gamma(size).logsf(longest(1.0, size)) < -100 * math.log(2)


def exact_choice(errors: Sequence[float], epsilon: float) -> FloatArray:
    weights = np.array([math.exp(-epsilon * each / 2) for each in errors])
    return weights / weights.sum()


@pytest.mark.parametrize("errors", [[3, 5, 4], [0, 0, 0, 0], [0.5, 2.5, 1]])
def test_the_choice_has_the_probabilities_of_the_exponential_mechanism(errors: list[float]) -> None:
    """n = 2,000; chi-square at a false-alarm rate of 1e-6."""
    noise, epsilon, n = SimulatedNoise(11), 0.8, 2000
    scores = np.array([round(-each * choice_of(epsilon).sensitivity) for each in errors])
    counts = np.bincount([choice_of(epsilon).choose(scores, noise) for _ in range(n)], minlength=len(scores))
    assert stats.chisquare(counts, n * exact_choice(errors, epsilon)).pvalue > ALARM
    if len(set(errors)) > 1:
        wrong = n * exact_choice(errors, 2 * epsilon)
        assert stats.chisquare(counts, wrong).pvalue < ALARM, "without the 2 it would cost twice as much"


def test_the_choice_costs_epsilon_on_neighbours() -> None:
    """Errors that move by 1 each way, the worst there is: the log of every probability moves by at most epsilon."""
    for first in ([3, 5, 4], [7, 7, 0], [0, 1, 2]):
        for change in np.ndindex(3, 3, 3):
            second = [max(0, value + step - 1) for value, step in zip(first, change, strict=True)]
            pair = [np.log(exact_choice(errors, 0.8)) for errors in (first, second)]
            assert np.abs(pair[0] - pair[1]).max() <= 0.8 + 1e-12


@settings(max_examples=50, deadline=None)
@given(st.lists(PERSON, min_size=1, max_size=6), PERSON)
def test_one_person_moves_the_errors_by_at_most_one(persons: list[list[bool]], other: list[bool]) -> None:
    one = choice_of(1.0).sensitivity

    def count(people: list[list[bool]]) -> int:
        owners = np.repeat(np.arange(len(people)), [len(each) for each in people])
        return right_persons(np.concatenate([np.array(each) for each in people]), owners)

    assert abs(count(persons) - count([other, *persons[1:]])) <= one
    assert abs(count(persons) - count([*persons, other])) <= one
    assert -count(persons) / one == pytest.approx(sum(sum(each) / len(each) for each in persons), abs=1e-5)
