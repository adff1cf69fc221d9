"""How fast are teachers trained? Against the loops that one would write oneself, one teacher after another."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.table import Table

from pate.arrays import IntArray
from pate.execution import Executor, OnRay, Serial
from pate.execution.threads import one_thread
from pate.experiments.bench.timing import median_seconds
from pate.extras import require
from pate.teachers import Ensemble, Part, Partition, PrivateData

N_CLASSES = 10
N_QUERIES = 9_000
PLAIN = "plain loop, PyTorch"


@dataclass(frozen=True)
class Images:
    """28 x 28 pictures of ten kinds, float32 in 0..1: MNIST where it is found, else noise around ten drawings."""

    source: str
    x: NDArray[Any]
    y: IntArray
    queries: NDArray[Any]


def load_images(root: Path | None, records: int) -> Images:
    """``records`` private pictures and 9,000 queries, float32 in 0..1."""
    folder = root or (Path(os.environ["PATE_DATA"]) if "PATE_DATA" in os.environ else None)
    if folder is not None and (folder / "MNIST" / "raw").is_dir() and records <= 60_000:
        mnist = require("torchvision.datasets", "train").MNIST
        train, test = mnist(folder, train=True), mnist(folder, train=False)
        x, queries = ((each.data.numpy() / 255.0).astype(np.float32) for each in (train, test))
        return Images("MNIST", x[:records], train.targets.numpy()[:records], queries[:N_QUERIES])
    rng = np.random.default_rng(0)
    drawings = rng.random((N_CLASSES, 28, 28), dtype=np.float32)
    y = rng.integers(0, N_CLASSES, records + N_QUERIES)
    x = (drawings[y] + rng.random((len(y), 28, 28), dtype=np.float32)) / 2
    return Images("synthetic pictures", x[:records], y[:records], x[records:])


def run(
    teachers: int = 250,
    records: int = 240,
    plain: int = 50,
    cnns: int = 6,
    rounds: int = 3,
    root: Path | None = None,
    report: Callable[[str], None] = lambda line: None,
) -> list[dict[str, Any]]:
    """Median milliseconds a teacher of each way to train the same teachers, interleaved; one thread a process.

    The plain loops train the first ``plain`` of the teachers: they take their time, and it is the same for each of them.
    """
    images = load_images(root, teachers * records)
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="pate-bench-") as folder, OnRay(workers=2) as cluster:
        bench = _Bench(Path(folder), {"Serial": Serial(), "Ray, 1 worker": OnRay(workers=1), "Ray, 2 workers": cluster})
        report("starting Ray and its workers")
        cluster.start()  # with two places, of which the executor with one worker uses one
        bench.warm_up(split(images, 2, records))
        parts = split(images, teachers, records)
        few = split(images, min(plain, teachers), records)
        report("logistic teachers")
        rows += bench.compare("logistic", parts, few, {PLAIN: plain_logistics, "plain loop, scikit-learn": sklearns}, rounds)
        report("MLP teachers")
        rows += bench.compare("mlp", parts, few, {PLAIN: plain_mlps}, rounds)
        report("CNN teachers")
        pictures = split(images, cnns, records)
        rows += bench.compare("cnn", pictures, pictures, {PLAIN: plain_cnns}, rounds)
    return [{"images": images.source, "records": records, **row} for row in rows]


def split(images: Images, teachers: int, records: int) -> Partition:
    """``records`` records for each teacher, one run of rows after another: equal parts, so that a teacher is a teacher."""
    n = teachers * records
    data = PrivateData(images.x[:n], images.y[:n], ids=np.arange(n), name="bench")
    return Partition.from_rows(data, np.split(np.arange(n), teachers))


class _Bench:
    def __init__(self, folder: Path, executors: dict[str, Executor]) -> None:
        self._folder = folder
        self._executors = executors
        self._runs = 0

    def warm_up(self, parts: Partition) -> None:
        """Workers are started and have imported what they need."""
        for model in ("logistic", "cnn"):
            for executor in self._executors.values():
                self._train(model, parts, executor)

    def compare(
        self,
        model: str,
        parts: Partition,
        few: Partition,
        loops: dict[str, Callable[[Partition], object]],
        rounds: int,
    ) -> list[dict[str, Any]]:
        tasks: dict[str, Callable[[], object]] = {name: partial(loop, few) for name, loop in loops.items()}
        for name, executor in self._executors.items():
            tasks[f"pate, {name}"] = partial(self._train, model, parts, executor)
        counts = {name: (few if name in loops else parts).n_teachers for name in tasks}
        each = {name: seconds / counts[name] for name, seconds in median_seconds(tasks, rounds).items()}
        return [
            {
                "model": model,
                "way": way,
                "teachers": counts[way],
                "milliseconds_each": 1000 * seconds,
                "times_plain_loop": each[PLAIN] / seconds,
            }
            for way, seconds in each.items()
        ]

    def _train(self, model: str, parts: Partition, executor: Executor) -> None:
        self._runs += 1
        Ensemble.train(
            parts, model, self._folder / str(self._runs), n_classes=N_CLASSES, executor=executor, holdout=0.0, show="none"
        )


def each_part(parts: Partition) -> list[Part]:
    shared = parts.shared()
    return [Part(teacher, *parts.loader(teacher).load(shared)[:2], seed=teacher) for teacher in range(parts.n_teachers)]


def plain_logistics(parts: Partition) -> list[Any]:
    from pate.experiments.bench.plain_teachers import plain_logistic
    from pate.teachers.batched import LogisticTeachers

    return _one_by_one(parts, lambda part: plain_logistic(LogisticTeachers(), part, N_CLASSES))


def plain_mlps(parts: Partition) -> list[Any]:
    from pate.experiments.bench.plain_teachers import plain_mlp
    from pate.teachers.batched import MLPTeachers

    return _one_by_one(parts, lambda part: plain_mlp(MLPTeachers(), part, N_CLASSES))


def sklearns(parts: Partition) -> list[Any]:
    from pate.experiments.bench.plain_teachers import sklearn_logistic

    return _one_by_one(parts, sklearn_logistic)


def plain_cnns(parts: Partition) -> list[Any]:
    from pate.experiments.bench.plain_cnn import plain_cnn

    return _one_by_one(parts, lambda part: plain_cnn(part, N_CLASSES))


def _one_by_one(parts: Partition, train: Callable[[Part], Any]) -> list[Any]:
    require("torch", "train")  # so that it too is held to one thread
    with one_thread():
        return [train(part) for part in each_part(parts)]


def table(rows: list[dict[str, Any]]) -> Table:
    """The rows of :func:`run` as a table for people."""
    result = Table(title=f"Training teachers of {rows[0]['records']} {rows[0]['images']} records each")
    for column in ("model", "way", "teachers", "ms a teacher", "times as fast as the plain PyTorch loop"):
        result.add_column(column, justify="left" if column in ("model", "way") else "right")
    for row in rows:
        numbers = f"{row['milliseconds_each']:.1f}", f"{row['times_plain_loop']:.1f}"
        result.add_row(row["model"], row["way"], str(row["teachers"]), *numbers)
    return result
