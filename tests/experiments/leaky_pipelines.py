"""Runs as somebody might write them, each with one leak that has really been made. Shares of the honest code are inherited."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pate.aggregators import GNMax
from pate.experiments.audits.pipeline import Pipeline, Polled
from pate.noise import Noise, SimulatedNoise
from pate.release import Release
from pate.student import Student
from pate.teachers import Partition, PrivateData
from pate.teachers.partition import RowsLoader


class _Pairs(Partition):
    """Every second teacher learns from the part before its own."""

    def loader(self, teacher: int) -> RowsLoader:
        return super().loader(teacher - teacher % 2)


class SharedPartition(Pipeline):
    """One part for every two teachers."""

    def partition(self, private: PrivateData) -> Partition:
        teachers = self.recipe.teachers
        return _Pairs.by_hash(private, teachers.count or 0, salt=teachers.salt, allow_empty=True)


class _Everybody(Partition):
    """Every teacher learns from all records, as in public PATE-GANs (arXiv:2406.13985)."""

    def loader(self, teacher: int) -> RowsLoader:
        return RowsLoader(np.arange(len(self.data)))


class OnePartitionForAll(Pipeline):
    def partition(self, private: PrivateData) -> Partition:
        teachers = self.recipe.teachers
        return _Everybody.by_hash(private, teachers.count or 0, salt=teachers.salt, allow_empty=True)


class PrivateScaling(Pipeline):
    """Inputs scaled by the smallest and largest values of all private records, and queries, too."""

    def poll(self, private: PrivateData) -> Polled:
        public = self.public_x
        low, high = private.x.min(axis=0), private.x.max(axis=0)

        def scaled(x: NDArray[Any]) -> NDArray[Any]:
            return ((x - low) / np.maximum(high - low, 1e-6)).astype(np.float32)

        _ = self.rows  # chosen before
        try:
            self.public_x = scaled(public)
            return super().poll(private.with_inputs(scaled(private.x)))
        finally:
            self.public_x = public


class SeededNoise(Pipeline):
    """The same noise in every release."""

    def answer(self, polled: Polled, noise: Noise) -> Release:
        return super().answer(polled, SimulatedNoise(7))


class HalfSigma(Pipeline):
    """Half the noise that is accounted for."""

    def answer(self, polled: Polled, noise: Noise) -> Release:
        assert isinstance(self.aggregator, GNMax)
        return GNMax(self.aggregator.sigma / 2).release(polled.votes, noise)


class PeekingStudent(Pipeline):
    """Corrects the noisy answers by the votes before it learns."""

    def learn(self, release: Release, polled: Polled) -> Student:
        winners = polled.votes.counts.argmax(axis=1)
        return super().learn(Release(winners, release.electorate, release.mechanism, release.mode), polled)
