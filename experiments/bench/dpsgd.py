"""How much does a private step cost? DP-SGD as a multiple of the plain step: this package, and Opacus's modes."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import Any

from rich.table import Table

from pate.errors import ParameterError
from pate.execution.threads import one_thread
from pate.extras import require

MODELS = ("mnist-cnn", "mlp", "logistic", "groupnorm-cnn")
MODES = ("hooks", "ew", "functorch", "ghost")  # Opacus's
_SLICE = 0.02  # seconds that one measurement takes at least: shorter steps are repeated


def run(
    models: Sequence[str] = MODELS,
    rounds: int = 9,
    quick: bool = False,
    memory: bool = False,
    report: Callable[[str], None] = lambda line: None,
) -> list[dict[str, Any]]:
    """Each way's milliseconds a step, and the median over rounds of its ratio to the plain step of the same round.

    All ways are interleaved, in CPU time on one thread. ``quick``: a batch of 16 and one round, only to see that it runs.
    Without Opacus its rows are left out. ``memory``: also by how much steps raise the peak memory of a fresh process.
    """
    unknown = [name for name in models if name not in MODELS]
    if unknown or not models:
        raise ParameterError(f"--models must be some of {', '.join(MODELS)}; got {', '.join(unknown) or 'none'}.")
    require("torch", "train")  # so that it too is held to one thread
    from pate.experiments.bench import dpsgd_steps as steps

    ways = [steps.PLAIN, steps.OURS, steps.EXACT]
    if find_spec("opacus") is None:
        report("Opacus is not installed: its rows are left out")
    else:
        ways += [steps.OPACUS + mode for mode in (("hooks", "ghost") if quick else MODES)]
    rows: list[dict[str, Any]] = []
    with one_thread(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Opacus, of its own hooks
        for name in models:
            subject = steps.SUBJECTS[name]
            for batch in (16,) if quick else subject.batches:
                report(f"{name}, batch {batch}")
                tasks = {way: steps.make_step(way, subject, batch) for way in ways}
                found = _ratios(tasks, steps.PLAIN, 1 if quick else rounds, 0.0 if quick else _SLICE)
                for way in ways:
                    row = {"model": name, "batch": batch, "way": way, **found[way]}
                    rows.append(row | ({"peak_megabytes": _peak(way, name, batch)} if memory else {}))
    return rows


def _ratios(tasks: dict[str, Callable[[], object]], plain: str, rounds: int, least: float) -> dict[str, dict[str, float]]:
    repeats = {}
    for way, work in tasks.items():
        work()  # what is done once only
        repeats[way] = max(1, int(least / max(_seconds(work, 1), 1e-6)))
    times: dict[str, list[float]] = {way: [] for way in tasks}
    for _ in range(rounds):
        for way, work in tasks.items():
            times[way].append(_seconds(work, repeats[way]))
    return {
        way: {
            "milliseconds": 1000 * statistics.median(found),
            "times_plain": statistics.median(mine / base for mine, base in zip(found, times[plain], strict=True)),
        }
        for way, found in times.items()
    }


def _seconds(work: Callable[[], object], repeats: int) -> float:
    start = time.process_time()
    for _ in range(repeats):
        work()
    return (time.process_time() - start) / repeats


def _peak(way: str, name: str, batch: int) -> float:
    command = [sys.executable, "-m", "pate.experiments.bench.dpsgd_steps", way, name, str(batch)]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout) / 1e6


def table(rows: list[dict[str, Any]]) -> Table:
    """The rows of :func:`run` as a table for people."""
    memory = "peak_megabytes" in rows[0]
    result = Table(title="A step of DP-SGD (forward, backward, clip, noise, update), CPU time on one thread")
    for column in ("model", "batch", "way", "ms a step", "times the plain step", *(("peak extra MB",) if memory else ())):
        result.add_column(column, justify="left" if column in ("model", "way") else "right")
    for row in rows:
        numbers = [f"{row['milliseconds']:.2f}", f"{row['times_plain']:.2f}"]
        numbers += [f"{row['peak_megabytes']:.0f}"] if memory else []
        result.add_row(row["model"], str(row["batch"]), row["way"], *numbers)
    return result
