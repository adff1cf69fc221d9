"""Report-noisy-max with Laplace (LNMax, PATE 2017) or Gaussian noise (GNMax, PATE 2018)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pate.aggregators.base import Aggregator
from pate.arrays import FloatArray, IntArray
from pate.noise import Noise
from pate.privacy.exact import (
    ThresholdTest,
    gaussian_max_log_probs,
    gaussian_max_rdp,
    laplace_max_log_probs,
    laplace_max_rdp,
)
from pate.privacy.independent import laplace_max_bound, laplace_one_count_bound, noisy_max_bound, one_count_bound
from pate.release import Electorate, Release
from pate.sampling import check_scale
from pate.validation import positive
from pate.votes import Votes


@dataclass(frozen=True, repr=False)
class GNMax(Aggregator):
    """The class with the most votes after adding N(0, sigma^2) to every count (Papernot et al. 2018, arXiv:1802.08908).

    >>> from pate import SimulatedNoise, Votes
    >>> GNMax(sigma=5).release(Votes([[200, 30, 20], [10, 40, 200]], n_teachers=250), SimulatedNoise(7)).labels
    array([0, 2])
    """

    sigma: float
    name: ClassVar[str] = "gnmax"

    def __post_init__(self) -> None:
        positive(self.sigma, "GNMax sigma, the standard deviation of the noise in votes,")
        check_scale(self.sigma, "GNMax sigma")

    def release(self, votes: Votes, noise: Noise) -> Release:
        labels = noise.gaussian(self.sigma, votes.counts.shape).argmax(votes.counts)
        return Release(labels, votes.electorate, self.mechanism, noise.mode)

    def rdp_ahead(self, electorate: Electorate, orders: FloatArray) -> FloatArray:
        return noisy_max_bound(self.sigma, orders)

    def rdp_ahead_one_count(self, electorate: Electorate, orders: FloatArray) -> FloatArray:
        return one_count_bound(self.sigma, orders)

    def outcome_log_probs(self, counts: IntArray) -> FloatArray:
        return gaussian_max_log_probs(counts, self.sigma)

    def exact_rdp(self, counts: IntArray, orders: FloatArray, test: ThresholdTest | None = None) -> FloatArray:
        return gaussian_max_rdp(counts, self.sigma, orders, test).worst


@dataclass(frozen=True, repr=False)
class LNMax(Aggregator):
    """The class with the most votes after adding Laplace noise of scale 1/gamma (Papernot et al. 2017, arXiv:1610.05755)."""

    gamma: float
    name: ClassVar[str] = "lnmax"

    def __post_init__(self) -> None:
        positive(self.gamma, "LNMax gamma, the inverse scale of the noise,")
        check_scale(1 / self.gamma, "The scale of LNMax's noise, 1/gamma,")

    def release(self, votes: Votes, noise: Noise) -> Release:
        labels = noise.laplace(1 / self.gamma, votes.counts.shape).argmax(votes.counts)
        return Release(labels, votes.electorate, self.mechanism, noise.mode)

    def rdp_ahead(self, electorate: Electorate, orders: FloatArray) -> FloatArray:
        return laplace_max_bound(self.gamma, orders)

    def rdp_ahead_one_count(self, electorate: Electorate, orders: FloatArray) -> FloatArray:
        return laplace_one_count_bound(self.gamma, orders)

    def outcome_log_probs(self, counts: IntArray) -> FloatArray:
        return laplace_max_log_probs(counts, self.gamma)

    def exact_rdp(self, counts: IntArray, orders: FloatArray, test: ThresholdTest | None = None) -> FloatArray:
        return laplace_max_rdp(counts, self.gamma, orders, test).worst


@dataclass(frozen=True, repr=False)
class NoisyHistogram(Aggregator):
    """Publishes all noisy counts, not only the winner. Made for partial votes, where a whole batch costs one move."""

    sigma: float
    name: ClassVar[str] = "noisy-histogram"

    def __post_init__(self) -> None:
        positive(self.sigma, "NoisyHistogram sigma, the standard deviation of the noise in votes,")
        check_scale(self.sigma, "NoisyHistogram sigma")

    def release(self, votes: Votes, noise: Noise) -> Release:
        histogram = votes.counts + noise.gaussian(self.sigma, votes.counts.shape).values
        labels = np.argmax(histogram, axis=1) if len(votes) else np.zeros(0, dtype=np.int64)
        return Release(labels, votes.electorate, self.mechanism, noise.mode, histogram)

    def rdp_ahead(self, electorate: Electorate, orders: FloatArray) -> FloatArray:
        # Gaussian mechanism with L2 sensitivity sqrt(2): Mironov 2017 (arXiv:1702.07476), Proposition 7.
        return orders / self.sigma**2

    def rdp_ahead_one_count(self, electorate: Electorate, orders: FloatArray) -> FloatArray:
        return orders / (2 * self.sigma**2)
