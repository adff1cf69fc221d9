"""``pate plan``: what a budget buys."""

from __future__ import annotations

from typing import Annotated

import typer

from pate.commands.options import AggregatorName, BudgetSlack, Delta, Json, Settings, print_json
from pate.commands.settings import parse_settings


def plan(
    epsilon: Annotated[float, typer.Option("--epsilon", help="The budget.")],
    teachers: Annotated[int, typer.Option("--teachers", min=1, help="Number of teachers (voters).")],
    aggregator: AggregatorName = "gnmax",
    settings: Settings = [],  # noqa: B006  (typer reads the default)
    delta: Delta = 1e-5,
    slack: BudgetSlack = 0.0,
    classes: Annotated[int, typer.Option("--classes", min=2, help="Number of classes.")] = 10,
    participation: Annotated[
        int | None, typer.Option("--participation", min=1, help="Partial votes: at most M votes per voter.")
    ] = None,
    json: Json = False,
) -> None:
    """How many queries a budget buys, before any data is touched, over a sweep of the noise.

    Example: pate plan --epsilon 1 --delta 1e-5 --teachers 250 --aggregator gnmax
    """
    from pate.experiments.planning import plan as compute
    from pate.ledger import Budget
    from pate.release import Electorate

    budget = Budget(epsilon, delta, slack=slack)
    rows = compute(aggregator, parse_settings(settings), budget, Electorate(teachers, classes, participation))
    if json:
        facts = {"epsilon": epsilon, "delta": delta, "teachers": teachers, "classes": classes, "participation": participation}
        print_json({**facts, "filter_order": budget.order, "plans": [row.to_json() for row in rows]})
        return
    from rich.console import Console
    from rich.table import Table

    unit = "queries" if participation is None else "batches"
    table = Table(title=f"What epsilon = {epsilon:g}, delta = {delta:g} buys with {teachers} teachers, {classes} classes")
    for column in ("aggregator", unit, "epsilon spent", "lead needed", "of teachers"):
        table.add_column(column, justify="left" if column == "aggregator" else "right")
    for row in rows:
        lead = ("–", "–") if row.lead is None else (f"{row.lead:.1f} votes", f"{row.lead / teachers:.0%}")
        table.add_row(repr(row.aggregator), f"{row.queries:,}", f"{row.epsilon:.4f}", *lead)
    console = Console()
    console.print(table)
    console.print(
        "[dim]Counted as a ledger would: data-independent cost, held below a cap at one order "
        f"({budget.order:g}) fixed by the budget. Lead needed: by how much one class must lead another "
        "to come out ahead with 99% probability.[/dim]",
        highlight=False,
    )
