"""Public records as tensors: pictures [record, channel, height, width] or tables [record, column]."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pate.errors import StudentError
from pate.execution.threads import one_thread
from pate.student.records import float_records


def as_tensor(x: NDArray[Any], shape: Sequence[int] | None) -> Tensor:
    """float32[record, channel, height, width] for pictures, float32[record, column] for tables.

    Pictures are [record, height, width], with a channel axis first or last, or flat with a ``shape`` [height, width] or
    [channel, height, width].
    """
    values = torch.from_numpy(np.ascontiguousarray(float_records(x, shape)))
    if values.ndim == 3:
        values = values[:, None]
    if values.ndim == 4 and values.shape[1] not in (1, 3) and values.shape[3] in (1, 3):
        values = values.permute(0, 3, 1, 2)
    if values.ndim not in (2, 4):
        raise StudentError(
            f"A neural student takes tables [record, column] or pictures [record, height, width] with 0, 1 or 3 channels; "
            f"got records of shape {x.shape[1:]}. Give shape=[channel, height, width] to flat pictures."
        )
    if values.ndim == 4:
        return values.contiguous(memory_format=torch.channels_last)  # twice as fast on a CPU
    return values


@contextmanager
def own_randomness(seed: int) -> Iterator[None]:
    """Inside the block torch's random numbers come from ``seed``, and it runs on one thread; after it, all is as before."""
    with one_thread(), torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)  # torch.manual_seed would touch every GPU's state too
        yield


def endless(count: int, batch: int) -> Iterator[Tensor]:
    """Places 0..count-1 in random order, again and again, int64[batch] at a time; repeated within a batch if there are few."""
    left = torch.empty(0, dtype=torch.int64)
    while True:
        while len(left) < batch:
            left = torch.cat([left, torch.randperm(count)])
        yield left[:batch]
        left = left[batch:]
