"""A perceptron with one hidden layer, many teachers at once, gradients in closed form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pate.arrays import IntArray
from pate.teachers.batched.aligned import Float32, whole_vectors, zeros
from pate.teachers.batched.descent import Descent, Fading
from pate.teachers.batched.first_layer import first_layer
from pate.teachers.batched.models import ArrayModel, DescentTeachers
from pate.teachers.batched.schedule import Records, Schedule
from pate.teachers.batched.softmax import Softmax
from pate.teachers.batched.starts import first_weights
from pate.teachers.batched.voting import votes_in_blocks
from pate.validation import whole

_QUERIES_AT_ONCE = 512


class MLPTeachers(DescentTeachers):
    """A perceptron with one hidden layer of rectified units, by mini-batch gradient descent.

    Trained as :class:`LogisticTeachers`, from random first weights that the teacher's seed decides. Each layer's
    ``learning_rate`` and ``weight_decay`` are in units of the mean squared length of its inputs: the teacher's own records for
    the first, hidden + 1 (what the first weights aim at) for the second.
    """

    def __init__(
        self,
        hidden: int = 64,
        epochs: int = 30,
        learning_rate: float = 3.0,
        momentum: float = 0.9,
        batch: int = 32,
        weight_decay: float = 1e-4,
    ) -> None:
        whole(hidden, "hidden", least=1)
        self.hidden = hidden
        super().__init__(epochs, learning_rate, momentum, batch, weight_decay)

    def _width(self, n_classes: int) -> int:
        return self.hidden

    def _train(self, group: Sequence[Records], n_classes: int) -> list[ArrayModel]:
        descent = self._descent
        fading = Fading(descent)
        schedule = Schedule(group, descent)
        layer = first_layer(group, schedule, self.hidden)
        starts = [first_weights(each.seed, each.x.shape[1], self.hidden, n_classes, each.square_length) for each in group]
        second = SecondLayer(group, schedule, descent, [last for _, last in starts])
        # The first weights are no multiples of records. They only fade, by the same factor for all: add them at the end.
        begun = schedule.per_record(self.hidden)
        for start, each, (weights, _) in zip(schedule.starts, group, starts, strict=True):
            np.dot(each.x, weights.T, out=begun[start : start + len(each.x)])
        share, share_velocity, shares = 1.0, 0.0, []
        inputs = zeros(len(group), schedule.rows, self.hidden)
        extra = zeros(len(group) * schedule.rows, self.hidden)
        for step, active in schedule:
            places = schedule.places[step, :active].reshape(-1)
            now, added = inputs[:active], extra[: len(places)]
            layer.forward(step, active, now)
            begun.take(places, axis=0, out=added, mode="clip")
            np.multiply(added, share, out=added)
            np.multiply(now, fading.scale, out=now)
            np.add(now, added.reshape(now.shape), out=now)
            delta = added.reshape(now.shape)
            second.step(step, active, now, fading.rate, delta)
            layer.update(step, active, delta, fading.momentum, fading.step())
            share_velocity = descent.momentum * share_velocity + descent.learning_rate * descent.weight_decay * share
            share -= share_velocity
            shares.append(share)
        models = []
        for slot, steps in enumerate(schedule.steps):
            weights, bias = layer.weights(slot, fading.scales[steps - 1])
            weights += starts[slot][0] * np.float32(shares[steps - 1])
            models.append({"hidden_weights": weights, "hidden_bias": bias, **second.model(slot)})
        return models

    def predict_batch(self, models: Sequence[ArrayModel], x: NDArray[Any], n_classes: int) -> IntArray:
        # Weights by feature: the product with a block of queries is then a quarter faster.
        ready = [{**model, "hidden_weights": np.ascontiguousarray(model["hidden_weights"].T)} for model in models]
        return votes_in_blocks(ready, x, len(ready[0]["hidden_weights"]), _QUERIES_AT_ONCE, _scores)


class SecondLayer:
    """From hidden units to classes, for a group of teachers: small, and of one public shape for all of them.

    weights: float32[slot, unit, class], units rounded up to whole vectors; unit ``hidden`` is the constant of the intercept and
    those after it are 0.
    """

    def __init__(self, group: Sequence[Records], schedule: Schedule, descent: Descent, first: Sequence[Float32]) -> None:
        n_classes, self._hidden = first[0].shape
        units, rows = whole_vectors(self._hidden + 1), schedule.rows
        self._schedule, self._descent = schedule, descent
        self._rate = descent.learning_rate / (self._hidden + 1)
        self._targets = schedule.targets(group, n_classes)
        self._softmax = Softmax(len(group) * rows, n_classes)
        self._weights = zeros(len(group), units, n_classes)
        self._weights[:, : self._hidden] = np.stack(first).transpose(0, 2, 1)
        self._velocity, self._gradient, self._decay = (zeros(*self._weights.shape) for _ in range(3))
        self._units = zeros(len(group), rows, units)
        self._units[:, :, self._hidden] = 1
        self._back = zeros(len(group), rows, units)
        self._scores = zeros(len(group), rows, n_classes)
        self._wanted = zeros(len(group) * rows, n_classes)
        self._on = np.zeros((len(group), rows, self._hidden), dtype=np.bool_)

    def step(self, step: int, active: int, inputs: Float32, rate: float, delta: Float32) -> None:
        """One step. inputs: float32[slot, row, hidden] before the rectifier; delta <- rate times the gradient by them."""
        places = self._schedule.places[step, :active].reshape(-1)
        units, scores, weights = self._units[:active], self._scores[:active], self._weights[:active]
        wanted, on = self._wanted[: len(places)], self._on[:active]
        self._targets.take(places, axis=0, out=wanted, mode="clip")
        np.maximum(inputs, 0, out=units[:, :, : self._hidden])
        np.matmul(units, weights, out=scores)
        flat = scores.reshape(wanted.shape)
        self._softmax.residual(flat, wanted, self._schedule.weights[step, :active].reshape(-1), 1.0)
        np.matmul(units.transpose(0, 2, 1), scores, out=self._gradient[:active])
        np.multiply(scores, rate, out=scores)
        np.matmul(scores, weights.transpose(0, 2, 1), out=self._back[:active])
        np.greater(inputs, 0, out=on)
        np.multiply(self._back[:active, :, : self._hidden], on, out=delta)
        self._update(active)

    def _update(self, active: int) -> None:
        weights, velocity = self._weights[:active], self._velocity[:active]
        gradient, decay = self._gradient[:active], self._decay[:active]
        np.multiply(gradient, self._rate, out=gradient)
        np.multiply(weights, self._descent.learning_rate * self._descent.weight_decay, out=decay)
        np.multiply(velocity, self._descent.momentum, out=velocity)
        np.add(velocity, gradient, out=velocity)
        np.add(velocity, decay, out=velocity)
        np.subtract(weights, velocity, out=weights)

    def model(self, slot: int) -> ArrayModel:
        """``weights``: [class, hidden] and ``bias``: [class]."""
        columns = self._weights[slot].T
        return {"weights": columns[:, : self._hidden].copy(), "bias": columns[:, self._hidden].copy()}


def _scores(model: Mapping[str, Float32], queries: Float32, out: Float32) -> None:
    units = zeros(len(queries), len(model["hidden_bias"]))
    np.dot(queries, model["hidden_weights"], out=units)
    np.add(units, model["hidden_bias"], out=units)
    np.maximum(units, 0, out=units)
    np.dot(model["weights"], units.T, out=out)
