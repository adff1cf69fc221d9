"""Runs side by side."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from result_cases import no_test_records, privacy, ten_classes, two_classes

from pate.experiments.reports.comparing import Compared, plot_comparison
from pate.experiments.results import Result

pytest.importorskip("matplotlib", reason="matplotlib is not installed (extra 'plot')")


def stored(folder: Path, **results: Result) -> list[Path]:
    for name, result in results.items():
        (folder / name).mkdir()
        result.write(folder / name / "result.json")
    return [folder / name for name in results]


def test_rows_come_by_data_set_and_epsilon(tmp_path: Path) -> None:
    cheap = ten_classes(privacy=privacy(data_independent=0.3))
    paths = stored(tmp_path, b=ten_classes(), a=two_classes(), c=cheap)
    compared = Compared.read([*paths, tmp_path / "a" / "result.json"])
    assert [name for name, _ in compared.rows] == ["a", "a", "c", "b"]
    assert any("They differ in the data set: adult" in note for note in compared.notes)
    for suffix in (".png", ".svg"):
        plot_comparison(compared, tmp_path / f"plot{suffix}")
        assert (tmp_path / f"plot{suffix}").stat().st_size > 1000


def test_what_cannot_be_compared_is_said(tmp_path: Path) -> None:
    other = ten_classes(privacy=privacy(delta=1e-6))
    notes = Compared.read(stored(tmp_path, a=ten_classes(), b=other, c=no_test_records())).notes
    for each in ("delta: 1e-05; 1e-06", "the unit of privacy: record; user", "no test records", "Simulations are not private"):
        assert any(each in note for note in notes), (each, notes)


def test_one_run_alone_has_nothing_to_differ_in(tmp_path: Path) -> None:
    assert Compared.read(stored(tmp_path, a=ten_classes())).notes == [
        "Simulations are not private: their epsilon is what a release would have."
    ]


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_the_command(form: list[str], tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from pate.cli import app

    run: Callable[..., Any] = CliRunner().invoke
    done = run(app, ["compare", *map(str, stored(tmp_path, a=ten_classes(), b=two_classes())), *form])
    assert done.exit_code == 0, done.output
    assert "1.9" in done.output
    assert "differ in the data set" in done.output.replace("\n", " ")
