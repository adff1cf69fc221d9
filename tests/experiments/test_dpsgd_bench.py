"""``pate bench dpsgd`` runs, with and without Opacus. No time is asserted: that would be a coin toss."""

from __future__ import annotations

import importlib.util
import json
from io import StringIO

import pytest

pytest.importorskip("torch")

from rich.console import Console
from typer.testing import CliRunner

from pate.cli import app
from pate.errors import ParameterError
from pate.experiments.bench import dpsgd as bench


def test_every_model_and_way_has_a_row() -> None:
    said: list[str] = []
    rows = bench.run(quick=True, report=said.append)
    ways = ["plain", "pate", "pate, exact noise"]
    if importlib.util.find_spec("opacus") is not None:
        ways += ["Opacus hooks", "Opacus ghost"]
    assert [(row["model"], row["way"]) for row in rows] == [(model, way) for model in bench.MODELS for way in ways]
    assert all(row["milliseconds"] > 0 for row in rows)
    assert all(row["times_plain"] == 1 for row in rows if row["way"] == "plain")
    text = StringIO()
    Console(width=200, file=text).print(bench.table(rows))
    assert "times the plain step" in text.getvalue()


def test_without_opacus_its_rows_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "find_spec", lambda name: None)
    said: list[str] = []
    rows = bench.run(("logistic",), quick=True, report=said.append)
    assert [row["way"] for row in rows] == ["plain", "pate", "pate, exact noise"]
    assert said[0] == "Opacus is not installed: its rows are left out"


def test_the_command_measures_memory_in_fresh_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "find_spec", lambda name: None)
    monkeypatch.setattr(bench, "_peak", lambda way, name, batch: 1.5)
    result = CliRunner().invoke(app, ["bench", "dpsgd", "--quick", "--models", "logistic", "--memory", "--json"])
    assert result.exit_code == 0, result.output
    rows = json.loads(result.stdout)
    assert [row["peak_megabytes"] for row in rows] == [1.5, 1.5, 1.5]


def test_steps_of_a_larger_batch_need_memory() -> None:
    # 4096 pictures: 12 MB, and 50 MB for the output of the first layer; a fresh process has had no use for them before.
    assert bench._peak("plain", "mnist-cnn", 4096) > 20


def test_an_unknown_model_is_refused() -> None:
    with pytest.raises(ParameterError, match="must be some of mnist-cnn, mlp, logistic, groupnorm-cnn; got resnet"):
        bench.run(("mlp", "resnet"))
