"""A cost that depends on the largest counts only, as a table over them; and from it how far it can move within d changes.

State of a histogram: its largest count, or its two largest. A vote that moves shifts each by at most one, and never both up
or both down (two largest counts that both rise would need two votes more; likewise down). So a table knows all neighbours of
a state, and all states within a distance.

One teacher moves one vote on *every* query, so the cost of a batch is at most the sum of each query's largest cost within the
distance; and so is its local sensitivity.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from pate.arrays import BoolArray, FloatArray, IntArray
from pate.errors import ParameterError, VotesError
from pate.privacy.exact.rows import sorted_rows

_MOVES = {1: ((1,), (-1,)), 2: ((1, 0), (-1, 0), (0, 1), (0, -1), (1, -1), (-1, 1))}


class Reach(NamedTuple):
    """What a batch can come to within a number of changes. float64[step] each, both rising, distances from 0.

    Nothing larger than the last value is reached beyond the last distance.
    """

    distance: FloatArray
    value: FloatArray

    def smooth(self, beta: FloatArray | float) -> FloatArray:
        """float64[beta]: max over d of e^(-beta d) value(d).

        Of a local sensitivity this is the smooth sensitivity: Nissim, Raskhodnikova and Smith 2007 ("Smooth sensitivity and
        sampling in private data analysis"), Definition 3.1. It is nowhere below the local sensitivity, and
        neighbours' differ by at most a factor e^beta: what lies within d of a batch lies within d + 1 of its neighbour.

        >>> float(Reach(np.array([0.0, 1.0]), np.array([1.0, 2.0])).smooth(0.5).round(3))
        1.213
        """
        decay = np.exp(-np.asarray(beta, dtype=np.float64)[..., None] * self.distance)
        result: FloatArray = (decay * self.value).max(axis=-1)
        return result


@dataclass(frozen=True, eq=False)
class CostTable:
    """Costs of one query, at one order, for every state that a histogram can be in.

    values: float64[largest] or float64[largest, second], at least 0; where ``valid`` is false no histogram lies.
    """

    values: FloatArray
    valid: BoolArray

    def __post_init__(self) -> None:
        if self.values.ndim not in _MOVES or self.values.shape != self.valid.shape:
            raise ParameterError(
                f"A cost table has one or two axes, and as many costs as marks of validity: got {self.values.shape} and "
                f"{self.valid.shape}."
            )
        inside = self.values[self.valid]
        if not (np.isfinite(inside) & (inside >= 0)).all():
            raise ParameterError(
                "A cost table must be finite and not negative: take the minimum with the data-independent cost first."
            )

    def cost(self, counts: IntArray) -> FloatArray:
        """float64[query] from counts: int64[query, class]."""
        found: FloatArray = self.values[self._places(counts)]
        return found

    def local_sensitivity(self) -> FloatArray:
        """Of every state: by how much the cost differs from any neighbour's, at most. 0 where no histogram lies."""
        worst = np.zeros_like(self.values)
        shape = self.values.shape
        for move in _MOVES[self.values.ndim]:
            here = tuple(slice(max(0, -step), size - max(0, step)) for step, size in zip(move, shape, strict=True))
            there = tuple(slice(max(0, step), size + min(0, step)) for step, size in zip(move, shape, strict=True))
            both = self.valid[here] & self.valid[there]
            change = np.where(both, np.abs(self.values[here] - self.values[there]), 0.0)
            worst[here] = np.maximum(worst[here], change)
        return worst

    def costs_within(self, batches: list[IntArray], stride: int = 1) -> list[Reach]:
        """For each batch, int64[query, class]: the most it can cost within each number of changes.

        stride: look at every so many distances only. What is left out lies below the next distance looked at.
        """
        return self._within(np.where(self.valid, self.values, 0.0), batches, stride)

    def sensitivity_within(self, batches: list[IntArray], stride: int = 1) -> list[Reach]:
        """As :meth:`costs_within`, of the batch's local sensitivity. With a stride above 1, ``smooth`` comes out too small:
        for choosing settings only."""
        return self._within(self.local_sensitivity(), batches, stride)

    def _within(self, values: FloatArray, batches: list[IntArray], stride: int) -> list[Reach]:
        states = [self._states(batch) for batch in batches]
        most = float(values.max(initial=0.0))
        full = [most * len(batch) * (1 - 1e-12) for batch in batches]
        windows = _Windows(values)
        distances: list[int] = []
        found: list[list[float]] = []
        for distance in range(0, len(values) + stride, stride):
            distances.append(distance)
            # States at most d apart in either count are at least those within d moves: nothing is left out.
            found.append([float(windows.around(state.place, distance) @ state.weight) for state in states])
            if all(total >= whole for total, whole in zip(found[-1], full, strict=True)):
                break
        return [Reach(np.array(distances, dtype=np.float64), np.array(column)) for column in zip(*found, strict=True)]

    def _states(self, counts: IntArray) -> _States:
        places, weights = np.unique(np.stack(self._places(counts)), axis=1, return_counts=True)
        return _States(tuple(places), weights.astype(np.float64))

    def _places(self, counts: IntArray) -> tuple[IntArray, ...]:
        top = sorted_rows(counts)[:, : self.values.ndim]
        places = tuple(top.T)
        inside = all((each < size).all() for each, size in zip(places, self.values.shape, strict=True))
        if not (inside and self.valid[places].all()):
            raise VotesError("These votes are not in the cost table: it was made for other numbers of teachers or classes.")
        return places


class _States(NamedTuple):
    place: tuple[IntArray, ...]
    weight: FloatArray


class _Windows:
    """Largest values in squares around places, for rising distances.

    Of windows whose sides are a power of two, each made of those of half the side; a square is covered by as many overlapping
    ones as it has corners. Nothing lies beyond the border, where values are 0.
    """

    def __init__(self, values: FloatArray) -> None:
        self._before = len(values) + 1  # room for squares that begin outside
        self._side = 1
        self._largest = np.pad(values, [(self._before, 0)] * values.ndim)

    def around(self, place: tuple[IntArray, ...], distance: int) -> FloatArray:
        """float64[place]: the largest value at most ``distance`` away along each axis; distances must not fall."""
        distance = min(distance, self._before - 1)
        while 2 * self._side <= 2 * distance + 1:
            for axis in range(self._largest.ndim):
                self._largest = np.maximum(self._largest, _shifted(self._largest, self._side, axis))
            self._side *= 2
        far = 2 * distance + 1 - self._side
        first = [each + (self._before - distance) for each in place]
        found = np.zeros(place[0].shape)
        for corner in itertools.product((0, far), repeat=len(place)):
            index = [start + more for start, more in zip(first, corner, strict=True)]
            # Windows that begin beyond the end hold nothing.
            last = [size - 1 for size in self._largest.shape]
            inside = np.all([each <= end for each, end in zip(index, last, strict=True)], axis=0)
            held = self._largest[tuple(np.minimum(each, end) for each, end in zip(index, last, strict=True))]
            found = np.maximum(found, np.where(inside, held, 0.0))
        return found


def _shifted(values: FloatArray, by: int, axis: int) -> FloatArray:
    """values[i + by] along an axis, 0 beyond the end."""
    result = np.zeros_like(values)
    if by < values.shape[axis]:
        moved = np.moveaxis(result, axis, 0)
        moved[: values.shape[axis] - by] = np.moveaxis(values, axis, 0)[by:]
    return result
