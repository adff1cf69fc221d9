"""Options that several commands share."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

AggregatorName = Annotated[
    str, typer.Option("--aggregator", "-a", help="gnmax, lnmax, confident-gnmax, noisy-histogram, or package.module:Class.")
]
Settings = Annotated[
    list[str], typer.Option("--set", "-s", metavar="KEY=VALUE", help="A parameter of the aggregator; repeatable.")
]
Delta = Annotated[float, typer.Option("--delta", help="The delta of (epsilon, delta).")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


def print_json(value: Any) -> None:
    """JSON on standard output, readable and strict (no NaN)."""
    typer.echo(json.dumps(value, indent=2, allow_nan=False, default=float))
