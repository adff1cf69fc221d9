"""``pate check``: prove an aggregator or a teacher family, yours or a built-in one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from pate.commands.options import Json, print_json
from pate.commands.settings import parse_settings, parse_shape

if TYPE_CHECKING:
    from pate.testing.report import Report

_TEACHERS, _SAMPLES, _FALSE_ALARM = 250, 1_000_000, 1e-6


def check(
    part: Annotated[
        str, typer.Argument(metavar="PART", help="An aggregator or a teacher family: package.module:Class, or a built-in name.")
    ],
    settings: Annotated[
        list[str], typer.Option("--set", "-s", metavar="KEY=VALUE", help="A parameter of the part; repeatable.")
    ] = [],  # noqa: B006  (typer reads the default)
    teachers: Annotated[
        int | None, typer.Option("--teachers", help=f"Aggregators: teachers that the parameters fit; {_TEACHERS} unless given.")
    ] = None,
    classes: Annotated[
        int | None, typer.Option("--classes", help="Classes to test with; 10 (families: 4) unless given.")
    ] = None,
    samples: Annotated[
        int | None, typer.Option("--samples", help="Aggregators: noisy counts drawn for each audited table; a million.")
    ] = None,
    false_alarm: Annotated[
        float | None, typer.Option("--false-alarm", help=f"Aggregators: chance that a right one fails; {_FALSE_ALARM:g}.")
    ] = None,
    shape: Annotated[
        str | None, typer.Option("--shape", help="Families: shape of one record, such as 28,28; 12 numbers unless given.")
    ] = None,
    json: Json = False,
) -> None:
    """Prove that an aggregator or a teacher family keeps its contract. Exit code 1 if not.

    An aggregator's privacy costs must not be too small; no teacher of a family may depend on another teacher's records.

    Example: pate check my_package.my_module:MyAggregator --set sigma=40 --teachers 250
    """
    parameters = parse_settings(settings)
    if _is_family(part):
        _refuse("a teacher family", {"--teachers": teachers, "--samples": samples, "--false-alarm": false_alarm})
        report, facts = _check_family(part, parameters, classes, shape)
    else:
        _refuse("an aggregator", {"--shape": shape})
        report, facts = _check_aggregator(part, parameters, teachers, classes, samples, false_alarm)
    if json:
        print_json({**report.to_json(), **facts})
    else:
        _print_report(report, facts)
    if not report.passed:
        raise typer.Exit(1)


def _check_aggregator(
    part: str,
    parameters: dict[str, Any],
    teachers: int | None,
    classes: int | None,
    samples: int | None,
    false_alarm: float | None,
) -> tuple[Report, dict[str, Any]]:
    from pate.aggregators import make_aggregator
    from pate.experiments.verification import is_built_in, remember_check
    from pate.testing import check_aggregator

    facts: dict[str, Any] = {
        "teachers": _TEACHERS if teachers is None else teachers,
        "classes": 10 if classes is None else classes,
        "samples": _SAMPLES if samples is None else samples,
        "false_alarm": _FALSE_ALARM if false_alarm is None else false_alarm,
    }
    aggregator = make_aggregator(part, parameters)
    report = check_aggregator(
        aggregator,
        n_teachers=facts["teachers"],
        n_classes=facts["classes"],
        samples=facts["samples"],
        false_alarm=facts["false_alarm"],
        raise_on_failure=False,
    )
    if report.passed and not is_built_in(aggregator):
        remember_check(aggregator, facts["teachers"], facts["classes"])
    return report, facts


def _check_family(
    part: str, parameters: dict[str, Any], classes: int | None, shape: str | None
) -> tuple[Report, dict[str, Any]]:
    from pate.teachers import teacher_family
    from pate.testing import check_family

    facts: dict[str, Any] = {"classes": 4 if classes is None else classes, "shape": list(parse_shape(shape) or (12,))}
    report = check_family(
        teacher_family(part, parameters), n_classes=facts["classes"], shape=tuple(facts["shape"]), raise_on_failure=False
    )
    return report, facts


def _is_family(part: str) -> bool:
    """Whether ``part`` names teachers; an error if it names nothing."""
    import inspect
    from importlib.metadata import entry_points

    from pate.aggregators import Aggregator
    from pate.aggregators import registry as aggregators
    from pate.errors import ReferenceNotFound
    from pate.references import did_you_mean, load_reference
    from pate.teachers import registry as families

    if ":" in part:
        found = load_reference(part)
        return inspect.isclass(found) and not issubclass(found, Aggregator) and callable(getattr(found, "fit", None))
    known = {
        kind: {*built_in, *(point.name for point in entry_points(group=group))}
        for kind, built_in, group in (
            ("aggregators", aggregators.BUILT_IN, aggregators.ENTRY_POINT_GROUP),
            ("teachers", families.BUILT_IN, families.ENTRY_POINT_GROUP),
        )
    }
    if not any(part in names for names in known.values()):
        listed = "; ".join(f"{kind}: {', '.join(sorted(names))}" for kind, names in known.items())
        raise ReferenceNotFound(
            f"{part!r} is no known aggregator or teacher family{did_you_mean(part, set().union(*known.values()))} "
            f"Known {listed}; your own is named 'package.module:Class'."
        )
    return part in known["teachers"]


def _refuse(what: str, given: dict[str, Any]) -> None:
    from pate.errors import ParameterError

    wrong = [option for option, value in given.items() if value is not None]
    if wrong:
        raise ParameterError(f"{' and '.join(wrong)} cannot be used with {what}: leave it out.")


def _print_report(report: Report, facts: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    told = f"{facts['teachers']} teachers" if "teachers" in facts else f"records of shape {tuple(facts['shape'])}"
    table = Table(title=escape(f"{report.subject}: {told}, {facts['classes']} classes"))
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
    if "evidence" in report.facts:
        verdict += f"; evidence for the costs: {report.facts['evidence']}"
    console.print(verdict, highlight=False)
