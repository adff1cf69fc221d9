"""The layer that sees the records, for a group of teachers at once: x' W, x' = (x, 1) / √(mean squared length).

Training changes its weights by sums of multiples of records only. So a teacher with fewer records than features keeps those
multiples instead, W = X'ᵀ A, and the Gram matrix X' X'ᵀ in place of its records: the same weights after every step, for a
third or less of the arithmetic. Weights begin at 0 here; the first weights of a hidden layer are added by their owner.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np

from pate.teachers.batched.aligned import Float32, whole_vectors, zeros
from pate.teachers.batched.schedule import Records, Schedule, few_records


class FirstLayer(ABC):
    """state, velocity: float32[row, width], a block of rows for each teacher, stored without the scale of ``Fading``."""

    def __init__(self, group: Sequence[Records], schedule: Schedule, blocks: Sequence[int], width: int) -> None:
        self.group = group
        self.schedule = schedule
        self._ends: list[int] = np.cumsum(blocks).tolist()
        self.state = zeros(self._ends[-1], width)
        self.velocity = zeros(self._ends[-1], width)

    def block(self, array: Float32, slot: int, rows: int) -> Float32:
        """The first rows of a teacher's block."""
        start = self._ends[slot - 1] if slot else 0
        return array[start : start + rows]

    @abstractmethod
    def forward(self, step: int, active: int, out: Float32) -> None:
        """out: float32[slot, row, width] = the mini-batches' x' times the stored weights."""

    @abstractmethod
    def _add_gradient(self, step: int, active: int, delta: Float32) -> None:
        """Add the mini-batches' x'ᵀ delta to the velocity; delta: float32[slot, row, width]."""

    @abstractmethod
    def weights(self, slot: int, scale: float) -> tuple[Float32, Float32]:
        """float32[width, feature] and the intercept float32[width], for x as it is."""

    def update(self, step: int, active: int, delta: Float32, momentum: float, factor: float) -> None:
        """One step: delta is the gradient of each row, times the rate; factor is what ``Fading.step`` gave."""
        end = self._ends[active - 1]
        state, velocity = self.state[:end], self.velocity[:end]
        np.multiply(velocity, momentum, out=velocity)
        self._add_gradient(step, active, delta)
        np.subtract(state, velocity, out=state)
        if factor != 1.0:
            np.multiply(state, factor, out=state)
            np.multiply(velocity, factor, out=velocity)


class SpanLayer(FirstLayer):
    """For teachers with fewer records than features. A row of the state is what a record contributes."""

    def __init__(self, group: Sequence[Records], schedule: Schedule, width: int) -> None:
        super().__init__(group, schedule, [whole_vectors(len(each.x) + 1) for each in group], width)
        self._grams = [_gram(each) for each in group]
        self._states = [self.block(self.state, slot, len(each.x)) for slot, each in enumerate(group)]
        self._gathered = [zeros(schedule.rows, len(each.x)) for each in group]
        self._sums = zeros(len(group) * schedule.rows, width)

    def forward(self, step: int, active: int, out: Float32) -> None:
        for slot in range(active):
            pick = self.schedule.picks[slot][step]
            gathered = self._gathered[slot][: len(pick)]
            self._grams[slot].take(pick, axis=0, out=gathered, mode="clip")
            np.dot(gathered, self._states[slot], out=out[slot, : len(pick)])

    def _add_gradient(self, step: int, active: int, delta: Float32) -> None:
        places = self.schedule.places[step, :active].reshape(-1)
        sums = self._sums[: len(places)]
        self.velocity.take(places, axis=0, out=sums, mode="clip")
        np.add(sums, delta.reshape(sums.shape), out=sums)
        self.velocity[places] = sums  # no place twice, but for spare rows, which count for nothing

    def weights(self, slot: int, scale: float) -> tuple[Float32, Float32]:
        each = self.group[slot]
        shares = zeros(self.state.shape[1], len(each.x))
        np.multiply(self._states[slot].T, scale / each.square_length, out=shares)
        return np.dot(shares, each.x), shares.sum(axis=1)


class FeatureLayer(FirstLayer):
    """For teachers with no fewer records than features. A row of the state is a feature's weights, the last the intercept's."""

    def __init__(self, group: Sequence[Records], schedule: Schedule, width: int) -> None:
        self._inputs = [_with_constant(each) for each in group]
        super().__init__(group, schedule, [whole_vectors(each.shape[1]) for each in self._inputs], width)
        shapes = [each.shape[1] for each in self._inputs]
        self._states = [self.block(self.state, slot, rows) for slot, rows in enumerate(shapes)]
        self._velocities = [self.block(self.velocity, slot, rows) for slot, rows in enumerate(shapes)]
        self._gathered = [zeros(schedule.rows, rows) for rows in shapes]
        self._gradients = [zeros(rows, width) for rows in shapes]

    def forward(self, step: int, active: int, out: Float32) -> None:
        for slot in range(active):
            pick = self.schedule.picks[slot][step]
            gathered = self._gathered[slot][: len(pick)]
            self._inputs[slot].take(pick, axis=0, out=gathered, mode="clip")
            np.dot(gathered, self._states[slot], out=out[slot, : len(pick)])

    def _add_gradient(self, step: int, active: int, delta: Float32) -> None:
        for slot in range(active):
            size = len(self.schedule.picks[slot][step])
            gradient = self._gradients[slot]
            np.dot(self._gathered[slot][:size].T, delta[slot, :size], out=gradient)
            np.add(self._velocities[slot], gradient, out=self._velocities[slot])

    def weights(self, slot: int, scale: float) -> tuple[Float32, Float32]:
        each = self.group[slot]
        columns = self._states[slot].T * np.float32(scale / math.sqrt(each.square_length))
        return np.ascontiguousarray(columns[:, :-1]), np.ascontiguousarray(columns[:, -1])


def first_layer(group: Sequence[Records], schedule: Schedule, width: int) -> FirstLayer:
    """The cheaper kind for this group, whose teachers are all few-recorded or all not."""
    kind = SpanLayer if few_records(*group[0].x.shape) else FeatureLayer
    return kind(group, schedule, width)


def _gram(records: Records) -> Float32:
    """float32[record, record]: products of the records x'."""
    gram = zeros(len(records.x), len(records.x))
    np.dot(records.x, records.x.T, out=gram)
    np.add(gram, 1, out=gram)
    np.multiply(gram, 1 / records.square_length, out=gram)
    return gram


def _with_constant(records: Records) -> Float32:
    """float32[record, feature + 1]: the records x'."""
    inputs = zeros(len(records.x), records.x.shape[1] + 1)
    inputs[:, :-1] = records.x
    inputs[:, -1] = 1
    np.multiply(inputs, 1 / math.sqrt(records.square_length), out=inputs)
    return inputs
