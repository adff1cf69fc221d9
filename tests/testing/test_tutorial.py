"""The tutorial's code runs as it stands, in under 40 lines."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TUTORIAL = ROOT / "docs" / "tutorials" / "custom-aggregator.md"


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tutorial's one Python block, saved as it says."""
    (block,) = re.findall(r"```python\n(.*?)```", TUTORIAL.read_text(), re.DOTALL)
    folder = tmp_path_factory.mktemp("tutorial")
    file = folder / "permute_and_flip.py"
    file.write_text(block)
    return file


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "200"}
    return subprocess.run([sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True)


def test_it_is_short(written: Path) -> None:
    assert len(written.read_text().splitlines()) < 40


def test_it_checks_itself_and_answers_from_a_ledger(written: Path) -> None:
    done = run(written.parent, "-W", "error", written.name)
    assert done.returncode == 0, done.stderr
    assert "✗" not in done.stdout
    assert "(exact)" in done.stdout
    assert "Release(2 asked, 2 answered" in done.stdout
    assert (written.parent / "ledger.db").exists()


def test_the_command_of_the_tutorial_works(written: Path) -> None:
    (command,) = re.findall(r"^\$ pate (check .*)$", TUTORIAL.read_text(), re.MULTILINE)
    # -P: Python itself must not add the folder; an installed script does not either.
    done = run(written.parent, "-P", "-m", "pate.cli", *command.split(), "--samples", "100000")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "evidence for the costs: exact" in done.stdout


def test_it_names_the_winner_as_often_as_the_tutorial_says(written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import numpy as np

    from pate.aggregators import LNMax

    monkeypatch.syspath_prepend(str(written.parent))
    from permute_and_flip import PermuteAndFlip

    counts = np.array([[100, 80, 70]])
    said = [int(share) for share in re.findall(r"in (\d+)% of releases against (\d+)%", TUTORIAL.read_text())[0]]
    for kind, share in zip((PermuteAndFlip, LNMax), said, strict=True):
        assert round(100 * float(np.exp(kind(gamma=0.05).outcome_log_probs(counts)[0, 0]))) == share


def test_it_runs_in_a_recipe_as_the_tutorial_says(written: Path) -> None:
    """The page's table in place of the one of the digits, within their budget."""
    for extra in ("sklearn", "matplotlib", "jinja2"):
        pytest.importorskip(extra, reason=f"{extra} is not installed (extras 'train' and 'plot')")
    (table,) = re.findall(r"```toml\n(.*?)```", TUTORIAL.read_text(), re.DOTALL)
    assert run(written.parent, "-m", "pate.cli", "recipes", "new", "flip.toml", "--like", "digits").returncode == 0
    recipe = written.with_name("flip.toml")
    recipe.write_text(re.sub(r"\[aggregator\]\n(.+\n)+", table, recipe.read_text()))
    command = ("-m", "pate.cli", "run", "flip.toml", "--serial")
    refused = run(written.parent, *command)
    assert refused.returncode == 2
    (check,) = re.findall(r"`pate (check [^`]+--teachers 60[^`]+)`", TUTORIAL.read_text())
    assert f"Run: pate {check.replace('--set', '-s')}" in refused.stderr
    done = run(written.parent, *command, "--allow-unverified")
    assert done.returncode == 0, done.stderr
