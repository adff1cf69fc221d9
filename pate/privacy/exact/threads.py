"""Independent parts of a computation on all cores. NumPy and compiled code let go of the interpreter lock while they work."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Part = TypeVar("Part")
Result = TypeVar("Result")


def n_threads() -> int:
    """How many parts can be worked on at the same moment."""
    return os.cpu_count() or 1


def in_threads(work: Callable[[Part], Result], parts: Sequence[Part]) -> Iterator[Result]:
    """work of each part, in the order of the parts."""
    workers = min(n_threads(), len(parts))
    if workers < 2:
        yield from map(work, parts)
        return
    with ThreadPoolExecutor(workers) as pool:
        yield from pool.map(work, parts)
