"""``pate compare``: runs and baselines side by side."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pate.commands.options import Json, print_json
from pate.commands.trouble import in_words

if TYPE_CHECKING:
    from pate.experiments.reports.comparing import Compared


def compare(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN…", help="Directories of finished runs, or result.json files.")],
    plot: Annotated[
        Path | None, typer.Option("--plot", help="Accuracy against epsilon as a picture (.png, .svg, .pdf).")
    ] = None,
    json: Json = False,
) -> None:
    """Accuracy and epsilon of several runs in one table, and what keeps them from being compared."""
    from pate.experiments.reports.comparing import Compared, plot_comparison

    with in_words(lambda: "Nothing was compared."):
        compared = Compared.read(runs)
        if plot is not None:
            plot_comparison(compared, plot)
    if json:
        print_json(compared.to_json())
        return
    _print(compared)
    if plot is not None:
        typer.echo(f"Plot: {plot}")


def _print(compared: Compared) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(title="Runs side by side; data-dependent epsilons are private")
    epsilons = ("epsilon, publishable", "epsilon, data-dependent")
    for name in ("run", "data", "kind", "accuracy", "AUC", *epsilons, "delta", "answered", "mode"):
        table.add_column(name, overflow="fold")
    for row in compared.to_json()["runs"]:
        accuracy = "–" if row["accuracy"] is None else f"{row['accuracy']:.2%} ± {row['standard_error']:.2%}"
        cells = (row["run"], row["data"], row["kind"], accuracy, _number(row["auc"]), _number(row["epsilon"]))
        more = (_number(row["epsilon_dependent"]), f"{row['delta']:g}", _answered(row), row["mode"])
        table.add_row(*(escape(str(cell)) for cell in (*cells, *more)))
    console = Console()
    console.print(table)
    for note in compared.notes:
        console.print(escape(note), highlight=False, soft_wrap=True)


def _answered(row: dict[str, Any]) -> str:
    return "–" if row["asked"] is None else f"{row['answered']} of {row['asked']}"


def _number(value: Any) -> str:
    return "–" if value is None else f"{value:.4f}"
