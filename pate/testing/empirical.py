"""The empirical audit: what many real releases prove about a claim, at a stated confidence, whatever the mechanism.

First a scout, with noise of its own, finds neighbouring tables between which the outcome changes most: a tie, a jump, a
slope. Then each is released many times, every event gets a Clopper-Pearson interval, and a claim is refuted where no
pair of probabilities inside the intervals would satisfy it.

Power, at the default effort: GNMax with half the noise it accounts for (sigma 20 for 40, 250 teachers) is refuted: moving
a vote at a tie changes a probability by 0.028, the claim allows 0.014, and the intervals together are 0.006 wide. What
a given run could have seen stands in its detail ("a claim 2.1 times smaller would have been refuted").
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import expit, logit
from scipy.stats import beta

from pate.arrays import FloatArray, IntArray
from pate.errors import PateError
from pate.release import ABSTAIN, Electorate, Release
from pate.testing.claims import ABSOLUTE
from pate.testing.report import NamedCheck, Violation
from pate.testing.subject import Subject
from pate.testing.tables import ladder, tied

_SCOUTING_REPEATS = 96
_SCOUTING_COUNTS = 1 << 20
_QUANTILES = (0.02, 0.1, 0.25, 0.5, 0.75, 0.9, 0.98)
_BOUNDLESS = 1e6
"""Stands for an infinite charge, which no sample can refute."""


class Pair(NamedTuple):
    """Two neighbouring tables, and how many noisy counts to draw for each, in units of ``samples``."""

    one: IntArray
    two: IntArray
    effort: float


class Interval(NamedTuple):
    """Simultaneous confidence bounds for the probability of every event: float64[event]."""

    low: FloatArray
    high: FloatArray


@dataclass(frozen=True)
class Finding:
    """Both tables of a pair, released many times.

    labels: int64[label], every label that can occur. The first events are "this label", in the same order; any others
    are about a published histogram.
    """

    pair: Pair
    labels: IntArray
    has_histogram: bool
    one: Interval
    two: Interval


def empirical_checks(subject: Subject, false_alarm: float) -> Iterator[NamedCheck]:
    """The checks of this module; together they fail a right aggregator with at most this probability."""
    yield "empirical: claims", lambda: _claims(subject, false_alarm / 2)
    yield "empirical: partial votes", lambda: _partial(subject, false_alarm / 2)


def log_filter_floor(p: Interval, q: Interval, inside: FloatArray, outside: FloatArray, orders: FloatArray) -> FloatArray:
    """The least log(p^a q^(1-a) e^(-(a-1) inside) + (1-p)^a (1-q)^(1-a) e^(-(a-1) outside)) over the intervals / (a-1).

    inside, outside: float64[event, order], charges of the event and of its complement, each the largest of its outcomes.
    Returns float64[event, order]. Where it is positive, the inequality of :func:`pate.testing.exact.log_filter` fails: by
    Hölder's inequality, merging outcomes of charge at most b into one event makes their sum no larger.

    The function is convex in (p, q). Its gradient vanishes only for equal charges, and then on the whole line p = q, which
    leaves the box through an edge. So its least value is on an edge, where the stationary point is explicit:
    odds(p) = odds(q) e^(inside - outside) for fixed q, odds(q) = odds(p) e^(-(inside - outside) (a-1)/a) for fixed p.
    """
    a = orders
    difference = inside - outside
    edges = []
    for q_end in (q.low[:, None], q.high[:, None]):
        stationary = expit(logit(q_end) + difference)
        edges.append((np.clip(stationary, p.low[:, None], p.high[:, None]), q_end))
    for p_end in (p.low[:, None], p.high[:, None]):
        stationary = expit(logit(p_end) - difference * (a - 1) / a)
        edges.append((p_end, np.clip(stationary, q.low[:, None], q.high[:, None])))
    values = [np.logaddexp(_log_term(x, y, inside, a), _log_term(1 - x, 1 - y, outside, a)) for x, y in edges]
    result: FloatArray = np.min(values, axis=0) / (a - 1)
    return result


def _log_term(p: FloatArray, q: FloatArray, charge: FloatArray, a: FloatArray) -> FloatArray:
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = a * np.log(p) + (1 - a) * np.log(q) - (a - 1) * charge
    return np.where(p > 0, terms, -np.inf)


def _claims(subject: Subject, false_alarm: float) -> str:
    pairs = scouted_pairs(subject)
    proven = 0.0
    for pair in pairs:
        finding = _release_pair(subject, pair, false_alarm / len(pairs))
        electorate = Electorate(subject.n_teachers, pair.one.size)
        ahead = subject.aggregator.rdp_ahead(electorate, subject.orders)[None, :]
        _refute(subject, finding, "rdp_ahead", np.tile(ahead, (finding.labels.size, 1)))
        for table in (pair.one, pair.two):
            tables = np.tile(table, (finding.labels.size, 1))
            told = subject.told(finding.labels, electorate, tables.astype(np.float64) if finding.has_histogram else None)
            _refute(subject, finding, "rdp_bound", subject.aggregator.rdp_bound(told, subject.orders))
            _refute(subject, finding, "rdp", subject.aggregator.rdp(subject.votes(tables), told, subject.orders))
        proven = max(proven, _proven_share(subject, finding, ahead))
    return _summary(len(pairs), false_alarm, proven)


def _partial(subject: Subject, false_alarm: float) -> str:
    electorate = Electorate(subject.n_teachers, 2, participation=1)
    try:
        charge = subject.aggregator.rdp_ahead_one_count(electorate, subject.orders)[None, :]
    except (PateError, NotImplementedError):
        return "not offered: rdp_ahead_one_count is not there, so partial votes are refused"
    half = subject.n_teachers // 2
    pair = Pair(np.array([half, half - 1]), np.array([half, half]), effort=1)
    finding = _release_pair(subject, pair, false_alarm, partial=True)
    _refute(subject, finding, "rdp_ahead_one_count", np.tile(charge, (finding.labels.size, 1)))
    return _summary(1, false_alarm, _proven_share(subject, finding, charge))


def _summary(n_pairs: int, false_alarm: float, proven: float) -> str:
    power = f"a claim {1 / proven:.2g} times smaller would have been refuted" if proven > 0 else "too few samples to refute any"
    return f"{n_pairs} neighbouring pair(s), confidence 1 - {false_alarm:.1g}; {power}"


def scouted_pairs(subject: Subject) -> list[Pair]:
    """The tie of two classes, and the steepest steps of the ladders of two and of all classes."""
    few = min(subject.numbers_of_classes)
    tie = tied(subject.n_teachers, few, 2)
    pairs = [Pair(tie, tie - np.eye(few, dtype=np.int64)[0] + np.eye(few, dtype=np.int64)[1], effort=2)]
    for n_classes in sorted({2, subject.n_classes} & set(subject.numbers_of_classes)):
        rungs = ladder(subject.n_teachers, n_classes)
        repeats = max(8, min(_SCOUTING_REPEATS, _SCOUTING_COUNTS // rungs.size))
        labels = subject.release(np.tile(rungs, (repeats, 1))).labels.reshape(repeats, -1)
        shares = (labels[:, :, None] == np.arange(ABSTAIN, n_classes)).mean(axis=0)
        # A jump shows between two rungs, a slope only between many.
        for width in (1, max(2, len(rungs) // 16)):
            if len(rungs) >= 2 * width:
                step = _steepest(shares, width)
                pairs.append(Pair(rungs[step - 1], rungs[step], effort=0.5))
    return pairs


def _steepest(shares: FloatArray, width: int) -> int:
    """The rung before which ``width`` rungs differ most, in some outcome, from the ``width`` rungs that follow."""
    total = np.concatenate([np.zeros((1, shares.shape[1])), np.cumsum(shares, axis=0)])
    after = total[2 * width :] - total[width:-width]
    before = total[width:-width] - total[: -2 * width]
    return width + int(np.argmax(np.abs(after - before).max(axis=1)))


def _release_pair(subject: Subject, pair: Pair, false_alarm: float, *, partial: bool = False) -> Finding:
    n_classes = pair.one.size
    n_queries = max(1, int(pair.effort * subject.samples / n_classes))
    scout = next(subject.releases(pair.one, _SCOUTING_COUNTS // (64 * n_classes), partial=partial))
    labels = np.arange(n_classes, dtype=np.int64)
    if not scout.answered.all():
        labels = np.append(labels, ABSTAIN)
    direction = (pair.two - pair.one).astype(np.float64)
    cuts = np.zeros(0) if scout.histogram is None else np.quantile(scout.histogram @ direction, _QUANTILES)
    # Intervals hold for both tables and every event at once; orders and claims then need no further correction.
    each = false_alarm / (2 * (labels.size + cuts.size))
    intervals = []
    for table in (pair.one, pair.two):
        happened = sum(
            _count_events(release, labels, cuts, direction) for release in subject.releases(table, n_queries, partial=partial)
        )
        intervals.append(clopper_pearson(np.asarray(happened), n_queries, each))
    return Finding(pair, labels, scout.histogram is not None, *intervals)


def _count_events(release: Release, labels: IntArray, cuts: FloatArray, direction: FloatArray) -> IntArray:
    counts: IntArray = (release.labels[:, None] == labels).sum(axis=0)
    if release.histogram is None:
        return counts
    return np.concatenate([counts, (release.histogram @ direction >= cuts[:, None]).sum(axis=1)])


def clopper_pearson(happened: IntArray, n: int, false_alarm: float) -> Interval:
    """Bounds on a probability that each miss it with probability at most ``false_alarm`` (Clopper and Pearson 1934)."""
    low = np.where(happened > 0, beta.ppf(false_alarm / 2, np.maximum(happened, 1), n - happened + 1), 0.0)
    high = np.where(happened < n, beta.isf(false_alarm / 2, happened + 1, np.maximum(n - happened, 1)), 1.0)
    return Interval(low, high)


def _refute(subject: Subject, finding: Finding, name: str, charge: FloatArray) -> None:
    """A violation where the claim, float64[label, order], does not hold for any probabilities inside the intervals."""
    finite = np.minimum(charge, _BOUNDLESS)
    n_events, n_labels = finding.one.low.size, finding.labels.size
    others = np.array([np.delete(finite, row, axis=0).max(axis=0) for row in range(n_labels)])
    on_histogram = np.tile(finite.max(axis=0), (n_events - n_labels, 1))
    inside, outside = np.concatenate([finite, on_histogram]), np.concatenate([others, on_histogram])
    for p, q in ((finding.one, finding.two), (finding.two, finding.one)):
        excess = log_filter_floor(p, q, inside, outside, subject.orders)
        if (excess > ABSOLUTE).any():
            event, order = np.unravel_index(np.argmax(excess), excess.shape)
            what = f"the outcome {finding.labels[event]}" if event < n_labels else "an event of the histogram"
            least = _divergence_floor(subject, p, q)[event, order]
            raise Violation(
                f"{name} is refuted on the neighbours {finding.pair.one.tolist()} and {finding.pair.two.tolist()}: {what} has "
                f"the probability {p.low[event]:.4g} to {p.high[event]:.4g} against {q.low[event]:.4g} to {q.high[event]:.4g}. "
                f"At order {subject.orders[order]:g} that costs at least {least:.4g}; claimed {inside[event, order]:.4g}."
            )


def _divergence_floor(subject: Subject, p: Interval, q: Interval) -> FloatArray:
    free = np.zeros((p.low.size, subject.orders.size))
    return log_filter_floor(p, q, free, free, subject.orders)


def _proven_share(subject: Subject, finding: Finding, claim: FloatArray) -> float:
    """The largest share of a claim, [1, order], that the releases prove to be really spent; 0 where they prove nothing."""
    there, back = _divergence_floor(subject, finding.one, finding.two), _divergence_floor(subject, finding.two, finding.one)
    proven = np.maximum(there, back)
    with np.errstate(divide="ignore", invalid="ignore"):
        return float(np.max(np.where(proven > ABSOLUTE, proven / claim, 0.0)))
