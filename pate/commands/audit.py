"""``pate audit``: lower bounds on epsilon from outside, beside the claims."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pate.commands.options import Delta, Json, Settings, print_json
from pate.commands.run import Changes, DataFolder, RecipeName
from pate.commands.settings import parse_changes, parse_settings
from pate.commands.trouble import in_words, shown

if TYPE_CHECKING:
    from pate.testing.audit_report import AuditReport, LowerBound

app = typer.Typer(no_args_is_help=True)

_QUICK = 5  # times fewer runs

Runs = Annotated[
    int | None, typer.Option("--runs", help="Runs in each of two worlds; a number that takes minutes unless given.")
]
Quick = Annotated[bool, typer.Option("--quick", help="A fifth of the runs: only gross leaks show.")]
Confidence = Annotated[float, typer.Option("--confidence", help="A right claim is refuted with at most 1 minus this.")]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Of the audit's noise and choices: the same seed, the same audit.")]
Plot = Annotated[Path | None, typer.Option("--plot", help="Bars of lower bounds and claims (.png, .svg, .pdf).")]


@app.callback()
def audit() -> None:
    """Lower bounds on epsilon from outside, beside what is claimed. Exit code 1 where a claim is refuted.

    Example: pate audit run digits
    """


@app.command("aggregator")
def aggregator(
    name: Annotated[str, typer.Argument(metavar="NAME", help="gnmax, lnmax, …, or package.module:Class.")],
    settings: Settings = [],  # noqa: B006  (typer reads the default)
    votes: Annotated[
        Path | None,
        typer.Option("--votes", help="Votes of a run (private): these are audited, with all that they could be beside."),
    ] = None,
    queries: Annotated[
        int | None,
        typer.Option("--queries", min=1, help="Queries asked of one table, 400 unless given; or the first of the file."),
    ] = None,
    teachers: Annotated[
        int | None, typer.Option("--teachers", min=4, help="Without votes: who votes; 250 unless given.")
    ] = None,
    classes: Annotated[int | None, typer.Option("--classes", min=2, help="Without votes: on how many classes; 10.")] = None,
    delta: Delta = 1e-5,
    runs: Runs = None,
    quick: Quick = False,
    confidence: Confidence = 0.99,
    seed: Seed = 0,
    plot: Plot = None,
    json: Json = False,
) -> None:
    """What an aggregator costs at least: exactly where it states probabilities, and from real releases in any case.

    Example: pate audit aggregator gnmax --set sigma=40 --teachers 250
    """
    from pate.aggregators import make_aggregator
    from pate.errors import ParameterError
    from pate.experiments.vote_files import read_votes
    from pate.testing.audit_aggregator import DEFAULT_QUERIES, audit_aggregator, default_runs

    mechanism = make_aggregator(name, parse_settings(settings))
    if votes is not None and (teachers is not None or classes is not None):
        raise ParameterError("The votes say how many teachers and classes there are: leave out --teachers and --classes.")
    found = None if votes is None else read_votes(votes, queries=queries).votes
    n_classes = classes or 10
    asked = len(found) if found is not None else queries or DEFAULT_QUERIES
    drawn = _runs(runs, quick, default_runs(asked, n_classes if found is None else found.n_classes))
    report = audit_aggregator(
        mechanism,
        delta=delta,
        queries=asked,
        votes=found,
        n_teachers=teachers or 250,
        n_classes=n_classes,
        runs=drawn,
        confidence=confidence,
        seed=seed,
        show=shown(),
    )
    _finish(report, plot, json)


@app.command("run")
def run(
    recipe: RecipeName,
    settings: Changes = [],  # noqa: B006  (typer reads the default)
    data: DataFolder = None,
    runs: Runs = None,
    canaries: Annotated[str, typer.Option("--canaries", help="Of which kinds: mislabelled, outlier.")] = "mislabelled,outlier",
    natural: Annotated[
        bool, typer.Option("--natural", help="Labels as they are, not made up so that teachers tie: leaks show less.")
    ] = False,
    students: Annotated[
        bool | None, typer.Option("--students/--no-students", help="Train one in every run; if it is fast unless told.")
    ] = None,
    quick: Quick = False,
    confidence: Confidence = 0.99,
    seed: Seed = 0,
    plot: Plot = None,
    json: Json = False,
) -> None:
    """Canaries in and out of a recipe's private data, hundreds of small runs, and what all that they publish proves.

    Nothing is charged, stored or published. Example: pate audit run digits --quick
    """
    from pate.experiments.audits.running import RUNS, audit_run
    from pate.experiments.audits.worlds import check_kinds
    from pate.experiments.recipes.reading import find_recipe, read_recipe

    kinds = check_kinds([each.strip() for each in canaries.split(",") if each.strip()])
    checked = read_recipe(recipe, parse_changes(settings))
    with in_words(lambda: "Nothing was audited."):
        report = audit_run(
            checked,
            base=find_recipe(recipe).parent,
            data=data,
            runs=_runs(runs, quick, RUNS),
            canaries=kinds,
            natural=natural,
            students=students,
            confidence=confidence,
            seed=seed,
            show=shown(),
        )
    _finish(report, plot, json)


@app.command("dpsgd")
def dpsgd(
    recipe: RecipeName,
    settings: Changes = [],  # noqa: B006  (typer reads the default)
    data: DataFolder = None,
    runs: Runs = None,
    steps: Annotated[int, typer.Option("--steps", min=1, help="Of each training, at most; the claim is that of so many.")] = 20,
    quick: Quick = False,
    confidence: Confidence = 0.99,
    seed: Seed = 0,
    plot: Plot = None,
    json: Json = False,
) -> None:
    """DP-SGD with a canary and without, many times; and once with many canaries.

    Example: pate audit dpsgd digits --quick
    """
    from pate.experiments.audits.dpsgd import RUNS, audit_dpsgd
    from pate.experiments.recipes.reading import find_recipe, read_dpsgd_recipe

    checked = read_dpsgd_recipe(recipe, parse_changes(settings))
    with in_words(lambda: "Nothing was audited."):
        report = audit_dpsgd(
            checked,
            base=find_recipe(recipe).parent,
            data=data,
            runs=_runs(runs, quick, RUNS),
            steps=steps,
            confidence=confidence,
            seed=seed,
            show=shown(),
        )
    _finish(report, plot, json)


def _runs(given: int | None, quick: bool, default: int) -> int:
    from pate.errors import ParameterError

    if given is not None and quick:
        raise ParameterError("--quick is a fifth of the usual runs: leave it out where --runs says how many.")
    return given if given is not None else default // _QUICK if quick else default


def _finish(report: AuditReport, plot: Path | None, json: bool) -> None:
    if plot is not None:
        from pate.experiments.audits.plots import plot_audit

        with in_words(lambda: "Nothing was drawn."):
            plot_audit(report, plot)
    if json:
        print_json(report.to_json())
    else:
        _print(report)
        if plot is not None:
            typer.echo(f"Plot: {plot}")
    if not report.passed:
        raise typer.Exit(1)


def _print(report: AuditReport) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from pate.testing.audit_report import NO_PROOF

    console = Console()
    if report.rules:
        rules = Table(title=escape(f"{report.audited}: rules"))
        for name in ("", "rule", "found"):
            rules.add_column(name, overflow="fold")
        for rule in report.rules:
            rules.add_row("[green]✓[/green]" if rule.passed else "[red]✗[/red]", escape(rule.name), escape(rule.detail))
        console.print(rules)
    bounds = Table(title=escape(f"{report.audited}: epsilon from below"))
    for name in ("", "what", "at least", "claimed", "delta", "how"):
        bounds.add_column(name, overflow="fold")
    for each in report.lower_bounds:
        mark = "[red]✗[/red]" if each.refuted else "[green]✓[/green]"
        what = f"{each.name}{' (private)' if each.private else ''}"
        cells = (what, f"{each.lower:.4g}", f"{each.claim:.4g}", f"{each.delta:g}", _how(each))
        bounds.add_row(mark, *(escape(cell) for cell in cells))
    console.print(bounds)
    for each in report.lower_bounds:
        told = {"Canary": each.canary, "Counted": each.event, **({"Refuted": each.proof} if each.refuted else {})}
        lines = [f"  {key}: {value}" for key, value in told.items()]
        console.print(escape("\n".join([f"{each.name}, {each.method}", *lines])), highlight=False, soft_wrap=True)
    for note in (*report.notes, NO_PROOF):
        console.print(escape(note), highlight=False, soft_wrap=True)


def _how(bound: LowerBound) -> str:
    if bound.confidence is None:
        return bound.method
    return f"{bound.method}, {bound.runs} run{'' if bound.runs == 1 else 's'}, confidence {bound.confidence:g}"
