"""``pate run``: a recipe, from private data to a published student."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pate.commands.options import Address, Json, SerialFlag, Workers, print_json
from pate.commands.settings import parse_changes
from pate.commands.trouble import in_words, shown

if TYPE_CHECKING:
    from pate.experiments.pipeline.launch import Finished
    from pate.experiments.recipes.model import RunRecipe

RecipeName = Annotated[
    str, typer.Argument(metavar="RECIPE", help="A built-in recipe (`pate recipes list`), or your own file that ends in .toml.")
]
Changes = Annotated[
    list[str],
    typer.Option("--set", "-s", metavar="KEY=VALUE", help="A change to the recipe, such as aggregator.sigma=20; repeatable."),
]
DataFolder = Annotated[
    Path | None,
    typer.Option("--data", help="Directory of the data sets; else $PATE_DATA, else where `pate data fetch` puts them."),
]
Out = Annotated[Path, typer.Option("--out", help="Where runs are kept, each in a directory of its own. Private.")]
AllowUnverified = Annotated[
    bool, typer.Option("--allow-unverified", help="Run an aggregator of your own that has not passed `pate check`.")
]


def run(
    recipe: RecipeName,
    settings: Changes = [],  # noqa: B006  (typer reads the default)
    address: Address = None,
    data: DataFolder = None,
    out: Out = Path("runs"),
    workers: Workers = None,
    serial: SerialFlag = False,
    again: Annotated[
        bool, typer.Option("--again", help="A run of its own, though the same one is there: it is charged once more.")
    ] = False,
    allow_unverified: AllowUnverified = False,
    upper_bounds: Annotated[
        bool, typer.Option("--upper-bounds", help="Also what could be had without privacy; stamped so, for the owner only.")
    ] = False,
    json: Json = False,
) -> None:
    """Private data in, a student, its epsilon and a report out.

    The same command goes on where a stopped run was; what is finished, trained or paid for is found and not done again.

    Example: pate run mnist --set aggregator.sigma=40 --data DIR
    """
    from pate.experiments.pipeline.launch import launch
    from pate.experiments.recipes.checking import with_noise
    from pate.experiments.recipes.reading import find_recipe, read_recipe
    from pate.experiments.teacher_jobs import executor_for

    changes = parse_changes(settings)
    if upper_bounds:
        changes["evaluation.upper_bounds"] = True
    checked = with_noise(read_recipe(recipe, changes))
    with in_words(how_to_go_on(checked, out, again)):
        finished = launch(
            checked,
            base=find_recipe(recipe).parent,
            data=data,
            out=out,
            # Where Ray is not needed in the end, it is not started; a cluster that cannot be reached is told at once.
            executor=executor_for(serial, address, workers, 0.0) if serial or address or workers else None,
            show=shown(),
            allow_unverified=allow_unverified,
            again=again,
        )
    if json:
        print_json({"run": str(finished.folder), "result": finished.result.model_dump(mode="json")})
    else:
        print_finished(finished)


def how_to_go_on(recipe: RunRecipe, out: Path, again: bool) -> Callable[[], str]:
    """What to tell who stops a run. With --again, one that has its answers is gone on with by the command without it."""
    from pate.experiments.pipeline.folder import RunFolder

    take = RunFolder(recipe, out, again=True) if again else None

    def told() -> str:
        without = " without --again" if take is not None and take.answered else ""
        return f"What is finished is kept: the same command{without} goes on from there."

    return told


def print_finished(finished: Finished) -> None:
    """The table at the end of a run, what to be wary of, and where the reports are."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from pate.experiments.reports.page import OWNER, PUBLIC

    result = finished.result
    table = Table(title=escape(f"{result.title}: {result.teachers}, {result.student}"), show_header=False)
    for name, value in result.rows().items():
        table.add_row(escape(name), escape(value))
    console = Console()
    console.print(table)
    for warning in (*result.warnings, *result.private_warnings):
        console.print(f"[yellow]Warning:[/yellow] {escape(warning)}", highlight=False, soft_wrap=True)
    typer.echo(f"Report: {finished.folder / OWNER} (private), {finished.folder / PUBLIC} (may be published)")
