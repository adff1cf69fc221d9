"""``pate bench``: speed as ratios, alternatives interleaved in one run."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pate.commands.options import Json, print_json

if TYPE_CHECKING:
    from rich.table import Table

app = typer.Typer(no_args_is_help=True)


@app.callback()
def benchmarks() -> None:
    """Speed, measured as ratios in one run."""


@app.command("account")
def account(
    queries: Annotated[int, typer.Option("--queries", min=1)] = 10_000,
    classes: Annotated[int, typer.Option("--classes", min=2)] = 10,
    orders: Annotated[int, typer.Option("--orders", min=1)] = 60,
    rounds: Annotated[int, typer.Option("--rounds", min=1)] = 5,
    json: Json = False,
) -> None:
    """The exact accountant against a per-query loop over the published 2018 bound."""
    from pate.experiments.bench.account import run, table

    _show(run(queries=queries, classes=classes, n_orders=orders, rounds=rounds), table, json)


@app.command("noise")
def noise(
    draws: Annotated[int, typer.Option("--draws", min=1)] = 1_000_000,
    rounds: Annotated[int, typer.Option("--rounds", min=1)] = 5,
    json: Json = False,
) -> None:
    """Exact noise against NumPy's floating-point sampler."""
    from pate.experiments.bench.noise import run, table

    _show(run(draws, rounds), table, json)


def _show(rows: list[dict[str, Any]], table: Callable[[list[dict[str, Any]]], Table], json: bool) -> None:
    if json:
        print_json(rows)
        return
    from rich.console import Console

    Console().print(table(rows))
