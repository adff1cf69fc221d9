"""Confident aggregation: answer only where a noisy test says that the teachers agree (PATE 2018, Algorithm 1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from pate.aggregators.base import Aggregator
from pate.aggregators.noisy_max import GNMax
from pate.aggregators.stability import StableMax
from pate.arrays import FloatArray, IntArray
from pate.errors import ParameterError
from pate.noise import Noise
from pate.privacy.exact import ThresholdTest, behind_test
from pate.privacy.independent import confident_bound, one_count_bound
from pate.release import ABSTAIN, Electorate, Release
from pate.sampling import check_scale
from pate.validation import positive
from pate.votes import Votes

Charging = Literal["joint", "realised"]
_OF_A_STUDENT = ("before_student", "against", "part")


@dataclass(frozen=True, repr=False)
class Confident(Aggregator):
    """Answers with ``inner`` where max(counts) + N(0, sigma^2) >= threshold, abstains elsewhere.

    Abstaining is an outcome too and is paid for. ``charging`` says how:

    - "joint": every query asked costs the same, the worst case of test and answer together, known before asking.
    - "realised": the test always, the answer only where there was one. Cheaper when most queries are declined, but the
      realised sum is itself random: the only claim is then the budget that a ledger's filter enforces.

    ``inner`` always answers, each query by itself, without asking what a student predicts: LNMax, GNMax, NoisyHistogram (of
    which the winners are released, the counts not), or one of your own. An abstention of its own would look as one of the test
    does, which "realised" charges less for.
    """

    inner: Aggregator
    threshold: float
    sigma: float
    charging: Charging = "joint"
    name: ClassVar[str] = "confident"

    def __post_init__(self) -> None:
        if not isinstance(self.inner, Aggregator) or isinstance(self.inner, (Confident, StableMax)):
            raise ParameterError(f"Confident needs an inner aggregator that always answers, got {self.inner!r}.")
        if not self.inner.adds_up:
            raise ParameterError(f"Confident needs an inner aggregator that answers each query by itself, got {self.inner!r}.")
        if any(getattr(type(self.inner), each) is not getattr(Aggregator, each) for each in _OF_A_STUDENT):
            raise ParameterError(
                f"Confident needs an inner aggregator that does not look at what a student predicts, got {self.inner!r}. "
                "InteractiveGNMax has a threshold of its own: use it by itself."
            )
        positive(self.sigma, "Confident sigma, the standard deviation of the noise on the test,")
        check_scale(self.sigma, "Confident sigma")
        positive(self.threshold, "Confident threshold, in votes,")
        if self.threshold != int(self.threshold):
            # The noise lattice holds every whole vote, so the test is decided exactly as the continuous one.
            raise ParameterError(f"Confident threshold must be a whole number of votes, got {self.threshold!r}.")
        if self.charging not in ("joint", "realised"):
            raise ParameterError(f"charging must be 'joint' or 'realised', got {self.charging!r}.")

    @property
    def n_classes(self) -> int | None:  # type: ignore[override]
        return self.inner.n_classes

    def check_ready(self, electorate: Electorate, n_queries: int) -> None:
        self.inner.check_ready(electorate, n_queries)

    def relabelled(self, order: IntArray) -> Aggregator:
        inner = self.inner.relabelled(order)
        return self if inner is self.inner else Confident(inner, self.threshold, self.sigma, self.charging)

    @property
    def test(self) -> ThresholdTest:
        """The noisy test that decides whether a query is answered."""
        return ThresholdTest(self.threshold, self.sigma)

    def release(self, votes: Votes, noise: Noise) -> Release:
        confident = noise.gaussian(self.sigma, (len(votes),)).at_least(votes.counts.max(axis=1, initial=0), self.threshold)
        # The inner noise is drawn for every query, so that time does not tell which were close to the threshold.
        inner = self.inner.release(votes, noise)
        if self.charging == "realised" and not inner.answered.all():
            # As an abstention of the test it would be charged too little. The worst case is reserved by now, and stays charged.
            raise ParameterError(f"Confident needs an inner aggregator that always answers, and {self.inner!r} abstained.")
        labels = np.where(confident, inner.labels, ABSTAIN)
        return Release(labels, votes.electorate, self.mechanism, noise.mode)

    def rdp_ahead(self, electorate: Electorate, orders: FloatArray) -> FloatArray:
        return self._ahead(self.inner.rdp_ahead(electorate, orders), electorate, orders)

    def rdp_ahead_one_count(self, electorate: Electorate, orders: FloatArray) -> FloatArray:
        return self._ahead(self.inner.rdp_ahead_one_count(electorate, orders), electorate, orders)

    def slack_ahead(self, electorate: Electorate) -> float:
        return self.inner.slack_ahead(electorate)

    def _ahead(self, inner: FloatArray, electorate: Electorate, orders: FloatArray) -> FloatArray:
        if self.charging == "realised":
            return one_count_bound(self.sigma, orders) + inner
        partial = electorate.participation is not None
        return confident_bound(
            self.threshold, self.sigma, inner, electorate.n_teachers, electorate.n_classes, orders, partial=partial
        )

    def rdp_bound(self, release: Release, orders: FloatArray) -> FloatArray:
        if self.charging == "joint":
            return super().rdp_bound(release, orders)
        # Moving a vote changes the largest count by at most one, so the test is a one-count change.
        test = one_count_bound(self.sigma, orders)
        return test + np.where(release.answered[:, None], self.inner.rdp_ahead(release.electorate, orders), 0.0)

    def outcome_log_probs(self, counts: IntArray) -> FloatArray | None:
        inner = self.inner.outcome_log_probs(counts)
        return None if inner is None else behind_test(self.test, counts, inner)

    def exact_rdp(self, counts: IntArray, orders: FloatArray, test: ThresholdTest | None = None) -> FloatArray | None:
        if self.charging == "realised":
            # The exact joint cost of a query may exceed the realised charge of an abstention: no claim but the budget.
            return None
        return self.inner.exact_rdp(counts, orders, self.test)

    @property
    def mechanism(self) -> dict[str, Any]:
        inner = {f"inner_{key}": value for key, value in self.inner.mechanism.items()}
        return {"aggregator": self.name, "threshold": self.threshold, "sigma": self.sigma, "charging": self.charging, **inner}


class ConfidentGNMax(Confident):
    """Confident-GNMax spelled as in the paper: threshold and sigma1 for the test, sigma2 for the answer."""

    name: ClassVar[str] = "confident-gnmax"

    def __init__(self, threshold: float, sigma1: float, sigma2: float, charging: Charging = "joint") -> None:
        super().__init__(GNMax(sigma2), threshold, sigma1, charging)

    @property
    def sigma1(self) -> float:
        return self.sigma

    @property
    def sigma2(self) -> float:
        sigma: float = self.inner.parameters["sigma"]
        return sigma

    @property
    def mechanism(self) -> dict[str, Any]:
        return {"aggregator": self.name, **self.parameters}
