"""The baseline as a run: the recipe's data, ledger, test, report and comparison."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from pipeline_cases import tiny
from typer.testing import CliRunner

import pate
from pate.cli import app
from pate.errors import BudgetExceeded, RecipeError
from pate.execution import Serial
from pate.experiments.baselines.dpsgd.launch import launch_dpsgd
from pate.experiments.pipeline.launch import Finished, launch
from pate.experiments.recipes.model import DpsgdRecipe
from pate.experiments.recipes.reading import built_in_recipes, check_recipe, read_dpsgd_recipe
from pate.experiments.reports.comparing import Compared
from pate.experiments.results import Result
from pate.ledger import Ledger, faultpoints

for package in ("torch", "matplotlib", "jinja2"):
    pytest.importorskip(package, reason=f"{package} is not installed (extras 'train' and 'plot')")

TRAINING = {"model": "logistic", "lot_size": 60, "steps": 12, "learning_rate": 2.0, "checkpoints": 3, "noise_multiplier": 2.0}


pytestmark = pytest.mark.usefixtures("own_home")


def tables(source: str = "PublicWard", **changes: Any) -> dict[str, Any]:
    found = tiny(source, **{"dpsgd": TRAINING, **changes})
    if source == "Ward":  # of private data the rate is declared
        found["dpsgd"] = {"rate": 0.2, **found["dpsgd"]}
    return found


def go(out: Path, found: dict[str, Any], **options: Any) -> Finished:
    return launch_dpsgd(check_recipe(found, "The recipe", DpsgdRecipe), out=out, show="none", **options)


def durable(home: Path) -> list[Any]:
    (fingerprint,) = Ledger.datasets(home / "ledger.db")
    with Ledger.open(home / "ledger.db", fingerprint) as ledger:
        ledger.verify()
        return ledger.entries()


@pytest.mark.usefixtures("reports")
def test_a_run_leaves_what_a_run_of_pate_leaves(tmp_path: Path) -> None:
    done = go(tmp_path, tables())
    names = {path.name for path in done.folder.iterdir()}
    assert names >= {"recipe.toml", "environment.json", "ledger.json", "result.json", "model.zip", "report.html", "plots"}
    assert done.result == Result.read(done.folder)
    assert done.result.kind == "dp-sgd"
    assert done.result.evaluation is not None
    assert done.result.evaluation.accuracy > 0.8, "chance is a third"
    training = done.result.privacy.training
    assert training is not None
    assert done.result.privacy.data_independent == min(training.epsilon_rdp, training.epsilon_pld or 99)
    assert done.result.privacy.spent <= done.result.privacy.budget_epsilon
    page = (done.folder / "report.html").read_text()
    assert "Two accountants" in page
    assert "Poisson" in page
    assert "Three epsilons" not in page
    public = (done.folder / "report-public.html").read_text()
    assert "pate dpsgd recipe.toml" in public
    assert go(tmp_path, tables()).result.evaluation == done.result.evaluation, "found again"


def test_pate_and_its_baseline_stand_side_by_side(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pate.experiments.pipeline.launch.write_all", lambda result, folder: None)
    baseline = go(tmp_path, tables())
    votes = launch(check_recipe(tables()), out=tmp_path, executor=Serial(), show="none")
    compared = Compared.read([baseline.folder, votes.folder])
    assert {row["kind"] for row in compared.to_json()["runs"]} == {"pate", "dp-sgd"}
    assert any("neighbouring relation" in note for note in compared.notes)
    shown = CliRunner().invoke(app, ["compare", str(baseline.folder), str(votes.folder), "--plot", str(tmp_path / "a.png")])
    assert shown.exit_code == 0, shown.output
    assert (tmp_path / "a.png").stat().st_size > 1000


def test_a_release_is_charged_to_the_ledger_that_pate_charges(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pate.experiments.pipeline.launch.write_all", lambda result, folder: None)
    launch(check_recipe(tiny("Ward", privacy={"epsilon": 30.0})), out=tmp_path, executor=Serial(), show="none")
    found = tables("Ward", privacy={"epsilon": 30.0}, dpsgd={**TRAINING, "noise_multiplier": 4.0})
    done = go(tmp_path, found)
    assert done.result.mode == "release"
    entries = durable(tmp_path / "home")
    assert [entry.kind for entry in entries] == ["open", "reserve", "settle", *["charge"] * 3]
    assert done.result.privacy.training is not None
    assert done.result.privacy.training.charged == "one record (or user) replaced", "as the ledger was begun by PATE"
    go(tmp_path, found)
    assert len(durable(tmp_path / "home")) == len(entries), "found, not trained and charged again"
    more = tables("Ward", privacy={"epsilon": 30.0}, dpsgd={**TRAINING, "noise_multiplier": 0.4})
    with pytest.raises(BudgetExceeded):
        go(tmp_path, more)
    assert len(durable(tmp_path / "home")) == len(entries)


def test_users_are_protected_where_records_have_users(tmp_path: Path) -> None:
    done = go(tmp_path, tables("GroupedWard"))
    assert done.result.data.unit == "user"
    training = done.result.privacy.training
    assert training is not None
    assert training.rate == pytest.approx(60 / 100), "of 100 users, with three records each"


def _until_death(out: Path, found: dict[str, Any], die_at: int) -> None:
    seen = 0

    def event(*_: Any) -> None:
        nonlocal seen
        seen += 1
        if seen == die_at:
            os.kill(os.getpid(), signal.SIGKILL)

    from pate.experiments.baselines.dpsgd.training import paying

    for name in ("save", "save_books"):
        kept = getattr(paying.Checkpoints, name)
        setattr(paying.Checkpoints, name, lambda self, *rest, kept=kept: (event(), kept(self, *rest))[1])
    faultpoints.reached = event
    go(out, found)


def test_killed_anywhere_nothing_is_unpaid_and_a_simulation_ends_the_same(tmp_path: Path) -> None:
    """Killed at every point in turn, each time farther on; then run to the end."""
    for source in ("PublicWard", "Ward"):
        deaths = 0
        while True:
            child = multiprocessing.get_context("fork").Process(
                target=_until_death, args=(tmp_path / source, tables(source, privacy={"epsilon": 20.0}), 4 * deaths + 1)
            )
            child.start()
            child.join(60)
            if child.exitcode == 0:
                break
            assert child.exitcode == -signal.SIGKILL
            deaths += 1
        assert deaths >= 4
        done = go(tmp_path / source, tables(source, privacy={"epsilon": 20.0}))
        training = done.result.privacy.training
        assert training is not None
        rows = json.loads((done.folder / "ledger.json").read_text())
        paid = sum(row["memo"]["steps"] for row in rows if row["kind"] == "charge")
        assert paid >= training.steps
        assert training.steps >= 12
        if source == "PublicWard":
            assert paid == 12
            again = go(tmp_path / "again", tables(source, privacy={"epsilon": 20.0})).result
            assert done.result.evaluation == again.evaluation
            assert done.result.privacy == again.privacy
        else:
            assert paid == training.steps, "what was lost is reported, too"
            assert training.lost == training.steps - 12


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"lotsize": 5}, "dpsgd: lotsize: unknown key (did you mean 'lot_size'?)"),
        ({"model": "cn"}, "dpsgd: model: 'cn' is no model"),
        ({"noise_multiplier": 0.0}, "without noise no epsilon holds"),
        ({"epochs": 3.0}, "steps or epochs"),
    ],
)
def test_a_wrong_table_is_told(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(RecipeError) as caught:
        check_recipe(tables(dpsgd={**TRAINING, **changes}), "The recipe", DpsgdRecipe)
    assert told.split(":")[-1].strip() in str(caught.value)


def test_on_private_data_nothing_published_tells_how_many_records_there_are(tmp_path: Path) -> None:
    missing = tiny("Ward", dpsgd=TRAINING)
    with pytest.raises(RecipeError, match=r"dpsgd\.rate: missing"):
        check_recipe(missing, "The recipe", DpsgdRecipe)
    public = go(tmp_path, tables("Ward", privacy={"epsilon": 20.0})).result.public()
    assert public.privacy.mechanism["rate"] == 0.2
    assert public.data.private_records is None


def test_a_recipe_without_the_table_says_what_to_add() -> None:
    with pytest.raises(RecipeError, match=r"no table \[dpsgd\]"):
        read_dpsgd_recipe(tiny())


@pytest.mark.parametrize("name", [name for name in built_in_recipes() if "[dpsgd]" in built_in_recipes()[name].read_text()])
def test_the_built_in_baselines_are_sound(name: str) -> None:
    assert read_dpsgd_recipe(name).dpsgd.model == "logistic"


def test_the_command_line_trains_and_accounts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run = CliRunner().invoke(app, ["dpsgd", "digits", "--set", "dpsgd.epochs=2", "--json"])
    assert run.exit_code == 0, run.output
    assert json.loads(run.stdout)["result"]["kind"] == "dp-sgd"
    arguments = ["dpsgd", "account", "--lot", "600", "--records", "60000", "--noise", "4", "--epochs", "100"]
    told = CliRunner().invoke(app, [*arguments, "--json", "--plot", "c.svg"])
    assert told.exit_code == 0, told.output
    assert json.loads(told.stdout)["epsilon_rdp"] == pytest.approx(1.0355, abs=1e-3)
    assert (tmp_path / "c.svg").exists()
    target = CliRunner().invoke(app, ["dpsgd", "account", "-q", "0.01", "--epsilon", "1", "--steps", "100"])
    assert "noise multiplier" in target.stdout
    assert CliRunner().invoke(app, ["dpsgd", "account", "--steps", "3"]).exit_code != 0


def test_python_gives_the_same(tmp_path: Path) -> None:
    result = pate.run_dpsgd(tables(), out=tmp_path, show="none", dpsgd__steps=6)
    assert result.privacy.mechanism["steps"] == 6
    assert "epsilon by accountant" in result.rows()
