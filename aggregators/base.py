"""The extension point: an aggregator adds the noise and states what that costs, in one object."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from pate.arrays import FloatArray, IntArray
from pate.errors import ParameterError
from pate.noise import Noise
from pate.privacy.curve import DEFAULT_ORDERS, RdpCurve, probability_up
from pate.privacy.exact import ThresholdTest, behind_test
from pate.privacy.outcomes import rdp_from_outcomes
from pate.release import Electorate, Release
from pate.votes import Votes


class Aggregator(ABC):
    """Turns private votes into a public release, and knows what that costs.

    A subclass writes ``release`` and ``rdp_ahead``. With ``outcome_log_probs`` it gets exact data-dependent accounting
    and an exact audit for free. :func:`pate.testing.check_aggregator` proves the claims.

    All costs are for neighbouring data sets in which one teacher changes: on a query, one vote moves from one class to
    another. Every cost array has the order as its last axis.
    """

    name: ClassVar[str]
    """The built-in name, or whatever a report should call it."""

    @abstractmethod
    def release(self, votes: Votes, noise: Noise) -> Release:
        """Draw noise and answer every query of the batch, or abstain."""

    adds_up: ClassVar[bool] = True
    """Whether a batch costs what its queries cost one by one. Where not, the methods ``batch_*`` are overridden, and ``rdp``
    and ``rdp_bound`` only say what a query costs that is asked alone."""

    @abstractmethod
    def rdp_ahead(self, electorate: Electorate, orders: FloatArray) -> FloatArray:
        """float64[order]: the worst case of one query over all votes, known before asking."""

    def slack_ahead(self, electorate: Electorate) -> float:
        """The probability, per query, with which its RDP may fail to hold: :class:`pate.privacy.curve.RdpCurve`, slack."""
        return 0.0

    def rdp_ahead_one_count(self, electorate: Electorate, orders: FloatArray) -> FloatArray:
        """float64[order]: as :meth:`rdp_ahead`, where one count changes by one instead of a vote moving.

        Needed for partial votes only, where a vote may vanish from one query and appear in another.
        """
        raise ParameterError(
            f"{self!r} states no cost for a single count that changes by one, so it cannot be charged for partial votes. "
            "Override rdp_ahead_one_count."
        )

    def rdp_bound(self, release: Release, orders: FloatArray) -> FloatArray:
        """float64[query, order]: data-independent cost of each query given the public outcome."""
        return np.tile(self.rdp_ahead(release.electorate, orders), (len(release), 1))

    def outcome_log_probs(self, counts: IntArray) -> FloatArray | None:
        """float64[query, outcome]: log-probability of every public outcome of each query, or None where unknown.

        Outcomes are the classes in order, then abstention if the mechanism can abstain.
        """
        return None

    def rdp(self, votes: Votes, release: Release, orders: FloatArray) -> FloatArray:
        """float64[query, order]: data-dependent cost of each query. Private: for the owner of the data only.

        Exact from :meth:`outcome_log_probs` where there is one, never above :meth:`rdp_bound`. An aggregator whose
        rdp_bound depends on the outcome returns None from :meth:`exact_rdp`: the smaller of an exact cost and a charge
        that is itself random is no bound (``check_aggregator`` catches it).
        """
        bound = self.rdp_bound(release, orders)
        if votes.participation is not None:
            return bound
        exact = self.exact_rdp(votes.counts, orders)
        return bound if exact is None else np.minimum(exact, bound)

    def slack(self, votes: Votes) -> FloatArray:
        """float64[query]: what :meth:`slack_ahead` is with these votes. Private, as :meth:`rdp`, which it goes with."""
        return np.full(len(votes), self.slack_ahead(votes.electorate))

    def exact_rdp(self, counts: IntArray, orders: FloatArray, test: ThresholdTest | None = None) -> FloatArray | None:
        """float64[query, order]: exact divergence, the worst neighbour and direction, or None where it is unknown.

        With ``test``, of the mechanism that answers only where that noisy threshold test succeeds. Override it where
        something faster than trying every neighbour is known.
        """

        def joined(table: IntArray) -> FloatArray | None:
            answers = self.outcome_log_probs(table)
            return answers if answers is None or test is None else behind_test(test, table, answers)

        return rdp_from_outcomes(joined, counts, orders)

    # What a whole batch costs. Mechanisms whose queries do not add up one by one override these three. ----------------------

    def batch_ahead(self, electorate: Electorate, n_queries: int, orders: FloatArray) -> RdpCurve:
        """What ``n_queries`` cost at most, known before asking. See :func:`curve_ahead`."""
        moved = RdpCurve(orders, self.rdp_ahead(electorate, orders), self.slack_ahead(electorate))
        if electorate.participation is None:
            return n_queries * moved
        changed = 2 * RdpCurve(orders, self.rdp_ahead_one_count(electorate, orders), self.slack_ahead(electorate))
        # One vote can touch at most two queries, and a batch of q queries has q places where a vote can move.
        per_move = RdpCurve(orders, np.maximum(moved.values, changed.values), max(moved.slack, changed.slack))
        return min(electorate.participation, n_queries) * per_move

    def batch_bound(self, release: Release, orders: FloatArray) -> RdpCurve:
        """Data-independent cost of a release given its public outcome."""
        slack = probability_up(Fraction(self.slack_ahead(release.electorate)) * len(release))
        return RdpCurve(orders, self.rdp_bound(release, orders).sum(axis=0), slack)

    def batch_dependent(self, votes: Votes, release: Release, orders: FloatArray) -> RdpCurve:
        """Data-dependent cost of a release. Private: for the owner of the data only."""
        slack = probability_up(sum(map(Fraction, self.slack(votes).tolist()), Fraction()))
        return RdpCurve(orders, self.rdp(votes, release, orders).sum(axis=0), slack)

    # Mechanisms that hold public facts about the queries of a batch, such as what a student predicts, override these. -------

    n_classes: int | None = None
    """The only number of classes it takes; None: any."""

    def check_ready(self, electorate: Electorate, n_queries: int) -> None:  # noqa: B027  (nothing to check for most)
        """Raise unless such a batch can be answered; asked before anything is charged. Most mechanisms always can."""

    def before_student(self) -> Aggregator:
        """What answers while there is no student yet: most mechanisms do not ask for one."""
        return self

    def against(self, scores: ArrayLike) -> Aggregator:
        """What answers a batch on which the student predicts ``scores``, float[query, class]. Most do not look at them."""
        return self

    def part(self, start: int, stop: int) -> Aggregator:
        """What answers the queries ``start`` to ``stop`` - 1 of its batch."""
        return self

    def relabelled(self, order: IntArray) -> Aggregator:
        """The mechanism for classes in another order: class ``order[i]`` becomes i. Most treat all classes alike."""
        return self

    @property
    def parameters(self) -> dict[str, Any]:
        """The constructor's arguments, public."""
        names = inspect.signature(type(self)).parameters
        return {name: getattr(self, name) for name in names}

    @property
    def mechanism(self) -> dict[str, Any]:
        """Name and parameters, as they stand in releases, reports and ledgers."""
        return {"aggregator": self.name, **self.parameters}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{key}={value!r}' for key, value in self.parameters.items())})"


def curve_ahead(
    aggregator: Aggregator, electorate: Electorate, n_queries: int, orders: FloatArray = DEFAULT_ORDERS
) -> RdpCurve:
    """What a batch of ``n_queries`` costs at most, known before asking: the curve that a budget is enforced on.

    With every teacher voting on every query, costs add up over queries. With a participation of m, one teacher's change
    moves at most m votes in the whole batch, each inside a query or from one query to another, so the batch costs at most
    m * max(one vote moved, 2 * one count changed), whatever the number of queries (docs/accounting.md, partial votes).
    """
    if n_queries < 0:
        raise ParameterError(f"n_queries must not be negative, got {n_queries}.")
    return aggregator.batch_ahead(electorate, n_queries, orders)


def curve_bound(aggregator: Aggregator, release: Release, orders: FloatArray = DEFAULT_ORDERS) -> RdpCurve:
    """Data-independent cost of a release given its public outcome."""
    if release.electorate.participation is not None:
        return curve_ahead(aggregator, release.electorate, len(release), orders)
    return aggregator.batch_bound(release, orders)


def curve_dependent(aggregator: Aggregator, votes: Votes, release: Release, orders: FloatArray = DEFAULT_ORDERS) -> RdpCurve:
    """Data-dependent cost of a release. Private: for the owner of the data only."""
    if votes.participation is not None:
        return curve_ahead(aggregator, votes.electorate, len(votes), orders)
    return aggregator.batch_dependent(votes, release, orders)
