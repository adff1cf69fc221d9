"""``pate reproduce``: the studies of docs/results.md, each by one command."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pate.commands.options import Json, SerialFlag, Workers, print_json
from pate.commands.run import DataFolder, Out
from pate.commands.trouble import in_words, shown


def reproduce(
    study: Annotated[
        str, typer.Argument(metavar="STUDY", help="mnist, fashion-mnist, adult, diabetes, kddcup99, or all of them.")
    ] = "all",
    quick: Annotated[bool, typer.Option("--quick", help="The last budget of each line, one seed, no trade-offs.")] = False,
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="How many; 1 with --quick.")] = 3,
    docs: Annotated[Path, typer.Option("--docs", help="Where results.md and the directory results/ are written.")] = Path(
        "docs"
    ),
    data: DataFolder = None,
    out: Out = Path("runs"),
    workers: Workers = None,
    serial: SerialFlag = False,
    json: Json = False,
) -> None:
    """Run PATE and the baselines as the recipes say, with several seeds; write docs/results.md, its files and plots.

    Runs that are finished are found and not done again. Example: pate reproduce adult --data DIR
    """
    from pate.experiments.reproduce.drawing import draw_study
    from pate.experiments.reproduce.page import FOLDER, write_headline, write_page
    from pate.experiments.reproduce.running import StudyResult, run_study, write_study
    from pate.experiments.reproduce.studies import STUDIES, studies_named
    from pate.experiments.teacher_jobs import executor_for

    chosen = studies_named(study)
    folder = docs / FOLDER
    made = []
    with in_words(lambda: "Finished runs are kept: the same command goes on from there."):
        for each in chosen:
            made.append(
                run_study(
                    each,
                    data=data,
                    out=out,
                    seeds=range(1 if quick else seeds),
                    quick=quick,
                    executor=executor_for(serial, None, workers, 0.0) if serial or workers else None,
                    show=shown(),
                    say=lambda line: typer.echo(line, err=True),
                )
            )
            write_study(made[-1], folder)
            draw_study(each, made[-1], folder)
    # Studies of earlier calls stay on the page.
    others = [StudyResult.read(path) for name in STUDIES if (path := folder / f"{name}.json").exists()]
    page = write_page(others, docs)
    write_headline(others, docs.parent / "README.md")
    if json:
        print_json([each.model_dump(mode="json") for each in made])
        return
    typer.echo(f"Results: {page}; their files and plots: {folder}")
