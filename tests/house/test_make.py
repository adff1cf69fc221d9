"""The Makefile offers what CONTRIBUTING and CI call, and says plainly when there is no usable Python."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TARGETS = ("run", "test", "test-slow", "lint", "types", "bench", "soak", "audit", "wheel", "clean")


def make(*arguments: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    # Under `make test` the outer make's flags must not reach the inner one.
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("MAKE", "MFLAGS", "PYTHON"))}
    return subprocess.run(["make", *arguments], cwd=cwd, env=clean | environment, capture_output=True, text=True)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder with a blank in its name that holds what the Makefile looks at."""
    folder = tmp_path / "a checkout"
    folder.mkdir()
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, folder)
    return folder


def test_plain_make_lists_every_target() -> None:
    listed = {line.split()[1] for line in make(cwd=ROOT).stdout.splitlines()}
    assert listed >= set(TARGETS)


@pytest.mark.parametrize("target", TARGETS)
def test_every_target_can_be_planned(target: str, checkout: Path) -> None:
    run = make("--dry-run", target, cwd=checkout)
    assert run.returncode == 0, run.stderr


def test_no_usable_python_is_said_plainly(checkout: Path) -> None:
    run = make("test", f"PYTHON={checkout / 'absent'}", cwd=checkout)
    assert run.returncode != 0
    assert "No Python 3.11 or newer" in run.stderr
    assert not (checkout / ".venv").exists()


def test_an_old_python_is_passed_over(checkout: Path) -> None:
    old = checkout / "old python"
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o755)
    run = make("test", "PYTHON=./old python", cwd=checkout)
    assert run.returncode != 0
    assert "No Python 3.11 or newer" in run.stderr


def test_a_finished_environment_is_not_installed_again(checkout: Path) -> None:
    calls = checkout / "calls"
    python = checkout / ".venv/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text(f"#!/bin/sh\necho \"$@\" >> '{calls}'\n")
    python.chmod(0o755)
    assert make("types", cwd=checkout).returncode == 0
    first = calls.read_text()
    assert "-e .[all,dev]" in first
    assert "-c constraints.txt" in first
    assert make("types", cwd=checkout).returncode == 0
    assert calls.read_text() == first + "-m mypy -p pate\n"
    os.utime(checkout / "constraints.txt", (2**31, 2**31))
    assert make("types", cwd=checkout).returncode == 0
    assert calls.read_text().count("-e .[all,dev]") == 2


def test_contributing_names_the_commands_of_ci() -> None:
    block = (ROOT / "CONTRIBUTING.md").read_text().split("```sh\n")[1].split("```")[0]
    told = [line.partition("#")[0].strip() for line in block.splitlines()]
    run = [line for line in (ROOT / ".ci/run").read_text().splitlines() if line.startswith(("make ", "tests/"))]
    assert told == run
