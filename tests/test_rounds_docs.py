"""The page about rounds stays true: its Python prints what it says, its recipes are recipes, its commands run."""

from __future__ import annotations

import doctest
import tomllib
from pathlib import Path

import numpy as np
import pytest
from doc_pages import DOCS, blocks, check_options, run_commands

from pate.experiments.pipeline import launch
from pate.experiments.recipes.reading import check_recipe, load_tables

for package in ("sklearn", "matplotlib", "jinja2"):
    pytest.importorskip(package, reason=f"{package} is not installed (extras 'train' and 'plot')")

PAGE = DOCS / "rounds.md"


def test_it_prints_what_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PATE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(launch, "write_all", lambda result, folder: None)  # pictures, which the page does not speak of
    failed, tried = doctest.testfile(str(PAGE), module_relative=False, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert failed == 0
    assert tried > 8


def test_its_recipes_are_sound() -> None:
    found = blocks(PAGE, "toml")
    assert len(found) == 2
    _, tables = load_tables("adult-rounds")
    for text in found:
        for name, table in tomllib.loads(text).items():
            tables[name] = table
        assert check_recipe(tables).queries.rounds == 2


def test_its_commands_run(tmp_path: Path) -> None:
    check_options(PAGE)
    from pate.release import Electorate, Release
    from pate.student import student

    rng = np.random.default_rng(1)
    x = rng.normal(size=(60, 3)).astype(np.float32)
    labels = (x[:, 0] > 0).astype(np.int64)
    release = Release(labels, Electorate(100, 2), {"aggregator": "gnmax", "sigma": 10.0})
    student("vote-share").fit(x, release, show="none").save(tmp_path / "student.zip")
    ahead = np.clip(50 + 40 * x[:8, 0], 0, 100).astype(np.int64)
    np.savez(tmp_path / "queries.npz", x=x[:8], rows=np.arange(8))
    np.savez(
        tmp_path / "votes.npz",
        counts=np.column_stack([100 - ahead, ahead]),
        n_teachers=100,
        fingerprint="people",
        unit="record",
    )
    run_commands(PAGE, tmp_path)
    assert '"reinforced"' in (tmp_path / "release-2.json").read_text()
