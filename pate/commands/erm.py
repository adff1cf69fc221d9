"""``pate erm``: private empirical risk minimisation on the data, budget and test of a recipe; what it costs; its curves."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pate.commands.options import Json, print_json
from pate.commands.run import Changes, DataFolder, Out, RecipeName, print_finished
from pate.commands.settings import parse_changes
from pate.commands.trouble import in_words, shown


def erm(
    recipe: RecipeName,
    settings: Changes = [],  # noqa: B006  (typer reads the default)
    data: DataFolder = None,
    out: Out = Path("runs"),
    again: Annotated[
        bool, typer.Option("--again", help="A run of its own, though the same one is there: it is charged once more.")
    ] = False,
    curves: Annotated[
        Path | None,
        typer.Option(
            "--curves",
            help="In place of a run: accuracy over epsilon and records, drawn here, with a .json beside it. Benchmarks only.",
        ),
    ] = None,
    beside: Annotated[
        Path | None, typer.Option("--beside", help="A study of `pate reproduce` on the same data, whose points --curves adds.")
    ] = None,
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="How many seeds a point of --curves has.")] = 3,
    json: Json = False,
) -> None:
    """Learn a private linear model as the table `erm` of a recipe says (Chaudhuri, Monteleoni, Sarwate 2011).

    Example: pate erm adult --set privacy.epsilon=1
    """
    from pate.experiments.array_files import check_place_for
    from pate.experiments.baselines.erm.launch import MODEL, launch_erm
    from pate.experiments.recipes.reading import find_recipe, read_erm_recipe

    checked = read_erm_recipe(recipe, parse_changes(settings))
    base = find_recipe(recipe).parent
    if curves is not None:
        from pate.experiments.baselines.erm.curves import curve_table, draw_curves, simulated_curves
        from pate.experiments.reproduce.running import StudyResult

        check_place_for(curves)
        with in_words(lambda: "Nothing was drawn."):
            found = simulated_curves(
                checked, base=base, data=data, seeds=range(seeds), say=lambda line: typer.echo(line, err=True)
            )
            found.write(curves.with_suffix(".json"))
            study = None if beside is None else StudyResult.read(beside)
            draw_curves(found, curves, study)
        if json:
            print_json(found.model_dump(mode="json"))
        else:
            typer.echo(f"{curve_table(found.over_epsilon, 'epsilon')}\n\n{curve_table(found.over_records, 'records')}")
            typer.echo(f"Plot: {curves}")
        return
    with in_words(lambda: "What is finished is kept: the same command goes on from there."):
        finished = launch_erm(checked, base=base, data=data, out=out, show=shown(), again=again)
    if json:
        print_json({"run": str(finished.folder), "result": finished.result.model_dump(mode="json")})
    else:
        print_finished(finished)
        typer.echo(f"Model: {finished.folder / MODEL}")
