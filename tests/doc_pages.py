"""What tests of documents share: finding the code and the commands of a page, and running them."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

from typer.main import get_command

from pate.cli import app

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"

RUN_ALL = """
import json, sys
from pate.cli import app
for words in json.loads(sys.argv[1]):
    if app(words, standalone_mode=False):
        sys.exit(f"{words} failed")
"""


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), flags=re.DOTALL | re.MULTILINE)


def commands(page: Path) -> list[list[str]]:
    """What follows ``$ pate`` in the shell blocks of a page."""
    lines = "".join(blocks(page, "console")).replace("\\\n", " ").splitlines()
    return [shlex.split(line, comments=True)[2:] for line in lines if line.startswith("$ pate ")]


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "200", "PATE_CACHE": str(folder / "cache")}
    return subprocess.run([sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True)


def run_commands(page: Path, folder: Path) -> None:
    """All in one process, which imports what they need once."""
    assert commands(page)
    done = run(folder, "-c", RUN_ALL, json.dumps(commands(page)))
    assert done.returncode == 0, done.stdout + done.stderr


def save_named(page: Path, folder: Path) -> list[str]:
    """Write the Python blocks that begin with ``# name.py`` to those files; the other blocks."""
    others = []
    for block in blocks(page, "python"):
        name = re.match(r"# (\w+\.py)\n", block)
        if name is None:
            others.append(block)
        else:
            (folder / name[1]).write_text(block)
    return others


def check_options(page: Path) -> None:
    """Every option of a command that the page names exists."""
    inline = [shlex.split(text) for text in re.findall(r"`pate ([^`]+)`", page.read_text())]
    for words in [*commands(page), *inline]:
        command: Any = get_command(app)
        for word in words:
            command = command.commands[word] if word in getattr(command, "commands", {}) else command
        known = {option for parameter in command.params for option in parameter.opts}
        assert {word for word in words if re.match(r"--?[a-z]", word)} <= known, words
