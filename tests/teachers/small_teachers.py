"""A tiny family for tests of the machinery: nearest class mean, with faults on demand."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pate.arrays import IntArray
from pate.teachers.family import Part, TeacherFamily


class MeanTeachers(TeacherFamily[NDArray[Any]]):
    """Votes for the class whose mean is nearest.

    pause: seconds each teacher takes. raising: teachers whose code raises, until ``once`` (a directory of markers) holds a
    file "mended". deadly: teachers that kill their process, always or (with ``once``) the first time only. greedy: teachers
    that take 4 GiB of memory. silent: teachers that cannot vote. trained_log: a directory that gets a file for every
    training that was finished.
    """

    suffix = ".npy"

    def __init__(
        self,
        pause: float = 0.0,
        raising: Sequence[int] = (),
        deadly: Sequence[int] = (),
        once: str = "",
        trained_log: str = "",
        silent: Sequence[int] = (),
        greedy: Sequence[int] = (),
        chunk: int = 4,
    ) -> None:
        self.pause = pause
        self.raising = list(raising)
        self.deadly = list(deadly)
        self.once = once
        self.trained_log = trained_log
        self.silent = list(silent)
        self.greedy = list(greedy)
        self.chunk = chunk

    @property
    def chunk_size(self) -> int:
        return self.chunk

    def fit(self, part: Part, n_classes: int) -> NDArray[Any]:
        if part.teacher in self.raising and not (Path(self.once) / "mended").exists():
            raise ValueError("this teacher's code raises, quoting secret 4711")
        if part.teacher in self.deadly:
            marker = Path(self.once) / f"died-{part.teacher}"
            if not self.once or not marker.exists():
                if self.once:
                    marker.touch()
                os.kill(os.getpid(), signal.SIGKILL)
        if part.teacher in self.greedy:
            hoard = []
            for _ in range(40):
                hoard.append(np.ones(100 * 2**17))
                time.sleep(0.05)  # slowly, so that Ray sees it coming before the kernel does
        time.sleep(self.pause)
        x = part.x.reshape(len(part.y), -1).astype(np.float64)
        means = np.full((n_classes, x.shape[1]), np.inf)
        for label in np.unique(part.y):
            means[label] = x[part.y == label].mean(axis=0)
        if part.teacher in self.silent:
            means[:] = np.nan
        if self.trained_log:
            (Path(self.trained_log) / f"{part.teacher}-{time.time_ns()}").touch()
        return means

    def predict(self, model: NDArray[Any], x: NDArray[Any], n_classes: int) -> IntArray:
        if np.isnan(model).all():
            raise FloatingPointError("nothing learned")
        flat = x.reshape(len(x), -1).astype(np.float64)
        distances = np.stack([((flat - mean) ** 2).sum(axis=1) for mean in model], axis=1)
        nearest: IntArray = distances.argmin(axis=1)
        return nearest

    def save(self, model: NDArray[Any], path: Path) -> None:
        np.save(path, model)

    def load(self, path: Path) -> NDArray[Any]:
        model: NDArray[Any] = np.load(path, allow_pickle=False)
        return model
