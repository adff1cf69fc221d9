"""How fast is exact noise? Against NumPy's floating-point sampler, which has holes but nothing else to do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from rich.table import Table

from pate.experiments.bench.timing import median_seconds
from pate.noise import OSNoise, SimulatedNoise

SIGMA = 40.0
BASELINE = "NumPy, floating point, not for release"


def run(draws: int = 1_000_000, rounds: int = 5) -> list[dict[str, Any]]:
    """Median seconds for ``draws`` draws of each sampler over interleaved rounds."""
    generator = np.random.default_rng(0)
    simulated = SimulatedNoise(0)
    tasks: dict[str, Callable[[], object]] = {
        BASELINE: lambda: generator.normal(0, SIGMA, draws),
        "exact Gaussian, operating system": lambda: OSNoise().gaussian(SIGMA, (draws,)),
        "exact Gaussian, seeded": lambda: simulated.gaussian(SIGMA, (draws,)),
        "exact Laplace, operating system": lambda: OSNoise().laplace(SIGMA, (draws,)),
    }
    median = median_seconds(tasks, rounds)
    return [
        {"sampler": task, "draws": draws, "per_second": draws / value, "times_numpy": value / median[BASELINE]}
        for task, value in median.items()
    ]


def table(rows: list[dict[str, Any]]) -> Table:
    """The rows of :func:`run` as a table for people."""
    result = Table(title=f"Drawing noise, {rows[0]['draws']:,} draws")
    for column in ("sampler", "draws a second", "time, as a multiple of NumPy's"):
        result.add_column(column, justify="left" if column == "sampler" else "right")
    for row in rows:
        result.add_row(row["sampler"], f"{row['per_second']:,.0f}", f"{row['times_numpy']:.1f}")
    return result
