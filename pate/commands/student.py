"""``pate student``: choose what to ask, learn from the answers, predict. Public inputs and releases, never a vote."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pate.commands.inputs import of_files
from pate.commands.options import Json, print_json
from pate.commands.settings import parse_settings
from pate.commands.trouble import in_words, shown

if TYPE_CHECKING:
    from pate.student.base import Student

app = typer.Typer(no_args_is_help=True)

Public = Annotated[Path, typer.Option("--public", help="Public inputs: .npy, or .npz with an array x.")]
File = Annotated[Path, typer.Argument(metavar="STUDENT", help="The file of `pate student train`.")]
Allow = Annotated[
    list[str],
    typer.Option("--allow", metavar="CLASS", help="Import this package.module:Class if the file names it; repeatable."),
]


@app.callback()
def student() -> None:
    """Choose queries, learn from public inputs and released answers, predict. Costs no privacy."""


@app.command("models")
def models(json: Json = False) -> None:
    """Names for --model, what each is, and its presets."""
    from pate.experiments.student_jobs import models as known_models

    known = known_models()
    if json:
        print_json(known)
        return
    from rich.console import Console
    from rich.table import Table

    table = Table("name", "student", "presets", title="Students")
    for name, facts in known.items():
        table.add_row(name, facts["what"], ", ".join(facts["presets"]) or "–")
    table.add_row("package.module:Class", "Your own subclass of pate.student.base.Student; --set are its parameters.", "–")
    Console().print(table)


@app.command("queries")
def queries(
    public: Public,
    n: Annotated[int, typer.Option("--n", "-n", min=1, help="How many to ask about.")],
    out: Annotated[
        Path,
        typer.Option("--out", help="Row numbers as .npy; or .npz with rows and their inputs x, for `pate teachers vote`."),
    ],
    strategy: Annotated[
        str,
        typer.Option(
            "--strategy", help="medoids, random, k-centre, robust-k-centre, uncertainty, boundary, or package.module:function."
        ),
    ] = "medoids",
    features: Annotated[
        str | None,
        typer.Option("--features", help="By which inputs are near or far: hog, contrastive, … or package.module:Class."),
    ] = None,
    features_set: Annotated[
        list[str], typer.Option("--features-set", metavar="KEY=VALUE", help="A parameter of the features; repeatable.")
    ] = [],  # noqa: B006 (typer reads it, nobody writes it)
    asked: Annotated[
        list[Path],
        typer.Option("--asked", help="Queries or releases of earlier rounds, not to be asked again; repeatable."),
    ] = [],  # noqa: B006
    learner: Annotated[
        Path | None, typer.Option("--student", help="The student of the last round, for --strategy uncertainty or boundary.")
    ] = None,
    allow: Allow = [],  # noqa: B006
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of the choice.")] = 0,
    json: Json = False,
) -> None:
    """Choose which public inputs to ask about. Looks at public data only, so it costs no privacy.

    Example: pate student queries --public public.npy -n 50 --out queries.npz
    """
    from pate.errors import ParameterError
    from pate.experiments.array_files import check_array_place, write_public_arrays
    from pate.experiments.student_jobs import choose, fitted_features, read_rows
    from pate.experiments.teacher_jobs import read_inputs
    from pate.student.diary import Diary

    settings = parse_settings(features_set, "--features-set")
    if settings and features is None:
        raise ParameterError("--features-set belongs to --features: name the features too.")
    with in_words(lambda: "No queries were written."):
        check_array_place(out)
        with of_files():
            x = read_inputs(public)
            for path in asked:
                read_rows(path)
        helper = None if learner is None else _load(learner, allow)
        space = None if features is None else fitted_features(features, settings, x, Diary("queries", shown()))
        rows = choose(x, n, strategy, features=space, asked=asked, learner=helper, seed=seed)
        write_public_arrays(out, {"rows": rows, "x": x[rows]})
    if json:
        print_json({"queries": str(out), "n": len(rows), "strategy": strategy, "public_records": len(x), "seed": seed})
        return
    typer.echo(f"{len(rows)} of {len(x)} public records, by {strategy}, in {out}.")
    if out.suffix == ".npz":
        typer.echo(f"Next: pate teachers vote RUN {out} --out votes.npz")


@app.command("train")
def train(
    public: Public,
    release: Annotated[
        list[Path], typer.Option("--release", help="Answers: a file of `pate ask`; once for each round, if there were several.")
    ],
    out: Annotated[Path, typer.Option("--out", help="The file for the student: one .zip, without pickle.")],
    model: Annotated[str, typer.Option("--model", "-m", help="A name of `pate student models`, or package.module:Class.")],
    queries: Annotated[
        list[Path],
        typer.Option("--queries", help="Rows of --public that were asked, where the release does not say; one a release."),
    ] = [],  # noqa: B006
    preset: Annotated[str | None, typer.Option("--preset", help="Settings known to work; see `pate student models`.")] = None,
    settings: Annotated[
        list[str],
        typer.Option(
            "--set", "-s", metavar="KEY=VALUE", help="A setting, in place of the preset's; lists as JSON; repeatable."
        ),
    ] = [],  # noqa: B006
    seed: Annotated[int | None, typer.Option("--seed", min=0, help="The same seed gives the same student.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite a file that is there already.")] = False,
    json: Json = False,
) -> None:
    """Learn from public inputs and the noisy answers about some of them.

    Example: pate student train --public public.npy --release release.json --model spreading --out student.zip
    """
    from pate.errors import ParameterError
    from pate.experiments.array_files import check_place_for
    from pate.experiments.release_files import read_release
    from pate.experiments.student_jobs import facts_of, new_student, read_answers, read_rows
    from pate.experiments.teacher_jobs import read_inputs

    # Everything that can be wrong without training is told first.
    learner = new_student(model, preset, parse_settings(settings), seed)
    with in_words(lambda: "No student was written."):
        check_place_for(out)
        if out.exists() and not force:
            raise ParameterError(f"{out}: there is a file already. Add --force to overwrite it, or name another one.")
        with of_files():
            x = read_inputs(public)
            for path in release:
                read_release(path)
            for path in queries:
                read_rows(path)
        releases, rows = read_answers(release, queries, len(x))
        learner.fit(x, releases, rows, show=shown())
        learner.save(out)
    facts = facts_of(learner)
    if json:
        print_json({"file": str(out), **facts})
        return
    _print_facts(facts, str(out))
    typer.echo(f"Next: pate student predict --model {out} --x FILE --out labels.npy")


@app.command("predict")
def predict(
    model: Annotated[Path, typer.Option("--model", "-m", help="The file of `pate student train`.")],
    x: Annotated[Path, typer.Option("--x", help="Inputs of the shape learnt from: .npy, or .npz with an array x.")],
    out: Annotated[Path, typer.Option("--out", help="The file for the predictions: .npy, or .npz.")],
    proba: Annotated[bool, typer.Option("--proba", help="How likely each class is: records by classes.")] = False,
    allow: Allow = [],  # noqa: B006
    json: Json = False,
) -> None:
    """The class of each input, or how likely each class is."""
    from pate.experiments.array_files import check_array_place, write_public_arrays
    from pate.experiments.teacher_jobs import read_inputs

    with in_words(lambda: "No predictions were written."):
        check_array_place(out)
        with of_files():
            records = read_inputs(x)
        learner = _load(model, allow)
        likely = learner.predict_proba(records)
        write_public_arrays(out, {"probabilities": likely} if proba else {"labels": likely.argmax(axis=1)})
        stamps = list(learner.record["stamps"])
    if json:
        print_json({"predictions": str(out), "records": len(likely), "classes": likely.shape[1], "stamps": stamps})
        return
    kind = "Probabilities" if proba else "Labels"
    typer.echo(f"{kind} of {len(likely)} records in {out}, from {learner.title}: {'; '.join(stamps)}.")


@app.command("show")
def show(
    file: File,
    plot: Annotated[
        Path | None, typer.Option("--plot", help="Draw what it reported while learning into this file (.png, .svg, .pdf).")
    ] = None,
    json: Json = False,
) -> None:
    """What a student was made from and how: settings, answers, noise, and what it reported while learning."""
    from pate.experiments.student_jobs import stored

    with in_words(lambda: "Nothing was shown."):
        facts = stored(_there(file))
    if plot is not None:
        from pate.experiments.plots import plot_history

        plot_history(facts["record"].get("history", []), facts["student"], plot)
    if json:
        print_json({"file": str(file), **facts})
        return
    _print_facts(facts, str(file))
    if plot is not None:
        typer.echo(f"Plot: {plot}")


def _load(path: Path, allow: list[str]) -> Student:
    from pate.student.base import Student

    return Student.load(_there(path), allow)


def _there(path: Path) -> Path:
    from pate.errors import DataError

    if not path.is_file():
        raise DataError(f"{path}: there is no such file. `pate student train` writes one.")
    return path


def _print_facts(facts: dict[str, Any], file: str) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from pate.experiments.student_jobs import fact_rows

    table = Table(title=escape(f"Student in {file}"), show_header=False)
    for name, value in fact_rows(facts).items():
        table.add_row(escape(name), escape(value))
    Console().print(table)
