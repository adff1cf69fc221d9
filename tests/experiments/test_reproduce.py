"""The studies of docs/results.md: sound recipes, one run of each kind for real, and a page that its files make."""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("sklearn", reason="scikit-learn is not installed (extra 'train')")
pytest.importorskip("torch", reason="torch is not installed (extra 'train')")
pytest.importorskip("matplotlib", reason="matplotlib is not installed (extra 'plot')")

from pate.errors import DataError, ParameterError
from pate.execution import Serial
from pate.experiments.recipes.model import DpsgdRecipe, ErmRecipe
from pate.experiments.recipes.reading import check_recipe
from pate.experiments.reproduce import running
from pate.experiments.reproduce.drawing import draw_study
from pate.experiments.reproduce.page import headline, reached, spread, write_headline, write_page
from pate.experiments.reproduce.running import StudyResult, cases_of, code_state, run_study, tables_of, write_study
from pate.experiments.reproduce.studies import DPSGD, STUDIES, TEACHERS, Case, Study, Target, studies_named

DOCS = Path(__file__).parents[2] / "docs"
TINY = Study(
    "mnist",  # its place on the page
    "Digits",
    (
        Case(TEACHERS, "digits", {"privacy.epsilon": 3.0}),
        Case(TEACHERS, "digits"),
        Case(DPSGD, "digits", {"dpsgd.epochs": 1}, kind="dpsgd"),
        *(Case("", "digits", {"aggregator.sigma": float(s), "privacy.epsilon": 99.0}, sweep="sigma", value=s) for s in (6, 9)),
    ),
    targets=(Target(TEACHERS, "", 3.0, 0.5), Target(TEACHERS, "", 0.1, 0.5)),
)


@pytest.mark.parametrize("name", STUDIES)
def test_every_case_is_a_sound_recipe(name: str) -> None:
    study = STUDIES[name]
    for case in study.cases:
        kind: Any = {"dpsgd": (DpsgdRecipe,), "erm": (ErmRecipe,)}.get(case.kind, ())
        recipe = check_recipe(tables_of(case, 1), "case", *kind)
        assert recipe.seed == 1
        assert recipe.data.source == name
    lines = {(case.line, case.protocol) for case in study.cases}
    assert {(target.line, target.protocol) for target in study.targets} <= lines
    assert len({json.dumps(tables_of(case, 0), sort_keys=True) + case.kind + case.sweep for case in study.cases}) == len(
        study.cases
    )


def test_what_is_learnt_without_labels_is_learnt_anew_with_every_seed() -> None:
    tables = tables_of(STUDIES["mnist"].cases[0], 2)
    assert tables["features"]["seed"] == 2
    assert tables["student"]["features"]["settings"]["seed"] == 2


def test_a_study_runs_goes_on_and_is_written(tmp_path: Path) -> None:
    told: list[str] = []
    settings: dict[str, Any] = {"data": None, "out": tmp_path / "runs", "seeds": (0, 1), "executor": Serial(), "show": "none"}
    result = run_study(TINY, **settings, say=told.append)
    assert len(told) == 10
    assert told[0] == "mnist [1/5] teacher ensemble at epsilon 3, seed 0"
    first, _, baseline, *_ = result.cases
    assert [point.seed for point in first.points] == [0, 1]
    assert first.points[0].epsilon_dependent is not None
    assert first.points[0].epsilon_2018 is not None
    assert first.points[0].epsilon_dependent < first.points[0].epsilon_2018 < 3
    assert baseline.points[0].epsilon_dependent is None
    again = run_study(TINY, **settings)
    assert again.cases == result.cases, "times and all: finished runs are read"

    file = write_study(result, tmp_path / "results")
    assert StudyResult.read(file) == result
    drawn = draw_study(TINY, result, tmp_path / "results")
    assert [path.name for path in drawn] == ["mnist.svg", "mnist-sigma.svg"]
    assert all(path.stat().st_size > 1000 for path in drawn)
    readme = tmp_path / "README.md"
    assert not write_headline([result], readme)
    readme.write_text("# Mine\n<!-- results: written by pate reproduce -->\nold\n<!-- end of results -->\nmore\n")
    assert write_headline([result], readme)
    assert headline([result]) in readme.read_text()
    assert "old" not in readme.read_text()
    assert readme.read_text().endswith("<!-- end of results -->\nmore\n")
    assert reached(TINY, result, TINY.targets[0]) == pytest.approx(sum(p.accuracy for p in first.points) / 2)
    assert reached(TINY, result, TINY.targets[1]) is None, "no case costs so little"


def test_a_run_that_is_found_keeps_the_commit_that_made_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a page would state the figures of earlier code as those of the newest."""
    one = replace(TINY, cases=TINY.cases[1:2], targets=())
    settings: dict[str, Any] = {"data": None, "out": tmp_path / "runs", "executor": Serial(), "show": "none"}
    found = []
    for commit, changed, seeds in (("a" * 40, False, (0,)), ("b" * 40, True, (0, 1))):
        monkeypatch.setattr(running, "code_state", lambda state=(commit, changed): state)
        found.append(run_study(one, **settings, seeds=seeds))
    first, second = found
    changed_since = f"{'b' * 40}, with changes not yet committed"
    assert [point.commit for point in first.cases[0].points] == ["a" * 40]
    assert [point.commit for point in second.cases[0].points] == ["a" * 40, changed_since]
    assert f"\nCommit {'a' * 12}; seeds 0; " in write_page([first], tmp_path).read_text()
    told = f"\nCommits {'a' * 12}; {'b' * 12}, with changes not yet committed; seeds 0, 1; "
    assert told in write_page([second], tmp_path).read_text()

    (run,) = (path for path in (tmp_path / "runs").glob("digits-*") if "b" * 40 in (path / "code.txt").read_text())
    (run / "result.json").unlink()  # stopped, and gone on with by other code
    monkeypatch.setattr(running, "code_state", lambda: ("c" * 40, False))
    again = run_study(one, **settings, seeds=(1,))
    assert again.cases[0].points[0].commit == f"{changed_since}; {'c' * 40}"
    (run / "code.txt").unlink()  # a run of `pate run`, which keeps no such note
    assert run_study(one, **settings, seeds=(1,)).cases[0].points[0].commit == "unknown"


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_the_commit_is_of_the_checkout_that_holds_the_code(tmp_path: Path) -> None:
    """Not of a project in whose folder the package happens to be installed."""

    def git(*words: str) -> str:
        identity = ("-c", "user.name=somebody", "-c", "user.email=somebody@example.org")
        run = subprocess.run(["git", "-C", str(tmp_path), *identity, *words], capture_output=True, text=True, check=True)
        return run.stdout.strip()

    code, installed = tmp_path / "code.py", tmp_path / "installed.py"
    code.write_text("a = 1\n")
    git("init", "-q")
    git("add", "code.py")
    git("commit", "-qm", "one")
    installed.write_text("b = 2\n")
    assert code_state(code) == (git("rev-parse", "HEAD"), False)
    assert code_state(installed) == ("unknown", False)
    code.write_text("a = 2\n")
    assert code_state(code) == (git("rev-parse", "HEAD"), True)


def test_quick_takes_the_last_budget_of_each_line() -> None:
    assert cases_of(TINY, quick=True) == (TINY.cases[1], TINY.cases[2])
    assert cases_of(TINY, quick=False) == TINY.cases


def test_the_page_in_docs_is_what_its_files_make(tmp_path: Path) -> None:
    """So that no figure on it is typed by hand, and none is older than its file."""
    results = [StudyResult.read(path) for path in sorted((DOCS / "results").glob("*.json"))]
    assert {result.study for result in results} == set(STUDIES)
    assert write_page(results, tmp_path).read_text() == (DOCS / "results.md").read_text()
    assert headline(results) in (DOCS.parent / "README.md").read_text(), "run `pate reproduce`: it writes the table"
    for result in results:
        assert not result.quick
        assert len(result.seeds) == 3
        wanted = [(case.recipe, dict(case.changes)) for case in STUDIES[result.study].cases]
        assert [(case.recipe, case.changes) for case in result.cases] == wanted, "the file is of these cases"
        assert (DOCS / "results" / f"{result.study}.svg").exists()


def test_what_is_asked_for_wrongly(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match=r"There is no study 'mnits' \(did you mean 'mnist'\?\)"):
        studies_named("mnits")
    assert len(studies_named("all")) == len(STUDIES)
    (tmp_path / "x.json").write_text("{}")
    with pytest.raises(DataError, match="not a result of `pate reproduce`"):
        StudyResult.read(tmp_path / "x.json")
    with pytest.raises(DataError, match="Run `pate reproduce` first"):
        StudyResult.read(tmp_path / "none.json")


def test_mean_and_deviation() -> None:
    assert spread([1.0], 2) == "1.00"
    assert spread([1.0, 3.0], 1) == "2.0 ± 1.4"
