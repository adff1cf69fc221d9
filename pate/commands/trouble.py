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
        typer.echo(f"pate: Stopped. {next_step()}", err=True)
        raise typer.Exit(130) from None  # as shells count a process that SIGINT ended
    except OSError as error:
        raise ExecutionError(f"{error}. {next_step()}") from error


def shown() -> Show:
    """Bars on a terminal, lines elsewhere."""
    return "bar" if sys.stderr.isatty() else "lines"
