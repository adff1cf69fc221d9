"""Running the command in-process, as a user would type it."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from command_cases import Ran

from pate.arrays import IntArray
from pate.cli import main


@pytest.fixture
def pate(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    """pate("plan", "--epsilon", 1, …) -> exit code, standard output, standard error."""
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)  # the command sets its own; put it back after

    def run(*arguments: object) -> Ran:
        monkeypatch.setattr(sys, "argv", ["pate", *map(str, arguments)])
        capsys.readouterr()
        code = 0
        try:
            main()
        except SystemExit as stop:
            code = int(stop.code or 0)
        return Ran(code, *capsys.readouterr())

    return run


@pytest.fixture
def vote_file(tmp_path: Path, mnist_votes: IntArray) -> Path:
    """The votes of 250 teachers on 9,000 MNIST images, as a user would have them on disk."""
    path = tmp_path / "votes.npz"
    np.savez(path, counts=mnist_votes.astype(np.int16))
    return path
