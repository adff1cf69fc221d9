"""Where randomness comes from: the operating system in a release, a seed in a simulation. There is no third way.

A noise stream is never duplicated: the operating system's has no state to copy, and a seeded one refuses to be pickled or
to be used after a fork. Hand a parallel worker a stream of its own with :meth:`SimulatedNoise.spawn`.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from typing import ClassVar, NoReturn

import numpy as np

from pate.errors import NoiseError
from pate.release import SIMULATION_STAMP, Mode
from pate.sampling import GAUSSIAN, LAPLACE, Draw, Words


class Noise(ABC):
    """A source of exact Gaussian and Laplace noise (see :mod:`pate.sampling`)."""

    mode: ClassVar[Mode]

    @abstractmethod
    def words(self, size: int) -> Words:
        """uint64[size]: uniform, independent bits."""

    def gaussian(self, sigma: float, shape: tuple[int, ...]) -> Draw:
        """Gaussian noise of standard deviation ``sigma`` votes."""
        return Draw(GAUSSIAN, sigma, shape, self.words)

    def laplace(self, scale: float, shape: tuple[int, ...]) -> Draw:
        """Laplace noise of scale ``scale`` votes (standard deviation sqrt(2) * scale)."""
        return Draw(LAPLACE, scale, shape, self.words)


class OSNoise(Noise):
    """Release mode: every bit comes from the operating system's cryptographic generator. It cannot be seeded.

    >>> OSNoise(seed=1)
    Traceback (most recent call last):
    ...
    pate.errors.NoiseError: Release noise accepts no seed (got 1): noise that can be drawn again protects nobody. \
Use SimulatedNoise(seed) for an experiment that releases nothing.
    """

    mode: ClassVar[Mode] = "release"

    def __init__(self, seed: object = None) -> None:
        if seed is not None:
            raise NoiseError(
                f"Release noise accepts no seed (got {seed!r}): noise that can be drawn again protects nobody. "
                "Use SimulatedNoise(seed) for an experiment that releases nothing."
            )

    def words(self, size: int) -> Words:
        # No buffer on purpose: what was not yet handed out could be copied by a fork.
        return np.frombuffer(os.urandom(8 * size), dtype=np.uint64)

    def __repr__(self) -> str:
        return "OSNoise()"


class SimulatedNoise(Noise):
    """Simulation mode: seeded, repeatable, and stamped "simulation, not private" on everything made with it."""

    mode: ClassVar[Mode] = "simulation"

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._start(np.random.SeedSequence(seed))

    def _start(self, sequence: np.random.SeedSequence) -> None:
        self._sequence = sequence
        self._bits = np.random.Philox(sequence)
        self._pid = os.getpid()

    def words(self, size: int) -> Words:
        if os.getpid() != self._pid:
            raise NoiseError(
                "A seeded noise stream was used after a fork, where parent and child would draw the same noise. "
                "Give each process its own stream with spawn()."
            )
        return np.asarray(self._bits.random_raw(size), dtype=np.uint64)

    def spawn(self, n_streams: int) -> list[int]:
        """Seeds of ``n_streams`` independent streams, whole numbers that can be sent to other processes."""
        children = self._sequence.spawn(n_streams)
        return [int.from_bytes(child.generate_state(4, np.uint32).tobytes(), "little") for child in children]

    def __reduce__(self) -> NoReturn:
        raise NoiseError(
            "A seeded noise stream cannot be pickled, the copy would draw the same noise. Send a seed from spawn() instead."
        )

    def __repr__(self) -> str:
        return f"SimulatedNoise(seed={self.seed}; {SIMULATION_STAMP})"


def noise_for(mode: Mode, seed: int | None = None) -> Noise:
    """The noise source of a mode. Release mode refuses a seed, simulation mode needs one."""
    if mode == "release":
        return OSNoise(seed)
    if mode != "simulation":
        raise NoiseError(f"mode must be 'release' or 'simulation', got {mode!r}.")
    if seed is None:
        raise NoiseError("Simulation mode needs a seed; pass one, or use mode 'release' for noise from the operating system.")
    return SimulatedNoise(seed)
