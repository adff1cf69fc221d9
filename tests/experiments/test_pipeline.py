"""A run from data to report: what it writes, what it finds again, and what it is charged for."""

from __future__ import annotations

import json
import linecache
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from killed_runs import charges_in, go, killed
from pipeline_cases import tiny

from pate.errors import BudgetExceeded, DataError, RecipeError, VotesError
from pate.execution import Serial
from pate.experiments.pipeline.launch import Finished, run
from pate.experiments.recipes.reading import check_recipe
from pate.experiments.release_files import read_release
from pate.experiments.results import Result
from pate.ledger import Ledger
from pate.student import Student

for package in ("sklearn", "matplotlib", "jinja2"):
    pytest.importorskip(package, reason=f"{package} is not installed (extras 'train' and 'plot')")


pytestmark = pytest.mark.usefixtures("own_home")


def charges(out: Finished | Path, tmp_path: Path) -> list[str]:
    """The keys of what was charged to the durable ledger."""
    place = tmp_path / "home" / "ledger.db"
    if not place.exists():
        return []
    (fingerprint,) = Ledger.datasets(place)
    with Ledger.open(place, fingerprint) as ledger:
        ledger.verify()
        return [str(entry.key) for entry in ledger.entries() if entry.kind == "reserve"]


@pytest.mark.usefixtures("reports")
def test_a_run_leaves_everything_that_it_promises(tmp_path: Path) -> None:
    done = go(tmp_path, tiny())
    names = {path.name for path in done.folder.iterdir()}
    assert names >= {
        *("recipe.toml", "environment.json", "ledger.json", "ledger.db", "result.json", "release.json", "student.zip"),
        *("report.html", "report-public.html", "result-public.json", "plots", "plots-public"),
    }
    assert done.folder.stat().st_mode & 0o777 == 0o700, "votes and teachers are private"
    for private in ("plots", "result.json", "report.html", "ledger.db", "ledger.db.head"):
        assert (done.folder / private).stat().st_mode & 0o077 == 0, "whoever serves the public page may open up the directory"
    for public in ("plots-public", "result-public.json", "report-public.html"):
        assert (done.folder / public).stat().st_mode & 0o044, "to be served"
    for row in json.loads((done.folder / "ledger.json").read_text()):
        assert set(row) == {"kind", "at", "memo", "epsilon"}, "no hash: it covers the fingerprint"
        if row["kind"] == "open":
            assert row["at"] is None, "it tells that another ledger began, as somebody came or went"
        else:
            assert re.fullmatch(r"\d{4}-\d\d-\d\d", row["at"]), "no time of day: it tells how long teachers took"
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", Result.read(done.folder / "result-public.json").created)
    assert done.result == Result.read(done.folder)
    assert done.result.mode == "simulation"
    assert done.result.stamp == "simulation, not private"
    assert done.result.evaluation is not None
    assert done.result.evaluation.accuracy > 0.8, "chance is a third, and the classes lie well apart"
    assert done.result.privacy.data_dependent is not None
    assert done.result.privacy.data_dependent <= done.result.privacy.data_independent
    assert done.result.privacy.spent == pytest.approx(done.result.privacy.data_independent, rel=1e-6)
    stored = read_release(done.folder / "release.json")
    assert stored.queries is not None
    assert len(stored.release) == len(stored.queries) == 8
    assert Student.load(done.folder / "student.zip").record["asked"] == 8
    again = check_recipe(__import__("tomllib").loads((done.folder / "recipe.toml").read_text()))
    assert go(tmp_path, again.to_dict()).folder == done.folder, "the resolved recipe is the recipe"


def test_another_sigma_trains_nobody_and_another_student_asks_nobody(tmp_path: Path) -> None:
    first = go(tmp_path, tiny())
    noisier = go(tmp_path, tiny(aggregator={"sigma": 5.0}))
    cached = {stage.name for stage in noisier.result.stages if stage.cached}
    assert cached == {"queries", "teachers", "votes"}
    assert noisier.folder != first.folder
    repeated = go(tmp_path, tiny())
    assert {stage.name for stage in repeated.result.stages if stage.cached} >= cached | {"answers", "student", "evaluation"}
    assert repeated.result.evaluation == first.result.evaluation


def test_a_release_is_charged_once_for_one_question(tmp_path: Path) -> None:
    first = go(tmp_path, tiny("Ward", privacy={"epsilon": 30.0}))
    assert first.result.mode == "release"
    assert first.result.label_noise is not None
    assert first.result.label_noise.right is None, "nobody knows the truth about public records"
    go(tmp_path, tiny("Ward", privacy={"epsilon": 30.0}))
    other = go(tmp_path, tiny("Ward", privacy={"epsilon": 30.0}, student={"alpha": 0.5}))
    assert other.folder != first.folder
    assert (other.folder / "release.json").read_text() == (first.folder / "release.json").read_text()
    assert len(charges(first, tmp_path)) == 1, "what is made of the same answers is post-processing"
    again = go(tmp_path, tiny("Ward", privacy={"epsilon": 30.0}), again=True)
    assert again.folder.name == f"{first.folder.name}-2"
    assert len(charges(first, tmp_path)) == 2


def test_paid_answers_outlive_the_stages(tmp_path: Path) -> None:
    first = go(tmp_path, tiny("Ward"))
    shutil.rmtree(tmp_path / "stages")
    again = go(tmp_path, tiny("Ward"))
    assert again.result.privacy.mechanism == first.result.privacy.mechanism
    assert next(stage for stage in again.result.stages if stage.name == "answers").cached
    assert len(charges(first, tmp_path)) == 1


def test_the_budget_of_all_runs_on_the_same_people_is_one(tmp_path: Path) -> None:
    go(tmp_path, tiny("Ward", privacy={"epsilon": 8.0}))
    with pytest.raises(BudgetExceeded):
        go(tmp_path / "elsewhere", tiny("Ward", privacy={"epsilon": 8.0}, aggregator={"sigma": 2.0}))
    assert not list((tmp_path / "elsewhere").glob("stages/teachers-*")), "told before anybody was trained"
    assert len(charges(tmp_path, tmp_path)) == 1


def test_noise_chosen_by_the_budget_spends_nearly_all_of_it(tmp_path: Path) -> None:
    done = go(tmp_path, tiny(aggregator={"sigma": "auto"}, privacy={"epsilon": 2.0}))
    assert 1.9 < done.result.privacy.spent <= 2.0


def test_single_records_vote(tmp_path: Path) -> None:
    tables = tiny("Ward", teachers={"model": "nearest", "count": None, "voters": 1_000}, privacy={"epsilon": 50.0})
    del tables["teachers"]["count"]
    done = go(tmp_path, tables)
    assert done.result.privacy.participation == 1
    assert done.result.privacy.curve is None
    assert done.result.teachers == "single records"
    assert "added or removed" in done.result.privacy.neighbours


def test_nobody_outside_learns_how_many_records_voted(tmp_path: Path) -> None:
    """Their number, which is that of the records, stands in nothing that may be published."""
    tables = tiny("Ward", teachers={"model": "nearest", "count": None, "voters": 1_000}, privacy={"epsilon": 50.0})
    del tables["teachers"]["count"]
    done = go(tmp_path, tables)
    number = str(done.result.data.private_records)
    assert done.result.privacy.n_teachers == 1_000
    told = [json.loads((done.folder / "release.json").read_text())["electorate"], done.result.public().privacy.mechanism]
    told += [each["memo"] for each in json.loads((done.folder / "ledger.json").read_text()) if "memo" in each]
    assert not any(number in re.findall(r"\d+", json.dumps(each)) for each in told)
    with pytest.raises(VotesError, match="declared to vote, and there are more"):
        go(tmp_path / "few", {**tables, "teachers": {**tables["teachers"], "voters": 10}})


def test_other_data_under_the_same_name_are_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go(tmp_path, tiny())
    from pipeline_cases import PublicWard

    monkeypatch.setattr(PublicWard, "shift", 1.0)
    monkeypatch.setattr(PublicWard, "__init__", lambda self: None)
    with pytest.raises(DataError, match="other data under the same name"):
        go(tmp_path, tiny())


def test_a_title_is_no_code_and_changed_code_is_another_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = tmp_path / "my_student.py"
    module.write_text("from pate.student.graph.spreading_student import Spreading\nclass Mine(Spreading): pass\n")
    (tmp_path / "bomb.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(str(tmp_path))
    tables = tiny(student={"model": "my_student:Mine"}, title="bomb:shell", description="bomb:shell")
    first = go(tmp_path, tables)
    assert go(tmp_path, tables).folder == first.folder, "found, and its student loaded"
    module.write_text(module.read_text() + "\n# changed\n")
    linecache.clearcache()
    assert go(tmp_path, tables).folder != first.folder


def test_simulation_is_for_public_data(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="mode: simulation"):
        go(tmp_path, tiny("Ward", mode="simulation"))


def test_python_takes_changes_as_tables_or_paths(tmp_path: Path) -> None:
    result = run(tiny(), out=tmp_path, executor=Serial(), show="none", aggregator={"sigma": 6}, queries__count=5)
    assert result.privacy.mechanism["sigma"] == 6
    assert result.privacy.asked == 5
    assert "simulation, not private" in repr(result)
    assert "<table>" in result._repr_html_()


def test_upper_bounds_come_on_request_and_say_what_they_are(tmp_path: Path) -> None:
    assert go(tmp_path, tiny()).result.upper_bounds is None
    found = go(tmp_path, tiny(evaluation={"upper_bounds": True})).result
    assert found.upper_bounds is not None
    assert found.upper_bounds.stamp.startswith("not private")
    assert found.upper_bounds.all_data is not None
    assert found.upper_bounds.all_data > 0.9
    assert found.public().upper_bounds is None


def test_warnings_name_what_promises_little(tmp_path: Path) -> None:
    result = go(tmp_path, tiny(aggregator={"sigma": 0.5}, privacy={"epsilon": 1000.0})).result
    assert any("too small for a strong claim" in each for each in result.warnings)
    assert any("delta" in each for each in go(tmp_path, tiny(privacy={"delta": 0.01})).result.private_warnings)


# Killed at every point ------------------------------------------------------------------------------------------------------


def test_a_simulation_killed_anywhere_goes_on_to_the_same_result(tmp_path: Path) -> None:
    """The next run begins where the killed one was; the ledger has one charge, and all that counts is equal."""
    whole = go(tmp_path / "whole", tiny()).result
    deaths = 0
    while killed(tmp_path / "killed", tiny(), 3 * deaths + 1):  # each time farther on from where the last one was stopped
        deaths += 1
    assert deaths >= 6
    found = go(tmp_path / "killed", tiny())
    for name in ("evaluation", "label_noise", "consensus", "privacy", "data"):
        assert getattr(found.result, name) == getattr(whole, name), name
    with Ledger.open(found.folder / "ledger.db", found.result.data.fingerprint or "") as ledger:
        assert [entry.kind for entry in ledger.entries()] == ["open", "reserve", "settle"]


def test_a_release_killed_anywhere_is_never_unpaid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed once at every point in turn, from the beginning each time. Where the answers were written they are found, and
    one charge stands; where they were lost between charge and writing, the next try is charged too."""
    tables = tiny("Ward", privacy={"epsilon": 20.0})
    go(tmp_path / "warm", tables)  # teachers and votes, to be copied: what is of interest comes after
    (tmp_path / "home" / "ledger.db").unlink()
    (tmp_path / "home" / "ledger.db.head").unlink()
    twice = 0
    for die_at in range(1, 100):
        out = tmp_path / f"run{die_at}"
        out.mkdir()
        monkeypatch.setenv("PATE_HOME", str(tmp_path / f"home{die_at}"))
        for stage in (tmp_path / "warm" / "stages").iterdir():
            if not stage.name.startswith("answers"):
                (out / "stages").mkdir(exist_ok=True)
                (out / "stages" / stage.name).symlink_to(stage)
        died = killed(out, tables, die_at)
        found = go(out, tables)
        paid = charges_in(tmp_path / f"home{die_at}")
        stored = json.loads((found.folder / "release.json").read_text())
        assert stored["mode"] == "release"
        assert len(paid) in (1, 2)
        assert np.array_equal(read_release(found.folder / "release.json").release.labels, stored["labels"])
        twice += len(paid) == 2
        assert any("answers lost" in each for each in found.result.warnings) == (len(paid) == 2)
        if not died:
            assert len(paid) == 1
            break
    else:
        pytest.fail("the run never came to its end")
    assert 1 <= twice <= 8, "only between the committing of the charge and the writing of the answers"
