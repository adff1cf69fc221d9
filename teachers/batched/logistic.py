"""Logistic regression, many teachers at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray

from pate.arrays import IntArray
from pate.teachers.batched.aligned import zeros
from pate.teachers.batched.descent import Fading
from pate.teachers.batched.first_layer import first_layer
from pate.teachers.batched.models import ArrayModel, DescentTeachers
from pate.teachers.batched.schedule import Records, Schedule
from pate.teachers.batched.softmax import Softmax
from pate.teachers.batched.voting import linear_votes


class LogisticTeachers(DescentTeachers):
    """Logistic regression by mini-batch gradient descent; fast on features and small pictures.

    Softmax cross-entropy, from weights 0, with momentum (heavy ball) and L2 decay of weights and intercepts; each epoch in a
    new order. ``learning_rate`` and ``weight_decay`` are in units of the teacher's own mean squared record length L (with the
    intercept's constant): the step is learning_rate / L and the decay weight_decay * L, so that one setting serves pixels,
    standardised tables and unit vectors alike.
    """

    def __init__(
        self,
        epochs: int = 20,
        learning_rate: float = 5.0,
        momentum: float = 0.9,
        batch: int = 32,
        weight_decay: float = 1e-5,
    ) -> None:
        super().__init__(epochs, learning_rate, momentum, batch, weight_decay)

    def _width(self, n_classes: int) -> int:
        return n_classes

    def _train(self, group: Sequence[Records], n_classes: int) -> list[ArrayModel]:
        fading = Fading(self._descent)
        schedule = Schedule(group, self._descent)
        layer = first_layer(group, schedule, n_classes)
        targets = schedule.targets(group, n_classes)
        softmax = Softmax(len(group) * schedule.rows, n_classes)
        scores = zeros(len(group), schedule.rows, n_classes)
        wanted = zeros(len(group) * schedule.rows, n_classes)
        for step, active in schedule:
            places = schedule.places[step, :active].reshape(-1)
            now, flat = scores[:active], scores[:active].reshape(-1, n_classes)
            targets.take(places, axis=0, out=wanted[: len(places)], mode="clip")
            layer.forward(step, active, now)
            weights = schedule.weights[step, :active].reshape(-1) * fading.rate
            softmax.residual(flat, wanted[: len(places)], weights, fading.scale)
            layer.update(step, active, now, fading.momentum, fading.step())
        models: list[ArrayModel] = []
        for slot, steps in enumerate(schedule.steps):
            weights, bias = layer.weights(slot, fading.scales[steps - 1])
            models.append({"weights": weights, "bias": bias})
        return models

    def predict_batch(self, models: Sequence[ArrayModel], x: NDArray[Any], n_classes: int) -> IntArray:
        return linear_votes(models, x)
