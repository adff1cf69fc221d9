"""Claims that hold except with a slack, and claims of whole batches: audited as (epsilon, delta).

A Rényi divergence may be infinite where a slack pays for it. But a curve with a slack implies a delta at every epsilon
(:class:`pate.privacy.curve.RdpCurve`), and the true one is at hand: the hockey-stick divergence sum max(p - e^epsilon q, 0)
is the least delta (Balle, Barthe, Gaboardi 2018, arXiv:1807.01647, Theorem 1), and p - e^epsilon q of one event is at most it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from pate.aggregators import curve_ahead
from pate.arrays import FloatArray, IntArray
from pate.errors import ParameterError
from pate.noise import SimulatedNoise
from pate.privacy.curve import deltas_at_orders
from pate.release import ABSTAIN
from pate.testing.claims import RELATIVE
from pate.testing.empirical import clopper_pearson
from pate.testing.report import NamedCheck, Violation
from pate.testing.subject import Subject, outcome_labels
from pate.testing.tables import ladder, tied

if TYPE_CHECKING:
    from pate.testing.exact import Grid

EPSILONS: FloatArray = np.array([0.0, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 2.0, 4.0, 8.0, 16.0, 40.0])
_TOLERANCE = 1e-12
_BATCH = 6
_SCOUTING_RELEASES = 12
_PATTERNS = 24
_MOST_RELEASES = 4000


def deltas_claimed(rdp: FloatArray, slack: FloatArray, orders: FloatArray) -> FloatArray:
    """float64[claim, epsilon] at ``EPSILONS``, from float64[claim, order] and float64[claim]."""
    columns = [deltas_at_orders(orders, rdp, epsilon).min(axis=-1) + slack for epsilon in EPSILONS]
    result: FloatArray = np.minimum(np.stack(columns, axis=-1), 1.0)
    return result


def hockey_sticks(log_p: FloatArray, log_q: FloatArray) -> FloatArray:
    """float64[pair, epsilon]: the least delta at ``EPSILONS``, from float64[pair, outcome]."""
    p, q = np.exp(log_p)[:, None, :], np.exp(log_q[:, None, :] + EPSILONS[:, None])
    result: FloatArray = np.maximum(p - q, 0.0).sum(axis=-1)
    return result


def approximate_checks(
    subject: Subject, grids: Callable[[], tuple[Grid, ...]], partial: Callable[[], tuple[Grid, ...]]
) -> Iterator[NamedCheck]:
    """For an aggregator with a slack and known outcomes. partial: grids where a count changes by one or a vote moves."""

    def ahead(grid: Grid) -> FloatArray:
        rdp = subject.aggregator.rdp_ahead(grid.electorate, subject.orders)
        return deltas_claimed(rdp[None, :], np.array([subject.aggregator.slack_ahead(grid.electorate)]), subject.orders)

    def bound(grid: Grid) -> FloatArray:
        labels = outcome_labels(grid.log_p.shape[1], grid.electorate.n_classes)
        rdp = subject.aggregator.rdp_bound(subject.told(labels, grid.electorate), subject.orders).max(axis=0)
        return deltas_claimed(rdp[None, :], np.array([subject.aggregator.slack_ahead(grid.electorate)]), subject.orders)

    def dependent(grid: Grid) -> FloatArray:
        votes = subject.votes(grid.tables)
        told = subject.told(np.zeros(len(grid.tables), dtype=np.int64), grid.electorate)
        return deltas_claimed(
            subject.aggregator.rdp(votes, told, subject.orders), subject.aggregator.slack(votes), subject.orders
        )

    def one_count(grid: Grid) -> FloatArray:
        rdp = subject.aggregator.rdp_ahead_one_count(grid.electorate, subject.orders)
        return deltas_claimed(rdp[None, :], np.array([subject.aggregator.slack_ahead(grid.electorate)]), subject.orders)

    yield "approximate: rdp_ahead", lambda: _audit(grids(), ahead)
    yield "approximate: rdp_bound", lambda: _audit(grids(), bound)
    yield "approximate: rdp", lambda: _audit(grids(), dependent)
    yield "approximate: partial votes", lambda: _if_offered(lambda: _audit(partial(), one_count))


def _if_offered(check: Callable[[], str]) -> str:
    try:
        return check()
    except (ParameterError, NotImplementedError):
        return "not offered: rdp_ahead_one_count is not there, so partial votes are refused"


def _audit(grids: tuple[Grid, ...], claims: Callable[[Grid], FloatArray]) -> str:
    share, pairs = 0.0, 0
    for grid in grids:
        claimed = claims(grid)
        paid = np.broadcast_to(claimed if len(claimed) == 1 else claimed[grid.owner], (len(grid.owner), EPSILONS.size))
        p, q = grid.log_p[grid.owner], grid.log_q
        for direction, true in (("n || n'", hockey_sticks(p, q)), ("n' || n", hockey_sticks(q, p))):
            excess = true - paid * (1 + RELATIVE) - _TOLERANCE
            if not (excess <= 0).all():
                pair, at = np.unravel_index(np.argmax(np.nan_to_num(excess, nan=np.inf)), excess.shape)
                raise Violation(
                    f"too small for the counts n = {grid.tables[grid.owner[pair]].tolist()} and their neighbour "
                    f"n' = {grid.neighbours[pair].tolist()}: at epsilon {EPSILONS[at]:g} the least delta, {direction}, is "
                    f"{true[pair, at]:.4g}; claimed, slack included, is {paid[pair, at]:.4g}."
                )
            share = max(share, float(np.max(np.where(paid > 1e-9, true / np.maximum(paid, 1e-300), 0.0))))
        pairs += 2 * len(grid.owner)
    return f"{pairs} hockey-stick divergences at {EPSILONS.size} epsilons; the largest is {share:.3g} of its claim"


# Mechanisms whose queries do not add up: whole batches, released many times ---------------------------------------------------


def batch_checks(subject: Subject, false_alarm: float) -> Iterator[NamedCheck]:
    """For an aggregator that states the cost of batches only; together they fail a right one with at most this probability."""
    yield "noise: seeded replay", lambda: _replay(subject)
    yield "approximate: batches", lambda: _batches(subject, false_alarm)


def _labels(subject: Subject, batch: IntArray, n_releases: int) -> IntArray:
    """int64[release, query]: the same batch, released again and again."""
    noise = subject.noise()
    return np.array([subject.release(batch, noise).labels for _ in range(n_releases)])


def _replay(subject: Subject) -> str:
    """The same seed, the same release; among 64 seeds, not all the same. Else the noise argument is not the noise."""
    (batch, _), *_ = _pairs(subject)
    released = [subject.release(batch, SimulatedNoise(seed)).labels.tolist() for seed in range(64)]
    if released != [subject.release(batch, SimulatedNoise(seed)).labels.tolist() for seed in range(64)]:
        raise Violation("one SimulatedNoise seed gives two releases: some randomness is not from the noise argument.")
    if all(each == released[0] for each in released):
        raise Violation(f"64 seeds give one and the same release of a batch of {batch[0].tolist()}: there is no noise.")
    return "one seed, one release; 64 seeds differ"


def _pairs(subject: Subject) -> list[tuple[IntArray, IntArray]]:
    """Neighbouring batches: where most changes between two rungs of a ladder, all queries one way, and one of them the other;
    and a tie."""
    rungs = ladder(subject.n_teachers, subject.n_classes)
    answered = np.array(
        [(_labels(subject, np.tile(rung, (_BATCH, 1)), _SCOUTING_RELEASES) != ABSTAIN).mean() for rung in rungs]
    )
    jump = int(np.argmax(np.abs(np.diff(answered))))
    middle = int(np.argmin(np.abs(answered - 0.5)))
    steps = {jump, min(middle, len(rungs) - 2)}
    pairs = []
    for step in sorted(steps, key=lambda each: each != min(middle, len(rungs) - 2)):
        low, high = rungs[step], rungs[step + 1]
        pairs.append((np.tile(low, (_BATCH, 1)), np.tile(high, (_BATCH, 1))))
        pairs.append((np.array([*[low] * (_BATCH - 1), high]), np.array([*[high] * (_BATCH - 1), low])))
    tie = tied(subject.n_teachers, subject.n_classes, 2)
    broken = tie.copy()
    broken[:2] += [1, -1]
    pairs.append((np.tile(tie, (_BATCH, 1)), np.tile(broken, (_BATCH, 1))))
    return pairs


def _batches(subject: Subject, false_alarm: float) -> str:
    """Events of a whole batch: what is released, and how much of it is answered. Clopper-Pearson, Bonferroni-corrected."""
    n = max(200, min(_MOST_RELEASES, subject.samples // 8))
    pairs = _pairs(subject)
    curve = curve_ahead(subject.aggregator, subject.electorate, _BATCH, subject.orders)
    claimed = deltas_claimed(curve.values[None, :], np.array([curve.slack]), subject.orders)[0]
    for one, two in pairs:
        patterns = np.unique(np.concatenate([_labels(subject, each, _PATTERNS) for each in (one, two)]), axis=0)
        each = false_alarm / (len(pairs) * 2 * (len(patterns) + _BATCH))
        first, second = (clopper_pearson(_events(_labels(subject, batch, n), patterns), n, each) for batch in (one, two))
        for p, q in ((first, second), (second, first)):
            proven = p.low[:, None] - np.exp(EPSILONS) * q.high[:, None]
            if (proven > claimed + _TOLERANCE).any():
                event, at = np.unravel_index(np.argmax(proven - claimed), proven.shape)
                what = f"the release {patterns[event].tolist()}" if event < len(patterns) else "a number of answers"
                raise Violation(
                    f"refuted on the neighbouring batches {one.tolist()} and {two.tolist()}: {what} has the probability "
                    f"{p.low[event]:.4g} to {p.high[event]:.4g} against {q.low[event]:.4g} to {q.high[event]:.4g}, so that "
                    f"delta at epsilon {EPSILONS[at]:g} is at least {proven[event, at]:.4g}; claimed is {claimed[at]:.4g}."
                )
    return f"{len(pairs)} neighbouring batches of {_BATCH}, {n} releases each, confidence 1 - {false_alarm:.1g}"


def _events(labels: IntArray, patterns: IntArray) -> IntArray:
    """int64[event]: how often each pattern was released, and how often at least 1, 2, … queries were answered."""
    same = (labels[:, None, :] == patterns).all(axis=-1).sum(axis=0)
    answered = (labels != ABSTAIN).sum(axis=1)
    return np.concatenate([same, [(answered >= least).sum() for least in range(1, labels.shape[1] + 1)]])
