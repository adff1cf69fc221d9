"""The plurality as it is, where it is stable: one query (M_samp), or a batch that pays for unstable queries only (M_svec).

Bassily, Thakkar, Thakurta 2018 (arXiv:1803.05101), Algorithms 2 and 3, with teachers on disjoint parts as the subsamples. No
noise falls on the answer, so none drowns a lead; what may be answered wrongly is paid for with a slack, out of delta.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.special import log_ndtr

from pate.aggregators.base import Aggregator
from pate.arrays import FloatArray, IntArray
from pate.errors import ParameterError
from pate.mechanisms.above_threshold import AboveThreshold, Law
from pate.mechanisms.stability import StabilityTest, least_threshold, plurality_distance
from pate.noise import Noise
from pate.privacy.curve import RdpCurve
from pate.privacy.exact import ThresholdTest
from pate.privacy.outcomes import LOG_PROB_ERROR, numeric_margin, renyi_divergence
from pate.release import ABSTAIN, Electorate, Release
from pate.sampling import lattice_bits
from pate.validation import whole
from pate.votes import Votes

_ROUND_UP = 1 + 1e-9
"""Far more than the closed form of a tail is off by."""


def _plurality(counts: IntArray) -> IntArray:
    """int64[query]: the class that is alone at the top, or ABSTAIN."""
    top = counts.max(axis=1, initial=0, keepdims=True)
    winners = counts.argmax(axis=1) if len(counts) else np.zeros(0, dtype=np.int64)
    labels: IntArray = np.where((counts == top).sum(axis=1) == 1, winners, ABSTAIN)
    return labels


@dataclass(frozen=True, repr=False)
class StableMax(Aggregator):
    """The class that is alone at the top, where its distance to instability plus noise reaches a threshold; else abstains.

    scale: of the noise on the distance, in moved votes: the standard deviation, or the scale where ``law`` is "laplace".
    delta: the slack of one query, the chance that it answers though one vote may change its answer. It sets the threshold, the
    least whole number of moved votes that keeps to it: about scale * log(1/(2 delta)) with Laplace noise, as in the paper.

    The distance is the number of votes that must move before one more can change the answer: half the lead over the second
    class, rounded up, less one. One moved vote, which changes the lead by up to two, changes it by at most one. Cost and proof:
    :class:`pate.mechanisms.StabilityTest`.

    >>> from pate import SimulatedNoise
    >>> stable = StableMax(scale=4, delta=1e-8)
    >>> stable.threshold
    23
    >>> stable.release(Votes([[200, 30, 20], [90, 80, 80]], n_teachers=250), SimulatedNoise(7)).labels
    array([ 0, -1])
    """

    scale: float
    delta: float
    law: Law = "gaussian"
    name: ClassVar[str] = "stable-max"

    def __post_init__(self) -> None:
        self.test  # noqa: B018  (its constructor checks the parameters)

    @property
    def test(self) -> StabilityTest:
        return StabilityTest(self.scale, self.delta, self.law)

    @property
    def threshold(self) -> int:
        """In moved votes: a lead of about twice as many is answered half of the time."""
        return self.test.threshold

    def release(self, votes: Votes, noise: Noise) -> Release:
        passed = self.test.passes(plurality_distance(votes.counts), noise)
        return Release(np.where(passed, _plurality(votes.counts), ABSTAIN), votes.electorate, self.mechanism, noise.mode)

    def rdp_ahead(self, electorate: Electorate, orders: FloatArray) -> FloatArray:
        return self.test.cost(orders).values

    def rdp_ahead_one_count(self, electorate: Electorate, orders: FloatArray) -> FloatArray:
        # The lead changes by one, so the distance by at most one; and two answers have distance 0, as before.
        return self.test.cost(orders).values

    def slack_ahead(self, electorate: Electorate) -> float:
        return self.test.slack

    def slack(self, votes: Votes) -> FloatArray:
        return np.where(plurality_distance(votes.counts) == 0, self.test.slack, 0.0)

    def outcome_log_probs(self, counts: IntArray) -> FloatArray:
        passed, failed = self.test.log_pass(plurality_distance(counts))
        labels = _plurality(counts)
        result = np.full((len(counts), counts.shape[1] + 1), -np.inf)
        result[:, -1] = np.where(labels == ABSTAIN, 0.0, failed)
        answered = np.flatnonzero(labels != ABSTAIN)
        result[answered, labels[answered]] = passed[answered]
        return result

    def exact_rdp(self, counts: IntArray, orders: FloatArray, test: ThresholdTest | None = None) -> FloatArray | None:
        """Of the neighbours with the same answer, whose distance is at most one off; the others are the slack's."""
        if test is not None:
            return None  # answers behind another test are not these
        distances, inverse = np.unique(plurality_distance(counts), return_inverse=True)
        here = np.stack(self.test.log_pass(distances), axis=1)
        costs = []
        for shift in (-1, 1):
            there = np.stack(self.test.log_pass(np.maximum(distances + shift, 0)), axis=1)
            costs += [renyi_divergence(here, there, orders), renyi_divergence(there, here, orders)]
        error = LOG_PROB_ERROR * np.maximum(1.0, np.abs(here).max(axis=1, initial=0.0) / 1000)
        result: FloatArray = (np.max(costs, axis=0) + numeric_margin(orders, error))[inverse.reshape(-1)]
        return result


@dataclass(frozen=True, repr=False)
class SparseVector(Aggregator):
    """The class that is alone at the top, for every stable query of a batch; halts after so many that were refused.

    A query is refused where distance to instability + noise < threshold + noise; after ``refusals`` of them the rest of the
    batch abstains, publicly. The cost grows with the refusals that are allowed and hardly with the queries: made for many
    queries of which nearly all are stable. A batch is what is asked at once: a later one starts anew, and is paid for anew.

    threshold_scale, query_scale, law, refresh: of :class:`pate.mechanisms.AboveThreshold`, which the refusals are the tops of.
    delta: the slack of a batch. It sets the threshold, the least whole number of moved votes that keeps to it.

    The proof. Of two neighbours, let U be the queries on which they disagree: there both have distance 0. If no query of U is
    answered, the release is the same function of which queries were refused. Let E be that event. All queries of U before the
    batch halts are refused then, so that at most ``refusals`` of them are compared, and P(not E) <= s = refusals *
    P(noise - noise >= threshold), under both. (With ``refresh`` each noise of the threshold counts by the first query of U that
    it meets, whose refusal ends its turn; and which query that is was settled before it was drawn.) Given E the laws have
    P_E <= P/(1-s) and Q_E >= Q, so that their divergence of order a is at most that of the refusals, plus
    a/(a-1) log 1/(1-s). And s is the slack.

    >>> from pate import SimulatedNoise
    >>> stable = SparseVector(threshold_scale=2, query_scale=2, delta=1e-8, refusals=2)
    >>> stable.threshold
    17
    >>> counts = [[200, 30, 20], [90, 80, 80], [10, 240, 0], [80, 90, 80], [250, 0, 0]]
    >>> stable.release(Votes(counts, n_teachers=250), SimulatedNoise(7)).labels
    array([ 0, -1,  1, -1, -1])
    """

    threshold_scale: float
    query_scale: float
    delta: float
    refusals: int = 1
    law: Law = "gaussian"
    refresh: bool = False
    name: ClassVar[str] = "sparse-vector"
    adds_up: ClassVar[bool] = False

    def __post_init__(self) -> None:
        whole(self.refusals, "SparseVector refusals, after which a batch halts,", 1)
        self._refusing(0)  # its constructor checks the parameters
        if not 0 < self.delta < 0.5:
            raise ParameterError(f"SparseVector delta, the slack of a batch, must lie in (0, 0.5), got {self.delta}.")

    @property
    def threshold(self) -> int:
        """In moved votes."""
        return least_threshold(self._slack_at, self.delta)

    def _slack_at(self, threshold: int) -> float:
        # Both noises are compared rounded down to their lattices, which may hide a step of the query's.
        at = threshold - 2.0 ** -lattice_bits(self.query_scale)
        tail = log_tail_of_difference(self.law, self.query_scale, self.threshold_scale, at)
        # A tail too small for a float is not 0.
        return max(self.refusals * math.exp(tail) * _ROUND_UP, math.ulp(0.0))

    def _refusing(self, threshold: int) -> AboveThreshold:
        """Refusals as crossings: -distance + noise > noise - threshold, where the noise is symmetric and has no atoms."""
        return AboveThreshold(-threshold, self.threshold_scale, self.query_scale, self.refusals, self.law, refresh=self.refresh)

    def release(self, votes: Votes, noise: Noise) -> Release:
        crossed = self._refusing(self.threshold).release(-plurality_distance(votes.counts), noise)
        labels = np.where(crossed.above, ABSTAIN, _plurality(votes.counts))
        labels[crossed.asked :] = ABSTAIN
        return Release(labels, votes.electorate, self.mechanism, noise.mode)

    def batch_ahead(self, electorate: Electorate, n_queries: int, orders: FloatArray) -> RdpCurve:
        if electorate.participation is not None:
            raise ParameterError(
                f"{self!r} states no cost for partial votes, where one voter may change several queries at once. Use "
                "noisy-histogram or gnmax."
            )
        if n_queries == 0:
            return RdpCurve.zero(orders)
        slack = self._slack_at(self.threshold)
        refusing = self._refusing(0).cost(n_queries, orders).values
        return RdpCurve(orders, refusing - orders / (orders - 1) * math.log1p(-slack), slack)

    def batch_bound(self, release: Release, orders: FloatArray) -> RdpCurve:
        return self.batch_ahead(release.electorate, len(release), orders)

    def batch_dependent(self, votes: Votes, release: Release, orders: FloatArray) -> RdpCurve:
        """The data-independent cost: no smaller one is known."""
        return self.batch_ahead(votes.electorate, len(votes), orders)

    def rdp_ahead(self, electorate: Electorate, orders: FloatArray) -> FloatArray:
        return self.batch_ahead(electorate, 1, orders).values

    def slack_ahead(self, electorate: Electorate) -> float:
        return self.batch_ahead(electorate, 1, np.array([2.0])).slack


def log_tail_of_difference(law: Law, one: float, two: float, at: float) -> float:
    """log P(X - Y >= at), at >= 0, for noise X and Y of one law and these scales."""
    if law == "gaussian":
        return float(log_ndtr(-at / math.hypot(one, two)))
    long, short = max(one, two), min(one, two)
    if long - short < 1e-3 * long:
        # Two Laplace draws of the longer scale have the longer tail: (2 + t) e^-t / 4.
        return math.log(2 + at / long) - at / long - math.log(4)
    # (long^2 e^(-t/long) - short^2 e^(-t/short)) / (2 (long^2 - short^2))
    rest = (short / long) ** 2 * math.exp(at / long - at / short)
    return -at / long + math.log1p(-rest) - math.log(2) - math.log1p(-((short / long) ** 2))
