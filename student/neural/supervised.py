"""The baseline: the labelled queries and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor
from torch.nn import functional

from pate.student.neural.base import Lesson, NeuralStudent
from pate.student.neural.nets import Net


@dataclass(eq=False, repr=False, kw_only=True)
class Supervised(NeuralStudent):
    """A network trained on the labelled queries only, with random variants of them: what every other student must beat."""

    name: ClassVar[str] = "supervised"

    def _loss(self, net: Net, average: Net, lesson: Lesson) -> Iterator[Tensor]:
        for records, labels in lesson.labelled_batches(self.batch):
            yield functional.cross_entropy(net(lesson.augment(records, self.strength)), labels)
