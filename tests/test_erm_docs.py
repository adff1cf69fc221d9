"""The page about private ERM stays true: its code and commands run as they stand, its tables are those of the files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from doc_pages import DOCS, blocks, check_options, run, run_commands

for package in ("sklearn", "matplotlib", "jinja2"):
    pytest.importorskip(package, reason=f"{package} is not installed (extras 'train' and 'plot')")

PAGE = DOCS / "erm.md"
RECIPE = """
title = "mine"
[data]
source = "files"
dataset = "mine"
private = "private.csv"
public = "public.csv"
test = "test.csv"
classes = ["no", "yes"]
id = "id"
is_benchmark = true
[privacy]
epsilon = 1.0
[erm]
model = "logistic"
data_norm = 3.0
"""


def test_the_code_runs(tmp_path: Path) -> None:
    done = run(tmp_path, "-W", "error", "-c", "\n".join(blocks(PAGE, "python")))
    assert done.returncode == 0, done.stderr
    first, second, third = (line.split() for line in done.stdout.splitlines())
    assert float(first[0]) > 0.7
    assert first[1:] == ["1.0", "release"]
    assert float(second[1]) == 1.0
    assert round(float(third[0]), 2) == 0.58, "as the page says"


def test_the_commands_run(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for name, count in (("private", 300), ("public", 30), ("test", 50)):
        y = rng.integers(0, 2, count)
        columns = [np.arange(count), *(rng.normal(size=(2, count)) + y), *([] if name == "public" else [y])]
        lines = [",".join(f"{value:g}" for value in row) for row in np.stack(columns, axis=1)]
        header = "id,a,b" if name == "public" else "id,a,b,label"
        (tmp_path / f"{name}.csv").write_text("\n".join([header, *lines]) + "\n")
    (tmp_path / "mine.toml").write_text(RECIPE)
    run_commands(PAGE, tmp_path)
    assert (tmp_path / "curves.svg").exists()


def test_every_setting_is_in_the_table() -> None:
    from pate.experiments.baselines.erm.settings import ErmSettings

    assert all(f"`{name}`" in PAGE.read_text() for name in ErmSettings.model_fields)
    check_options(PAGE)


@pytest.mark.parametrize("name", ["adult", "kddcup99"])
def test_the_tables_are_those_of_the_files(name: str) -> None:
    from pate.experiments.baselines.erm.curves import Curves, curve_table

    found = Curves.read(DOCS / "results" / "erm" / f"{name}.json")
    text = PAGE.read_text()
    assert curve_table(found.over_epsilon, "epsilon") in text
    assert curve_table(found.over_records, "records") in text
    assert found.over_epsilon[0].epsilon == 0.01
