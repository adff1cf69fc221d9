"""Noise sources: the system's cannot be seeded, a seeded one cannot be duplicated."""

from __future__ import annotations

import os
import pickle

import numpy as np
import pytest

from pate.errors import NoiseError
from pate.noise import Noise, OSNoise, SimulatedNoise, noise_for


def test_release_noise_refuses_a_seed() -> None:
    with pytest.raises(NoiseError, match="accepts no seed"):
        OSNoise(seed=0)
    with pytest.raises(NoiseError, match="accepts no seed"):
        noise_for("release", 3)


def test_simulation_needs_a_seed_and_says_what_it_is() -> None:
    with pytest.raises(NoiseError, match="needs a seed"):
        noise_for("simulation")
    assert "not private" in repr(noise_for("simulation", 1))


def test_unknown_mode_is_refused() -> None:
    with pytest.raises(NoiseError, match="'release' or 'simulation'"):
        noise_for("production")  # type: ignore[arg-type]


def test_a_simulation_repeats_and_a_release_does_not() -> None:
    def words(noise: Noise) -> list[int]:
        return [int(word) for word in noise.words(4)]

    assert words(SimulatedNoise(5)) == words(SimulatedNoise(5)) != words(SimulatedNoise(6))
    assert words(OSNoise()) != words(OSNoise())


def test_pickling_never_duplicates_a_stream() -> None:
    with pytest.raises(NoiseError, match="cannot be pickled"):
        pickle.dumps(SimulatedNoise(5))
    first, second = OSNoise(), pickle.loads(pickle.dumps(OSNoise()))
    assert first.words(4).tolist() != second.words(4).tolist()


def test_spawned_streams_differ_from_each_other_and_from_their_parent() -> None:
    parent = SimulatedNoise(5)
    seeds = [*parent.spawn(3), *parent.spawn(2)]
    streams = {tuple(SimulatedNoise(seed).words(2).tolist()) for seed in seeds}
    assert len(streams) == 5
    assert tuple(SimulatedNoise(5).words(2).tolist()) not in streams
    assert SimulatedNoise(5).spawn(3) == seeds[:3]


def _in_child(noise: Noise) -> str:
    """What a forked child reports: its first words, or the error it got."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            answer = str(noise.words(4).tolist())
        except NoiseError as error:
            answer = f"NoiseError: {error}"
        os.write(write, answer.encode())
        os._exit(0)
    os.close(write)
    os.waitpid(pid, 0)
    with os.fdopen(read) as pipe:
        return pipe.read()


@pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")
def test_a_fork_never_duplicates_a_stream() -> None:
    assert _in_child(SimulatedNoise(5)).startswith("NoiseError: A seeded noise stream was used after a fork")
    noise = OSNoise()
    assert _in_child(noise) != str(noise.words(4).tolist())


def test_a_thousand_teachers_worth_of_noise_has_the_right_spread() -> None:
    """Standard deviation of 400,000 draws is right to 5 standard errors (0.56%); false alarm below 1e-6."""
    values = SimulatedNoise(1).gaussian(40.0, (40_000, 10)).values
    assert abs(np.std(values) / 40 - 1) < 5 / np.sqrt(2 * values.size)
