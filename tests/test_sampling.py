"""The sampler is exact: its fast decisions agree with exact arithmetic, and its draws follow the law.

Statistical tests are seeded, so they either always pass or always fail; each would fail by chance for fewer than one seed
in a million.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from pate.errors import ParameterError
from pate.noise import SimulatedNoise
from pate.sampling import GAUSSIAN, LAPLACE, Draw, Law, Words, _cumulative_floors, exact_accept, exact_whole_part

FALSE_ALARM = 1e-6
LAWS = {"gaussian": (GAUSSIAN, stats.norm), "laplace": (LAPLACE, stats.laplace)}


def _draw(law: Law, scale: float, size: int, seed: int = 1) -> Draw:
    return Draw(law, scale, (size,), SimulatedNoise(seed).words)


@pytest.mark.parametrize("name", LAWS)
@pytest.mark.parametrize("scale", [0.3, 1.0, 40.0, 5000.0])
def test_lattice_cells_have_the_probability_of_the_continuous_law(name: str, scale: float) -> None:
    law, distribution = LAWS[name]
    draw = _draw(law, scale, 200_000)
    # Cells of equal probability, with edges on the lattice so that the expected masses are exact.
    edges = np.unique(np.floor(distribution.ppf(np.linspace(0, 1, 65)[1:-1]) * scale / draw.step))
    seen = np.bincount(np.searchsorted(edges, draw.lattice, side="right"), minlength=edges.size + 1)
    mass = np.diff(np.concatenate([[0.0], distribution.cdf(edges * draw.step / scale), [1.0]]))
    assert stats.chisquare(seen, mass * draw.lattice.size).pvalue > FALSE_ALARM


@pytest.mark.parametrize("name", LAWS)
def test_a_coarse_lattice_follows_the_law_too(name: str) -> None:
    """At a scale of 2**28 votes the lattice step is a quarter of a vote; cells of half a scale unit are counted."""
    law, distribution = LAWS[name]
    draw = Draw(law, 2.0**28, (100_000,), SimulatedNoise(2).words)
    assert draw.step == 0.25
    coarse = draw.lattice >> (draw.step_bits + 27)  # cells of half a standard deviation
    points = np.arange(-6, 6)
    seen = np.array([(coarse == point).sum() for point in points])
    mass = np.diff(distribution.cdf(np.append(points, points[-1] + 1) / 2))
    inside = mass > 1e-4
    expected = np.append(mass[inside], 1 - mass[inside].sum()) * coarse.size
    observed = np.append(seen[inside], coarse.size - seen[inside].sum())
    assert stats.chisquare(observed, expected).pvalue > FALSE_ALARM


@pytest.mark.parametrize("name", LAWS)
def test_draws_are_uncorrelated_and_signs_are_fair(name: str) -> None:
    lattice = _draw(LAWS[name][0], 7.0, 100_000, seed=3).lattice
    # Correlation of 1e5 independent pairs has standard deviation 0.0032; six of them are beyond 1e-6.
    assert abs(np.corrcoef(lattice[:-1], lattice[1:])[0, 1]) < 6 / math.sqrt(lattice.size)
    assert stats.binomtest(int((lattice >= 0).sum()), lattice.size).pvalue > FALSE_ALARM


@given(st.sampled_from(list(LAWS)), st.floats(0.05, 1e6), st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
def test_every_lattice_value_is_the_floor_of_the_exact_draw(name: str, scale: float, seed: int) -> None:
    draw = _draw(LAWS[name][0], scale, 50, seed)
    for index, value in enumerate(draw.lattice.tolist()):
        low, high = (side * 2**draw.step_bits for side in draw._bracket(index, 0))
        assert math.floor(low) == value
        assert high <= value + 1


@pytest.mark.parametrize("name", LAWS)
def test_fast_acceptance_agrees_with_exact_arithmetic(name: str) -> None:
    law, noise = LAWS[name][0], SimulatedNoise(4)
    draw = Draw(law, 1.0, (1,), noise.words)
    generator = np.random.default_rng(5)
    k = generator.integers(0, 6, 400)
    fraction = noise.words(400)
    # Half the uniforms close to the acceptance probability, where a wrong decision would show.
    chance = np.exp(-law.rest(k, fraction * 2.0**-64))
    near = np.clip(chance + generator.choice([-1e-9, 1e-9, -1e-6, 1e-6], 400), 0, 1 - 1e-12)
    uniform = np.where(generator.random(400) < 0.5, near * 2.0**64, noise.words(400)).astype(np.uint64)
    fast = draw._accept(k, fraction, uniform, np.arange(400))
    exact = [exact_accept(law, int(a), int(b), int(c), noise.words)[0] for a, b, c in zip(k, fraction, uniform, strict=True)]
    assert fast.tolist() == exact


@pytest.mark.parametrize("name", LAWS)
def test_doubtful_acceptance_is_settled_by_more_bits(name: str) -> None:
    """A uniform equal to the acceptance probability in its first 64 bits goes either way, as the further bits say."""
    law = LAWS[name][0]
    fraction = 1 << 63  # x = 1/2
    uniform = int(Fraction(math.exp(-float(law.rest(1, Fraction(1, 2))))) * 2**64)

    def constant(word: int) -> object:
        return lambda size: np.full(size, word, dtype=np.uint64)

    for step in range(-4096, 4097, 1024):
        below = exact_accept(law, 1, fraction, uniform - 10_000 + step, constant(0))[0]  # type: ignore[arg-type]
        above = exact_accept(law, 1, fraction, uniform + 10_000 + step, constant(2**64 - 1))[0]  # type: ignore[arg-type]
        assert below is True
        assert above is False


@pytest.mark.parametrize("name", LAWS)
def test_whole_part_table_agrees_with_exact_arithmetic(name: str) -> None:
    law, noise = LAWS[name][0], SimulatedNoise(6)
    draw = Draw(law, 1.0, (1,), noise.words)
    floors = _cumulative_floors(law)
    assert floors[-1] == 2**63 - 1
    uniform = np.concatenate([noise.words(200) >> np.uint64(1), floors[:-2] - np.uint64(1), floors[:-2] + np.uint64(1)])
    assert draw._whole_parts(uniform).tolist() == [exact_whole_part(law, int(u), 63, noise.words) for u in uniform]


@pytest.mark.parametrize(("name", "least"), [("gaussian", 9), ("laplace", 43)])
def test_the_tail_has_no_end(name: str, least: int) -> None:
    """All-one bits mean a whole part beyond the table: it is found, however far out."""
    words = iter([2**64 - 1] * 3 + [2**63] * 50)

    def source(size: int) -> Words:
        return np.array([next(words) for _ in range(size)], dtype=np.uint64)

    found = exact_whole_part(LAWS[name][0], 2**63 - 1, 63, source)
    assert found > least


def test_a_tie_of_floors_is_broken_by_the_hidden_bits() -> None:
    draw = Draw(GAUSSIAN, 40.0, (1, 3), SimulatedNoise(8).words)
    draw._negative[:] = False
    draw._whole[:] = 0
    draw._fraction[:] = np.array([1 << 40, (1 << 40) + 5, (1 << 40) + 2], dtype=np.uint64)
    draw.lattice = draw._floors().reshape(1, 3)
    counts = np.zeros((1, 3), dtype=np.int64)
    assert len(set(draw.lattice.ravel().tolist())) == 1
    assert draw.argmax(counts).tolist() == [1]
    draw._negative[:] = True
    draw.lattice = draw._floors().reshape(1, 3)
    assert draw.argmax(counts).tolist() == [0]


def test_a_tie_of_all_known_bits_draws_more() -> None:
    """Equal 64-bit fractions are settled by fresh bits, fairly: 2,000 ties, false alarm below 1e-6."""
    noise = SimulatedNoise(9)
    draw = Draw(GAUSSIAN, 3.0, (2000, 2), noise.words)
    draw._negative[:] = False
    draw._whole[:] = 1
    draw._fraction[:] = 12345
    draw._longer.clear()
    draw.lattice = draw._floors().reshape(2000, 2)
    wins = int(draw.argmax(np.zeros((2000, 2), dtype=np.int64)).sum())
    assert stats.binomtest(wins, 2000).pvalue > FALSE_ALARM


@given(st.integers(0, 10**6), st.integers(1, 10**6), st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
def test_threshold_and_argmax_agree_with_exact_fractions(count: int, threshold: int, seed: int) -> None:
    draw = Draw(LAPLACE, 20.0, (1, 2), SimulatedNoise(seed).words)
    counts = np.array([[count, threshold]])
    exact = [draw._bracket(i, int(c)) for i, c in enumerate(counts[0])]
    assert draw.at_least(counts, threshold).tolist() == [[low >= threshold for low, _ in exact]]
    assert draw.argmax(counts)[0] == (0 if exact[0][0] > exact[1][0] else 1)


@given(st.integers(0, 2**31), st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
def test_adding_noise_to_votes_rounds_nothing(count: int, seed: int) -> None:
    """The support of count + noise is the same lattice whatever the count: no floating-point hole gives it away."""
    draw = _draw(GAUSSIAN, 40.0, 20, seed)
    assert ((count + draw.values) - count == draw.values).all()
    assert (draw.values / draw.step == draw.lattice).all()


@pytest.mark.parametrize("scale", [0.0, -1.0, math.nan, math.inf, 2.0**31])
def test_scale_out_of_range_is_refused(scale: float) -> None:
    with pytest.raises(ParameterError, match="scale of gaussian noise"):
        _draw(GAUSSIAN, scale, 1)


def test_threshold_off_the_lattice_is_refused() -> None:
    with pytest.raises(ParameterError, match="whole multiple"):
        _draw(GAUSSIAN, 40.0, 1).at_least(np.array([3]), 0.1)


NARROW = [np.int8, np.int16, np.int32, np.uint8, np.uint16, np.uint32, np.uint64]


@pytest.mark.parametrize("dtype", NARROW)
def test_counts_in_any_type_of_whole_number_are_decided_alike(dtype: type[np.integer[Any]]) -> None:
    """At this scale a vote is 2**20 steps of the lattice: 2,048 votes no longer fit into 32 bits, nor 8 into 8."""
    generator = np.random.default_rng(1)
    counts = generator.integers(0, min(5_000, np.iinfo(dtype).max), (200, 3))
    counts[:, 0] = counts[:, 1]  # close races too
    draw = Draw(GAUSSIAN, 40.0, counts.shape, SimulatedNoise(10).words)
    threshold = float(np.median(counts))
    assert draw.step_bits == 20
    np.testing.assert_array_equal(draw.argmax(counts.astype(dtype)), draw.argmax(counts))
    np.testing.assert_array_equal(draw.at_least(counts.astype(dtype), threshold), draw.at_least(counts, threshold))
    noisy = counts + draw.values  # float64 holds these exactly
    np.testing.assert_array_equal(draw.argmax(counts.astype(dtype)), noisy.argmax(axis=1))
    np.testing.assert_array_equal(draw.at_least(counts.astype(dtype), threshold), noisy >= threshold)


def test_large_unsigned_counts_are_not_rounded() -> None:
    """uint64 and int64 meet in float64, whose 53 bits are too few for a count of 2**40 with 20 bits of noise."""
    count = 2**40 - 1
    counts = np.full((300, 1), count, dtype=np.uint64)
    draw = Draw(GAUSSIAN, 40.0, counts.shape, SimulatedNoise(11).words)
    draw.lattice[:] = np.arange(-150, 150)[:, None]
    np.testing.assert_array_equal(draw.at_least(counts, count), draw.lattice >= 0)


@pytest.mark.parametrize("counts", [[[3.0]], [[True]], [[2**40 + 1]], [[-(2**40) - 1]], [[2**63]]], ids=str)
def test_counts_that_noise_cannot_fall_on_are_refused(counts: Any) -> None:
    draw = Draw(GAUSSIAN, 40.0, (1, 1), SimulatedNoise(1).words)
    for decide in (draw.argmax, lambda given: draw.at_least(given, 5)):
        with pytest.raises(ParameterError, match="Noise falls on") as refused:
            decide(np.array(counts))
        assert str(2**40 + 1) not in str(refused.value)
