"""What an auditor makes of outcomes: numbers that are larger where the canary seems to be in. Learnt on scouting runs alone."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Hashable, Sequence
from numbers import Real

import numpy as np
from numpy.typing import NDArray

from pate.arrays import FloatArray

_MOST_VALUES = 24
"""A place of an outcome with more distinct values than this is a number, not a name."""


class Scorer(ABC):
    """Learns from outcomes of both worlds, then scores any outcome. Whatever it makes of one, the bound holds: it is only a
    choice. But a score must depend on its own outcome alone, not on others of a call: the count of an event is binomial only
    where its runs are independent.
    """

    name: str
    learns = True
    """Whether it looks at the outcomes that it is fitted to for more than their kind."""

    @abstractmethod
    def fit(self, inside: Sequence[Hashable], outside: Sequence[Hashable]) -> bool:
        """Learn; False where such outcomes are not what this scorer is for."""

    @abstractmethod
    def __call__(self, outcomes: Sequence[Hashable]) -> FloatArray:
        """float64[run]."""


class WholeOutcome(Scorer):
    """How much more often this very outcome was seen with the canary in than without; for few outcomes, or repeated noise."""

    name = "the whole outcome"

    def fit(self, inside: Sequence[Hashable], outside: Sequence[Hashable]) -> bool:
        one, two = Counter(inside), Counter(outside)
        seen = one.keys() | two.keys()
        if len(seen) == len(inside) + len(outside):
            return False  # none came twice
        self._score = {each: float(np.log((one[each] + 0.5) / (two[each] + 0.5))) for each in seen}
        return True

    def __call__(self, outcomes: Sequence[Hashable]) -> FloatArray:
        return np.array([self._score.get(each, 0.0) for each in outcomes])


class PlaceByPlace(Scorer):
    """The log-likelihood ratio as if places of the outcome were independent, as noise is: names by their frequencies, numbers
    by Gaussians of one variance (naive Bayes; linear discriminant).
    """

    name = "place by place"

    def fit(self, inside: Sequence[Hashable], outside: Sequence[Hashable]) -> bool:
        one, two = _table(inside), _table(outside)
        if one is None or two is None or one.shape[1] != two.shape[1]:
            return False
        self._width = one.shape[1]
        self._names: list[tuple[int, dict[float, float]]] = []
        numbers = []
        for place in range(self._width):
            values = np.union1d(one[:, place], two[:, place])
            if values.size > _MOST_VALUES:
                numbers.append(place)
            elif values.size > 1:
                seen = [np.array([(table[:, place] == value).sum() for value in values]) + 0.5 for table in (one, two)]
                ratios = np.log(seen[0] / seen[0].sum()) - np.log(seen[1] / seen[1].sum())
                self._names.append((place, dict(zip(values.tolist(), ratios.tolist(), strict=True))))
        self._numbers = np.array(numbers, dtype=np.int64)
        means = [table[:, self._numbers].mean(axis=0) for table in (one, two)]
        spread = sum(table[:, self._numbers].var(axis=0) for table in (one, two)) / 2
        self._weights = (means[0] - means[1]) / np.maximum(spread, 1e-12)
        self._centre = (means[0] + means[1]) / 2
        return bool(self._names or numbers)

    def __call__(self, outcomes: Sequence[Hashable]) -> FloatArray:
        """Outcomes of another kind, such as a refusal that never came while it learnt, score 0; their neighbours as ever."""
        table = _table(outcomes)
        if table is not None and table.shape[1] == self._width:
            return self._of_table(table)
        alone = ((place, _table([each])) for place, each in enumerate(outcomes))
        rows = {place: row for place, row in alone if row is not None and row.shape[1] == self._width}
        scores = np.zeros(len(outcomes))
        if rows:
            scores[list(rows)] = self._of_table(np.concatenate(list(rows.values())))
        return scores

    def _of_table(self, table: FloatArray) -> FloatArray:
        scores = np.zeros(len(table))
        for place, ratios in self._names:
            scores += np.array([ratios.get(value, 0.0) for value in table[:, place].tolist()])
        result: FloatArray = scores + (table[:, self._numbers] - self._centre) @ self._weights
        return result


class Given(Scorer):
    """The outcome is a score already: a number."""

    name = "its size"
    learns = False

    def fit(self, inside: Sequence[Hashable], outside: Sequence[Hashable]) -> bool:
        return all(isinstance(each, Real) for each in (*inside, *outside))

    def __call__(self, outcomes: Sequence[Hashable]) -> FloatArray:
        return np.array([float(each) if isinstance(each, Real) else -np.inf for each in outcomes])


def scorers() -> tuple[Scorer, ...]:
    """New ones, not yet fitted."""
    return WholeOutcome(), PlaceByPlace(), Given()


def _table(outcomes: Sequence[Hashable]) -> NDArray[np.float64] | None:
    """float64[run, place], or None where outcomes are no numbers or tuples of numbers, all of one length."""
    try:
        table = np.array([each if isinstance(each, tuple) else (each,) for each in outcomes], dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        return None
    return table if table.ndim == 2 and np.isfinite(table).all() else None
