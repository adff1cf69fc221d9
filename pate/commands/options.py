"""Options that several commands share."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

AggregatorName = Annotated[
    str, typer.Option("--aggregator", "-a", help="gnmax, lnmax, confident-gnmax, stable-max, …, or package.module:Class.")
]
Settings = Annotated[
    list[str], typer.Option("--set", "-s", metavar="KEY=VALUE", help="A parameter of the aggregator; repeatable.")
]
Scores = Annotated[
    Path | None,
    typer.Option("--scores", help="Of interactive-gnmax: the student's predictions, by `pate student predict --proba`."),
]
Delta = Annotated[float, typer.Option("--delta", help="The delta of (epsilon, delta).")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]

# The ledger and its budget --------------------------------------------------------------------------------------------------

LedgerPlace = Annotated[str, typer.Option("--ledger", help="The ledger: an SQLite file, or a PostgreSQL URL.")]
BudgetEpsilon = Annotated[
    float | None,
    typer.Option("--budget-epsilon", help="Of all that is ever asked of these data; begins the ledger. Later not needed."),
]
BudgetDelta = Annotated[
    float | None, typer.Option("--delta", help="Of the budget, beside --budget-epsilon; 1e-5 unless given.")
]
BudgetSlack = Annotated[
    float,
    typer.Option(
        "--slack", help="Share of the budget's delta set aside for mechanisms whose cost may fail to hold, such as stable-max."
    ),
]
Unit = Annotated[
    str | None, typer.Option("--unit", help="Unit of privacy, where the votes do not state it; record unless given.")
]

# Private data and the features before them ---------------------------------------------------------------------------------

Data = Annotated[
    str,
    typer.Argument(
        metavar="DATA",
        help="Private records: an .npz, .parquet or .csv file; or a directory, glob or URL of such, read by the workers.",
    ),
]
Classes = Annotated[int, typer.Option("--classes", min=2, help="Number of classes; declared, not counted from private labels.")]
Name = Annotated[str, typer.Option("--name", help="Name of the data set in the ledger: always the same for the same people.")]
Id = Annotated[str, typer.Option("--id", help="Column with each record's id (.npz: always 'ids').")]
Label = Annotated[str, typer.Option("--label", help="Column with the label, 0, 1, 2, … (.npz: always 'y').")]
GroupBy = Annotated[
    str | None, typer.Option("--group-by", help="Column with the user, if one change means one user (.npz: always 'groups').")
]
Inputs = Annotated[
    str | None, typer.Option("--inputs", help="Columns of the inputs, a,b,c; all other numeric ones unless given (.npz: 'x').")
]
Shape = Annotated[
    str | None, typer.Option("--shape", help="Shape of one record's inputs, such as 28,28; as stored unless given.")
]
FeaturesName = Annotated[
    str | None,
    typer.Option("--features", help="Public features before the teachers: hog, pca, scale, … or package.module:Class."),
]
FeatureSettings = Annotated[
    list[str], typer.Option("--features-set", metavar="KEY=VALUE", help="A parameter of the features; repeatable.")
]
Public = Annotated[Path | None, typer.Option("--public", help="Public inputs that the features are fitted on: .npy or .npz.")]

# Where it runs -------------------------------------------------------------------------------------------------------------

Address = Annotated[str | None, typer.Option("--address", help="A Ray cluster; this machine unless given.")]
Workers = Annotated[int | None, typer.Option("--workers", min=1, help="Tasks at once; all cores unless given.")]
Gpus = Annotated[float, typer.Option("--gpus", min=0.0, help="GPUs a task; 0.25 lets four tasks share one.")]
SerialFlag = Annotated[bool, typer.Option("--serial", help="No Ray: this process alone. The votes are the same.")]


def print_json(value: Any) -> None:
    """JSON on standard output, readable and strict (no NaN)."""
    typer.echo(json.dumps(value, indent=2, allow_nan=False, default=float))
