"""``pate compare`` as a user types it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command_cases import one_line

for package in ("matplotlib",):
    pytest.importorskip(package, reason=f"{package} is not installed (extra 'plot')")

Pate = Callable[..., Any]


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two finished runs, and one that was stopped."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "experiments"))
    from result_cases import ten_classes, two_classes

    monkeypatch.setenv("PATE_HOME", str(tmp_path / "home"))
    for name, result in {"a": ten_classes(), "b": two_classes()}.items():
        (tmp_path / name).mkdir()
        result.write(tmp_path / name / "result.json")
    (tmp_path / "stopped").mkdir()
    (tmp_path / "stopped" / "recipe.toml").write_text("")
    return tmp_path


def test_a_run_that_was_stopped_is_left_out_and_named(pate: Pate, runs: Path) -> None:
    ran = pate("compare", runs / "a", runs / "b", runs / "stopped", "--json")
    assert ran.code == 0, ran.err
    assert sorted(row["run"] for row in ran.json["runs"]) == ["a", "b"]
    assert f"note: {runs / 'stopped'}: not finished, so left out." in ran.err


def test_what_is_no_run_and_stopped_runs_alone_are_one_line(pate: Pate, runs: Path) -> None:
    one_line(pate("compare", runs / "stopped"), "there is no result.json", 5)
    one_line(pate("compare", runs / "a", runs / "nothing"), "there is no result.json", 5)


def test_what_all_have_in_common_stands_below_and_80_columns_are_enough(
    pate: Pate, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("digits-771473c4", "digits-822e516d"):
        (runs / "a").with_name(name).mkdir()
        (runs / name / "result.json").write_bytes((runs / "a" / "result.json").read_bytes())
    monkeypatch.setenv("COLUMNS", "80")
    said = pate("compare", runs / "digits-771473c4", runs / "digits-822e516d").out
    for whole in ("digits-771473c4 ", "digits-822e516d ", "accuracy ", "publishable ", "data-dependent ", "All: data "):
        assert whole in said, said
    assert "AUC" not in said  # neither has one


def test_ctrl_c_while_a_module_is_imported_is_a_stop(pate: Pate, runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python 3.11 turns it into a RuntimeError if it comes while a class is being made."""

    class Named:
        def __set_name__(self, owner: type, name: str) -> None:
            raise KeyboardInterrupt

    def read(paths: Any) -> Any:
        return type("Made", (), {"part": Named()})

    from pate.experiments.reports.comparing import Compared

    monkeypatch.setattr(Compared, "read", read)
    ran = pate("compare", runs / "a")
    assert (ran.code, ran.err) == (130, "pate: Stopped. Nothing was compared.\n")
    assert sys.exc_info() == (None, None, None)
