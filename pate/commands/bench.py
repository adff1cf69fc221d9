"""``pate bench``: speed as ratios, alternatives interleaved in one run; and what students reach."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pate.commands.options import Json, print_json
from pate.errors import ParameterError

if TYPE_CHECKING:
    from rich.table import Table

app = typer.Typer(no_args_is_help=True)


@app.callback()
def benchmarks() -> None:
    """Speed, measured as ratios in one run; students, by accuracy and time."""


@app.command("account")
def account(
    queries: Annotated[int, typer.Option("--queries", min=1)] = 10_000,
    classes: Annotated[int, typer.Option("--classes", min=2)] = 10,
    orders: Annotated[int, typer.Option("--orders", min=1)] = 60,
    rounds: Annotated[int, typer.Option("--rounds", min=1)] = 5,
    json: Json = False,
) -> None:
    """The exact accountant against a per-query loop over the published 2018 bound."""
    from pate.experiments.bench.account import run, table

    _show(run(queries=queries, classes=classes, n_orders=orders, rounds=rounds), table, json)


@app.command("noise")
def noise(
    draws: Annotated[int, typer.Option("--draws", min=1)] = 1_000_000,
    rounds: Annotated[int, typer.Option("--rounds", min=1)] = 5,
    json: Json = False,
) -> None:
    """Exact noise against NumPy's floating-point sampler."""
    from pate.experiments.bench.noise import run, table

    _show(run(draws, rounds), table, json)


DataRoot = Annotated[
    Path | None,
    typer.Option("--data", help="Directory with MNIST in torchvision's layout; else $PATE_DATA, else synthetic pictures."),
]


@app.command("teachers")
def teachers(
    n_teachers: Annotated[int, typer.Option("--teachers", min=1, help="Logistic and MLP teachers.")] = 250,
    records: Annotated[int, typer.Option("--records", min=1, help="Records a teacher.")] = 240,
    plain: Annotated[int, typer.Option("--plain", min=1, help="Teachers that the plain loops train; they are slow.")] = 50,
    cnns: Annotated[int, typer.Option("--cnns", min=1, help="CNN teachers.")] = 6,
    rounds: Annotated[int, typer.Option("--rounds", min=1)] = 3,
    data: DataRoot = None,
    json: Json = False,
) -> None:
    """Batched teachers on Ray against plain loops of PyTorch and scikit-learn."""
    from pate.experiments.bench.teachers import run, table

    def report(line: str) -> None:
        typer.echo(f"… {line}", err=True)

    _show(run(n_teachers, records, plain, cnns, rounds, data, report), table, json)


@app.command("ensemble")
def ensemble(
    n_teachers: Annotated[int, typer.Option("--teachers", min=1)] = 250,
    model: Annotated[str, typer.Option("--model", "-m")] = "logistic",
    workers: Annotated[int, typer.Option("--workers", min=1)] = 2,
    data: DataRoot = None,
    json: Json = False,
) -> None:
    """From 60,000 private records to votes on 9,000 images: time and memory of everything."""
    from pate.experiments.bench.ensembles import run, table

    _show(run(n_teachers, model, workers, data), table, json)


@app.command("nearest")
def nearest(
    records: Annotated[int, typer.Option("--records", min=1)] = 200_000,
    queries: Annotated[int, typer.Option("--queries", min=1)] = 1_000,
    dimensions: Annotated[int, typer.Option("--dimensions", min=1)] = 64,
    rounds: Annotated[int, typer.Option("--rounds", min=1)] = 3,
    json: Json = False,
) -> None:
    """Nearest-query votes against scikit-learn's brute force and a plain loop."""
    from pate.experiments.bench.nearest import run, table

    _show(run(records, queries, dimensions, rounds), table, json)


@app.command("student")
def student(
    datasets: Annotated[str, typer.Option("--datasets", help="mnist, fashion-mnist, adult, digits.")] = (
        "mnist,fashion-mnist,adult"
    ),
    students: Annotated[
        str | None, typer.Option("--students", help="a,b,c or package.module:Class; all that suit the data unless given.")
    ] = None,
    noise: Annotated[str, typer.Option("--noise", help="Shares of wrong labels, where no teachers answer.")] = "0,0.05,0.1",
    seeds: Annotated[int, typer.Option("--seeds", min=1)] = 3,
    quick: Annotated[bool, typer.Option("--quick", help="One seed and a few steps, only to see that it runs.")] = False,
    workers: Annotated[int, typer.Option("--workers", min=1, help="Processes, of one thread each; 1: this one.")] = 2,
    out: Annotated[
        Path | None, typer.Option("--out", help="A JSON file, written as results come; what it holds is not done again.")
    ] = None,
    plot: Annotated[Path | None, typer.Option("--plot", help="Draw the accuracies into this file.")] = None,
    data: Annotated[Path | None, typer.Option("--data", help="Directory with the data sets; else $PATE_DATA.")] = None,
    json: Json = False,
) -> None:
    """Every student on the same few labels: accuracy and time, several seeds, right and wrong labels."""
    from pate.experiments.bench.students import run, table
    from pate.experiments.plots import plot_students

    rows = run(
        _listed(datasets),
        None if students is None else _listed(students),
        [_share(each) for each in _listed(noise)],
        seeds,
        quick=quick,
        workers=workers,
        root=data,
        out=out,
        report=lambda line: typer.echo(f"… {line}", err=True),
    )
    if plot is not None:
        plot_students(rows, plot)
    _show(rows, table, json)


@app.command("dpsgd")
def dpsgd(
    models: Annotated[str, typer.Option("--models", help="mnist-cnn, mlp, logistic, groupnorm-cnn.")] = (
        "mnist-cnn,mlp,logistic,groupnorm-cnn"
    ),
    rounds: Annotated[int, typer.Option("--rounds", min=1)] = 9,
    quick: Annotated[bool, typer.Option("--quick", help="A small batch and one round, only to see that it runs.")] = False,
    memory: Annotated[bool, typer.Option("--memory", help="Also peak memory, each way in a process of its own.")] = False,
    json: Json = False,
) -> None:
    """A step of DP-SGD against the plain step, and against the modes of Opacus where it is installed."""
    from pate.experiments.bench.dpsgd import run, table

    _show(run(_listed(models), rounds, quick, memory, lambda line: typer.echo(f"… {line}", err=True)), table, json)


@app.command("service")
def service(
    seconds: Annotated[float, typer.Option("--seconds", min=0.1, help="Of each case in each round.")] = 2.0,
    rounds: Annotated[int, typer.Option("--rounds", min=1)] = 3,
    batches: Annotated[str, typer.Option("--batches", help="Questions a request.")] = "1,100",
    clients: Annotated[str, typer.Option("--clients", help="How many ask at once.")] = "1,8,64",
    folder: Annotated[
        Path | None, typer.Option("--folder", help="Where the ledger lies meanwhile: the disk to measure.")
    ] = None,
    json: Json = False,
) -> None:
    """The service with durable answers against the bare commits behind them, and against an empty endpoint."""
    from pate.experiments.bench.service import run, table

    _show(run(_counts(batches, "--batches"), _counts(clients, "--clients"), seconds, rounds, folder), table, json)


def _counts(text: str, option: str) -> list[int]:
    words = _listed(text)
    if not words or not all(word.isdecimal() and int(word) > 0 for word in words):
        raise ParameterError(f"{option} must be whole numbers from 1, such as 1,100; got {text!r}.")
    return [int(word) for word in words]


def _listed(text: str) -> list[str]:
    return [each.strip() for each in text.split(",") if each.strip()]


def _share(text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise ParameterError(f"--noise must be shares from 0 to 1, such as 0,0.05,0.1; got {text!r}.")
    return share


def _show(rows: list[dict[str, Any]], table: Callable[[list[dict[str, Any]]], Table], json: bool) -> None:
    if json:
        print_json(rows)
        return
    from rich.console import Console

    Console().print(table(rows))
