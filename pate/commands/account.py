"""``pate account`` and ``pate tables``: what votes cost, by every accountant."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pate.commands.options import AggregatorName, Delta, Json, Scores, Settings, print_json
from pate.commands.settings import parse_settings

if TYPE_CHECKING:
    from pate.experiments.accounting import Account
    from pate.experiments.sanitising import Sanitised

VoteFile = Annotated[
    Path, typer.Argument(metavar="VOTES", help="Integer array, queries by classes: .npy, or .npz under the name 'counts'.")
]


def account(
    votes: VoteFile,
    aggregator: AggregatorName,
    settings: Settings = [],  # noqa: B006  (typer reads the default)
    scores: Scores = None,
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
    sanitise: Annotated[
        bool, typer.Option("--sanitise", help="Also draw an epsilon that may be published; --ledger pays for it.")
    ] = False,
    method: Annotated[str, typer.Option("--method", help="Of --sanitise: growth, or gnss (smooth sensitivity).")] = "growth",
    ledger: Annotated[
        str | None, typer.Option("--ledger", help="Of --sanitise: the ledger, an SQLite file or a PostgreSQL URL.")
    ] = None,
    dataset: Annotated[
        str | None, typer.Option("--dataset", help="Fingerprint of the private data, where the votes do not state it.")
    ] = None,
    again: Annotated[
        bool, typer.Option("--again", help="Draw and charge another sanitised epsilon, though one was drawn.")
    ] = False,
    simulate: Annotated[
        int | None, typer.Option("--simulate", min=0, metavar="SEED", help="Seeded noise: repeatable, stamped, not private.")
    ] = None,
    json: Json = False,
) -> None:
    """What it costs to ask these queries: data-independent, exact data-dependent, and the published bounds.

    Example: pate account votes.npz --aggregator gnmax --set sigma=40 --queries 640 --delta 1e-5
    """
    from dataclasses import replace

    from pate.aggregators import make_aggregator
    from pate.errors import ParameterError
    from pate.experiments.accounting import account as compute
    from pate.experiments.score_files import told_of_student
    from pate.experiments.vote_files import read_votes

    mechanism = told_of_student(make_aggregator(aggregator, parse_settings(settings)), scores)
    file = read_votes(votes, queries=queries, teachers=teachers, participation=participation)
    if queries is not None:
        mechanism = mechanism.part(0, queries)
    if sanitise and ledger is None and simulate is not None and (again or dataset is not None):
        raise ParameterError("--again and --dataset belong to --ledger; --simulate without one draws the same each time.")
    if sanitise:
        from pate.aggregators.interrupts import uninterrupted
        from pate.commands.sanitising import sanitised

        # First: a release that cannot be had, or paid for, is refused before anything is computed from votes.
        with uninterrupted():  # from the charge until the ledger holds what was drawn
            told = sanitised(file, mechanism, delta, method, ledger, dataset, again, simulate)
    elif method != "growth" or again or any(each is not None for each in (ledger, dataset, simulate)):
        raise ParameterError("--method, --ledger, --dataset, --again and --simulate belong to --sanitise.")
    else:
        told = None
    report = replace(compute(file.votes, mechanism, delta, file.predictions), sanitised=told)
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
        title = line.title if line.slack is None else f"{line.title}, slack {line.slack[-1]:.2g}"
        table.add_row(title, f"{best.epsilon:.4f}", f"{best.order:g}", f"{classic.epsilon:.4f}", audience)
        if line is (report.per_teacher or report.dependent):
            told = report.sanitised
            if told is None:
                table.add_row("sanitised", "–", "–", "–", "not drawn: --sanitise")
            else:
                audience = "anybody" if told.mode == "release" else told.stamp
                table.add_row("sanitised", f"{told.epsilon:.4f}", f"{told.order:g}", "–", audience)
            table.add_section()
    console = Console()
    console.print(table)
    answered = report.expected_answered
    if report.sanitised is not None:
        console.print(_about_sanitised(report.sanitised), highlight=False)
    expected = "not known" if answered is None else f"{answered:.1f} answered, {len(votes) - answered:.1f} abstained"
    console.print(
        f"Expected: {expected} (the owner only).\n"
        "[dim]epsilon: improved conversion (Canonne, Kamath, Steinke 2020); classic: Mironov 2017. "
        "Neighbours: one record replaced, so one vote moves on every query.[/dim]",
        highlight=False,
    )


def _about_sanitised(told: Sanitised) -> str:
    useless = "" if told.helps else " It is no smaller than the data-independent one: publish that, and keep this one."
    return (
        f"Sanitised: {told.low:.4f} to {told.high:.4f} is one standard deviation of its noise; what is published lies above, "
        f"and is too low with probability {told.failure:.2g} at most. It covers the answers and this release, which costs "
        f"{told.release_rdp:.4f} at order {told.order:g}.{useless}"
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
