"""Runs side by side."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from result_cases import no_test_records, privacy, ten_classes, two_classes

from pate.experiments.reports.comparing import Compared, comparison_figure, plot_comparison
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


def test_one_relation_in_other_words_is_one(tmp_path: Path) -> None:
    words = [
        privacy(neighbours=f"one record (or user) {each}") for each in ("replaced", "replaced: one vote moves", "more or less")
    ]
    results = {f"r{number}": ten_classes(privacy=each) for number, each in enumerate(words)}
    paths = stored(tmp_path, **results)
    assert not any("relation" in note for note in Compared.read(paths[:2]).notes)
    assert any("the neighbouring relation" in note for note in Compared.read(paths).notes)


def test_one_run_alone_has_nothing_to_differ_in(tmp_path: Path) -> None:
    assert Compared.read(stored(tmp_path, a=ten_classes())).notes == [
        "Simulations are not private: their epsilon is what a release would have."
    ]


def placed(name: str, epsilon: float, accuracy: float) -> tuple[str, Result]:
    result = ten_classes(privacy=privacy(data_independent=epsilon))
    assert result.evaluation is not None
    return name, result.model_copy(update={"evaluation": result.evaluation.model_copy(update={"accuracy": accuracy})})


@pytest.mark.parametrize("epsilons", [(0.3, 1.0, 1.9), (0.02, 1.0, 9.0)], ids=["linear", "logarithmic"])
def test_long_names_stay_in_the_picture_and_off_the_bars(epsilons: tuple[float, ...]) -> None:
    names = ("digits-confident-gnmax-200-40-771473c4", "x" * 250, "fashion-mnist-contrastive-822e516d")
    figure = comparison_figure(Compared(tuple(placed(*row) for row in zip(names, epsilons, (0.8, 0.99, 0.9), strict=True))))
    figure.draw_without_rendering()
    axes, legend = figure.axes[0], figure.legends[0]
    below, drawn = legend.get_window_extent(), axes.get_tightbbox()
    assert drawn is not None
    assert below.y1 <= drawn.y0, "the legend lies below the picture"
    assert axes.get_position().width > 0.8, "names do not squeeze the picture"
    for box in [below, drawn, *(text.get_window_extent() for text in axes.texts)]:
        assert figure.bbox.padded(1).containsx(box.x0)
        assert figure.bbox.padded(1).containsx(box.x1)
        assert figure.bbox.padded(1).containsy(box.y0)
        assert figure.bbox.padded(1).containsy(box.y1)
    assert [text.get_text() for text in axes.texts] == ["1", "2", "3"]
    told = [text.get_text() for text in legend.get_texts()]
    assert told[0] == f"1  {names[0]}: pate, digits"
    assert told[2] == f"3  {names[2]}: pate, digits"
    assert len(told[1]) < 100


def test_runs_that_lie_close_together_can_be_told_apart() -> None:
    rows = [placed(f"digits-{i:08x}", 1.90 + 0.002 * (i % 3), 0.9) for i in range(6)]
    axes = comparison_figure(Compared((placed("far", 0.5, 0.7), *rows))).axes[0]
    assert [text.get_text() for text in axes.texts] == ["1", "2, 3, 4, 5, 6, 7"]


def test_runs_without_test_records_have_no_point_and_no_number() -> None:
    figure = comparison_figure(Compared((("a", no_test_records()), placed("b", 1.0, 0.9))))
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["1  b: pate, digits"]
    assert not comparison_figure(Compared((("a", no_test_records()),))).legends


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_the_command(form: list[str], tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from pate.cli import app

    run: Callable[..., Any] = CliRunner().invoke
    done = run(app, ["compare", *map(str, stored(tmp_path, a=ten_classes(), b=two_classes())), *form])
    assert done.exit_code == 0, done.output
    assert "1.9" in done.output
    assert "differ in the data set" in done.output.replace("\n", " ")
