"""What kind of teachers: the extension point. A family knows how to fit, ask, save and load teachers of one kind."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from pate.arrays import IntArray
from pate.errors import TeacherError

Model = TypeVar("Model")


@dataclass(frozen=True)
class Part:
    """What one teacher learns from: its own records, nothing else.

    x: [record, ...] (read-only); y: int64[record], each in 0..n_classes-1. A class may be missing; there may be one class only.
    """

    teacher: int
    x: NDArray[Any]
    y: IntArray
    seed: int


class TeacherFamily(ABC, Generic[Model]):
    """Teachers of one kind. The constructor stores its parameters under their own names; instances are pickled to workers.

    The privacy proof needs one thing of :meth:`fit` and :meth:`predict`: a teacher's votes depend on its own part and on
    public things (the seed, the number of classes, the queries), bit for bit, never on who shares its batch. So a batched
    family pads nothing to the longest part and sums nothing across teachers.
    """

    @property
    @abstractmethod
    def suffix(self) -> str:
        """Of a model file, for example ".safetensors". A class attribute will do."""

    @property
    def trust_note(self) -> str:
        """What one must know before loading a model file; empty where the format holds numbers only."""
        return ""

    @property
    def batch_size(self) -> int:
        """How many teachers :meth:`fit_batch` likes to get at once."""
        return 1

    @property
    def chunk_size(self) -> int:
        """How many teachers one task trains: enough to be worth a task, few enough to lose little when it dies."""
        return max(self.batch_size, 8)

    @abstractmethod
    def fit(self, part: Part, n_classes: int) -> Model:
        """Train one teacher. What it raises is recorded as that teacher's failure."""

    def fit_batch(self, parts: Sequence[Part], n_classes: int) -> list[Model]:
        """Train several teachers at once; the same models, bit for bit, as :meth:`fit` gives one by one."""
        return [self.fit(part, n_classes) for part in parts]

    @abstractmethod
    def predict(self, model: Model, x: NDArray[Any], n_classes: int) -> IntArray:
        """The votes of one teacher on queries x: int[query], each in 0..n_classes-1."""

    def predict_batch(self, models: Sequence[Model], x: NDArray[Any], n_classes: int) -> IntArray:
        """The votes of several teachers, int[teacher, query]; the same, bit for bit, as :meth:`predict` one by one."""
        return np.stack([self.predict(model, x, n_classes) for model in models])

    @abstractmethod
    def save(self, model: Model, path: Path) -> None:
        """Write the model to ``path``."""

    @abstractmethod
    def load(self, path: Path) -> Model:
        """Read what :meth:`save` wrote."""

    def settings(self) -> dict[str, Any]:
        """The constructor's parameters, for the run's manifest: JSON values only."""
        return dict(vars(self))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{key}={value!r}' for key, value in self.settings().items())})"


def check_labels(votes: Any, n_queries: int, n_classes: int) -> IntArray:
    """The votes of one teacher, int64[query], if they are valid: one class for each query."""
    array = np.asarray(votes)
    if array.shape != (n_queries,):
        raise TeacherError(f"A teacher must vote once on each of {n_queries} queries, got an array of shape {array.shape}.")
    if array.dtype.kind == "f" and np.isfinite(array).all() and (array == np.rint(array)).all():
        array = array.astype(np.int64)
    if array.dtype.kind not in "iu":
        raise TeacherError(f"A teacher's votes must be class numbers, got {array.dtype}.")
    if array.size and (array.min() < 0 or array.max() >= n_classes):
        raise TeacherError(f"A teacher's votes must lie in 0..{n_classes - 1}; found one outside.")
    return array.astype(np.int64)
