"""Timing alternatives fairly: interleaved in one run, so that a noisy machine is equally noisy to all of them."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping


def median_seconds(tasks: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Median wall-clock seconds of each task over ``rounds`` rounds, every task once a round."""
    seconds: dict[str, list[float]] = {name: [] for name in tasks}
    for _ in range(rounds):
        for name, work in tasks.items():
            start = time.perf_counter()
            work()
            seconds[name].append(time.perf_counter() - start)
    return {name: statistics.median(times) for name, times in seconds.items()}
