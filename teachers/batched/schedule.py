"""A group of teachers side by side: whose rows lie where, and which records each takes at each step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from pate.arrays import IntArray
from pate.errors import TeacherError
from pate.teachers.batched.aligned import Float32, aligned, flat_records, whole_vectors, zeros
from pate.teachers.batched.descent import Descent
from pate.teachers.batched.starts import epoch_orders, mean_square_length
from pate.teachers.family import Part


@dataclass(frozen=True)
class Records:
    """One teacher's records, ready for training. x: float32[record, feature] from a 64-byte boundary; y: int64[record]."""

    teacher: int
    x: Float32
    y: IntArray
    seed: int
    square_length: float


def few_records(n_records: int, n_features: int) -> bool:
    """Whether a teacher is trained in the space that its records span. Its own numbers decide, nobody else's."""
    return n_records < n_features


def records_of(part: Part, n_classes: int) -> Records:
    """The records of ``part``, checked."""
    x = aligned(flat_records(part.x, f"Teacher {part.teacher}: records"))
    if not len(x) or part.y.shape != (len(x),):
        raise TeacherError(
            f"Teacher {part.teacher}: training needs at least one record and one label for each, got records of shape "
            f"{part.x.shape} and labels of shape {part.y.shape}."
        )
    if part.y.min() < 0 or part.y.max() >= n_classes:
        raise TeacherError(f"Teacher {part.teacher}: labels must lie in 0..{n_classes - 1}; found one outside.")
    return Records(part.teacher, x, part.y, part.seed, mean_square_length(x))


class Schedule:
    """The steps of a group of teachers, who must stand in the order of falling numbers of records.

    Each teacher has a slot. Its mini-batch is ``rows`` rows of the group's buffers, ``batch`` rounded up to whole vectors; rows
    past the end of a mini-batch have weight 0. In arrays with a row for each record (``total`` rows), a teacher's block has at
    least one spare row at its end, which those point at.
    """

    def __init__(self, group: Sequence[Records], descent: Descent) -> None:
        sizes = [len(each.x) for each in group]
        blocks = np.array([whole_vectors(size + 1) for size in sizes])
        self.starts: IntArray = np.cumsum(blocks) - blocks
        self.total = int(blocks.sum())
        self.rows = whole_vectors(descent.batch)
        self.picks: list[list[IntArray]] = []
        """For each slot and step, int64[record of the mini-batch]: places among the teacher's own records."""
        self.steps = steps = [descent.epochs * -(-size // descent.batch) for size in sizes]
        self.places: IntArray = np.zeros((steps[0], len(group), self.rows), dtype=np.int64)
        """int64[step, slot, row]: places among the rows of all records."""
        self.weights: Float32 = np.zeros((steps[0], len(group), self.rows), dtype=np.float32)
        """float32[step, slot, row]: 1 / the mini-batch's size."""
        for slot, (each, size) in enumerate(zip(group, sizes, strict=True)):
            orders = epoch_orders(each.seed, size, descent.epochs)
            cuts = range(0, size, descent.batch)
            self.picks.append([order[cut : cut + descent.batch] for order in orders for cut in cuts])
            self._place(slot, orders, descent.batch, size)
        self._active: list[int] = (np.array(steps) > np.arange(steps[0])[:, None]).sum(axis=1).tolist()

    def _place(self, slot: int, orders: IntArray, batch: int, size: int) -> None:
        epochs, per_epoch = len(orders), -(-size // batch)
        padded = np.full((epochs, per_epoch * batch), size, dtype=np.int64)
        padded[:, :size] = orders
        places = padded.reshape(epochs * per_epoch, batch)
        self.places[: len(places), slot] = size + self.starts[slot]
        self.places[: len(places), slot, :batch] = places + self.starts[slot]
        valid = (np.arange(per_epoch * batch) < size).reshape(per_epoch, batch)
        self.weights[: len(places), slot, :batch] = np.tile(valid / valid.sum(axis=1, keepdims=True), (epochs, 1))

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """Each step, and how many slots, from the first, still take it."""
        return iter(enumerate(self._active))

    def per_record(self, width: int) -> Float32:
        """float32[total, width] zeros: a row for each record of each teacher."""
        return zeros(self.total, width)

    def targets(self, group: Sequence[Records], n_classes: int) -> Float32:
        """float32[total, class]: 1 at each record's label."""
        targets = self.per_record(n_classes)
        for start, each in zip(self.starts, group, strict=True):
            targets[start + np.arange(len(each.y)), each.y] = 1
        return targets
