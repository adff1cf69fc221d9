"""Aggregators as somebody might write them, each with one mistake that has really been made, and one that has none."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy.special import log_softmax

from pate.aggregators import Aggregator, ConfidentGNMax, GNMax, LNMax
from pate.arrays import FloatArray, IntArray
from pate.noise import Noise
from pate.privacy.exact import ThresholdTest
from pate.privacy.mechanisms import pure_dp_rdp
from pate.privacy.outcomes import moved_votes, renyi_divergence
from pate.release import ABSTAIN, Electorate, Release
from pate.votes import Votes


@dataclass(frozen=True, repr=False)
class Plain(Aggregator):
    """Nothing wrong: a noisy winner that knows no more about itself than the Gaussian mechanism."""

    sigma: float
    name: ClassVar[str] = "plain"

    def release(self, votes: Votes, noise: Noise) -> Release:
        labels = noise.gaussian(self.sigma, votes.counts.shape).argmax(votes.counts)
        return Release(labels, votes.electorate, self.mechanism, noise.mode)

    def rdp_ahead(self, electorate: Electorate, orders: FloatArray) -> FloatArray:
        return orders / self.sigma**2


class HalfTheNoise(GNMax):
    """Draws sigma / 2 and accounts for sigma."""

    def release(self, votes: Votes, noise: Noise) -> Release:
        labels = noise.gaussian(self.sigma / 2, votes.counts.shape).argmax(votes.counts)
        return Release(labels, votes.electorate, self.mechanism, noise.mode)


class HalfTheNoiseUnknown(HalfTheNoise):
    """The same, and without outcome probabilities that would give it away."""

    def outcome_log_probs(self, counts: IntArray) -> None:  # type: ignore[override]
        return None

    def exact_rdp(self, counts: IntArray, orders: FloatArray, test: ThresholdTest | None = None) -> None:  # type: ignore[override]
        return None


@dataclass(frozen=True, repr=False)
class UnNoisedThreshold(Plain):
    """Compares the true count with the threshold, and charges as if noise had been added."""

    threshold: int = 150
    name: ClassVar[str] = "un-noised-threshold"

    def release(self, votes: Votes, noise: Noise) -> Release:
        winners = super().release(votes, noise).labels
        labels = np.where(votes.counts.max(axis=1, initial=0) >= self.threshold, winners, ABSTAIN)
        return Release(labels, votes.electorate, self.mechanism, noise.mode)

    def rdp_ahead(self, electorate: Electorate, orders: FloatArray) -> FloatArray:
        return 2 * super().rdp_ahead(electorate, orders)


class FreeAbstention(ConfidentGNMax):
    """Charges for answers only, as if the test told nothing."""

    def rdp_bound(self, release: Release, orders: FloatArray) -> FloatArray:
        return np.where(release.answered[:, None], super().rdp_bound(release, orders), 0.0)


class OneDirectionOnly(GNMax):
    """The divergence from the votes to their neighbours, never back, as PATE's Theorem 6 has it."""

    def exact_rdp(self, counts: IntArray, orders: FloatArray, test: ThresholdTest | None = None) -> FloatArray:
        rows, place = np.unique(counts, axis=0, return_inverse=True)
        costs = np.empty((len(rows), orders.size))
        for cost, row, log_p in zip(costs, rows, self.outcome_log_probs(rows), strict=True):
            cost[:] = renyi_divergence(log_p, self.outcome_log_probs(moved_votes(row)), orders).max(axis=0)
        return costs[place.reshape(-1)]


@dataclass(frozen=True, repr=False)
class MissingLog(Aggregator):
    """The exponential mechanism by Gumbel noise; its outcome probabilities are not logarithms."""

    gamma: float
    name: ClassVar[str] = "missing-log"

    def release(self, votes: Votes, noise: Noise) -> Release:
        uniform = (noise.words(votes.counts.size).reshape(votes.counts.shape) + 0.5) * 2.0**-64
        labels = np.argmax(self.gamma * votes.counts - np.log(-np.log(uniform)), axis=1)
        return Release(labels, votes.electorate, self.mechanism, noise.mode)

    def rdp_ahead(self, electorate: Electorate, orders: FloatArray) -> FloatArray:
        return pure_dp_rdp(2 * self.gamma, orders)

    def outcome_log_probs(self, counts: IntArray) -> FloatArray:
        return np.exp(self.right_log_probs(counts))

    def right_log_probs(self, counts: IntArray) -> FloatArray:
        result: FloatArray = log_softmax(self.gamma * counts, axis=1)
        return result


class MissingLogInCost(MissingLog):
    """Right probabilities, and one direction of a Rényi divergence without its logarithm: E / (a-1) for log E / (a-1)."""

    def outcome_log_probs(self, counts: IntArray) -> FloatArray:
        return self.right_log_probs(counts)

    def rdp(self, votes: Votes, release: Release, orders: FloatArray) -> FloatArray:
        costs = []
        for row, log_p in zip(votes.counts, self.outcome_log_probs(votes.counts), strict=True):
            log_q = self.outcome_log_probs(moved_votes(row))
            ratio = np.exp(log_p - log_q)[..., None]
            costs.append((np.exp(log_p)[:, None] * ratio ** (orders - 1)).sum(axis=1).max(axis=0) / (orders - 1))
        return np.reshape(costs, (len(votes), orders.size))


class PrecedenceSlip(LNMax):
    """PATE 2017, Theorem 3, for every q < 0.5 and with a slipped bracket: (1 - q) / 1 - e^(2 gamma) q."""

    def rdp(self, votes: Votes, release: Release, orders: FloatArray) -> FloatArray:
        gap = votes.counts.max(axis=1, keepdims=True, initial=0) - votes.counts
        q = ((2 + self.gamma * gap) / (4 * np.exp(self.gamma * gap))).sum(axis=1, keepdims=True) - 0.5  # not the winner itself
        moment = orders - 1
        base = np.maximum((1 - q) / 1 - math.exp(2 * self.gamma) * q, 0.0)
        log_moment = np.log((1 - q) * base**moment + q * np.exp(2 * self.gamma * moment))
        bound = self.rdp_bound(release, orders)
        return np.where(q < 0.5, np.clip(log_moment / moment, 0.0, bound), bound)


@dataclass(frozen=True, repr=False)
class SeededNoise(Plain):
    """Repeatable on purpose: a generator of its own, with a seed."""

    seed: int = 0
    name: ClassVar[str] = "seeded-noise"

    def release(self, votes: Votes, noise: Noise) -> Release:
        generator = np.random.default_rng(self.seed)
        noisy = votes.counts + generator.normal(0.0, self.sigma, votes.counts.shape)
        return Release(np.argmax(noisy, axis=1), votes.electorate, self.mechanism, noise.mode)


class OwnGenerator(Plain):
    """A generator kept in the instance: two calls differ, but two copies draw the same noise."""

    def __init__(self, sigma: float) -> None:
        super().__init__(sigma)
        object.__setattr__(self, "generator", np.random.default_rng(0))

    def release(self, votes: Votes, noise: Noise) -> Release:
        generator: np.random.Generator = vars(self)["generator"]
        noisy = votes.counts + generator.normal(0.0, self.sigma, votes.counts.shape)
        return Release(np.argmax(noisy, axis=1), votes.electorate, self.mechanism, noise.mode)


class SeededTest(ConfidentGNMax):
    """Only the noise of the threshold test is seeded; the answers are fresh."""

    def release(self, votes: Votes, noise: Noise) -> Release:
        test = np.random.default_rng(0).normal(0.0, self.sigma, len(votes))
        confident = votes.counts.max(axis=1, initial=0) + test >= self.threshold
        labels = np.where(confident, self.inner.release(votes, noise).labels, ABSTAIN)
        return Release(labels, votes.electorate, self.mechanism, noise.mode)


class CostNotSummed(Plain):
    """Says what a whole batch costs once, spread over its queries."""

    def rdp_bound(self, release: Release, orders: FloatArray) -> FloatArray:
        return np.tile(self.rdp_ahead(release.electorate, orders) / max(1, len(release)), (len(release), 1))


class SharedNoise(GNMax):
    """One row of noise for all queries of a batch."""

    def release(self, votes: Votes, noise: Noise) -> Release:
        noisy = votes.counts + noise.gaussian(self.sigma, (votes.n_classes,)).values
        return Release(np.argmax(noisy, axis=1), votes.electorate, self.mechanism, noise.mode)


class HistogramToo(GNMax):
    """Publishes the noisy counts and accounts for the winner alone."""

    def release(self, votes: Votes, noise: Noise) -> Release:
        histogram = votes.counts + noise.gaussian(self.sigma, votes.counts.shape).values
        return Release(np.argmax(histogram, axis=1), votes.electorate, self.mechanism, noise.mode, histogram)


class PrefersClassZero(GNMax):
    """A head start for one class that the accounting does not know."""

    def outcome_log_probs(self, counts: IntArray) -> FloatArray:
        return super().outcome_log_probs(counts + 5 * np.eye(counts.shape[1], dtype=np.int64)[0])


class TellsTheVotes(GNMax):
    """Puts a private number into the public record."""

    def release(self, votes: Votes, noise: Noise) -> Release:
        released = super().release(votes, noise)
        facts: dict[str, Any] = {**self.mechanism, "agreement": int(votes.counts.max(initial=0))}
        return Release(released.labels, votes.electorate, facts, noise.mode)


class AlwaysFails(Plain):
    """Raises wherever it can."""

    def release(self, votes: Votes, noise: Noise) -> Release:
        raise RuntimeError("no release today")
