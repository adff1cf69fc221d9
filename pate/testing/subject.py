"""The aggregator under test, and what every check needs to question it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import count

import numpy as np

from pate.aggregators import Aggregator
from pate.arrays import FloatArray, IntArray
from pate.noise import Noise, OSNoise, SimulatedNoise
from pate.privacy.curve import DEFAULT_ORDERS
from pate.release import ABSTAIN, Electorate, Release
from pate.testing.report import Violation
from pate.testing.tables import battery
from pate.votes import Votes

AUDIT_ORDERS: FloatArray = DEFAULT_ORDERS[np.unique(np.linspace(0, DEFAULT_ORDERS.size - 1, 24).astype(int))]
"""float64[order]: 24 of the default orders, both ends included."""

_MOST_LEVELS = 6
_MOST_COUNTS_AT_ONCE = 1 << 20


@dataclass(frozen=True)
class Subject:
    """An aggregator and the electorate, effort and false-alarm rate it is tested with.

    samples: noisy counts drawn for each table of an audit. false_alarm: the chance that a right aggregator fails a
    statistical check, all of them together. seed: None draws real release noise; a number makes the run repeatable.
    """

    aggregator: Aggregator
    n_teachers: int
    n_classes: int
    samples: int
    false_alarm: float
    seed: int | None = None
    orders: FloatArray = field(default_factory=lambda: AUDIT_ORDERS)
    _seeds: Iterator[int] = field(default_factory=count, repr=False)

    def with_samples(self, samples: int) -> Subject:
        """The same subject, audited with another effort; its noise goes on where it was."""
        return replace(self, samples=samples)

    def noise(self) -> Noise:
        """A noise source that no other check has used."""
        if self.seed is None:
            return OSNoise()
        return SimulatedNoise(np.random.SeedSequence([self.seed, next(self._seeds)]).generate_state(1, np.uint64)[0].item())

    @property
    def electorate(self) -> Electorate:
        return Electorate(self.n_teachers, self.n_classes)

    @property
    def numbers_of_classes(self) -> list[int]:
        """What the exact audit tries: few classes, where little can hide, and the full number; or the one that is taken."""
        if self.aggregator.n_classes is not None:
            return [self.n_classes]
        return sorted({2, min(3, self.n_classes), self.n_classes})

    @cached_property
    def levels(self) -> list[int]:
        """Every parameter that could be a count of votes, or a share of the teachers: a threshold may sit there."""
        numbers = [value for value in _numbers(self.aggregator) if value > 0]
        votes = [value * self.n_teachers if value < 1 else value for value in numbers]
        return sorted({math.floor(value) for value in votes if 1 <= value <= self.n_teachers})[:_MOST_LEVELS]

    @cached_property
    def tables(self) -> IntArray:
        """int64[table, class]: the battery at the full number of classes."""
        return battery(self.n_teachers, self.n_classes, self.levels)

    def votes(self, tables: IntArray) -> Votes:
        return Votes(tables, self.n_teachers)

    def release(self, tables: IntArray, noise: Noise | None = None) -> Release:
        return self.aggregator.release(self.votes(tables), self.noise() if noise is None else noise)

    def releases(self, table: IntArray, n_queries: int, *, partial: bool = False) -> Iterator[Release]:
        """The same query asked ``n_queries`` times, in batches that fit in memory."""
        most = max(1, _MOST_COUNTS_AT_ONCE // table.size)
        for start in range(0, n_queries, most):
            rows = np.tile(table, (min(most, n_queries - start), 1))
            # With partial votes the batch is one vote a query for everybody, so participation is its length.
            votes = Votes(rows, self.n_teachers, len(rows) if partial else None)
            yield self.aggregator.release(votes, self.noise())

    def log_probs(self, tables: IntArray) -> FloatArray:
        """float64[table, outcome], its shape checked; a violation where the aggregator returns something else."""
        result = self.aggregator.outcome_log_probs(tables)
        n_rows, n_classes = tables.shape
        if result is None:
            raise Violation(f"outcome_log_probs returned None for {n_rows} queries of {n_classes} classes, but not for others.")
        array = np.asarray(result, dtype=np.float64)
        if array.ndim != 2 or array.shape[0] != n_rows or array.shape[1] not in (n_classes, n_classes + 1):
            raise Violation(
                f"outcome_log_probs must have the shape [query, outcome] = [{n_rows}, {n_classes} or {n_classes + 1}], "
                f"the classes and then abstention; got {array.shape}."
            )
        return array

    def told(self, labels: IntArray, electorate: Electorate, histogram: FloatArray | None = None) -> Release:
        """A release with these labels, as if the aggregator had made it."""
        return Release(labels, electorate, self.aggregator.mechanism, "simulation", histogram)


def outcome_labels(n_outcomes: int, n_classes: int) -> IntArray:
    """int64[outcome]: the label of every column of ``outcome_log_probs``."""
    labels = np.arange(n_outcomes, dtype=np.int64)
    labels[n_classes:] = ABSTAIN
    return labels


def one_query(release: Release, query: int) -> Release:
    """The release of a single query of a batch."""
    row = slice(query, query + 1)
    histogram = None if release.histogram is None else release.histogram[row]
    return Release(release.labels[row], release.electorate, release.mechanism, release.mode, histogram)


def _numbers(aggregator: Aggregator) -> Iterator[float]:
    for value in aggregator.parameters.values():
        if isinstance(value, Aggregator):
            yield from _numbers(value)
        elif isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
            yield float(value)
