"""``pate sweep``: one recipe with many settings, and what all of them cost together."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pate.commands.options import Address, Json, SerialFlag, Workers, print_json
from pate.commands.run import AllowUnverified, Changes, DataFolder, Out, RecipeName
from pate.commands.settings import parse_changes, parse_grid
from pate.commands.trouble import in_words, shown

if TYPE_CHECKING:
    from pate.experiments.sweeps import Sweep, Trial


def sweep(
    recipe: RecipeName,
    grid: Annotated[
        list[str],
        typer.Option("--grid", "-g", metavar="KEY=A,B,…", help="Values to try, such as aggregator.sigma=20,40,80; repeatable."),
    ],
    settings: Changes = [],  # noqa: B006  (typer reads the default)
    seeds: Annotated[
        int, typer.Option("--seeds", min=1, help="How often each setting runs, with seeds one after the other.")
    ] = 1,
    simulate_votes: Annotated[
        float | None,
        typer.Option(
            "--simulate-votes",
            metavar="ACCURACY",
            help="Touch no data: made-up teachers, right so often, are asked. Free; judges the mechanism alone.",
        ),
    ] = None,
    address: Address = None,
    data: DataFolder = None,
    out: Out = Path("runs"),
    workers: Workers = None,
    serial: SerialFlag = False,
    allow_unverified: AllowUnverified = False,
    json: Json = False,
) -> None:
    """Try settings of a recipe. Every trial on private votes is charged, and a sweep that the budget does not cover is refused.

    A trial that fails is told, the others run, and the command ends with exit code 1.

    Example: pate sweep adult --grid aggregator.sigma=700,800,1000 --seeds 3
    """
    from pate.experiments.recipes.reading import find_recipe
    from pate.experiments.reports.sweep_plot import plot_sweep
    from pate.experiments.sweeps import Request
    from pate.experiments.sweeps import sweep as run_all
    from pate.experiments.teacher_jobs import executor_for

    request = Request(recipe, parse_grid(grid), parse_changes(settings), seeds, simulate_votes)
    with in_words(lambda: "Finished trials are kept: the same command goes on from there."):
        found = run_all(
            request,
            base=find_recipe(recipe).parent,
            data=None if data is None else str(data),
            out=out,
            executor=executor_for(serial, address, workers, 0.0) if serial or address or workers else None,
            show=shown(),
            allow_unverified=allow_unverified,
        )
        pictures = plot_sweep(found, found.folder)
    if json:
        print_json(found.to_json())
    else:
        _print(found)
        typer.echo(f"Table and plot: {', '.join(str(path) for path in pictures)}")
    failed = sum(map(len, found.failed.values()))
    if failed:
        typer.echo(f"pate: {failed} of {len(found.trials)} trials failed; the others are finished.", err=True)
        raise typer.Exit(1)


def _print(found: Sweep) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(title=escape(f"Sweep of {found.title}, delta = {found.delta:g}"))
    for name in (
        *found.grid,
        "seed",
        "accuracy",
        "epsilon, publishable",
        "epsilon, data-dependent",
        "answered",
        "labels right",
    ):
        table.add_column(escape(name), justify="right", overflow="fold")
    for trial in found.trials:
        table.add_row(*(escape(str(each)) for each in trial.changes.values()), str(trial.seed), *_cells(trial))
    console = Console()
    console.print(table)
    for error, trials in found.failed.items():
        told = dict.fromkeys(", ".join(f"{key}={value}" for key, value in trial.changes.items()) for trial in trials)
        console.print(f"[red]{escape('; '.join(told))}:[/red] {escape(error)}", highlight=False, soft_wrap=True)
    spent = "" if found.spent is None else f" So far epsilon {found.spent:.4f} is spent."
    console.print(f"On {found.cost}.{spent}", highlight=False, soft_wrap=True)
    if any(trial.accuracy is not None for trial in found.trials):
        console.print("Accuracies are of the test records: a setting chosen by them is chosen on the test.", highlight=False)


def _cells(trial: Trial) -> list[str]:
    if trial.error is not None:
        return ["failed", "", "", "", ""]
    accuracy = "–" if trial.accuracy is None else f"{trial.accuracy:.2%} ± {trial.standard_error or 0:.2%}"
    return [
        accuracy,
        _number(trial.epsilon, ".4f"),
        _number(trial.epsilon_dependent, ".4f"),
        f"{trial.answered} of {trial.asked}",
        _number(trial.labels_right, ".1%"),
    ]


def _number(value: Any, form: str) -> str:
    return "–" if value is None else format(value, form)
