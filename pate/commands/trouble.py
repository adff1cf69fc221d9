"""Ctrl-C and failing storage, told in one line; and how progress is shown."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from pate.progress import Show


@contextmanager
def in_words(next_step: Callable[[], str]) -> Iterator[None]:
    """Ctrl-C, and trouble with a disk here or on a worker, in one line that ends with the next step."""
    from pate.errors import ExecutionError

    try:
        yield
    except KeyboardInterrupt:
        raise _stopped(next_step()) from None
    except OSError as error:
        raise ExecutionError(f"{error}. {next_step()}") from error
    except RuntimeError as error:
        if isinstance(error.__cause__, KeyboardInterrupt):  # as Python 3.11 says it, when a class is being made (an import)
            raise _stopped(next_step()) from None
        raise


def _stopped(next_step: str) -> typer.Exit:
    typer.echo(f"pate: Stopped. {next_step}", err=True)
    return typer.Exit(130)  # as shells count a process that SIGINT ended


def shown() -> Show:
    """Bars on a terminal, lines elsewhere."""
    return "bar" if sys.stderr.isatty() else "lines"
