"""The import rules are kept, and the linter that keeps them really sees a breach."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("pate", "aggregators", "teachers", "student", "experiments")
LINT = "from importlinter.cli import lint_imports_command; lint_imports_command()"

LAYERS = "Every module has its place, and imports only from below"
BARRIER = "The privacy barrier: a student cannot reach a vote or a teacher"
LIGHT = "The core stays light: no training, no cluster"


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The package and its rules, links included, in a place of its own."""
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for folder in FOLDERS:
        shutil.copytree(ROOT / folder, tmp_path / folder, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def lint(checkout: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", LINT, "--no-cache"], cwd=checkout, capture_output=True, text=True)


def test_the_rules_are_kept(copy: Path) -> None:
    run = lint(copy)
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.parametrize(
    ("file", "line", "broken"),
    [
        ("pate/privacy/curve.py", "import pate.aggregators", LAYERS),
        ("pate/privacy/curve.py", "from pate import GNMax", LAYERS),  # through the facade
        ("aggregators/base.py", "def late():\n    import pate.teachers", LAYERS),  # sideways, and not at the top
        ("pate/unplaced.py", "", LAYERS),
        ("student/planted.py", "from pate.votes import Votes", BARRIER),
        ("student/planted.py", "import pate.noise\nimport pate.privacy.curve\nimport pate.teachers", BARRIER),
        ("student/planted.py", "from pate import Votes", BARRIER),
        ("aggregators/base.py", "import torch", LIGHT),
        ("pate/privacy/planted.py", "def late():\n    import ray", LIGHT),
    ],
)
def test_a_breach_is_seen(copy: Path, file: str, line: str, broken: str) -> None:
    with (copy / file).open("a") as source:
        source.write(f"\n{line}\n")
    run = lint(copy)
    assert run.returncode != 0
    assert f"{broken} BROKEN" in " ".join(run.stdout.split())
