"""Were features fitted on stored private rows? One pass over storage."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import add

import numpy as np
from numpy.typing import NDArray

from pate.digests import row_digests
from pate.execution import Executor, Task
from pate.execution.base import Shared
from pate.features.checks import Matches, Overlap, distinct_rows
from pate.teachers.partitioned import PartLoader, parts_per_task
from pate.teachers.storage.parts import StoredPart, outcomes
from pate.teachers.training import chunked

_FITTED = "fitted"


def stored_overlap(parts: Sequence[StoredPart], fitted_digests: NDArray[np.void], executor: Executor) -> Overlap:
    """The same as of the records in memory. From a worker come counts, and digests of inputs, which stay with the driver."""
    fitted, times = distinct_rows(fitted_digests)
    chunks = chunked(range(len(parts)), parts_per_task(len(parts)), lambda part: parts[part].placement)
    tasks = [Task(chunk[0], tuple(parts[part].loader for part in chunk), placement) for chunk, placement in chunks]
    found = (outcome.value for outcome in outcomes(executor, compare_rows, tasks, {_FITTED: fitted}))
    return reduce(add, found).overlap(times)


def compare_rows(loaders: tuple[PartLoader, ...], shared: Shared) -> Matches:
    """Compare the inputs of these parts with the fitted ones."""
    return Matches.of(np.concatenate([row_digests(loader.load(shared)[0]) for loader in loaders]), shared[_FITTED])
