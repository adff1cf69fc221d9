"""Ctrl-C and failing storage, told in one line."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import typer


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
