"""The tutorials of the launcher stay true: their code and commands run as they stand."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from doc_pages import DOCS, RUN_ALL, blocks, check_options, commands, run

for package in ("sklearn", "matplotlib", "jinja2", "pyarrow", "ray"):
    pytest.importorskip(package, reason=f"{package} is not installed (extras 'train', 'plot', 'storage' and 'ray')")

TUTORIALS = DOCS / "tutorials"
FIRST, OWN, NUMBERS, CLUSTER = (
    TUTORIALS / f"{name}.md" for name in ("first-run", "your-own-data", "reading-the-numbers", "on-a-cluster")
)


@pytest.mark.parametrize("page", [FIRST, OWN, CLUSTER, DOCS / "command-line.md"], ids=lambda page: page.stem)
def test_every_option_named_exists(page: Path) -> None:
    check_options(page)


def _run_page(page: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("PATE_HOME", str(folder / "home"))
    monkeypatch.setenv("RAY_ADDRESS", "")
    for block in blocks(page, "toml"):
        name = re.match(r"# (\w+\.toml)\n", block)
        assert name is not None
        (folder / name[1]).write_text(block)
    program = "\n".join(blocks(page, "python"))
    words = [json.dumps(word) for word in [json.dumps(commands_here(page))]]
    shell = f"import sys, glob\nsys.argv[1:] = [{words[0]}]\n{RUN_ALL.replace('app(words', 'app(expanded(words)')}"
    expand = "\ndef expanded(words):\n    return [found for word in words for found in (sorted(glob.glob(word)) or [word])]\n"
    done = run(folder, "-c", f"import glob\n{program}\n{expand}\n{shell}")
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def commands_here(page: Path) -> list[list[str]]:
    """On one core and without Ray, which has tests of its own."""
    serial = {"run", "sweep"}
    return [[*words, "--serial"] if words[0] in serial else words for words in commands(page)]


def test_the_first_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = FIRST.read_text().replace('show="none")', 'show="none", executor=pate.Serial())')
    page = tmp_path / "first.md"
    page.write_text(text)
    said = _run_page(page, tmp_path, monkeypatch)
    assert "Result('digits'" in said
    assert "Runs side by side" in said
    assert "no data was touched" in said


def test_your_own_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = _run_page(OWN, tmp_path, monkeypatch)
    assert "noise from the operating system" in said
    assert (tmp_path / "home" / "ledger.db").exists()


def test_reading_the_numbers(tmp_path: Path) -> None:
    done = run(tmp_path, "-W", "error", "-c", "\n".join(blocks(NUMBERS, "python")))
    assert done.returncode == 0, done.stderr
    assert "epsilon 5: odds change by at most a factor of 148.4" in done.stdout
    agreed, split = (json.loads(line) for line in done.stdout.splitlines()[-2:])
    assert agreed[0] == split[0]
    assert agreed[1] < split[1]
