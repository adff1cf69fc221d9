"""The command ``pate``."""

from __future__ import annotations

import os
import sys
import warnings
from typing import Annotated

import typer

from pate.commands.account import account, tables
from pate.commands.ask import ask
from pate.commands.bench import app as bench
from pate.commands.check import check
from pate.commands.demo import demo
from pate.commands.ledger import app as ledger
from pate.commands.plan import plan
from pate.commands.student import app as student
from pate.commands.teachers import app as teachers
from pate.errors import BudgetExceeded, LedgerError, PateError

app = typer.Typer(
    name="pate",
    help="Private Aggregation of Teacher Ensembles: noisy votes, what they cost, and a ledger that never forgets.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(demo)
app.command()(account)
app.command()(tables)
app.command()(plan)
app.command()(check)
app.command()(ask)
app.add_typer(teachers, name="teachers", help="Train teachers on disjoint private parts, and let them vote.")
app.add_typer(student, name="student", help="Choose what to ask, learn from the answers, predict.")
app.add_typer(ledger, name="ledger", help="Show, verify or export a durable privacy ledger.")
app.add_typer(bench, name="bench", help="Speed, measured as ratios in one run.")

EXIT_CODES: tuple[tuple[type[PateError], int], ...] = ((BudgetExceeded, 3), (LedgerError, 4), (PateError, 2))


def _version(wanted: bool) -> None:
    if wanted:
        from pate import __version__

        typer.echo(f"pate {__version__}")
        raise typer.Exit


@app.callback()
def options(
    debug: Annotated[bool, typer.Option("--debug", help="Show a traceback where there would be one line.")] = False,
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")] = False,
) -> None:
    """Options that stand before a command's name."""


def _note(message: Warning | str, *_: object, **__: object) -> None:
    typer.echo(f"pate: note: {message}", err=True)


def main() -> None:
    """Run the command; turn an error made on purpose into one line and an exit code of its own."""
    warnings.showwarning = _note
    # So that a user's own my_module:MyAggregator is found where the command is run; last, so that it shadows nothing.
    sys.path.append(os.getcwd())
    try:
        app()
    except PateError as error:
        if "--debug" in sys.argv[1:]:
            raise
        typer.echo(f"pate: {error}", err=True)
        sys.exit(next(code for kind, code in EXIT_CODES if isinstance(error, kind)))


if __name__ == "__main__":
    main()
