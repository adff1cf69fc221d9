"""What a batch of votes costs under an aggregator, by every accountant we have, side by side."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from pate.aggregators import Aggregator, Confident, ConfidentGNMax, GNMax, InteractiveGNMax, LNMax, curve_ahead
from pate.arrays import FloatArray, IntArray
from pate.privacy import published
from pate.privacy.curve import DEFAULT_ORDERS, Conversion, Epsilon, GridEdgeWarning, RdpCurve, check_delta, epsilons_at_orders
from pate.privacy.exact import NoisyMax, per_teacher_rdp, threshold_log_probs
from pate.release import ABSTAIN, Electorate, Release
from pate.votes import Votes

if TYPE_CHECKING:
    from pate.experiments.sanitising import Sanitised

NEIGHBOURS = "one record (or user) replaced: one teacher changes, one vote moves on every query"
VOTERS_NEIGHBOURS = "one record (or user) replaced: at most as many votes move as one may cast in the batch"
VOTERS_DECLARED = "one record (or user) replaced, added or removed: at most as many votes change as one may cast in the batch"
"""Of partial votes, where releases tell the number of voters; and where a declared number stands in its place."""

CONVERSION = "improved (Canonne, Kamath, Steinke 2020)"

_CHUNK = 8192
_PLOT_POINTS = 400


@dataclass(frozen=True)
class Line:
    """One accountant's answer, and what kind of claim it is.

    queries: int64[point], numbers of queries. rdp: float64[point, order], what the first so many queries cost. slack:
    float64[point], the probability with which that may fail to hold, which delta pays for.
    """

    key: str
    title: str
    queries: IntArray
    rdp: FloatArray
    publishable: bool
    is_bound: bool = True
    slack: FloatArray | None = None

    def curve(self, point: int = -1) -> RdpCurve:
        """The cost of the first so many queries, of all unless another point is named."""
        return RdpCurve(DEFAULT_ORDERS, self.rdp[point], 0.0 if self.slack is None else float(self.slack[point]))

    def epsilon(self, delta: float, conversion: Conversion = "improved") -> Epsilon:
        """The cost of all queries."""
        return self.curve().epsilon(delta, conversion)

    def epsilons(self, delta: float) -> FloatArray:
        """float64[point]: epsilon after each number of queries."""
        if self.slack is None:
            best: FloatArray = epsilons_at_orders(DEFAULT_ORDERS, self.rdp, delta).min(axis=1)
            return best
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", GridEdgeWarning)  # said once, of the whole, where it matters
            return np.array([self.curve(point).epsilon(delta).epsilon for point in range(len(self.rdp))])


@dataclass(frozen=True)
class Account:
    """The answer of :func:`account`. Holds data-dependent figures: the owner's copy."""

    aggregator: Aggregator
    votes: Votes
    delta: float
    independent: Line
    dependent: Line
    per_teacher: Line | None
    """As dependent, where it is known who voted for what: one teacher moves its own votes only."""
    published: tuple[Line, ...]
    expected_answered: float | None
    """None where nobody can say."""
    sanitised: Sanitised | None = None
    """A release of its own, paid for by itself: ``pate.experiments.sanitised_release`` draws it."""

    @property
    def lines(self) -> tuple[Line, ...]:
        return (self.independent, self.dependent, *(() if self.per_teacher is None else (self.per_teacher,)), *self.published)

    def to_json(self) -> dict[str, Any]:
        """The stable form that docs/command-line.md describes."""
        improved = {line.key: line.epsilon(self.delta) for line in self.lines}
        classic = {line.key: line.epsilon(self.delta, "classic") for line in self.lines}
        ours = [line.key for line in self.lines if line not in self.published]
        answered = self.expected_answered
        told = self.sanitised
        slacks = {line.key: float(line.slack[-1]) for line in self.lines if line.slack is not None}
        return {
            "aggregator": dict(self.aggregator.mechanism),
            "queries": len(self.votes),
            "teachers": self.votes.n_teachers,
            "classes": self.votes.n_classes,
            "participation": self.votes.participation,
            "delta": self.delta,
            "epsilon": {**{key: improved[key].epsilon for key in ours}, "sanitised": told and told.epsilon},
            "sanitised": told and told.to_json(),
            "published": {key: value.epsilon for key, value in improved.items() if key not in ours},
            "not_bounds": [line.key for line in self.lines if not line.is_bound],
            "publishable": [line.key for line in self.lines if line.publishable],
            "orders": {key: value.order for key, value in improved.items()},
            "classic_conversion": {key: value.epsilon for key, value in classic.items()},
            "expected": {"answered": answered, "abstained": None if answered is None else len(self.votes) - answered},
            **({"slack": slacks} if slacks else {}),
            "neighbours": NEIGHBOURS if self.votes.participation is None else VOTERS_NEIGHBOURS,
            "conversion": CONVERSION,
        }


def account(votes: Votes, aggregator: Aggregator, delta: float, predictions: IntArray | None = None) -> Account:
    """Cost of asking every query of ``votes``: data-independent, exact data-dependent, and the published bounds.

    With ``predictions``, int64[teacher, query], also the exact cost per teacher, which is smaller.

    >>> from pate.aggregators import GNMax
    >>> report = account(Votes([[220, 20, 10]] * 50, n_teachers=250), GNMax(sigma=40), delta=1e-5)
    >>> report.dependent.epsilon(1e-5).epsilon < report.independent.epsilon(1e-5).epsilon
    True
    """
    check_delta(delta)
    points = np.unique(np.linspace(min(1, len(votes)), len(votes), min(_PLOT_POINTS, len(votes) + 1)).astype(np.int64))
    slack: tuple[FloatArray | None, FloatArray | None] = (None, None)
    unknown = isinstance(aggregator, InteractiveGNMax) and aggregator.scores is None
    exact = aggregator.adds_up and votes.participation is None and not unknown
    if not aggregator.adds_up or (votes.participation is not None and aggregator.slack_ahead(votes.electorate)):
        # What more queries cost is the mechanism's to say, and no cost that depends on the votes is known.
        curves = [curve_ahead(aggregator, votes.electorate, int(n)) for n in points]
        independent = dependent = np.array([curve.values for curve in curves]).reshape(points.size, -1)
        slack = (np.array([curve.slack for curve in curves]),) * 2
    elif votes.participation is None:
        ahead = aggregator.rdp_ahead(votes.electorate, DEFAULT_ORDERS)
        independent = points[:, None] * ahead
        if _charge_depends_on_outcome(aggregator, votes.electorate):
            # Nothing is released here, so there is no outcome to charge for: no claim but the worst case.
            dependent = independent
        else:
            # No query costs more than ahead; the minimum only takes the rounding of a long sum out of sight.
            dependent = np.minimum(_cumulative_of(aggregator, votes, points), independent)
        slack = _slacks(aggregator, votes, points)
    else:
        # The cost of a batch of partial votes is one figure for the batch, known ahead; no exact one is known.
        whole = curve_ahead(aggregator, votes.electorate, len(votes)).values
        independent = dependent = np.tile(whole, (points.size, 1))
    title = "data-dependent, exact" if exact else "data-dependent: none known but the data-independent one"
    # The papers know no partial votes.
    papers = tuple(each.line(votes, points) for each in published_costs(aggregator)) if votes.participation is None else ()
    return Account(
        aggregator,
        votes,
        delta,
        Line("data_independent", "data-independent", points, independent, publishable=True, slack=slack[0]),
        Line("data_dependent", title, points, dependent, publishable=False, slack=slack[1]),
        None if predictions is None else _per_teacher(aggregator, predictions, votes, dependent[-1]),
        papers,
        _expected_answered(votes, aggregator),
    )


def _slacks(aggregator: Aggregator, votes: Votes, points: IntArray) -> tuple[FloatArray, FloatArray] | tuple[None, None]:
    """float64[point] each, data-independent and data-dependent: slacks of the first so many queries; None for no slack."""
    one = aggregator.slack_ahead(votes.electorate)
    if not one:
        return None, None
    # A long sum of floats may be off by a few units in its last digits.
    sums = np.concatenate([[0.0], np.cumsum(aggregator.slack(votes))]) * (1 + 1e-12)
    ahead = np.minimum(points * one * (1 + 1e-12), 1.0)
    return ahead, np.minimum(sums[points], ahead)


def _cumulative_of(aggregator: Aggregator, votes: Votes, points: IntArray) -> FloatArray:
    """float64[point, order]: the exact cost of the first ``points[i]`` queries."""
    stop = 0

    def cost(part: Votes) -> FloatArray:
        nonlocal stop
        start, stop = stop, stop + len(part)  # parts come in order
        return _dependent_rdp(aggregator.part(start, stop), part)

    return _cumulative(cost, votes, points)


def _dependent_rdp(aggregator: Aggregator, votes: Votes) -> FloatArray:
    answered = Release(np.zeros(len(votes), dtype=np.int64), votes.electorate, aggregator.mechanism)
    return aggregator.rdp(votes, answered, DEFAULT_ORDERS)


def _charge_depends_on_outcome(aggregator: Aggregator, electorate: Electorate) -> bool:
    every = Release(np.arange(ABSTAIN, electorate.n_classes), electorate, aggregator.mechanism)
    charges = aggregator.rdp_bound(every, DEFAULT_ORDERS)
    return bool((charges != charges[0]).any())


def _per_teacher(aggregator: Aggregator, predictions: IntArray, votes: Votes, dependent: FloatArray) -> Line | None:
    mechanism = as_noisy_max(aggregator)
    if mechanism is None:
        return None
    whole = np.minimum(per_teacher_rdp(mechanism, predictions, votes.n_classes, DEFAULT_ORDERS), dependent)
    title = "data-dependent, exact, per teacher"
    return Line("data_dependent_per_teacher", title, np.array([len(votes)]), whole[None, :], publishable=False)


def as_noisy_max(aggregator: Aggregator) -> NoisyMax | None:
    # Exact types: a subclass may draw other noise, and these formulas would not be its own.
    if type(aggregator) is GNMax:
        return NoisyMax("gaussian", aggregator.sigma)
    if type(aggregator) is LNMax:
        return NoisyMax("laplace", aggregator.gamma)
    if (type(aggregator) is Confident or type(aggregator) is ConfidentGNMax) and aggregator.charging == "joint":
        inner = as_noisy_max(aggregator.inner)
        return None if inner is None else replace(inner, confident=aggregator.test)
    return None


def _cumulative(cost: Callable[[Votes], FloatArray], votes: Votes, points: IntArray) -> FloatArray:
    """float64[point, order]: the cost of the first ``points[i]`` queries, in chunks so that memory stays bounded."""
    total = np.zeros(DEFAULT_ORDERS.size)
    rows = [np.zeros((int(points[0] == 0), DEFAULT_ORDERS.size))] if points.size else []
    for start in range(0, len(votes), _CHUNK):
        part = votes.rows(start, start + _CHUNK)
        sums = total + np.cumsum(cost(part), axis=0)
        total = sums[-1]
        inside = points[(points > start) & (points <= start + len(part))]
        rows.append(sums[inside - start - 1])
    return np.concatenate(rows)


@dataclass(frozen=True)
class PublishedCost:
    """A bound from a paper: float64[order] per query, or a function of the counts to float64[query, order]."""

    key: str
    title: str
    cost: FloatArray | Callable[[IntArray], FloatArray]
    is_bound: bool = True

    def line(self, votes: Votes, points: IntArray) -> Line:
        cost = self.cost
        if callable(cost):
            totals = _cumulative(lambda part: cost(part.counts), votes, points)
            return Line(self.key, self.title, points, totals, publishable=False, is_bound=self.is_bound)
        return Line(self.key, self.title, points, points[:, None] * cost, publishable=True)


def published_costs(aggregator: Aggregator) -> tuple[PublishedCost, ...]:
    """The bounds of the papers, the data-independent one first; none for what no paper treats, subclasses included."""
    orders = DEFAULT_ORDERS
    if type(aggregator) is ConfidentGNMax:
        setting = (aggregator.threshold, aggregator.sigma1, aggregator.sigma2)
        ahead = published.confident_independent_rdp(aggregator.sigma1, aggregator.sigma2, orders)
        return (
            PublishedCost("proposition8", "2018: Proposition 8 and test", ahead),
            PublishedCost("theorem6", "2018: Theorem 6 and test", lambda c: published.confident_worst_rdp(c, *setting, orders)),
            PublishedCost(
                "expected_2018",
                "2018 scripts: expected",
                lambda c: published.confident_expected_rdp(c, *setting, orders),
                is_bound=False,
            ),
        )
    if type(aggregator) is GNMax:
        sigma = aggregator.sigma
        return (
            PublishedCost("proposition8", "2018: Proposition 8", published.proposition8(sigma, orders)),
            PublishedCost(
                "theorem6", "2018: Theorem 6", lambda c: published.gnmax_rdp(published.gnmax_logq(c, sigma), sigma, orders)
            ),
        )
    if type(aggregator) is LNMax:
        gamma = aggregator.gamma
        return (
            PublishedCost("theorem2_2017", "2017: Theorem 2", published.lnmax_independent_rdp(gamma, orders)),
            PublishedCost(
                "theorem3_2017",
                "2017: Theorem 3",
                lambda c: published.lnmax_rdp_2018(published.lnmax_logq(c, gamma), gamma, orders),
            ),
        )
    return ()


def _expected_answered(votes: Votes, aggregator: Aggregator) -> float | None:
    if not aggregator.adds_up:
        return None  # a query that is refused may end the batch, so that they are not independent
    if aggregator.slack_ahead(votes.electorate):
        answers = aggregator.outcome_log_probs(votes.counts)
        return None if answers is None else float(np.exp(answers[:, : votes.n_classes]).sum())
    if isinstance(aggregator, InteractiveGNMax):
        outcomes = aggregator.outcome_log_probs(votes.counts)
        return None if outcomes is None else float(np.exp(outcomes[:, : votes.n_classes]).sum())
    if not isinstance(aggregator, Confident):
        return float(len(votes))
    return float(np.exp(threshold_log_probs(aggregator.test, votes.counts.max(axis=1))[0]).sum())
