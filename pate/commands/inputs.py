"""Files that a command was given: what is wrong with them is told as such (exit code 5), and not as a wrong argument."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def of_files() -> Iterator[None]:
    """Around the reading of files: a ParameterError inside is about what lies in them, or that they are not there."""
    from pate.errors import DataError, ParameterError

    try:
        yield
    except DataError:
        raise
    except ParameterError as error:
        raise DataError(str(error)) from error
