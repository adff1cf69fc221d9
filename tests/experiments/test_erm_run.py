"""Private ERM as a run: the recipe's data, ledger, test, report and comparison; and its curves."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from erm_cases import erm_tables as tables
from pipeline_cases import tiny
from typer.testing import CliRunner

import pate
from pate.cli import app
from pate.errors import BudgetExceeded, DataError, LedgerError, ParameterError, RecipeError
from pate.experiments.baselines.erm.launch import MODEL, launch_erm
from pate.experiments.pipeline.launch import Finished
from pate.experiments.recipes.model import ErmRecipe
from pate.experiments.recipes.reading import built_in_recipes, check_recipe, read_erm_recipe, recipe_text
from pate.experiments.reports.comparing import Compared
from pate.experiments.reproduce.drawing import draw_study
from pate.experiments.reproduce.running import run_study
from pate.experiments.reproduce.studies import ERM, Case, Study
from pate.experiments.results import Result
from pate.ledger import Ledger

pytest.importorskip("sklearn", reason="sklearn is not installed (extra 'train')")
pytest.importorskip("matplotlib", reason="matplotlib is not installed (extra 'plot')")
pytest.importorskip("jinja2", reason="jinja2 is not installed (extra 'plot')")

from pate.experiments.baselines.erm import curves as drawing
from pate.experiments.baselines.erm.curves import Curves, draw_curves, simulated_curves
from pate.experiments.baselines.erm.models import LinearModel

pytestmark = pytest.mark.usefixtures("own_home")


def go(out: Path, found: dict[str, Any], **options: Any) -> Finished:
    return launch_erm(check_recipe(found, "The recipe", ErmRecipe), out=out, show="none", **options)


def durable(home: Path) -> list[Any]:
    (fingerprint,) = Ledger.datasets(home / "ledger.db")
    with Ledger.open(home / "ledger.db", fingerprint) as ledger:
        ledger.verify()
        return ledger.entries()


@pytest.mark.usefixtures("reports")
def test_a_run_leaves_what_a_run_of_pate_leaves(tmp_path: Path) -> None:
    done = go(tmp_path, tables(erm={"order": 1024.0}))
    names = {path.name for path in done.folder.iterdir()}
    assert names >= {"recipe.toml", "environment.json", "ledger.json", "result.json", MODEL, "report.html", "plots"}
    result = done.result
    assert result == Result.read(done.folder)
    assert result.kind == "erm"
    assert result.evaluation is not None
    assert result.evaluation.accuracy > 0.85, "chance is a half"
    privacy = result.privacy
    assert privacy.erm is not None
    assert privacy.data_independent == min(privacy.erm.epsilon_direct, privacy.erm.epsilon_rdp) <= 2.0
    assert privacy.erm.epsilon_direct > 1.98, "at order 1024 a pure mechanism has nearly all of the budget"
    assert privacy.spent <= privacy.budget_epsilon
    assert "epsilon by accountant" in result.rows()
    assert "model" in result.rows()
    page = (done.folder / "report.html").read_text()
    assert privacy.neighbours == "one record (or user) replaced", "their number is counted, and printed"
    assert "Two figures" in page
    assert "Poisson" not in page
    public = (done.folder / "report-public.html").read_text()
    assert "pate erm recipe.toml" in public
    again = go(tmp_path, tables(erm={"order": 1024.0}))
    assert again.result.evaluation == result.evaluation
    assert next(stage for stage in again.result.stages if stage.name == "training").cached
    assert read_erm_recipe(done.folder / "recipe.toml") == check_recipe(tables(erm={"order": 1024.0}), "it", ErmRecipe)
    compared = Compared.read([done.folder])
    assert compared.to_json()["runs"][0]["kind"] == "erm"


@pytest.mark.parametrize("method", ["output", "gaussian", "objective"])
@pytest.mark.parametrize("model", ["logistic", "huber-svm"])
def test_a_seeded_run_repeats(tmp_path: Path, model: str, method: str) -> None:
    found = tables(erm={"model": model, "method": method})
    first, second = (go(tmp_path / name, found) for name in ("a", "b"))
    assert (first.folder / MODEL).read_text() == (second.folder / MODEL).read_text()
    assert first.result.privacy == second.result.privacy
    other = go(tmp_path / "c", {**found, "seed": 1})
    assert not np.array_equal(*(LinearModel.load(run.folder / MODEL).weights for run in (first, other)))
    assert first.result.privacy.erm is not None
    assert first.result.privacy.erm.pure == (method != "gaussian")


def test_features_a_kernel_and_a_private_choice(tmp_path: Path) -> None:
    changes = {"random_features": 40, "gamma": 0.1, "regularisation": [0.001, 0.01], "data_norm": 1.0}
    done = go(tmp_path, tables(features={"name": "standardise"}, privacy={"epsilon": 8.0}, erm=changes))
    erm = done.result.privacy.erm
    assert erm is not None
    assert erm.columns == 41, "with the intercept's"
    assert erm.records == 300, "in each of three parts"
    assert erm.candidates == [0.001, 0.01]
    assert erm.regularisation in erm.candidates
    assert erm.choice_epsilon == pytest.approx(erm.epsilon_direct)
    assert done.result.evaluation is not None
    assert done.result.evaluation.accuracy > 0.7


def test_a_release_is_charged_to_the_durable_ledger_and_never_twice(tmp_path: Path) -> None:
    found = tables("Pair", erm={"epsilon": 1.0}, privacy={"epsilon": 4.0})
    done = go(tmp_path, found)
    assert done.result.mode == "release"
    entries = durable(tmp_path / "home")
    assert [entry.kind for entry in entries] == ["open", "charge"]
    assert entries[1].memo["records"] == 1000
    go(tmp_path, found)
    assert len(durable(tmp_path / "home")) == 2, "found, not learned and charged again"
    with pytest.raises(BudgetExceeded):
        go(tmp_path, tables("Pair", erm={"epsilon": 4.0}, privacy={"epsilon": 4.0}))
    with pytest.raises(LedgerError, match="fixed for ever"):
        go(tmp_path, tables("Pair", erm={"order": 1024.0}, privacy={"epsilon": 4.0}))
    assert len(durable(tmp_path / "home")) == 2


@pytest.mark.parametrize("source", ["Pair", "PublicPair"])
def test_stopped_between_charge_and_noise_it_pays_again_where_its_noise_is_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    found = tables(source, erm={"epsilon": 0.5})
    with monkeypatch.context() as patch:
        patch.setattr("pate.experiments.baselines.erm.mechanisms.minimise", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            go(tmp_path, found)
    done = go(tmp_path, found)
    rows = json.loads((done.folder / "ledger.json").read_text())
    assert [row["kind"] for row in rows] == ["open", "charge", *["charge"] * (source == "Pair")]


def test_on_private_data_nothing_published_tells_how_many_records_there_are(tmp_path: Path) -> None:
    missing = tables("Pair")
    del missing["erm"]["records"]
    with pytest.raises(RecipeError, match=r"erm\.records: missing"):
        check_recipe(missing, "The recipe", ErmRecipe)
    done = go(tmp_path, tables("Pair"))
    public = done.result.public()
    assert public.privacy.erm is not None
    assert public.privacy.erm.records == 1000, "the declared one"
    assert public.privacy.neighbours.endswith("or one more or less")
    for text in (public.model_dump_json(), (done.folder / MODEL).read_text()):
        assert not re.search(r"(?<![\w.])900(?![\w.])", text)  # a number of its own, no digits of another or of a hash


def test_users_are_protected_where_records_have_users(tmp_path: Path) -> None:
    done = go(tmp_path, tables("GroupedPair"))
    assert done.result.data.unit == "user"
    assert done.result.privacy.erm is not None
    assert done.result.privacy.erm.records == 300, "users, with three records each"
    tuned = go(tmp_path, tables("GroupedPair", erm={"regularisation": [0.001, 0.01]}))
    assert tuned.result.privacy.erm is not None
    assert tuned.result.privacy.erm.records == 100


def test_more_than_two_classes_are_refused_before_anything_is_paid(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="3 classes"):
        go(tmp_path, tiny(erm={"model": "logistic"}) | {})
    assert not (tmp_path / "home").exists()


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"datanorm": 5}, "did you mean 'data_norm'?"),
        ({"model": "svm"}, "model: 'svm' is no model"),
        ({"method": "outputs"}, "method"),
        ({"regularisation": [0.1]}, "two or more"),
        ({"random_features": 7}, "multiple of 2"),
        ({"order": 1000.0}, "one of the ledger's orders"),
        ({"data_norm": 0.0}, "data_norm"),
    ],
)
def test_a_wrong_table_is_told(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(RecipeError) as caught:
        check_recipe(tables(erm=changes), "The recipe", ErmRecipe)
    assert told in str(caught.value)


def test_a_recipe_without_the_table_says_what_to_add() -> None:
    with pytest.raises(RecipeError, match=r"no table \[erm\]"):
        read_erm_recipe(tiny())


@pytest.mark.parametrize("name", [name for name, path in built_in_recipes().items() if "[erm]" in path.read_text()])
def test_the_built_in_tables_are_sound(name: str) -> None:
    recipe = read_erm_recipe(name)
    assert recipe.erm.model == "logistic"
    assert "[erm]" in recipe_text(recipe)


def test_a_damaged_model_is_told(tmp_path: Path) -> None:
    (tmp_path / MODEL).write_text('{"format": "pate-erm"}')
    with pytest.raises(DataError, match="no private linear model"):
        LinearModel.load(tmp_path / MODEL)


def test_python_gives_the_same(tmp_path: Path) -> None:
    result = pate.run_erm(tables(), out=tmp_path, show="none", erm__method="gaussian")
    assert result.privacy.mechanism["mechanism"] == "erm gaussian"


def curves(**changes: Any) -> Curves:
    recipe = check_recipe(tables(**changes), "The recipe", ErmRecipe)
    return simulated_curves(recipe, seeds=(0, 1), epsilons=(0.05, 5.0), shares=(1 / 16, 1.0))


def test_curves_rise_with_epsilon_and_with_records(tmp_path: Path) -> None:
    found = curves()
    means = {(p.method, p.epsilon): np.mean(p.accuracies) for p in found.over_epsilon}
    for method in ("output", "gaussian", "objective"):
        assert means[method, 5.0] > max(0.85, means[method, 0.05])
    assert {point.records for point in found.over_records} == {56, 900}
    assert all(len(point.accuracies) == 2 for point in found.over_records)
    assert curves().over_epsilon == found.over_epsilon, "seeded"
    found.write(tmp_path / "a.json")
    assert Curves.read(tmp_path / "a.json") == found
    draw_curves(found, tmp_path / "a.svg")
    assert (tmp_path / "a.svg").stat().st_size > 1000
    (tmp_path / "b.json").write_text("{}")
    with pytest.raises(DataError, match="not a result"):
        Curves.read(tmp_path / "b.json")


def test_curves_name_the_code_that_ran_and_not_what_was_written_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    state = ["a" * 40]

    def say(_: str) -> None:
        state[0] = "b" * 40  # somebody commits while it works

    monkeypatch.setattr(drawing, "code_state", lambda: (state[0], False))
    recipe = check_recipe(tables(), "The recipe", ErmRecipe)
    found = simulated_curves(recipe, seeds=(0,), epsilons=(5.0,), shares=(1.0,), say=say)
    assert (state[0], found.commit) == ("b" * 40, "a" * 40)


def test_curves_of_people_with_several_records() -> None:
    found = curves(data={"source": "erm_cases:GroupedPair"})
    assert {point.records for point in found.over_records} == {19, 300}


def test_curves_are_for_benchmarks_only() -> None:
    recipe = check_recipe(tables("Pair"), "The recipe", ErmRecipe)
    with pytest.raises(ParameterError, match="benchmark data only"):
        simulated_curves(recipe)


def test_the_command_line_runs_and_draws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.toml").write_text(recipe_text(check_recipe(tables(), "The recipe", ErmRecipe)))
    run = CliRunner().invoke(app, ["erm", "mine.toml", "--set", "erm.method=output", "--json"])
    assert run.exit_code == 0, run.output
    assert json.loads(run.stdout)["result"]["kind"] == "erm"
    shown = CliRunner().invoke(app, ["erm", "mine.toml"])
    assert shown.exit_code == 0, shown.output
    assert "Model:" in shown.stdout
    study = Path(__file__).parents[2] / "docs" / "results" / "adult.json"
    drawn = CliRunner().invoke(app, ["erm", "mine.toml", "--curves", "c.svg", "--seeds", "1", "--beside", str(study)])
    assert drawn.exit_code == 0, drawn.output
    assert Path("c.svg").stat().st_size > 1000
    assert Curves.read(Path("c.json")).seeds == [0]


def test_a_study_can_have_such_cases(tmp_path: Path) -> None:
    mine = tmp_path / "mine.toml"
    mine.write_text(recipe_text(check_recipe(tables(), "The recipe", ErmRecipe)))
    cases = tuple(Case(ERM, str(mine), {"privacy.epsilon": each, "erm.order": 1024.0}, "erm") for each in (0.5, 2.0))
    study = Study("adult", "Pair", cases)
    found = run_study(study, data=None, out=tmp_path / "runs", seeds=(0, 1), show="none")
    assert [len(case.points) for case in found.cases] == [2, 2]
    assert found.cases[0].points[0].epsilon < 0.5 < found.cases[1].points[0].epsilon < 2.0
    assert found.cases[0].mechanism["mechanism"] == "erm objective"
    assert all(path.exists() for path in draw_study(study, found, tmp_path / "results"))


def test_ctrl_c_after_the_charge_waits_for_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All is paid for at once, so a run that stopped there would have spent its budget on nothing."""
    from pate.experiments.baselines.erm import launch as erm_launch

    plain = erm_launch._Run._learn

    def learn(self: Any, ledger: Any, key: str) -> Any:
        model = plain(self, ledger, key)
        signal.raise_signal(signal.SIGINT)
        return model

    monkeypatch.setattr(erm_launch._Run, "_learn", learn)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            go(tmp_path, tables())
    finally:
        signal.signal(signal.SIGINT, before)
    assert list(tmp_path.glob("*/model.json"))
    monkeypatch.undo()
    found = go(tmp_path, tables())
    assert found.result.privacy.spent <= found.result.privacy.budget_epsilon, "one charge, for the model that is there"
