"""``pate demo``: a whole PATE job in a few seconds."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated

import typer


def demo(
    out: Annotated[
        Path | None, typer.Option("--out", help="Directory for ledger and teachers; a new temporary one unless given.")
    ] = None,
    ray: Annotated[bool, typer.Option("--ray", help="Train and ask the teachers on Ray, all cores of this machine.")] = False,
    seed: Annotated[int | None, typer.Option("--seed", help="Simulate with seeded noise: repeatable, not private.")] = None,
) -> None:
    """PATE end to end on scikit-learn's embedded digits: private data in, a student and its epsilon out."""
    from rich.console import Console
    from rich.table import Table

    from pate.execution import OnRay, Serial
    from pate.experiments.demo import DELTA, run
    from pate.noise import noise_for

    console = Console()
    directory = Path(tempfile.mkdtemp(prefix="pate-demo-")) if out is None else out
    noise = noise_for("release") if seed is None else noise_for("simulation", seed)
    with OnRay() if ray else Serial() as executor:
        result = run(noise, directory, lambda line: console.print(f"[dim]…[/dim] {line}", highlight=False), executor)

    table = Table(title=f"PATE on scikit-learn's digits, delta = {DELTA:g}")
    for column in ("labels from", "labels", "student accuracy", "epsilon, publishable", "epsilon, data-dependent"):
        table.add_column(column, justify="left" if column == "labels from" else "right", overflow="fold")
    for each in result.outcomes:
        table.add_row(
            each.title,
            str(int(each.release.answered.sum())),
            f"{each.accuracy:.1%}",
            f"{each.independent.epsilon:.3f}",
            f"{each.dependent.epsilon:.3f}",
        )
    console.print(table)
    console.print(
        f"Both looked at the same private data, so the ledger adds them up: epsilon {result.total.epsilon:.3f} spent of "
        f"{result.budget.epsilon:g}.\n"
        f"{result.outcomes[0].release.stamp.capitalize()}. A data-dependent epsilon is itself private: for the owner only.\n"
        f"Next: pate ledger show {result.ledger_path}, pate student show {directory / 'student-1.zip'}",
        highlight=False,
        soft_wrap=True,
    )
