"""The page about audits stays true: its code and commands run as they stand."""

from __future__ import annotations

from pathlib import Path

import pytest
from doc_pages import DOCS, blocks, check_options, run, run_commands

from pate.testing import LowerBound, audit_outcomes

for package in ("torch", "sklearn", "dp_accounting"):
    pytest.importorskip(package, reason=f"{package} is not installed (extras 'train' and 'dpsgd')")

PAGE = DOCS / "audits.md"


def test_the_code_runs(tmp_path: Path) -> None:
    done = run(tmp_path, "-W", "error", "-c", "\n".join(blocks(PAGE, "python")))
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[:4] == ["1.97", "0.3", "True", "False"]
    assert [line.rpartition(" ")[2] for line in lines[4:6]] == ["False", "False"]
    assert lines[6:] == ["Pipeline True", "TooLittleNoise False"]


@pytest.mark.slow
def test_the_commands_run(tmp_path: Path) -> None:
    run_commands(PAGE, tmp_path)


def test_every_option_exists() -> None:
    check_options(PAGE)


def test_every_key_is_in_the_table() -> None:
    bound: LowerBound = audit_outcomes([0] * 20, [0] * 20, claim=1.0, delta=0.0).lower_bounds[0]
    assert all(f"`{key}`" in PAGE.read_text() for key in bound.to_json())
