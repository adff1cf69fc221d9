"""The exact audit: what ``outcome_log_probs`` implies for every neighbour, by plain code of its own.

It shares nothing with the accountants in :mod:`pate.privacy`: all neighbours are written out and every sum is taken as
it stands in the definition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np
from scipy.special import logsumexp
from scipy.stats import binom

from pate.arrays import FloatArray, IntArray
from pate.errors import PateError
from pate.release import Electorate
from pate.testing.approximate import approximate_checks
from pate.testing.claims import ABSOLUTE, RELATIVE
from pate.testing.report import NamedCheck, Violation
from pate.testing.subject import Subject, outcome_labels
from pate.testing.tables import battery, changed_counts, ladder, moved_votes, partial_battery

SUM_TOLERANCE = 1e-7
_FREQUENCY_TABLES = 16
_MOST_RUNGS = 512
_CHUNK = 1 << 21


def exact_checks(subject: Subject, false_alarm: float) -> Iterator[NamedCheck]:
    """The checks of this module; the one that draws noise fails a right aggregator with at most this probability."""

    @cache
    def grids() -> tuple[Grid, ...]:
        return tuple(_grids(subject))

    yield "exact: probabilities sum to one", lambda: _sum_to_one(grids())
    yield "exact: frequencies", lambda: _frequencies(subject, false_alarm)
    if subject.aggregator.slack_ahead(subject.electorate):
        yield from approximate_checks(subject, grids, lambda: _partial_grids(subject))
        return
    yield "exact: rdp_ahead", lambda: _audit(subject, grids(), _ahead)
    yield "exact: rdp_bound", lambda: _audit(subject, grids(), _bound)
    yield "exact: rdp", lambda: _audit(subject, grids(), _dependent)
    yield "exact: partial votes", lambda: _partial(subject)


def log_filter(log_p: FloatArray, log_q: FloatArray, charge: FloatArray, orders: FloatArray) -> FloatArray:
    """log Σ_o p_o^a q_o^(1-a) e^(-(a-1) b(o)) / (a-1): not positive exactly where the charge b pays for the query.

    log_p, log_q: float64[pair, outcome]; charge: float64[pair, outcome, order]. Returns float64[pair, order].

    Why this is the right question. Let a fixed pair of neighbouring data sets answer adaptively chosen queries, query i with
    outcome o_i, likelihood ratio R_i = p_i(o_i)/q_i(o_i) and charge b_i(o_i), and stop before the sum of charges passes B.
    Put M_t = Π_{i<=t} R_i^a e^(-(a-1) b_i(o_i)). Under Q,
        E[M_t | past] = M_(t-1) Σ_o q_o (p_o/q_o)^a e^(-(a-1) b_t(o)) <= M_(t-1)
    when the inequality holds for every query that can be asked. So M is a supermartingale with M_0 = 1, and
        e^((a-1) D_a(P||Q)) = E_Q[Π R_i^a] <= e^((a-1) B) E_Q[M_end] <= e^((a-1) B):
    the whole conversation costs at most B. For a charge that is the same for every outcome the inequality says no more and
    no less than D_a <= b, and one order is argued at a time. (Feldman and Zrnic 2021, arXiv:2008.11193, Theorem 4.3, prove
    it for charges known before the outcome; the step above is theirs with the charge moved inside the sum.) Charging an
    abstention nothing breaks it: q_abstain (p/q)^a alone exceeds what the answers leave over.
    """
    a = orders
    possible = (log_p > -np.inf)[..., None] & (charge < np.inf)  # 0^a = 0, and an infinite charge pays for everything
    with np.errstate(invalid="ignore"):
        # An outcome that only P has makes its term infinite, whatever finite charge it carries.
        terms = a * log_p[..., None] + (1 - a) * log_q[..., None] - (a - 1) * charge
    result: FloatArray = logsumexp(np.where(possible, terms, -np.inf), axis=1) / (a - 1)
    return result


@dataclass(frozen=True)
class Grid:
    """Tables of one electorate with their neighbours and all their outcomes. ``owner[i]`` is the table of neighbour i."""

    electorate: Electorate
    tables: IntArray
    neighbours: IntArray
    owner: IntArray
    log_p: FloatArray
    log_q: FloatArray


Charge = Callable[[Subject, Grid], FloatArray]
"""float64[table or 1, outcome or 1, order]: what a claim charges."""


def _grid(subject: Subject, electorate: Electorate, tables: IntArray, neighbours_of: Callable[[IntArray], IntArray]) -> Grid:
    lists = [neighbours_of(table) for table in tables]
    owner = np.repeat(np.arange(len(tables)), [len(rows) for rows in lists])
    neighbours = np.concatenate(lists)
    # Many tables share neighbours; each row is asked for once.
    rows, place = np.unique(np.concatenate([tables, neighbours]), axis=0, return_inverse=True)
    log_probs = subject.log_probs(rows)
    if np.isnan(log_probs).any():
        raise Violation("outcome_log_probs returned NaN; use -inf for an outcome that cannot happen.")
    log_probs = log_probs[place.reshape(-1)]
    return Grid(electorate, tables, neighbours, owner, log_probs[: len(tables)], log_probs[len(tables) :])


def _grids(subject: Subject) -> Iterator[Grid]:
    for n_classes in subject.numbers_of_classes:
        tables = battery(subject.n_teachers, n_classes, subject.levels)
        if n_classes <= 3:
            # Few neighbours, so the largest count takes (nearly) every value: nothing that happens at one can hide.
            tables = np.unique(np.concatenate([tables, _rungs(subject.n_teachers, n_classes)]), axis=0)
        yield _grid(subject, Electorate(subject.n_teachers, n_classes), tables, moved_votes)


def _rungs(n_teachers: int, n_classes: int) -> IntArray:
    rungs = ladder(n_teachers, n_classes)
    if n_classes > 2:  # two classes climb from a half
        rungs = rungs[2 * rungs[:, 0] <= n_teachers + 1]
    return rungs[:: -(-len(rungs) // _MOST_RUNGS)]


def _ahead(subject: Subject, grid: Grid) -> FloatArray:
    return subject.aggregator.rdp_ahead(grid.electorate, subject.orders)[None, None, :]


def _bound(subject: Subject, grid: Grid) -> FloatArray:
    labels = outcome_labels(grid.log_p.shape[1], grid.electorate.n_classes)
    return subject.aggregator.rdp_bound(subject.told(labels, grid.electorate), subject.orders)[None, :, :]


def _dependent(subject: Subject, grid: Grid) -> FloatArray:
    n_outcomes = grid.log_p.shape[1]
    labels = np.tile(outcome_labels(n_outcomes, grid.electorate.n_classes), len(grid.tables))
    votes = subject.votes(np.repeat(grid.tables, n_outcomes, axis=0))
    cost = subject.aggregator.rdp(votes, subject.told(labels, grid.electorate), subject.orders)
    return np.reshape(cost, (len(grid.tables), n_outcomes, subject.orders.size))


def _audit(subject: Subject, grids: tuple[Grid, ...], charge: Charge) -> str:
    closest = max(_worst(subject, grid, charge(subject, grid)) for grid in grids)
    pairs = 2 * sum(len(grid.owner) for grid in grids)
    return f"{pairs} divergences, both directions, {subject.orders.size} orders; the largest is {closest:.3g} of its charge"


def _worst(subject: Subject, grid: Grid, charge: FloatArray) -> float:
    """The largest divergence as a share of its charge; a violation where the charge does not pay."""
    orders = subject.orders
    n_pairs, n_outcomes = grid.log_q.shape
    share = 0.0
    for start in range(0, n_pairs, size := max(1, _CHUNK // (n_outcomes * orders.size))):
        some = slice(start, min(start + size, n_pairs))
        owner = grid.owner[some]
        p, q = grid.log_p[owner], grid.log_q[some]
        paid = np.broadcast_to(charge[owner] if len(charge) > 1 else charge, (len(owner), n_outcomes, orders.size))
        most = np.where(np.isfinite(paid), paid, 0.0).max(axis=1)
        for direction, (left, right) in {"D(n || n')": (p, q), "D(n' || n)": (q, p)}.items():
            excess = log_filter(left, right, paid, orders)
            tolerance = ABSOLUTE * orders / (orders - 1) + RELATIVE * most
            divergence = log_filter(left, right, np.zeros((1, 1, 1)), orders)
            if not (excess <= tolerance).all():
                pair, order = np.unravel_index(np.argmax(np.nan_to_num(excess - tolerance, nan=np.inf)), excess.shape)
                charged = np.unique(paid[pair, :, order])
                range_by_outcome = "" if charged.size == 1 else f" to {charged[-1]:.6g}, by outcome"
                raise Violation(
                    f"too small for the counts n = {grid.tables[owner[pair]].tolist()} and their neighbour "
                    f"n' = {grid.neighbours[some][pair].tolist()}: {direction} of order {orders[order]:g} is "
                    f"{divergence[pair, order]:.6g}, the charge {charged[0]:.6g}{range_by_outcome}."
                )
            with np.errstate(invalid="ignore", divide="ignore"):
                # Below the tolerance a ratio would only compare rounding errors.
                share = max(share, float(np.max(np.where(most > 1e-6, divergence / most, 0.0))))
    return share


def _partial(subject: Subject) -> str:
    """One count that changes by one, and one vote that moves, where any number of teachers may have voted."""
    electorate = Electorate(subject.n_teachers, subject.n_classes, participation=1)
    try:
        changed = subject.aggregator.rdp_ahead_one_count(electorate, subject.orders)
    except (PateError, NotImplementedError):
        return "not offered: rdp_ahead_one_count is not there, so partial votes are refused"
    moved = subject.aggregator.rdp_ahead(electorate, subject.orders)
    by_one, by_move = _partial_grids(subject)
    shares = [_worst(subject, by_one, changed[None, None, :]), _worst(subject, by_move, moved[None, None, :])]
    return f"{2 * (len(by_one.owner) + len(by_move.owner))} divergences; the largest is {max(shares):.3g} of its charge"


def _partial_grids(subject: Subject) -> tuple[Grid, Grid]:
    """Where one count changes by one, and where one vote moves."""
    electorate = Electorate(subject.n_teachers, subject.n_classes, participation=1)
    tables = partial_battery(subject.n_teachers, subject.n_classes, subject.levels)
    return (
        _grid(subject, electorate, tables, lambda table: changed_counts(table, subject.n_teachers)),
        _grid(subject, electorate, tables[tables.sum(axis=1) > 0], moved_votes),
    )


def _sum_to_one(grids: tuple[Grid, ...]) -> str:
    for grid in grids:
        total = np.exp(logsumexp(grid.log_p, axis=1))
        wrong = int(np.argmax(np.abs(total - 1)))
        if not abs(total[wrong] - 1) <= SUM_TOLERANCE:
            raise Violation(
                f"the outcomes of {grid.tables[wrong].tolist()} have the total probability {total[wrong]:.8g}. "
                "outcome_log_probs must return logarithms, of every public outcome, abstention included."
            )
    return f"within {SUM_TOLERANCE:g}"


def _frequencies(subject: Subject, false_alarm: float) -> str:
    """Real releases have the probabilities that ``outcome_log_probs`` states: exact binomial tests, Bonferroni-corrected."""
    log_probs = subject.log_probs(subject.tables)
    entropy = -np.sum(np.exp(log_probs) * np.where(log_probs > -np.inf, log_probs, 0.0), axis=1)
    chosen = np.argsort(-entropy)[np.unique(np.linspace(0, len(entropy) - 1, _FREQUENCY_TABLES).astype(int))]
    labels = outcome_labels(log_probs.shape[1], subject.n_classes)
    n_queries = max(1, subject.samples // (4 * subject.n_classes))
    each = false_alarm / (chosen.size * labels.size)
    for row in chosen:
        released = np.concatenate([release.labels for release in subject.releases(subject.tables[row], n_queries)])
        seen = (released[:, None] == labels).sum(axis=0)
        probability = np.minimum(np.exp(log_probs[row]), 1.0)
        # Two-sided, by doubling the smaller tail: conservative at every sample size.
        chance = 2 * np.minimum(binom.cdf(seen, n_queries, probability), binom.sf(seen - 1, n_queries, probability))
        if (chance < each).any() or seen.sum() != n_queries:
            worst = int(np.argmin(chance))
            raise Violation(
                f"the counts {subject.tables[row].tolist()} gave the outcome {labels[worst]} in {seen[worst]} of {n_queries} "
                f"releases, where outcome_log_probs states {probability[worst]:.4g} of them (p = {chance[worst]:.1g}). "
                "The noise that is drawn is not the noise that is accounted for."
            )
    return f"{chosen.size} tables, {n_queries} releases each, false-alarm rate {false_alarm:.1g}"
