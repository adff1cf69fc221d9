"""What happens while a student learns: shown as it happens, and kept in the student's record."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from pate.progress import Show, tracked

Step = Callable[..., None]
"""Called with named numbers when one more piece of a stage is done."""


class Diary:
    """The stages of fitting, with the numbers each step reports.

    >>> diary = Diary("vat", show="none")
    >>> with diary.stage("training", 2) as step:
    ...     step(loss=0.5)
    ...     step(loss=0.25)
    >>> diary.rows[-1]
    {'stage': 'training', 'step': 2, 'loss': 0.25}
    """

    def __init__(self, title: str, show: Show = "none") -> None:
        self.rows: list[dict[str, float | str]] = []
        self.pretraining_seconds = 0.0  # inside ``fitting``; next to none where the features were found in the cache
        self._title = title
        self._show = show

    @contextmanager
    def stage(self, name: str, total: int) -> Iterator[Step]:
        """A progress bar of ``total`` steps; call what it gives after each, with the loss and public-side metrics."""
        with tracked(f"{self._title}, {name}", total, show=self._show) as progress:

            def step(**numbers: float) -> None:
                progress.note = ", ".join(f"{key} {value:.4g}" for key, value in numbers.items())
                self.rows.append(
                    {"stage": name, "step": progress.done + 1, **{key: float(value) for key, value in numbers.items()}}
                )
                progress.advance(1)

            yield step

    @contextmanager
    def fitting(self) -> Iterator[Callable[[str, int, int], None]]:
        """For :meth:`pate.features.Features.fit`: each extractor that reports is a stage of its own."""
        start = time.monotonic()
        with ExitStack() as stages:
            steps: dict[str, Step] = {}

            def told(name: str, done: int, total: int) -> None:
                if name not in steps:
                    steps[name] = stages.enter_context(self.stage(name, total))
                steps[name]()

            yield told
        self.pretraining_seconds += time.monotonic() - start
