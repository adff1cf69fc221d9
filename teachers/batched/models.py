"""What the batched families share: models that are a few arrays, their files, and training in groups that fit the cache."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from pate.arrays import IntArray
from pate.errors import TeacherError
from pate.extras import require
from pate.teachers.batched.aligned import Float32
from pate.teachers.batched.descent import Descent
from pate.teachers.batched.schedule import Records, few_records, records_of
from pate.teachers.family import Part, TeacherFamily

ArrayModel = dict[str, Float32]
"""Named float32 arrays. ``weights``: [class, ...] and ``bias``: [class] are those of the last layer."""

CACHE_BYTES = 2**22
"""What a group of teachers that are trained side by side may take. Measured: 2 to 8 MiB do equally well."""


class ArrayTeachers(TeacherFamily[ArrayModel]):
    """Teachers that are a few float32 arrays.

    Records and queries may have any shape [record, ...] and any numeric type; they are flattened and read as float32, never
    scaled. They should be about 0..1 or standardised, by numbers that are declared or public.

    A teacher votes only for classes that it has seen: for one that its part lacks it has no evidence, so its intercept there is
    minus infinity. A part with one class gives a teacher that always votes for it.

    Call them inside :func:`pate.execution.threads.one_thread`, as executors do: sums on several threads may round otherwise.
    """

    suffix: ClassVar[str] = ".safetensors"

    @property
    def batch_size(self) -> int:
        return 25

    def fit(self, part: Part, n_classes: int) -> ArrayModel:
        return self.fit_batch([part], n_classes)[0]

    def save(self, model: ArrayModel, path: Path) -> None:
        require("safetensors.numpy", "train").save_file(model, path)

    def load(self, path: Path) -> ArrayModel:
        model: ArrayModel = require("safetensors.numpy", "train").load_file(path)
        return model

    def predict(self, model: ArrayModel, x: NDArray[Any], n_classes: int) -> IntArray:
        votes: IntArray = self.predict_batch([model], x, n_classes)[0]
        return votes


class DescentTeachers(ArrayTeachers):
    """Teachers trained by gradient descent, side by side in groups."""

    def __init__(self, epochs: int, learning_rate: float, momentum: float, batch: int, weight_decay: float) -> None:
        self.epochs = epochs
        self.learning_rate = learning_rate
        self.momentum = momentum
        self.batch = batch
        self.weight_decay = weight_decay
        _ = self._descent  # checks the parameters

    @property
    def _descent(self) -> Descent:
        return Descent(self.epochs, self.learning_rate, self.momentum, self.batch, self.weight_decay)

    def fit_batch(self, parts: Sequence[Part], n_classes: int) -> list[ArrayModel]:
        """One teacher that fails raises for all: ask again one by one."""
        models: dict[int, ArrayModel] = {}
        with np.errstate(over="ignore", invalid="ignore"):  # a teacher that diverges is told of once, at the end
            for places, group in _groups(parts, n_classes, self._width(n_classes)):
                for place, records, model in zip(places, group, self._train(group, n_classes), strict=True):
                    models[place] = finished(model, records.y, records.teacher)
        return [models[place] for place in range(len(parts))]

    @abstractmethod
    def _width(self, n_classes: int) -> int:
        """How many outputs the first layer has."""

    @abstractmethod
    def _train(self, group: Sequence[Records], n_classes: int) -> list[ArrayModel]:
        """The models of a group, in its order: falling numbers of records, all with fewer than features or all not."""


def finished(model: ArrayModel, y: IntArray, teacher: int) -> ArrayModel:
    """``model`` without votes for classes that are not in y; or an error, if a number in it is not finite."""
    if not all(np.isfinite(array).all() for array in model.values()):
        raise TeacherError(
            f"Teacher {teacher}: training diverged; its weights are not finite. Look for NaN and very large values in its "
            "records, or lower learning_rate."
        )
    unseen = np.bincount(y, minlength=len(model["bias"])) == 0
    model["weights"][unseen] = 0
    model["bias"][unseen] = -np.inf
    return model


def _groups(parts: Sequence[Part], n_classes: int, width: int) -> Iterator[tuple[list[int], list[Records]]]:
    """Teachers to train side by side, each group with the places of its teachers among ``parts``.

    Records are made ready when their group comes, so that no more than one group of them is in memory. Who is in whose group
    matters to the speed alone.
    """
    sizes = [(len(part.x), math.prod(part.x.shape[1:])) for part in parts]
    few = [few_records(*size) for size in sizes]
    group: list[int] = []
    used = 0
    for place in sorted(range(len(parts)), key=lambda place: (few[place], -sizes[place][0])):
        needed = _working_bytes(*sizes[place], width)
        if group and (few[place] != few[group[0]] or used + needed > CACHE_BYTES):
            yield group, [records_of(parts[each], n_classes) for each in group]
            group, used = [], 0
        group.append(place)
        used += needed
    if group:
        yield group, [records_of(parts[each], n_classes) for each in group]


def _working_bytes(n_records: int, n_features: int, width: int) -> int:
    """What one teacher's steps read and write again and again."""
    side = min(n_records, n_features)
    return 4 * (n_records * side + 2 * side * width)
