"""The command ``pate``."""

from __future__ import annotations

import os
import sys
import warnings
from typing import Annotated

import typer

from pate.commands.account import account, tables
from pate.commands.ask import ask
from pate.commands.audit import app as audit
from pate.commands.bench import app as bench
from pate.commands.check import check
from pate.commands.compare import compare
from pate.commands.data import app as data
from pate.commands.dpsgd import app as dpsgd
from pate.commands.erm import erm
from pate.commands.jobs import app as jobs
from pate.commands.ledger import app as ledger
from pate.commands.plan import plan
from pate.commands.query import query
from pate.commands.recipes import app as recipes
from pate.commands.report import report
from pate.commands.reproduce import reproduce
from pate.commands.run import run
from pate.commands.serve import app as token
from pate.commands.serve import serve
from pate.commands.signing import check as check_statement
from pate.commands.signing import key, sign
from pate.commands.student import app as student
from pate.commands.submit import submit
from pate.commands.sweep import sweep
from pate.commands.teachers import app as teachers
from pate.errors import (
    BudgetExceeded,
    ClusterError,
    DataError,
    ExecutionError,
    LedgerError,
    PartitionError,
    PateError,
    ServiceError,
    TeacherError,
    VotesError,
)

app = typer.Typer(
    name="pate",
    help="Private Aggregation of Teacher Ensembles: noisy votes, what they cost, and a ledger that never forgets.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(run)
app.command()(sweep)
app.command()(compare)
app.command()(report)
app.command()(submit)
app.command()(reproduce)
app.command()(erm)
app.command()(account)
app.command()(tables)
app.command()(plan)
app.command()(check)
app.command()(ask)
app.command()(serve)
app.command()(query)
ledger.command("key")(key)
ledger.command("sign")(sign)
ledger.command("check")(check_statement)
app.add_typer(audit, name="audit", help="Lower bounds on epsilon from outside, beside the claims.")
app.add_typer(data, name="data", help="The built-in data sets: list, fetch, verify.")
app.add_typer(jobs, name="jobs", help="Runs that were sent to a Ray cluster: list, follow, stop, bring back.")
app.add_typer(recipes, name="recipes", help="What a run is made of: built-in recipes, and your own.")
app.add_typer(teachers, name="teachers", help="Train teachers on disjoint private parts, and let them vote.")
app.add_typer(student, name="student", help="Choose what to ask, learn from the answers, predict.")
app.add_typer(dpsgd, name="dpsgd", help="DP-SGD, the baseline: train it as a recipe says, or see what it costs.")
app.add_typer(ledger, name="ledger", help="Show, verify, export, back up, restore or sign for a durable privacy ledger.")
app.add_typer(token, name="token", help="Who may ask the service: add, list, renew, remove.")
app.add_typer(bench, name="bench", help="Speed, measured as ratios in one run.")

EXIT_CODES: tuple[tuple[type[PateError], int], ...] = (
    (BudgetExceeded, 3),
    (LedgerError, 4),
    (DataError, 5),
    (PartitionError, 5),
    (VotesError, 5),
    (ClusterError, 6),
    (ServiceError, 6),
    (ExecutionError, 1),
    (TeacherError, 1),
    (PateError, 2),
)
"""The first that fits. 2 is for what the user can mend in a recipe or a command, 1 for work that failed on the way."""

_DEBUG = "--debug"


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
    debug = _DEBUG in sys.argv[1:]
    # It may stand anywhere: one adds it to the end of the command that failed.
    words = [word for word in sys.argv[1:] if word != _DEBUG]
    try:
        app(words)
    except PateError as error:
        if debug:
            raise
        typer.echo(f"pate: {error}", err=True)
        sys.exit(next(code for kind, code in EXIT_CODES if isinstance(error, kind)))
    except Exception as error:  # a defect of ours, or of a part of the user's own
        if debug:
            raise
        said = " ".join(str(error).split())[:500]
        typer.echo(f"pate: unexpected {type(error).__name__}: {said} (the same command with {_DEBUG} shows where)", err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
