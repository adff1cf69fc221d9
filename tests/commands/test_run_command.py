"""``pate run``, ``pate sweep`` and ``pate recipes`` as a user types them."""

from __future__ import annotations

import json
import re
import tomllib
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_cases import one_line

from pate.experiments.results import Result

for package in ("sklearn", "matplotlib", "jinja2", "pyarrow"):
    pytest.importorskip(package, reason=f"{package} is not installed (extras 'train', 'plot' and 'storage')")

Pate = Callable[..., Any]
CASES = str(Path(__file__).parents[1] / "experiments")


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATE_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(CASES)


def own_data(folder: Path, n: int = 300) -> None:
    """Three CSV files of two kinds of patients."""
    rng = np.random.default_rng(0)
    for name, count in (("private", n), ("public", 120), ("test", 100)):
        y = rng.integers(0, 2, count)
        x = rng.normal(size=(count, 3)) + 3 * y[:, None]
        lines = [f"p{row},{','.join(f'{v:.4f}' for v in x[row])},{y[row]}" for row in range(count)]
        (folder / f"{name}.csv").write_text("\n".join(["id,a,b,c,label", *lines]))


def own_recipe(folder: Path, **changes: Any) -> Path:
    tables: dict[str, Any] = {
        "data": {"source": "files", "dataset": "ward", "private": "private.csv", "public": "public.csv", "test": "test.csv"},
        # So many that noise of 4 votes, which no seed holds still, changes no answer: a lead of 50 is 9 of its deviations.
        "teachers": {"model": "ridge", "count": 60, "allow_empty": True},
        "queries": {"count": 10},
        "aggregator": {"name": "gnmax", "sigma": 4.0},
        "privacy": {"epsilon": 8.0},
        "student": {"model": "spreading"},
    }
    tables["data"]["classes"] = 2
    for name, value in changes.items():
        tables[name] = {**tables.get(name, {}), **value}
    import tomli_w

    path = folder / "ward.toml"
    path.write_text(tomli_w.dumps(tables))
    return path


def test_digits_end_to_end(pate: Pate, tmp_path: Path) -> None:
    ran = pate("run", "digits", "--serial", "--out", "mine")
    assert ran.code == 0, ran.err
    assert "student's accuracy" in ran.out
    assert "simulation, not private" in ran.out
    assert "[9/9] report: done" in ran.err
    (folder,) = tmp_path.glob("mine/digits-*")
    assert f"Report: {folder.relative_to(tmp_path) / 'report.html'}" in ran.out
    assert Result.read(folder).evaluation.accuracy > 0.7  # type: ignore[union-attr]


def test_own_data_are_released_and_charged_to_the_durable_ledger(pate: Pate, tmp_path: Path) -> None:
    own_data(tmp_path)
    ran = pate("run", own_recipe(tmp_path), "--serial", "--json")
    assert ran.code == 0, ran.err
    result = ran.json["result"]
    assert result["mode"] == "release"
    assert result["stamp"] == "noise from the operating system"
    assert result["evaluation"]["accuracy"] > 0.8
    public = json.loads(Path(ran.json["run"], "result-public.json").read_text())
    assert public["evaluation"] is None, "nobody said that figures about the test records may be published"
    assert public["data"]["private_records"] is None
    shown = pate("ledger", "show", tmp_path / "home" / "ledger.db")
    assert "ward-" in shown.out
    refused = pate("run", own_recipe(tmp_path, aggregator={"sigma": 2.5}), "--serial")
    assert refused.code == 3
    assert len(refused.err.strip().splitlines()[-1:]) == 1


BROKEN: dict[str, tuple[Callable[[Path], object], int, str]] = {
    "no private file": (lambda f: (f / "private.csv").unlink(), 5, "private.csv"),
    "no public file": (lambda f: (f / "public.csv").unlink(), 5, "public.csv"),
    "empty file": (lambda f: (f / "private.csv").write_text(""), 5, "private.csv"),
    "no rows": (lambda f: (f / "private.csv").write_text("id,a,b,c,label\n"), 5, "private.csv"),
    "no label": (lambda f: (f / "private.csv").write_text("id,a,b,c\np,1,2,3\n"), 5, "label"),
    "no id": (lambda f: (f / "private.csv").write_text("a,b,c,label\n1,2,3,0\n"), 5, "id"),
    "twice the same id": (lambda f: (f / "private.csv").write_text("id,a,b,c,label\np,1,2,3,0\np,1,2,4,1\n"), 5, "id"),
    "a label too many": (lambda f: (f / "private.csv").write_text("id,a,b,c,label\np,1,2,3,7\nq,1,2,4,1\n"), 5, "label"),
    "words for numbers": (lambda f: (f / "public.csv").write_text("a,b,c\nx,y,z\n"), 5, "public.csv"),
    "other columns": (lambda f: (f / "public.csv").write_text("a,b\n1,2\n"), 5, "public.csv"),
    "holes": (lambda f: (f / "public.csv").write_text("a,b,c\n1,,3\n"), 5, "public.csv"),
    "a picture": (lambda f: (f / "private.csv").write_bytes(b"\x89PNG\r\n\x1a\n\0\0\0"), 5, "private.csv"),
    "no test labels": (lambda f: (f / "test.csv").write_text("id,a,b,c\np,1,2,3\n"), 5, "test.csv"),
}


@pytest.mark.parametrize("what", BROKEN)
def test_broken_data_are_told_in_one_line_and_leave_nothing(pate: Pate, tmp_path: Path, what: str) -> None:
    damage, code, named = BROKEN[what]
    own_data(tmp_path)
    damage(tmp_path)
    ran = pate("run", own_recipe(tmp_path), "--serial")
    said = [line for line in ran.err.strip().splitlines() if line.startswith("pate:")]
    assert ran.code == code, ran.err
    assert len(said) == 1
    assert named in said[0]
    assert "Traceback" not in ran.err
    assert not (tmp_path / "home").exists(), "nothing was charged"
    assert not (tmp_path / "runs").exists(), "nothing was written"


def test_a_broken_recipe_ends_with_2_and_an_unknown_cluster_with_6(pate: Pate, tmp_path: Path) -> None:
    wrong = pate("run", "digits", "--set", "aggregator.sgima=3")
    assert wrong.code == 2
    assert wrong.err.count("\n") == 1
    assert "did you mean 'sigma'" in wrong.err
    away = pate("run", "digits", "--address", "127.0.0.1:1")
    assert away.code == 6, away.err
    assert not (tmp_path / "runs").exists()


def test_an_aggregator_of_ones_own_must_have_passed_the_check(pate: Pate) -> None:
    changes = ("--set", "aggregator.name=recipe_parts:Mine", "--set", "aggregator.sigma=8.0")
    refused = pate("run", "digits", "--serial", *changes)
    assert refused.code == 2
    command = "pate check recipe_parts:Mine -s sigma=8.0 --teachers 60 --classes 10"
    assert command in refused.err
    anyway = pate("run", "digits", "--serial", *changes, "--allow-unverified", "--json")
    assert anyway.json["result"]["verified"] == "unverified"
    assert any("has not passed" in each for each in anyway.json["result"]["warnings"])
    passed = pate(*command.split()[1:], "--samples", 20_000)
    assert passed.code == 0, passed.out
    checked = pate("run", "digits", "--serial", *changes, "--json")
    assert checked.json["result"]["verified"] == "checked"


def test_a_sweep_prints_a_table_and_says_on_what_it_ran(pate: Pate, tmp_path: Path) -> None:
    ran = pate("sweep", "digits", "--grid", "aggregator.sigma=6,12", "--serial")
    assert ran.code == 0, ran.err
    assert "public benchmark data" in ran.out
    assert len(list(tmp_path.glob("runs/digits-*"))) == 2
    assert list(tmp_path.glob("runs/sweep-*/sweep.svg"))
    free = pate("sweep", "digits", "--grid", "aggregator.sigma=6,12", "--simulate-votes", "0.9", "--serial", "--json")
    assert "no data was touched" in free.json["cost"]


@pytest.mark.slow
def test_trials_run_as_ray_tasks_and_reach_the_same(pate: Pate, tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="ray is not installed (extra 'ray')")
    grid = ("sweep", "digits", "--grid", "aggregator.sigma=6,12", "--json")
    here, on_ray = pate(*grid, "--serial", "--out", "here"), pate(*grid, "--workers", 2, "--out", "there")
    assert on_ray.code == 0, on_ray.err
    for one, other in zip(here.json["trials"], on_ray.json["trials"], strict=True):
        assert {**one, "folder": None} == {**other, "folder": None}
    assert len(list(tmp_path.glob("there/digits-*/result.json"))) == 2


def test_recipes_are_listed_shown_and_begun(pate: Pate, tmp_path: Path) -> None:
    assert "digits" in pate("recipes", "list").out
    shown = tomllib.loads(pate("recipes", "show", "adult", "--set", "privacy.epsilon=1.0").out)
    assert shown["aggregator"]["sigma"] == pytest.approx(355, abs=10), "auto is a number by now"
    shown = tomllib.loads(pate("recipes", "show", "adult", "--set", "erm.method=gaussian").out)
    assert shown["erm"]["method"] == "gaussian"
    assert shown["dpsgd"]["lot_size"] == 4096
    assert pate("recipes", "show", "adult", "--set", "erm.methd=gaussian").code == 2
    assert pate("recipes", "new", "mine.toml").code == 0
    assert pate("recipes", "show", "mine.toml").code == 0
    assert pate("recipes", "new", "mine.toml").code == 2


def test_a_defect_is_one_line_too(pate: Pate, tmp_path: Path) -> None:
    (tmp_path / "bad_student.py").write_text(
        "from pate.student.base import Student\n"
        "class Bad(Student):\n"
        "    def __init__(self, seed: int = 0): self.seed = seed\n"
        "    def _fit(self, x, answers, diary): raise RuntimeError('oops\\nsecond line')\n"
        "    def _probabilities(self, x): ...\n"
        "    def _save(self, folder): ...\n"
        "    def _load(self, folder): ...\n"
    )
    tables = {"student": {"model": "bad_student:Bad"}}
    own_data(tmp_path)
    ran = pate("run", own_recipe(tmp_path, **tables), "--serial")
    assert ran.code == 1
    assert ran.err.strip().splitlines()[-1].startswith("pate: unexpected RuntimeError: oops second line")
    with pytest.raises(RuntimeError):
        pate("run", own_recipe(tmp_path, **tables), "--serial", "--debug")


def test_a_recipe_that_cannot_be_written_is_one_line(pate: Pate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise PermissionError(13, "Permission denied", "mine.toml")

    monkeypatch.setattr("pate.experiments.recipes.catalogue.write_new", refuse)
    one_line(pate("recipes", "new", "mine.toml"), "Permission denied: 'mine.toml'. No recipe was written.", 1)


def test_one_record_more_is_another_budget_and_that_is_told(pate: Pate, tmp_path: Path) -> None:
    own_data(tmp_path)
    assert "note: Data set" not in pate("run", own_recipe(tmp_path), "--serial").err
    with (tmp_path / "private.csv").open("a") as file:
        file.write("\np9999,0.1,0.2,0.3,0")
    warnings.simplefilter("always")  # as on the command line, where nothing makes errors of them
    grown = pate("run", own_recipe(tmp_path), "--serial", "--again")
    assert grown.code == 0, grown.err
    notes = [line for line in grown.err.splitlines() if line.startswith("pate: note: Data set 'ward' has other records")]
    assert notes, grown.err
    assert re.search(r"beside one with epsilon \d\.\d+ spent of 8 \(", notes[0])


def test_after_a_refused_again_the_plain_command_finds_its_run(pate: Pate, tmp_path: Path) -> None:
    own_data(tmp_path)
    recipe = own_recipe(tmp_path, aggregator={"sigma": "auto"})
    first = pate("run", recipe, "--serial", "--json")
    assert first.code == 0, first.err
    assert pate("run", recipe, "--serial", "--again").code == 3
    found = pate("run", recipe, "--serial", "--json")
    assert found.code == 0, found.err
    assert found.json["run"] == first.json["run"]


def test_another_budget_is_refused_in_words(pate: Pate, tmp_path: Path) -> None:
    own_data(tmp_path)
    assert pate("run", own_recipe(tmp_path), "--serial").code == 0
    refused = pate("run", own_recipe(tmp_path, privacy={"epsilon": 9.0}), "--serial")
    one_line(refused, "Give the recorded budget, or leave it out where that is allowed", 4)
    assert "None" not in refused.err


def test_a_sweep_with_failed_trials_says_each_reason_once_and_ends_with_1(pate: Pate) -> None:
    command = ("sweep", "digits", "--grid", "aggregator.sigma=0.5,12", "--seeds", 2, "--serial")
    ran = pate(*command)
    assert ran.code == 1, ran.err
    assert ran.err.splitlines()[-1] == "pate: 2 of 4 trials failed; the others are finished."
    assert ran.out.count("does not cover this request") == 1
    told = pate(*command, "--json")
    assert told.code == 1
    assert [trial["error"] is None for trial in told.json["trials"]] == [False, False, True, True]


def test_another_student_by_its_name_alone(pate: Pate) -> None:
    shown = pate("recipes", "show", "digits", "--set", "student.model=vat")
    assert shown.code == 0, shown.err
    assert tomllib.loads(shown.out)["student"] == {"model": "vat"}
