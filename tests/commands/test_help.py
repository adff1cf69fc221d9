"""The help of every command says what its source says."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from rich.text import Text
from typer.main import get_command

from pate.cli import app


def commands(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield words, command
    for name, each in getattr(command, "commands", {}).items():
        yield from commands(each, (*words, name))


ALL = dict(commands(get_command(app)))


@pytest.mark.parametrize("words", ALL, ids=" ".join)
def test_nothing_in_brackets_is_lost(words: tuple[str, ...]) -> None:
    """Help texts are Rich markup: ``[record, class]`` would be taken for a style, and vanish."""
    command = ALL[words]
    for text in (command.help, *(getattr(each, "help", None) for each in command.params)):
        assert text is None or Text.from_markup(text).plain == text, text
