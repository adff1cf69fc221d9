"""A whole ensemble from private records to votes on 9,000 public images: how long, and how much memory?"""

from __future__ import annotations

import os
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from pate.execution import OnRay
from pate.experiments.bench.teachers import N_CLASSES, load_images
from pate.teachers import Ensemble, Partition, PrivateData

_SECONDS_BETWEEN_LOOKS = 0.5


def run(teachers: int = 250, model: str = "logistic", workers: int = 2, root: Path | None = None) -> list[dict[str, Any]]:
    """Once, everything included: partition, starting Ray, training, voting. 60,000 records."""
    images = load_images(root, 60_000)
    with tempfile.TemporaryDirectory(prefix="pate-bench-") as folder, PeakMemory() as memory:
        start = time.perf_counter()
        data = PrivateData(images.x, images.y, ids=np.arange(len(images.y)), name="bench")
        parts = Partition.by_hash(data, teachers, salt="bench")
        with OnRay(workers=workers) as executor:
            executor.start()
            started = time.perf_counter()
            ensemble = Ensemble.train(parts, model, Path(folder) / "run", n_classes=N_CLASSES, executor=executor)
            trained = time.perf_counter()
            votes = ensemble.vote(images.queries, executor=executor)
        end = time.perf_counter()
    return [
        {
            "images": images.source,
            "model": model,
            "teachers": teachers,
            "queries": len(votes),
            "partition_and_start_seconds": started - start,
            "training_seconds": trained - started,
            "voting_seconds": end - trained,
            "total_seconds": end - start,
            "peak_gibibytes": memory.peak / 2**30,
        }
    ]


class PeakMemory:
    """The largest memory of this process and all its descendants, shared pages counted once, looked at every half second."""

    def __init__(self) -> None:
        self.peak = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> PeakMemory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(_SECONDS_BETWEEN_LOOKS):
            self.peak = max(self.peak, sum(map(_proportional_bytes, _family_of(os.getpid()))))


def _family_of(process: int) -> set[int]:
    """This process and all its descendants, by Linux's /proc."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                # The name in parentheses may hold anything; the parent is the second field after it.
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue  # it has just ended
    found = {process}
    while grown := {child for child, parent in parents.items() if parent in found} - found:
        found |= grown
    return found


def _proportional_bytes(process: int) -> int:
    try:
        lines = (Path("/proc") / str(process) / "smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(1024 * int(line.split()[1]) for line in lines if line.startswith("Pss:"))


def table(rows: list[dict[str, Any]]) -> Table:
    """The rows of :func:`run` as a table for people."""
    result = Table(
        title=f"From 60,000 private {rows[0]['images']} records to votes on {rows[0]['queries']:,} queries", show_header=False
    )
    for row in rows:
        result.add_row("teachers", f"{row['teachers']:,}, {row['model']}")
        result.add_row("partition, start of Ray", f"{row['partition_and_start_seconds']:.1f} s")
        result.add_row("training", f"{row['training_seconds']:.1f} s")
        result.add_row("voting", f"{row['voting_seconds']:.1f} s")
        result.add_row("in all", f"{row['total_seconds']:.1f} s")
        result.add_row("peak memory of all processes", f"{row['peak_gibibytes']:.2f} GiB")
    return result
