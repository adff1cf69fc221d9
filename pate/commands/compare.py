"""``pate compare``: runs and baselines side by side."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pate.commands.options import Json, print_json
from pate.commands.trouble import in_words

if TYPE_CHECKING:
    from pate.experiments.reports.comparing import Compared

_NONE = "–"


def compare(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN…", help="Directories of finished runs, or result.json files.")],
    plot: Annotated[
        Path | None, typer.Option("--plot", help="Accuracy against epsilon as a picture (.png, .svg, .pdf).")
    ] = None,
    json: Json = False,
) -> None:
    """Accuracy and epsilon of several runs in one table, and what keeps them from being compared.

    Runs that have not finished are left out, and named.
    """
    from pate.experiments.reports.comparing import Compared, plot_comparison

    with in_words(lambda: "Nothing was compared."):
        compared = Compared.read(_finished(runs))
        if plot is not None:
            plot_comparison(compared, plot)
    if json:
        print_json(compared.to_json())
        return
    _print(compared)
    if plot is not None:
        typer.echo(f"Plot: {plot}")


def _finished(runs: list[Path]) -> list[Path]:
    """Without directories of runs that were stopped or refused, unless all are such: `runs/digits-*` names them, too."""
    from pate.experiments.pipeline.folder import RECIPE, RESULT

    stopped = [run for run in runs if (run / RECIPE).is_file() and not (run / RESULT).exists()]
    if len(stopped) == len(runs):
        return runs
    for run in stopped:
        typer.echo(f"pate: note: {run}: not finished, so left out.", err=True)
    return [run for run in runs if run not in stopped]


def _print(compared: Compared) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    rows = [_cells(row) for row in compared.to_json()["runs"]]
    # What all have in common stands below: a terminal of 80 columns has room for what differs.
    shared = [name for name in ("data", "kind", "AUC", "delta", "mode") if len({row[name] for row in rows}) == 1]
    table = Table(title="Runs side by side; data-dependent epsilons are private")
    for name in rows[0]:
        if name not in shared:
            table.add_column(name, overflow="fold", no_wrap=name == "accuracy")
    for row in rows:
        table.add_row(*(escape(cell) for name, cell in row.items() if name not in shared))
    console = Console()
    console.print(table)
    common = ", ".join(f"{name} {rows[0][name]}" for name in shared if rows[0][name] != _NONE)
    if common:
        console.print(escape(f"All: {common}."), highlight=False, soft_wrap=True)
    for note in compared.notes:
        console.print(escape(note), highlight=False, soft_wrap=True)


def _cells(row: dict[str, Any]) -> dict[str, str]:
    return {
        "run": row["run"],
        "data": row["data"],
        "kind": row["kind"],
        "accuracy": _NONE if row["accuracy"] is None else f"{row['accuracy']:.2%} ± {row['standard_error']:.2%}",
        "AUC": _number(row["auc"]),
        "epsilon,\npublishable": _number(row["epsilon"]),
        "epsilon,\ndata-dependent": _number(row["epsilon_dependent"]),
        "delta": f"{row['delta']:g}",
        "answered": _NONE if row["asked"] is None else f"{row['answered']} of {row['asked']}",
        "mode": row["mode"],
    }


def _number(value: Any) -> str:
    return _NONE if value is None else f"{value:.4f}"
