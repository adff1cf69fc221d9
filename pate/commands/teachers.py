"""``pate teachers``: train an ensemble, let it vote, see how far it is."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pate.commands import options
from pate.commands.options import Json, print_json
from pate.commands.settings import parse_settings, parse_shape
from pate.commands.trouble import in_words, shown

if TYPE_CHECKING:
    from pate.experiments.teacher_jobs import PrivateSource
    from pate.votes import Votes

app = typer.Typer(no_args_is_help=True)

Run = Annotated[Path, typer.Argument(metavar="RUN", help="The run directory.")]
Queries = Annotated[Path, typer.Argument(metavar="QUERIES", help="Public inputs to vote on: .npy, or .npz with an array x.")]
Inputs = Annotated[
    str | None,
    typer.Option(
        "--inputs",
        help="Columns of the inputs, a,b,c, all of numbers; unless given all columns but those named here (.npz: 'x').",
    ),
]
Out = Annotated[Path, typer.Option("--out", help="The file for the votes (private), for `pate account`.")]


@app.callback()
def teachers() -> None:
    """Train teachers on disjoint private parts, and let them vote."""


@app.command("train")
def train(
    data: options.Data,
    run: Annotated[Path, typer.Option("--run", help="Directory for models and records; on a cluster, on shared storage.")],
    classes: options.Classes,
    salt: Annotated[str, typer.Option("--salt", help="Public salt of the keyed hash; fix it before looking at the data.")],
    n_teachers: Annotated[int | None, typer.Option("--teachers", min=1, help="Number of teachers, by keyed hash.")] = None,
    silos: Annotated[bool, typer.Option("--silos", help="Instead: each sub-directory or file of DATA is one teacher.")] = False,
    model: Annotated[
        str, typer.Option("--model", "-m", help="A name of `pate teachers models`, or package.module:Class.")
    ] = "logistic",
    settings: Annotated[
        list[str],
        typer.Option("--set", "-s", metavar="KEY=VALUE", help="A parameter of the model; lists as JSON; repeatable."),
    ] = [],  # noqa: B006 (typer reads it, nobody writes it)
    name: options.Name = "data",
    id_column: options.Id = "id",
    label: options.Label = "label",
    group_by: options.GroupBy = None,
    inputs: Inputs = None,
    shape: options.Shape = None,
    features: options.FeaturesName = None,
    features_set: options.FeatureSettings = [],  # noqa: B006
    public: options.Public = None,
    seed: Annotated[int, typer.Option("--seed", help="Of the training, not of any noise.")] = 0,
    holdout: Annotated[float, typer.Option("--holdout", help="Share of each part that measures its teacher.")] = 0.1,
    default_vote: Annotated[int, typer.Option("--default-vote", min=0, help="What a teacher without a model votes.")] = 0,
    retries: Annotated[int, typer.Option("--retries", min=0, help="For a teacher whose code raises.")] = 1,
    max_failures: Annotated[float, typer.Option("--max-failures", help="Largest share of failed teachers.")] = 0.05,
    allow_empty: Annotated[bool, typer.Option("--allow-empty", help="A part may be empty: it votes the default.")] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with a run that was stopped.")] = False,
    address: options.Address = None,
    workers: options.Workers = None,
    gpus: options.Gpus = 0.0,
    serial: options.SerialFlag = False,
    json: Json = False,
) -> None:
    """Train a teacher on every part of the private data.

    Example: pate teachers train ward.parquet --run run --teachers 250 --classes 10 --salt ward-2024
    """
    from pate.errors import ParameterError, TeacherError
    from pate.experiments.teacher_jobs import PARTS, executor_for, how_to_go_on, public_features, status
    from pate.teachers import Ensemble, StoredPartition, teacher_family
    from pate.teachers.run_directory import RunDirectory

    # Everything that can be wrong without a look at the data is told first.
    if silos == (n_teachers is not None):
        raise ParameterError("Give either --teachers, to split by keyed hash, or --silos, for one teacher a silo.")
    if RunDirectory(run).exists() and not resume:
        raise TeacherError(f"Run directory {run} holds a run already. Add --resume to go on with it, or name another one.")
    family = teacher_family(model, parse_settings(settings))
    source = _source(data, (id_column, label, group_by), inputs, shape, name, salt)
    with in_words(lambda: how_to_go_on(run)), executor_for(serial, address, workers, gpus) as executor:
        before = public_features(features, parse_settings(features_set, "--features-set"), public)
        if not source.is_one_file:
            _say(f"Workers read {data} and prove its parts disjoint")
        if n_teachers is None:
            parts = source.silos(classes, executor)
        else:
            parts = source.split(n_teachers, classes, run / PARTS, executor, allow_empty)
        Ensemble.train(
            parts,
            family,
            run,
            n_classes=classes,
            features=before,
            executor=executor,
            seed=seed,
            holdout=holdout,
            default_vote=default_vote,
            retries=retries,
            max_failures=max_failures,
            resume=resume,
            show=shown(),
        )
        if isinstance(parts, StoredPartition):
            parts.cleanup()  # the copy of the private records that the workers split; a run that stopped still needs it
    _show_status(status(run), json)
    if not json:
        typer.echo(f"Next: pate teachers vote {run} QUERIES --out votes.npz")


@app.command("vote")
def vote(
    run: Run,
    queries: Queries,
    out: Out,
    predictions: Annotated[bool, typer.Option("--predictions", help="Keep each teacher's votes beside the counts.")] = False,
    address: options.Address = None,
    workers: options.Workers = None,
    gpus: options.Gpus = 0.0,
    serial: options.SerialFlag = False,
    json: Json = False,
) -> None:
    """Let every teacher vote on public inputs. The votes are private: release them through an aggregator."""
    from pate.experiments.array_files import check_place_for
    from pate.experiments.teacher_jobs import executor_for, read_inputs
    from pate.experiments.vote_files import write_votes
    from pate.teachers import Ensemble
    from pate.votes import Votes

    with in_words(lambda: "No votes were written."):
        check_place_for(out)
        x = read_inputs(queries)
        ensemble = Ensemble.open(run)
        with executor_for(serial, address, workers, gpus) as executor:
            each = ensemble.predict(x, executor=executor) if predictions else None
            votes = ensemble.vote(x, executor=executor) if each is None else Votes.from_predictions(each, ensemble.n_classes)
        write_votes(out, votes, each, fingerprint=ensemble.fingerprint, unit=ensemble.unit)
    _show_votes(votes, out, ensemble.fingerprint, ensemble.unit, json)


@app.command("nearest")
def nearest(
    data: options.Data,
    queries: Queries,
    out: Out,
    classes: options.Classes,
    votes_per_record: Annotated[int, typer.Option("--votes-per-record", min=1, help="Nearest queries a record votes on.")] = 1,
    votes_per_user: Annotated[
        int | None, typer.Option("--votes-per-user", min=1, help="With --group-by: most votes of a user.")
    ] = None,
    voters: Annotated[
        int | None,
        typer.Option(
            "--voters", min=1, help="Declared: the most records (or users) there can be. Without it releases tell their number."
        ),
    ] = None,
    name: options.Name = "data",
    id_column: options.Id = "id",
    label: options.Label = "label",
    group_by: options.GroupBy = None,
    inputs: Inputs = None,
    shape: options.Shape = None,
    features: options.FeaturesName = None,
    features_set: options.FeatureSettings = [],  # noqa: B006
    public: options.Public = None,
    address: options.Address = None,
    workers: options.Workers = None,
    serial: options.SerialFlag = False,
    json: Json = False,
) -> None:
    """No training: every private record votes its own label on the public inputs nearest to it."""
    import tempfile

    from pate.experiments.array_files import check_place_for
    from pate.experiments.teacher_jobs import executor_for, public_features, read_inputs
    from pate.experiments.vote_files import write_votes
    from pate.teachers.nearest import nearest_votes

    source = _source(data, (id_column, label, group_by), inputs, shape, name, "pate.nearest")
    with in_words(lambda: "No votes were written."):
        check_place_for(out)
        x = read_inputs(queries)
        before = public_features(features, parse_settings(features_set, "--features-set"), public)
        # The workers' copy of private records lies beside the votes, where cluster nodes see it too, and goes at the end.
        with executor_for(serial, address, workers, 0.0) as executor, tempfile.TemporaryDirectory(dir=out.parent) as work:
            parts = source.split(1 if source.is_one_file else 64, classes, Path(work), executor, allow_empty=True)
            votes = nearest_votes(
                parts,
                x,
                n_classes=classes,
                votes_per_record=votes_per_record,
                votes_per_user=votes_per_user,
                voters=voters,
                executor=executor,
                features=before,
                report=_say,
            )
        write_votes(out, votes, fingerprint=parts.fingerprint, unit=parts.unit)
    if voters is None:
        _say(
            f"Releases of these votes will tell how many {parts.unit}s voted; --voters N declares a public number in its place"
        )
    _show_votes(votes, out, parts.fingerprint, parts.unit, json)


@app.command("status")
def show_status(
    run: Run,
    errors: Annotated[
        bool, typer.Option("--errors", help="Also what failed teachers' code said: it may quote private data.")
    ] = False,
    json: Json = False,
) -> None:
    """How far a run is, who failed, and how good the teachers are on what they held out. Private."""
    from pate.experiments.teacher_jobs import status

    with in_words(lambda: "Is this a run directory?"):
        facts = status(run, errors)
    _show_status(facts, json)


@app.command("models")
def models(json: Json = False) -> None:
    """Names for --model, and what each is."""
    from pate.teachers.registry import known_families

    known = known_families()
    if json:
        print_json(known)
        return
    from rich.console import Console
    from rich.table import Table

    table = Table("name", "teachers", title="Models of teachers")
    for name, line in known.items():
        table.add_row(name, line)
    table.add_row(
        "package.module:Class", "Your own TeacherFamily, or any class with fit and predict; --set are its parameters."
    )
    Console().print(table)


def _source(
    data: str, names: tuple[str, str, str | None], inputs: str | None, shape: str | None, name: str, salt: str
) -> PrivateSource:
    """names: the columns of id, label and user."""
    from pate.experiments.teacher_jobs import PrivateSource
    from pate.teachers import Columns

    id_column, label, group_by = names
    listed = None if inputs is None else tuple(each.strip() for each in inputs.split(","))
    columns = Columns(id=id_column, label=label, group_by=group_by, features=listed, shape=parse_shape(shape))
    return PrivateSource(data, columns, name, salt)


def _say(line: str) -> None:
    typer.echo(line, err=True)


def _show_status(facts: dict[str, Any], json: bool) -> None:
    if json:
        print_json(facts)
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from pate.experiments.teacher_jobs import status_rows

    table = Table(title=escape(f"{facts['n_teachers']} teachers in {facts['run']} (private)"), show_header=False)
    for name, value in status_rows(facts).items():
        table.add_row(name, escape(value))
    console = Console()
    console.print(table)
    for teacher, error in facts.get("errors", {}).items():
        console.print(f"{teacher}: {escape(error)}", highlight=False, soft_wrap=True)


def _show_votes(votes: Votes, out: Path, fingerprint: str, unit: str, json: bool) -> None:
    facts = {
        "votes": str(out),
        "queries": len(votes),
        "classes": votes.n_classes,
        "teachers": votes.n_teachers,
        "participation": votes.participation,
        "fingerprint": fingerprint,
        "unit": unit,
    }
    if json:
        print_json(facts)
        return
    # A sixth of the votes on a query: noise that a clear majority outvotes.
    sigma = max(1, round(votes.n_teachers * (1 if votes.participation is None else votes.participation / len(votes)) / 6))
    partial = "" if votes.participation is None else f" --teachers {votes.n_teachers} --participation {votes.participation}"
    typer.echo(f"{votes!r} in {out}. Private: one {unit} of data set {fingerprint} has a part in one voter only.")
    typer.echo(f"What releasing the winners would cost: pate account {out} -a gnmax -s sigma={sigma}{partial}")
