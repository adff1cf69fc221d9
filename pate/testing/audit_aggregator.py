"""Lower bounds on what an aggregator costs: exact where outcome probabilities are stated, and from real releases always."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from pate.aggregators import Aggregator, curve_ahead, curve_dependent
from pate.arrays import FloatArray, IntArray
from pate.errors import ParameterError
from pate.privacy.curve import DEFAULT_ORDERS, check_delta
from pate.privacy.outcomes import renyi_divergence
from pate.progress import Show, tracked
from pate.release import ABSTAIN, Release
from pate.testing.audit import DEFAULT_CONFIDENCE, LEAST_RUNS, Claim, View, best_epsilon, bound_of_outcomes, fresh_noise
from pate.testing.audit_report import AuditReport, LowerBound
from pate.testing.bounds import check_confidence
from pate.testing.composed import Atoms, Likelihood, epsilon_of_logs
from pate.testing.empirical import scouted_pairs
from pate.testing.randomness import noise_checks
from pate.testing.report import run_checks
from pate.testing.subject import Subject
from pate.testing.tables import moved_votes
from pate.validation import whole
from pate.votes import Votes

DEFAULT_QUERIES = 400
_TRIED = 6
_LOW_ORDER = np.array([1.5])
_RARE = 100  # what comes less often in all queries together is not seen in so few runs
_NOISE_FALSE_ALARM = 1e-8
_COUNTS, _FEW_RUNS, _MOST_RUNS = 8_000_000, 200, 4_000
_TOLERANCE = 1e-6
_PAIRED = 4096


@dataclass(frozen=True)
class Neighbours:
    """Vote tables of two neighbouring data sets, int64[query, class]."""

    one: IntArray
    two: IntArray
    told: str

    @property
    def alike(self) -> bool:
        """Whether every query has the same votes."""
        return bool((self.one == self.one[0]).all() and (self.two == self.two[0]).all())


@dataclass(frozen=True)
class _Outcome:
    """told: what is published. score: its log-likelihood ratio under the stated noise, where that is known."""

    told: tuple[float, ...]
    score: float | None


def audit_aggregator(
    aggregator: Aggregator,
    *,
    delta: float = 1e-5,
    queries: int = DEFAULT_QUERIES,
    votes: Votes | None = None,
    n_teachers: int = 250,
    n_classes: int = 10,
    runs: int | None = None,
    confidence: float = DEFAULT_CONFIDENCE,
    seed: int | None = None,
    show: Show = "none",
) -> AuditReport:
    """Lower bounds on epsilon beside the claim, for ``queries`` queries whose votes differ by one teacher on each.

    votes: of a run; then these are audited with the worst neighbour of each, and the data-dependent claim is, too. Without
    them the neighbouring tables on which the aggregator loses most are searched: ties, steps at thresholds, leads of all sizes.
    n_teachers, n_classes: of whom it is asked where no votes are given.
    runs: releases drawn in each of the two worlds. confidence: that of all sampled lines together. seed: None draws release
    noise; a number makes the audit repeatable.

    >>> from pate.aggregators import GNMax
    >>> report = audit_aggregator(GNMax(sigma=20), queries=50, n_teachers=50, n_classes=3, runs=200, seed=1)
    >>> exact = report.lower_bounds[0]
    >>> report.passed, exact.method, exact.lower < exact.claim < 1.2 * exact.lower
    (True, 'exact', True)
    """
    check_delta(delta), check_confidence(confidence)
    if votes is not None and votes.participation is not None:
        raise ParameterError(
            "An audit of votes needs every teacher's vote on every query; these are partial. Audit the aggregator without "
            "--votes, and the whole run with `pate audit run`."
        )
    if votes is not None:
        queries, n_teachers, n_classes = len(votes), votes.n_teachers, votes.n_classes
    whole(queries, "queries", 1)
    if runs is not None:
        whole(runs, "runs", LEAST_RUNS)
    subject = Subject(aggregator, n_teachers, n_classes, _COUNTS, _NOISE_FALSE_ALARM, seed)
    aggregator.check_ready(subject.electorate, queries)
    ahead = curve_ahead(aggregator, subject.electorate, queries)
    independent = Claim.of(ahead, delta)
    bounds: list[LowerBound] = []
    if _states_outcomes(subject):
        pairs, exact = _exact(subject, independent, best_epsilon(ahead, delta).order, queries, votes)
        bounds += exact
    else:
        pairs = _pairs_by_scouting(subject, queries, votes)
    drawn = default_runs(queries, n_classes) if runs is None else runs
    # Where no probabilities are stated, several pairs share the work.
    drawn = max(LEAST_RUNS, drawn // len(pairs)) if len(pairs) > 1 else drawn
    each = 1 - (1 - confidence) / len(pairs)
    with tracked("releases", 2 * drawn * len(pairs), show=show) as progress:
        for pair in pairs:
            outcomes = _released(subject, pair, drawn, progress.advance)
            bounds.append(
                bound_of_outcomes(
                    *outcomes,
                    independent,
                    confidence=each,
                    views=_views(outcomes[0][0]),
                    name=f"{queries} queries, released",
                    canary=pair.told,
                )
            )
    if votes is not None:
        bounds = [replace(each, private=True) for each in bounds]
    # Where queries of a batch depend on each other, equal ones are not alike, and the checks compare them.
    rules = run_checks(noise_checks(subject, _NOISE_FALSE_ALARM)) if aggregator.adds_up else ()
    return AuditReport(repr(aggregator), tuple(bounds), rules)


def _exact(
    subject: Subject, claim: Claim, best_order: float, queries: int, votes: Votes | None
) -> tuple[list[Neighbours], list[LowerBound]]:
    order = np.array([best_order])
    if votes is None:
        lower, worst, pair = _worst_tables(subject, order, queries, claim.delta)
        return [pair], [exact_bound(f"{queries} queries, worst tables", lower, claim, worst.told)]
    pair, lower = _worst_of_each(subject, order, votes, claim.delta)
    lines = [exact_bound(f"{queries} queries, these votes", lower, claim, pair.told)]
    if subject.aggregator.exact_rdp(votes.counts[:1], DEFAULT_ORDERS) is not None:  # else the charge depends on the outcome
        told = Release(np.zeros(queries, dtype=np.int64), votes.electorate, subject.aggregator.mechanism)
        dependent = Claim.of(curve_dependent(subject.aggregator, votes, told), claim.delta)
        lines.append(exact_bound(f"{queries} queries, these votes, data-dependent claim", lower, dependent, pair.told))
    return [pair], lines


def _states_outcomes(subject: Subject) -> bool:
    """Whether probabilities are stated, and queries are answered one by one."""
    return subject.aggregator.adds_up and subject.aggregator.outcome_log_probs(subject.tables[:1]) is not None


def default_runs(queries: int, n_classes: int) -> int:
    """Releases in each world that take some seconds to draw."""
    return int(np.clip(_COUNTS // (queries * n_classes), _FEW_RUNS, _MOST_RUNS))


def exact_bound(name: str, lower: float, claim: Claim, canary: str) -> LowerBound:
    """A line of a report for a lower bound that no chance is in."""
    share = lower / claim.epsilon if claim.epsilon > 0 else (float("inf") if lower > 0 else 0.0)
    refuted = lower > claim.epsilon * (1 + _TOLERANCE) + 1e-9
    proof = f"at delta {claim.delta:.3g} epsilon is at least {lower:.4g}, claimed {claim.epsilon:.4g}" if refuted else ""
    return LowerBound(
        name,
        "exact",
        lower,
        claim.epsilon,
        claim.delta,
        refuted,
        share,
        proof,
        "the best set of outcomes of all queries",
        canary,
    )


def _worst_tables(subject: Subject, order: FloatArray, queries: int, delta: float) -> tuple[float, Neighbours, Neighbours]:
    """What asking ``queries`` times about one table of the battery costs at least; of which neighbours; those to release."""
    owners = [moved_votes(table) for table in subject.tables]
    tables = np.repeat(subject.tables, [len(rows) for rows in owners], axis=0)
    log_p, log_q = _paired_logs(subject, tables, neighbours := np.concatenate(owners))
    # Both directions of every pair.
    ones, twos = np.concatenate([tables, neighbours]), np.concatenate([neighbours, tables])
    log_p, log_q = np.concatenate([log_p, log_q]), np.concatenate([log_q, log_p])

    def pair(row: int) -> Neighbours:
        told = f"the votes {ones[row].tolist()} become {twos[row].tolist()} on every query"
        return Neighbours(np.tile(ones[row], (queries, 1)), np.tile(twos[row], (queries, 1)), told)

    ranked = np.argsort(-_loss(log_p, log_q, order, delta / queries), kind="stable")[:_TRIED]
    lowers = [(Atoms.of(log_p[row], log_q[row]) ** queries).epsilon(delta) for row in ranked]
    best = int(np.argmax(lowers))
    # What thousands of releases can show are likely outcomes, which low orders weigh, and not rare ones.
    seen = int(np.argmax(_loss(log_p, log_q, _LOW_ORDER, 1 / (_RARE * queries))))
    return lowers[best], pair(int(ranked[best])), pair(seen)


def _worst_of_each(subject: Subject, order: FloatArray, votes: Votes, delta: float) -> tuple[Neighbours, float]:
    """For each query the neighbour that loses most. One teacher may move its vote on each, from any class to any other."""
    rows, place = np.unique(votes.counts, axis=0, return_inverse=True)
    place = place.reshape(-1)
    chosen: tuple[list[IntArray], list[IntArray]] = ([], [])
    logs: tuple[list[FloatArray], list[FloatArray]] = ([], [])
    for row in rows:
        neighbours = moved_votes(row)
        log_p, log_q = _paired_logs(subject, np.repeat(row[None, :], len(neighbours), axis=0), neighbours)
        for direction, (p, q) in enumerate(((log_p, log_q), (log_q, log_p))):
            worst = int(np.argmax(_loss(p, q, order, delta / len(votes))))
            chosen[direction].append(neighbours[worst])
            logs[direction].append(np.array([p[worst], q[worst]]))
    lowers = []
    for each in logs:
        one_world, other = np.array(each)[place].transpose(1, 0, 2)
        lowers.append(epsilon_of_logs(one_world, other, delta))
    best = int(np.argmax(lowers))
    other_votes = np.array(chosen[best])[place]
    one, two = (other_votes, votes.counts) if best else (votes.counts, other_votes)
    return Neighbours(one, two, "one teacher changes its vote on every query, each time where it tells most"), lowers[best]


def _pairs_by_scouting(subject: Subject, queries: int, votes: Votes | None) -> list[Neighbours]:
    if votes is not None:
        two = votes.counts.copy()
        rows = np.arange(len(two))
        first, second = np.argsort(-two, axis=1, kind="stable")[:, :2].T
        two[rows, first] -= 1
        two[rows, second] += 1
        return [Neighbours(votes.counts, two, "one teacher moves its vote from the leader to the second, on every query")]
    # Without stated probabilities nobody knows the worst tables: those between which releases differ most.
    found = []
    for pair in scouted_pairs(subject):
        one, two = (np.pad(table, (0, subject.n_classes - table.size)) for table in (pair.one, pair.two))
        told = f"the votes {one.tolist()} become {two.tolist()} on every query"
        found.append(Neighbours(np.tile(one, (queries, 1)), np.tile(two, (queries, 1)), told))
    return list({each.told: each for each in found}.values())


def _released(
    subject: Subject, pair: Neighbours, runs: int, advance: Callable[[int], None]
) -> tuple[list[_Outcome], list[_Outcome]]:
    """The outcomes of both worlds, a release of all queries for each run: with their likelihood where that is stated."""
    direction = (pair.two - pair.one).astype(np.float64)
    tables = [Votes(table, subject.n_teachers) for table in (pair.one, pair.two)]
    likelihood = Likelihood.of(*_paired_logs(subject, pair.one, pair.two)) if _states_outcomes(subject) else None
    sources = fresh_noise(subject.seed)
    worlds: tuple[list[_Outcome], list[_Outcome]] = ([], [])
    for _ in range(runs):
        for world, votes in zip(worlds, tables, strict=True):
            release = subject.aggregator.release(votes, next(sources))
            score = None if likelihood is None else likelihood(release.labels)
            world.append(_Outcome(_told(release, pair.alike, direction), score))
            advance(1)
    return worlds


def _told(release: Release, alike: bool, direction: FloatArray) -> tuple[float, ...]:
    """All that is published, as numbers; of queries that are all alike, how often each label came."""
    n_labels = release.electorate.n_classes + 1
    labels = np.bincount(release.labels - ABSTAIN, minlength=n_labels) if alike else release.labels
    if release.histogram is None:
        return tuple(labels.tolist())
    return (*labels.tolist(), float((release.histogram * direction).sum()))


def _views(outcome: _Outcome) -> dict[str, View]:
    found: dict[str, View] = {"the outcome": lambda each: each.told}
    if outcome.score is not None:
        found["the outcome, as votes and noise would have it"] = lambda each: each.score
    return found


def _loss(log_p: FloatArray, log_q: FloatArray, order: FloatArray, share: float) -> FloatArray:
    """float64[pair]: by how much to prefer a pair. Outcomes too rare to matter beside a share of delta do not count."""
    found: FloatArray = renyi_divergence(np.where(np.exp(log_p) < share / 10, -np.inf, log_p), log_q, order)[:, 0]
    return found


def _paired_logs(subject: Subject, ones: IntArray, twos: IntArray) -> tuple[FloatArray, FloatArray]:
    """float64[pair, outcome], twice; tables that come more than once are asked for once."""
    rows, place = np.unique(np.concatenate([ones, twos]), axis=0, return_inverse=True)
    parts = [subject.log_probs(rows[start : start + _PAIRED]) for start in range(0, len(rows), _PAIRED)]
    logs = np.concatenate(parts)[place.reshape(-1)]
    return logs[: len(ones)], logs[len(ones) :]
