"""Which directory a run has: the newest take with answers, whatever was refused or stopped after it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from killed_runs import charges_in, go, killed
from pipeline_cases import Ward, tiny

from pate.errors import BudgetExceeded, DataError
from pate.experiments.pipeline.folder import RunFolder
from pate.experiments.recipes.reading import check_recipe

for package in ("sklearn", "matplotlib", "jinja2"):
    pytest.importorskip(package, reason=f"{package} is not installed (extras 'train' and 'plot')")


pytestmark = pytest.mark.usefixtures("own_home")


def ward(**changes: Any) -> dict[str, Any]:
    """A private one, whose noise takes the whole budget."""
    return tiny("Ward", **{"aggregator": {"sigma": "auto"}, "privacy": {"epsilon": 2.0}, **changes})


def test_what_was_refused_hides_no_finished_run(tmp_path: Path) -> None:
    first = go(tmp_path, ward())
    for _ in range(2):
        with pytest.raises(BudgetExceeded):
            go(tmp_path, ward(), again=True)
    assert len(list(tmp_path.glob("tiny-*"))) <= 2, "a take that got no answers is gone on with"
    found = go(tmp_path, ward())
    assert found.folder == first.folder
    assert found.result.privacy == first.result.privacy
    assert len(charges_in(tmp_path / "home")) == 1


def test_what_was_stopped_hides_no_finished_run_and_is_gone_on_with(tmp_path: Path) -> None:
    tables = tiny("Ward", privacy={"epsilon": 30.0})
    first = go(tmp_path, tables)
    stopped = RunFolder(check_recipe(tables), tmp_path, again=True)
    with stopped.opened(check_recipe(tables)):
        pass
    assert go(tmp_path, tables).folder == first.folder
    again = go(tmp_path, tables, again=True)
    assert again.folder == stopped.path == first.folder.with_name(f"{first.folder.name}-2")
    assert go(tmp_path, tables).folder == again.folder, "the newest with answers"
    assert go(tmp_path, tables, again=True).folder.name.endswith("-3")
    assert len(charges_in(tmp_path / "home")) == 3


def test_a_take_that_a_process_works_in_is_left_alone(tmp_path: Path) -> None:
    recipe = check_recipe(tiny("Ward"))
    RunFolder(recipe, tmp_path).path.mkdir()
    second = RunFolder(recipe, tmp_path, again=True)
    with second.opened(recipe):
        assert RunFolder(recipe, tmp_path, again=True).take == 3
    assert RunFolder(recipe, tmp_path, again=True).take == 2


def test_answers_that_only_the_stages_hold_count(tmp_path: Path) -> None:
    """Killed after the answers were kept, before the run had its own copy."""
    tables = tiny("Ward", privacy={"epsilon": 30.0})
    go(tmp_path, tables)
    again = go(tmp_path, tables, again=True)
    for name in ("release.json", "result.json", "student.zip", "evaluation.json"):
        (again.folder / name).unlink()
    found = go(tmp_path, tables)
    assert found.folder == again.folder
    assert len(charges_in(tmp_path / "home")) == 2


def test_a_take_keeps_its_number_though_an_earlier_one_was_removed(tmp_path: Path) -> None:
    """Its number is part of what was asked: under another one it would be asked, and charged, anew."""
    tables = tiny("Ward", privacy={"epsilon": 40.0})
    first, second = go(tmp_path, tables), go(tmp_path, tables, again=True)
    third = go(tmp_path, tables, again=True)
    shutil.rmtree(second.folder)
    assert go(tmp_path, tables).folder == third.folder
    shutil.rmtree(first.folder)
    assert go(tmp_path, tables).folder == third.folder
    assert len(charges_in(tmp_path / "home")) == 3


def test_other_data_are_noticed_and_another_take_may_have_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same people, other values; the take that was stopped before it asked begins anew with them."""
    tables = tiny("Ward", privacy={"epsilon": 40.0})
    go(tmp_path, tables)
    stopped = RunFolder(check_recipe(tables), tmp_path, again=True)
    with stopped.opened(check_recipe(tables)) as run:
        stopped.remember(data="what they were")
    monkeypatch.setattr(Ward, "shift", 1.0)
    monkeypatch.setattr(Ward, "__init__", lambda self: None)
    with pytest.raises(DataError, match=r"other data under the same name.*--again"):
        go(tmp_path, tables)
    done = go(tmp_path, tables, again=True)
    assert done.folder == stopped.path
    assert done.result.run_id != run["run_id"]


def test_killed_anywhere_with_again_the_plain_command_finds_answers(tmp_path: Path) -> None:
    """Never a third charge but where the answers of the second were lost, and the first ones are found then."""
    tables = tiny("Ward", privacy={"epsilon": 60.0})
    first = go(tmp_path, tables)
    for die_at in (1, 8, 14, 18, 20, 22, 24, 26, 30):
        before = len(charges_in(tmp_path / "home"))
        killed(tmp_path, tables, die_at, again=True)
        charged = len(charges_in(tmp_path / "home"))
        found = go(tmp_path, tables)
        assert len(charges_in(tmp_path / "home")) == charged <= before + 1, "the plain command asks nobody anew"
        assert found.folder.name.startswith(first.folder.name)
