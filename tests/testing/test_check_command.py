"""``pate check`` and ``--set``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from pate.commands.check import check
from pate.commands.settings import Setting, parse_settings
from pate.errors import ParameterError, ReferenceNotFound

FEW = ["--teachers", "50", "--classes", "3", "--samples", "20000"]


@pytest.fixture
def app() -> typer.Typer:
    app = typer.Typer()
    app.command()(check)
    return app


def test_a_built_in_passes(app: typer.Typer) -> None:
    result = CliRunner().invoke(app, ["gnmax", "--set", "sigma=10", *FEW])
    assert result.exit_code == 0, result.output
    assert "✓" in result.output
    assert "✗" not in result.output
    assert "evidence for the costs: exact" in result.output


def test_a_broken_one_fails_with_code_1(app: typer.Typer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    result = CliRunner().invoke(app, ["broken:SeededNoise", "--set", "sigma=10", *FEW])
    assert result.exit_code == 1
    assert "✗" in result.output
    assert "noise: fresh every release" in result.output


def test_json(app: typer.Typer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    result = CliRunner().invoke(app, ["broken:SeededNoise", "--set", "sigma=10", "--json", *FEW])
    assert result.exit_code == 1
    report = json.loads(result.stdout)
    assert report["passed"] is False
    assert report["evidence"].startswith("empirical")
    assert (report["teachers"], report["classes"]) == (50, 3)
    assert {"name": "contract: release", "passed": True} in [{k: c[k] for k in ("name", "passed")} for c in report["checks"]]


def test_unknown_names_and_parameters_are_errors(app: typer.Typer) -> None:
    assert isinstance(CliRunner().invoke(app, ["gnmaxx", "--set", "sigma=10"]).exception, ReferenceNotFound)
    assert isinstance(CliRunner().invoke(app, ["gnmax", "--set", "sigmo=10"]).exception, ParameterError)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("40", 40),
        ("-3", -3),
        ("0.5", 0.5),
        ("1e-5", 1e-5),
        ("true", True),
        ("False", False),
        ("joint", "joint"),
        ("a=b", "a=b"),
        ("3 4", "3 4"),
    ],
)
def test_values(text: str, value: Setting) -> None:
    parsed = parse_settings([f"key={text}"])
    assert parsed == {"key": value}
    assert type(parsed["key"]) is type(value)


def test_spaces_around_a_setting_do_not_matter() -> None:
    assert parse_settings([" sigma = 40 "]) == {"sigma": 40}


@pytest.mark.parametrize("wrong", ["sigma", "=3", "sigma=", "9lives=1", "two words=1"])
def test_bad_settings_are_shown(wrong: str) -> None:
    with pytest.raises(ParameterError, match="must look like key=value") as caught:
        parse_settings(["fine=1", wrong])
    assert repr(wrong) in str(caught.value)


def test_all_bad_settings_are_shown_at_once() -> None:
    with pytest.raises(ParameterError) as caught:
        parse_settings(["sigma=1", "sigma=2", "oops"])
    assert "'sigma' is given twice" in str(caught.value)
    assert "'oops'" in str(caught.value)
