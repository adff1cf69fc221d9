"""``pate check``: prove an aggregator, yours or a built-in one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from pate.commands.options import Json, Settings, print_json
from pate.commands.settings import parse_settings

if TYPE_CHECKING:
    from pate.testing import CheckReport


def check(
    aggregator: Annotated[str, typer.Argument(metavar="AGGREGATOR", help="package.module:Class, or a built-in name.")],
    settings: Settings = [],  # noqa: B006  (typer reads the default)
    teachers: Annotated[int, typer.Option("--teachers", help="Teachers to test with; the parameters should fit them.")] = 250,
    classes: Annotated[int, typer.Option("--classes", help="Classes to test with.")] = 10,
    samples: Annotated[int, typer.Option("--samples", help="Noisy counts drawn for each audited table.")] = 1_000_000,
    false_alarm: Annotated[float, typer.Option("--false-alarm", help="Chance that a right aggregator fails.")] = 1e-6,
    json: Json = False,
) -> None:
    """Prove that an aggregator keeps its contract and that its privacy costs are not too small. Exit code 1 if not.

    Example: pate check my_package.my_module:MyAggregator --set sigma=40 --teachers 250
    """
    from pate.aggregators import make_aggregator
    from pate.testing import check_aggregator

    report = check_aggregator(
        make_aggregator(aggregator, parse_settings(settings)),
        n_teachers=teachers,
        n_classes=classes,
        samples=samples,
        false_alarm=false_alarm,
        raise_on_failure=False,
    )
    if json:
        facts = {"teachers": teachers, "classes": classes, "samples": samples, "false_alarm": false_alarm}
        print_json({**report.to_json(), **facts})
    else:
        _print_report(report, teachers, classes)
    if not report.passed:
        raise typer.Exit(1)


def _print_report(report: CheckReport, teachers: int, classes: int) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(title=escape(f"{report.aggregator}: {teachers} teachers, {classes} classes"))
    table.add_column("")
    table.add_column("check", no_wrap=True)
    table.add_column("found", overflow="fold")
    for each in report.checks:
        mark = "[green]✓[/green]" if each.passed else "[red]✗[/red]"
        table.add_row(mark, each.name, escape(each.detail))
    console = Console()
    console.print(table)
    failed = len(report.failures)
    verdict = f"{failed} of {len(report.checks)} checks failed" if failed else f"all {len(report.checks)} checks passed"
    console.print(f"{verdict}; evidence for the costs: {report.evidence}", highlight=False)
