"""The exact epsilon of stated outcome probabilities, from below, over many queries.

A pair of worlds is a list of atoms (p, q), one for each outcome. Queries compose by products of atoms; to keep lists short,
atoms of nearly one likelihood ratio are merged into one. A merged outcome is one that the observer no longer tells from others:
by the data-processing inequality the hockey-stick divergence can only fall (Dwork and Roth 2014, Proposition 2.1), so
what is computed is a lower bound, whatever the bins.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from pate.arrays import FloatArray, IntArray
from pate.errors import ParameterError
from pate.release import ABSTAIN

_BINS = 1024
_ERROR = 1e-9
"""Stated log-probabilities may be off by 1e-12 a query; so much, relative, is allowed for in all."""
_TINY = 1e-300
_CERTAIN = 50.0  # a log-likelihood ratio beyond which nothing is left to learn


@dataclass(frozen=True)
class Atoms:
    """float64[atom]: probabilities in one world and in the other; ``only_one``: mass that the other world does not have."""

    p: FloatArray
    q: FloatArray
    only_one: float = 0.0

    @classmethod
    def of(cls, log_p: FloatArray, log_q: FloatArray) -> Atoms:
        """From the log-probabilities of all outcomes of one query, float64[outcome]."""
        p, q = np.exp(log_p), np.exp(log_q)
        shared = (p > 0) & (log_q > -np.inf)
        # What the first world never shows tells nothing of it.
        return cls(p[shared], np.maximum(q[shared], _TINY), float(p[(p > 0) & (log_q == -np.inf)].sum()))

    def __mul__(self, other: Atoms) -> Atoms:
        """Both queries, answered independently."""
        certain = 1 - (1 - self.only_one) * (1 - other.only_one)
        p, q = np.multiply.outer(self.p, other.p).reshape(-1), np.multiply.outer(self.q, other.q).reshape(-1)
        # A product too small for a float is taken for larger, which makes the loss smaller: the safe side.
        return Atoms(p, np.maximum(q, _TINY), certain).merged()

    def __pow__(self, times: int) -> Atoms:
        if times < 1:
            raise ParameterError(f"A query is asked at least once, got {times}.")
        if times == 1:
            return self
        half = self ** (times // 2)
        return half * half * self if times % 2 else half * half

    def merged(self) -> Atoms:
        """At most 1,024 atoms."""
        if self.p.size <= _BINS:
            return self
        with np.errstate(divide="ignore"):
            loss = np.log(self.p) - np.log(self.q)
        # The grid lies where the mass is; what is farther out goes into the outermost bins.
        heavy = loss[self.p > 1e-12 * self.p.max()]
        low, high = float(heavy.min()), float(heavy.max())
        scaled = (np.clip(loss, low, high) - low) * (_BINS / max(high - low, _TINY))
        place = np.minimum(scaled.astype(np.int64), _BINS - 1)
        p, q = (np.bincount(place, weights=mass, minlength=_BINS).astype(np.float64) for mass in (self.p, self.q))
        return Atoms(p[p > 0], np.maximum(q[p > 0], _TINY), self.only_one)

    def delta(self, epsilon: float) -> float:
        """A lower bound on the least delta of (epsilon, delta), in the direction from the first world to the other."""
        found = self.only_one + float(np.maximum(self.p - np.exp(epsilon) * self.q, 0.0).sum())
        return found * (1 - _ERROR) - 1e-13

    def epsilon(self, delta: float) -> float:
        """A lower bound on the least epsilon at ``delta``; infinite where none will do.

        >>> one = Atoms.of(np.log([0.75, 0.25]), np.log([0.25, 0.75]))
        >>> round(one.epsilon(0.0), 6), round((one**3).epsilon(0.0), 6)
        (1.098612, 3.295837)
        """
        if self.delta(0.0) <= delta:
            return 0.0
        low, high = 0.0, 1.0
        while self.delta(high) > delta:
            low, high = high, 2 * high
            if high > 1e3:
                return float("inf")
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if self.delta(middle) > delta else (low, middle)
        return low


def all_of(queries: Iterable[Atoms]) -> Atoms:
    """All queries together, in order."""
    total: Atoms | None = None
    for each in queries:
        total = each if total is None else total * each
    if total is None:
        raise ParameterError("An audit needs at least one query, got none.")
    return total


def epsilon_of_logs(log_p: FloatArray, log_q: FloatArray, delta: float) -> float:
    """A lower bound on the epsilon of answering all queries, float64[query, outcome] in one world and in the other."""
    rows, times = np.unique(np.concatenate([log_p, log_q], axis=1), axis=0, return_counts=True)
    n_outcomes = log_p.shape[1]
    pairs = zip(rows, times, strict=True)
    return all_of(Atoms.of(row[:n_outcomes], row[n_outcomes:]) ** int(count) for row, count in pairs).epsilon(delta)


@dataclass(frozen=True)
class Likelihood:
    """How much likelier labels are in one world than in the other, under the stated noise.

    The best score there is if nothing is wrong, and a good one if the noise is.

    ratios: float64[query, outcome].
    """

    ratios: FloatArray

    @classmethod
    def of(cls, log_p: FloatArray, log_q: FloatArray) -> Likelihood:
        """From the log-probabilities of both worlds, float64[query, outcome]."""
        with np.errstate(invalid="ignore"):
            return cls(np.clip(np.nan_to_num(log_p - log_q, nan=0.0), -_CERTAIN, _CERTAIN))

    def __call__(self, labels: IntArray) -> float:
        """The log-likelihood ratio of the labels of all queries, int64[query]."""
        outcomes = np.where(labels == ABSTAIN, self.ratios.shape[1] - 1, labels)
        return float(self.ratios[np.arange(len(labels)), outcomes].sum())
