"""The contract of every aggregator: what a release looks like, and what it must leave alone."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from pate.aggregators import Aggregator, curve_ahead, curve_bound, curve_dependent
from pate.arrays import FloatArray, IntArray
from pate.noise import Noise, OSNoise, SimulatedNoise
from pate.release import ABSTAIN, Release
from pate.testing.claims import ABSOLUTE, RELATIVE
from pate.testing.report import NamedCheck, Violation
from pate.testing.subject import Subject

LOG_PROB_TOLERANCE = 1e-7
"""Two ways to the same log-probability may differ by this much: far above rounding, far below any mistake."""


def contract_checks(subject: Subject, *, exact: bool) -> Iterator[NamedCheck]:
    """The checks of this module. exact: the aggregator has ``outcome_log_probs``."""
    yield "contract: release", lambda: _release(subject)
    yield "contract: empty batch", lambda: _empty(subject)
    yield "contract: mechanism", lambda: _mechanism(subject)
    yield "contract: votes untouched", lambda: _untouched(subject)
    yield "contract: repr", lambda: _repr(subject)
    yield "contract: copies", lambda: _copies(subject)
    yield "contract: relabelling", lambda: _relabelling(subject, exact=exact)
    if exact:
        yield "contract: outcomes", lambda: _outcomes(subject)


def _release(subject: Subject) -> str:
    """Labels, length, electorate and mode, in both modes, for one query and for many."""
    sources: tuple[Noise, ...] = (SimulatedNoise(1), OSNoise())
    for noise in sources:
        for tables in (subject.tables[:1], subject.tables):
            release = subject.release(tables, noise)
            if not isinstance(release, Release):
                raise Violation(f"release must return a pate.release.Release, got {type(release).__name__}.")
            if len(release) != len(tables):
                raise Violation(f"release must label every query: got {len(release)} labels for {len(tables)} queries.")
            _check_labels(release, subject)
            if release.electorate != subject.electorate:
                raise Violation(f"Release.electorate must be the votes', {subject.electorate}, got {release.electorate}.")
            if release.mode != noise.mode:
                raise Violation(f"Release.mode must be that of the noise, {noise.mode!r}, got {release.mode!r}.")
    return f"1 and {len(subject.tables)} queries, both modes"


def _check_labels(release: Release, subject: Subject) -> None:
    labels = release.labels
    if labels.dtype != np.int64 or labels.min() < ABSTAIN or labels.max() >= subject.n_classes:
        found = f"{labels.dtype} from {labels.min()} to {labels.max()}"
        raise Violation(f"Release.labels must be int64, each a class or ABSTAIN, got {found}.")
    # The public facts of all queries here are the same, so what follows from them is, too.
    if release.reinforced is not None and np.unique(release.reinforced[~release.answered]).size > 1:
        raise Violation(
            "Release.reinforced must follow from the labels and public facts alone, but of queries that were not answered it "
            "names different classes: it looks at the votes."
        )


def _empty(subject: Subject) -> str:
    votes = subject.votes(np.zeros((0, subject.n_classes), dtype=np.int64))
    release = subject.aggregator.release(votes, subject.noise())
    if len(release) != 0:
        raise Violation(f"no queries must give no labels, got {len(release)}.")
    for curve in (
        curve_ahead(subject.aggregator, subject.electorate, 0, subject.orders),
        curve_bound(subject.aggregator, release, subject.orders),
        curve_dependent(subject.aggregator, votes, release, subject.orders),
    ):
        if curve.values.any():
            raise Violation(f"no queries must cost nothing, got {curve.values.max():.4g}.")
    return "no labels, no cost"


def _mechanism(subject: Subject) -> str:
    """Public facts, so the same whatever the votes."""
    first, last = (dict(subject.release(rows).mechanism) for rows in (subject.tables[:1], subject.tables[-1:]))
    if first != last:
        raise Violation(f"Release.mechanism is public and must not depend on the votes, got {first} and {last}.")
    if first.get("aggregator") != subject.aggregator.name:
        raise Violation(
            f"Release.mechanism must name the aggregator, 'aggregator': {subject.aggregator.name!r}, got {first}; "
            "pass self.mechanism to Release."
        )
    try:
        written = json.dumps(first, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise Violation(f"Release.mechanism must be JSON, since ledgers and reports store it: {error}.") from error
    return written


def _untouched(subject: Subject) -> str:
    votes = subject.votes(subject.tables)
    before = votes.counts.copy()
    release = subject.aggregator.release(votes, subject.noise())
    subject.aggregator.rdp(votes, release, subject.orders)
    if not np.array_equal(votes.counts, before) or votes.counts.flags.writeable:
        raise Violation("release and rdp must leave the votes as they were; work on a copy of votes.counts.")
    return "release and rdp leave the counts alone"


def _repr(subject: Subject) -> str:
    before = repr(subject.aggregator)
    subject.release(subject.tables)
    if repr(subject.aggregator) != before:
        raise Violation(f"repr must show the parameters, never what was voted: it was {before} and is {subject.aggregator!r}.")
    return before


def _copies(subject: Subject) -> str:
    def by_pickle(original: Aggregator) -> Aggregator:
        twin: Aggregator = pickle.loads(pickle.dumps(original))
        return twin

    votes = subject.votes(subject.tables)
    release = subject.release(subject.tables)
    ways: dict[str, Callable[[Aggregator], Aggregator]] = {"pickle": by_pickle, "copy.deepcopy": copy.deepcopy}
    for way, duplicate in ways.items():
        twin = duplicate(subject.aggregator)
        if twin.mechanism != subject.aggregator.mechanism:
            raise Violation(f"a copy made by {way} must have the same mechanism, got {twin.mechanism}.")
        costs = [
            np.vstack(
                [
                    each.rdp_ahead(subject.electorate, subject.orders),
                    each.rdp_bound(release, subject.orders),
                    each.rdp(votes, release, subject.orders),
                ]
            )
            for each in (subject.aggregator, twin)
        ]
        if not np.array_equal(costs[0], costs[1]):
            raise Violation(f"a copy made by {way} must state the same costs; it states others.")
    return "pickle and deepcopy state the same costs"


def _relabelling(subject: Subject, *, exact: bool) -> str:
    """Renaming the classes renames the outcomes and costs the same."""
    aggregator, tables = subject.aggregator, subject.tables
    release = subject.release(tables)
    before = aggregator.rdp(subject.votes(tables), release, subject.orders)
    for order in (np.arange(subject.n_classes)[::-1], np.random.default_rng(0).permutation(subject.n_classes)):
        renamed = np.ascontiguousarray(tables[:, order])
        labels = np.where(release.answered, np.argsort(order)[release.labels], ABSTAIN)
        histogram = None if release.histogram is None else release.histogram[:, order]
        twin = Release(labels, release.electorate, release.mechanism, release.mode, histogram)
        other = aggregator.relabelled(order)
        mine, its = (each.rdp_bound(told, subject.orders) for each, told in ((aggregator, release), (other, twin)))
        _same(mine, its, "rdp_bound", tables, order)
        _same(before, other.rdp(subject.votes(renamed), twin, subject.orders), "rdp", tables, order)
        if exact:
            mine, its = subject.log_probs(tables), replace(subject, aggregator=other).log_probs(renamed)
            columns = np.concatenate([order, np.arange(subject.n_classes, mine.shape[1])])
            _same(mine[:, columns], its, "outcome_log_probs", tables, order, relative=0.0, absolute=LOG_PROB_TOLERANCE)
    return f"{'costs and probabilities' if exact else 'costs'} do not depend on the names of the classes"


def _same(
    mine: FloatArray,
    its: FloatArray,
    what: str,
    tables: IntArray,
    order: IntArray,
    relative: float = RELATIVE,
    absolute: float = ABSOLUTE,
) -> None:
    close = np.isclose(mine, its, rtol=relative, atol=absolute).all(axis=1)
    if not close.all():
        row = int(np.flatnonzero(~close)[0])
        raise Violation(f"{what} of {tables[row].tolist()} changes when the classes are put in the order {order.tolist()}.")


def _outcomes(subject: Subject) -> str:
    """The outcomes are all that is published, and a batch of them is its queries one by one."""
    log_probs = subject.log_probs(subject.tables)
    release = subject.release(np.tile(subject.tables, (32, 1)))
    if release.histogram is not None:
        raise Violation("outcome_log_probs describes labels, but a histogram is published too, which costs more. Return None.")
    if log_probs.shape[1] == subject.n_classes and not release.answered.all():
        raise Violation(f"the release abstains, but outcome_log_probs has {subject.n_classes} outcomes; append abstention.")
    for row in range(0, len(subject.tables), 7):
        single = subject.log_probs(subject.tables[row : row + 1])
        if not np.allclose(single, log_probs[row], rtol=0.0, atol=LOG_PROB_TOLERANCE):
            raise Violation(f"outcome_log_probs of {subject.tables[row].tolist()} is not the same alone and in a batch.")
    # Only the shape matters here: an empty batch must not break the accountant.
    subject.log_probs(subject.tables[:0])
    return f"{log_probs.shape[1]} outcomes, the labels and nothing else"
