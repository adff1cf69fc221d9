"""Where the noise comes from: the ``noise`` argument, anew for every release and every query, and nowhere else."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterator

import numpy as np
from scipy.stats import fisher_exact

from pate.aggregators import Aggregator
from pate.arrays import IntArray
from pate.noise import OSNoise, SimulatedNoise
from pate.release import ABSTAIN, Release
from pate.testing.report import NamedCheck, Violation
from pate.testing.subject import Subject

_SCOUTING_RELEASES = 4
_SCOUTING_REPEATS = 32
_LEAST_VARIETY = 0.02
_BATCH = 2048
_PAIRS = 400


def noise_checks(subject: Subject, false_alarm: float) -> Iterator[NamedCheck]:
    """The checks of this module; together they fail a right aggregator with at most this probability."""
    yield "noise: outcomes vary", lambda: _vary(subject)
    yield "noise: seeded replay", lambda: _replay(subject)
    yield "noise: fresh every release", lambda: _fresh_release(subject, false_alarm / 2)
    yield "noise: fresh every query", lambda: _fresh_query(subject, false_alarm / 2)


def varied_tables(subject: Subject) -> list[IntArray]:
    """The table of the battery whose outcome varies most, and the one where abstention does, if there is one.

    Looks at several releases, since an aggregator that wrongly shares its noise within a batch varies only between them.
    """
    rows = np.tile(subject.tables, (_SCOUTING_REPEATS, 1))
    labels = np.concatenate([subject.release(rows).labels.reshape(_SCOUTING_REPEATS, -1) for _ in range(_SCOUTING_RELEASES)])
    others = np.array([1 - np.bincount(column - ABSTAIN).max() / column.size for column in labels.T])
    abstained = (labels == ABSTAIN).mean(axis=0)
    varieties = (others, np.minimum(abstained, 1 - abstained))
    places = [int(np.argmax(variety)) for variety in varieties if variety.max() >= _LEAST_VARIETY]
    if not places:
        raise Violation(
            f"each of {len(subject.tables)} tables, ties among them, gives one and the same outcome every time: either there "
            "is no noise, or the mechanism never answers. Check the parameters against n_teachers."
        )
    return [subject.tables[place] for place in dict.fromkeys(places)]


def _vary(subject: Subject) -> str:
    return f"most on the counts {varied_tables(subject)[0].tolist()}"


def _replay(subject: Subject) -> str:
    """The same seed, the same release; another seed, another one. Else there is a source of noise beside the argument.

    False alarm: two releases of 2048 queries agree by chance with probability below 0.98**2048 = 1e-17.
    """
    for table in varied_tables(subject):
        batch = np.tile(table, (_BATCH, 1))
        first, again, other = (subject.release(batch, SimulatedNoise(seed)) for seed in (1, 1, 2))
        if not _equal(first, again):
            raise Violation("one SimulatedNoise seed gives two releases: some randomness is not from the noise argument.")
        if _equal(first, other):
            raise Violation("two SimulatedNoise seeds give the same release on a near tie: the noise argument is not used.")
    return "one seed, one release"


def _fresh_release(subject: Subject, false_alarm: float) -> str:
    """Releases under the operating system's noise are independent, and so are those of two fresh copies.

    Two releases of the same 2048 queries: given how often each gave an outcome, the number of queries on which both gave it
    is hypergeometric if they are independent (Fisher's exact test). A generator with a seed of its own, even one that
    draws only a part of the noise, makes them agree too often.
    """
    twins = (_fresh_copy(subject.aggregator), _fresh_copy(subject.aggregator))
    pairs = {"one aggregator": (subject.aggregator, subject.aggregator), "two fresh copies": twins}
    tables = varied_tables(subject)
    for table in tables:
        votes = subject.votes(np.tile(table, (_BATCH, 1)))
        for who, pair in pairs.items():
            one, two = (each.release(votes, OSNoise()).labels for each in pair)
            chance = _independence(one, two)
            if chance < false_alarm / (len(pairs) * len(tables)):
                raise Violation(
                    f"two releases by {who} under OSNoise are not independent: they agree on {np.mean(one == two):.0%} of "
                    f"{_BATCH} near ties (p = {chance:.1g}). All noise must come from the noise argument, anew each time."
                )
    return f"independent over {_BATCH} near ties, false-alarm rate {false_alarm:.1g}"


def _fresh_query(subject: Subject, false_alarm: float) -> str:
    """Two equal queries of one batch have noise of their own: Fisher's exact test over many batches of two."""
    tables = varied_tables(subject)
    for table in tables:
        batch = np.tile(table, (2, 1))
        one, two = np.array([subject.release(batch).labels for _ in range(_PAIRS)]).T
        chance = _independence(one, two)
        if chance < false_alarm / len(tables):
            raise Violation(
                f"two equal queries of a batch agree in {np.mean(one == two):.0%} of {_PAIRS} releases (p = {chance:.1g}): "
                "they share noise. Draw noise of the shape of votes.counts, not of one row."
            )
    return f"independent over {_PAIRS} batches of two, false-alarm rate {false_alarm:.1g}"


def _independence(one: IntArray, two: IntArray) -> float:
    """The p-value that two arrays of labels, paired by query, are independent: the smallest over outcomes, corrected."""
    outcomes = np.union1d(one, two)
    chances = []
    for outcome in outcomes:
        mine, its = one == outcome, two == outcome
        both, only_mine, only_its = int((mine & its).sum()), int((mine & ~its).sum()), int((~mine & its).sum())
        neither = one.size - both - only_mine - only_its
        chances.append(float(fisher_exact(np.array([[both, only_mine], [only_its, neither]])).pvalue))
    return min(1.0, min(chances) * outcomes.size)


def _fresh_copy(aggregator: Aggregator) -> Aggregator:
    try:
        twin: Aggregator = pickle.loads(pickle.dumps(aggregator))
    except Exception:  # the contract check reports it; the noise is checked all the same
        return copy.deepcopy(aggregator)
    return twin


def _equal(one: Release, two: Release) -> bool:
    if not np.array_equal(one.labels, two.labels):
        return False
    if one.histogram is None or two.histogram is None:
        return one.histogram is two.histogram
    return np.array_equal(one.histogram, two.histogram)
