"""The page about the baseline stays true: its code and commands run as they stand."""

from __future__ import annotations

from pathlib import Path

import pytest
from doc_pages import DOCS, blocks, run, run_commands

from pate.experiments.baselines.dpsgd.settings import Settings

for package in ("torch", "sklearn", "matplotlib", "jinja2", "dp_accounting"):
    pytest.importorskip(package, reason=f"{package} is not installed (extras 'train', 'plot' and 'dpsgd')")

PAGE = DOCS / "dpsgd.md"


def test_the_code_runs(tmp_path: Path) -> None:
    done = run(tmp_path, "-W", "error", "-c", "\n".join(blocks(PAGE, "python")))
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "model.zip").exists()
    claim, rdp, pld = map(float, done.stdout.splitlines()[0].split())
    assert claim == min(rdp, pld) <= 1.0


def test_the_commands_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = PAGE.read_text().replace("pate compare runs/digits-* --plot both.png", "pate recipes list")
    page = tmp_path / "page.md"
    page.write_text(text)
    run_commands(page, tmp_path)
    assert (tmp_path / "composition.png").exists()


def test_every_setting_is_in_the_table() -> None:
    assert all(f"`{name}`" in PAGE.read_text() for name in Settings.model_fields)
