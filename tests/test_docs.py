"""Documents stay true: their Python runs as it stands, their links lead somewhere, their commands exist."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
NAMES = [str(page.relative_to(ROOT)) for page in PAGES]


def _blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), flags=re.DOTALL | re.MULTILINE)


def test_python_in_the_readme_runs(tmp_path: Path) -> None:
    """As one program in an empty directory. The other pages' code is run by the tests of what they describe."""
    program = "\n".join(_blocks(ROOT / "README.md", "python"))
    here = {**os.environ, "PYTHONPATH": str(ROOT)}
    ran = subprocess.run([sys.executable, "-W", "error", "-c", program], cwd=tmp_path, env=here, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert "40 asked, 40 answered" in ran.stdout


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_links_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text())
    assert [target for target in targets if not (page.parent / target).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_every_command_named_exists(page: Path) -> None:
    from typer.main import get_command

    from pate.cli import app

    commands = set(getattr(get_command(app), "commands", {}))
    named = set(re.findall(r"^(?:    )?(?:\.venv/bin/)?pate ([a-z]+)", page.read_text(), flags=re.MULTILINE))
    assert named <= commands
