"""``pate account`` and ``pate tables``: what votes cost, by every accountant."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pate.commands.options import AggregatorName, Delta, Json, Settings, print_json
from pate.commands.settings import parse_settings

if TYPE_CHECKING:
    from pate.experiments.accounting import Account

VoteFile = Annotated[
    Path, typer.Argument(metavar="VOTES", help="Integer array [query, class]: .npy, or .npz under the name 'counts'.")
]


def account(
    votes: VoteFile,
    aggregator: AggregatorName,
    settings: Settings = [],  # noqa: B006  (typer reads the default)
    queries: Annotated[int | None, typer.Option("--queries", min=1, help="Use the first N rows only.")] = None,
    delta: Delta = 1e-5,
    teachers: Annotated[
        int | None, typer.Option("--teachers", min=1, help="Number of voters, needed with --participation.")
    ] = None,
    participation: Annotated[
        int | None,
        typer.Option("--participation", min=1, help="Partial votes: each voter votes on at most M queries of the file."),
    ] = None,
    plot: Annotated[
        Path | None, typer.Option("--plot", help="Draw epsilon over queries into this file (.png, .svg, .pdf).")
    ] = None,
    json: Json = False,
) -> None:
    """What it costs to ask these queries: data-independent, exact data-dependent, and the published bounds.

    Example: pate account votes.npz --aggregator gnmax --set sigma=40 --queries 640 --delta 1e-5
    """
    from pate.aggregators import make_aggregator
    from pate.experiments.accounting import account as compute
    from pate.experiments.vote_files import read_votes

    mechanism = make_aggregator(aggregator, parse_settings(settings))
    file = read_votes(votes, queries=queries, teachers=teachers, participation=participation)
    report = compute(file.votes, mechanism, delta, file.predictions)
    if plot is not None:
        from pate.experiments.plots import plot_account

        plot_account(report, plot)
    if json:
        print_json(report.to_json())
        return
    _print_report(report)
    if plot is not None:
        typer.echo(f"Plot: {plot}")


def _print_report(report: Account) -> None:
    from rich.console import Console
    from rich.table import Table

    votes = report.votes
    table = Table(title=f"{report.aggregator!r}: {len(votes)} queries, {votes.n_teachers} teachers, delta = {report.delta:g}")
    for column in ("accountant", "epsilon", "order", "classic", "who may see it"):
        table.add_column(column, justify="right" if column in ("epsilon", "order", "classic") else "left")
    for line in report.lines:
        best, classic = line.epsilon(report.delta), line.epsilon(report.delta, "classic")
        audience = "anybody" if line.publishable else "the owner only" if line.is_bound else "nobody: it is no upper bound"
        table.add_row(line.title, f"{best.epsilon:.4f}", f"{best.order:g}", f"{classic.epsilon:.4f}", audience)
        if line is (report.per_teacher or report.dependent):
            table.add_row("sanitised", "–", "–", "–", "not available yet")
            table.add_section()
    console = Console()
    console.print(table)
    answered = report.expected_answered
    console.print(
        f"Expected: {answered:.1f} answered, {len(votes) - answered:.1f} abstained (the owner only).\n"
        "[dim]epsilon: improved conversion (Canonne, Kamath, Steinke 2020); classic: Mironov 2017. "
        "Neighbours: one record replaced, so one vote moves on every query.[/dim]",
        highlight=False,
    )


def tables(votes: VoteFile, delta: Delta = 1e-5, json: Json = False) -> None:
    """The comparison tables of docs/accounting.md: published bounds against the exact and the certified ones.

    Uses the first 640 queries of VOTES (250 teachers in the published table: tests/golden/mnist_votes_250.npz).
    """
    from pate.experiments.comparison import comparison
    from pate.experiments.vote_files import read_votes

    report = comparison(read_votes(votes).votes, delta)
    if json:
        print_json(report.to_json())
    else:
        report.print()
