"""``pate report``: a finished run's report, made anew."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pate.commands.trouble import in_words


def report(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The directory of a finished run.")],
    public: Annotated[
        bool, typer.Option("--public", help="Without all that depends on votes other than through the mechanism.")
    ] = False,
    out: Annotated[Path | None, typer.Option("--out", help="Another file for the page.")] = None,
) -> None:
    """Write the report of a run again: the owner's, or with --public the one that may be published."""
    from pate.experiments.reports.writing import write_again

    with in_words(lambda: "No report was written."):
        typer.echo(f"Report: {write_again(run, public, out)}")
