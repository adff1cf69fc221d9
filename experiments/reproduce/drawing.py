"""The pictures of docs/results.md."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import mean

from pate.experiments.plots import log_scale, new_figure, save_figure
from pate.experiments.reports.plots import BLUE, GREEN, GREY, ORANGE, PURPLE, RED, SKY
from pate.experiments.reproduce.running import Found, StudyResult
from pate.experiments.reproduce.studies import DPSGD, ERM, PAPER, RECORDS, ROUNDS, TEACHERS, Study

_COLOURS = {RECORDS: BLUE, TEACHERS: ORANGE, PAPER: RED, DPSGD: GREEN, ERM: PURPLE, ROUNDS: SKY}
_DASHES = {"": "-", "A": "-", "B": "--"}
_MARKERS = ("^", "v", "s", "D", "P")
_AXES = {"teachers": "teachers, sigma = 0.16 of their number", "sigma": "sigma, 250 teachers"}


def draw_study(study: Study, result: StudyResult, folder: Path) -> list[Path]:
    """The figure against epsilon, with published points; and what teachers and noise trade, where the study tried it."""
    folder.mkdir(parents=True, exist_ok=True)
    drawn = [_against_epsilon(study, result, folder / f"{study.name}.svg")]
    for sweep in dict.fromkeys(case.sweep for case in result.cases if case.sweep):
        drawn.append(
            _trade_off([case for case in result.cases if case.sweep == sweep], sweep, folder / f"{study.name}-{sweep}.svg")
        )
    return drawn


def figure_of(case: Found, metric: str) -> list[float]:
    """What each seed reached: shares of 1, or areas under the curve."""
    return [point.accuracy if metric == "accuracy" else float(point.auc or 0) for point in case.points]


def _against_epsilon(study: Study, result: StudyResult, path: Path) -> Path:
    figure = new_figure(7.4, 4.6)
    axes = figure.subplots()
    scale = 100 if study.metric == "accuracy" else 1
    lines: dict[tuple[str, str], list[Found]] = {}
    for case in result.cases:
        if not case.sweep:
            lines.setdefault((case.line, case.protocol), []).append(case)
    for (line, protocol), cases in lines.items():
        x = [mean(point.epsilon for point in case.points) for case in cases]
        figures = [figure_of(case, study.metric) for case in cases]
        y = [scale * mean(each) for each in figures]
        spread = [[scale * (mean(e) - min(e)) for e in figures], [scale * (max(e) - mean(e)) for e in figures]]
        label = f"{line}, {protocol}" if protocol else line
        axes.errorbar(
            x, y, yerr=spread, fmt=f"o{_DASHES[protocol]}", color=_COLOURS[line], capsize=3, label=label,
            mfc="white" if protocol == "B" else None,
        )  # fmt: skip
        for attribute, marker in (("epsilon_dependent", "*"), ("epsilon_2018", "x")):
            private = [[getattr(point, attribute) for point in case.points] for case in cases]
            if all(value is not None for each in private for value in each):
                axes.plot([mean(each) for each in private], y, marker, color=_COLOURS[line], alpha=0.6)
    for marker, what in zip(_MARKERS, dict.fromkeys(each.what for each in study.published), strict=False):
        points = [each for each in study.published if each.what == what]
        axes.plot(
            [p.epsilon for p in points], [scale * p.accuracy for p in points], marker, color=GREY, label=f"{what} (published)"
        )
    axes.plot([], [], "*", color="black", alpha=0.6, label="same, data-dependent exact (private)")
    axes.plot([], [], "x", color="black", alpha=0.6, label="same, bound of 2018 (private)")
    log_scale(axes)
    axes.set_xlabel(f"epsilon at delta = {result.delta:g}; circles: publishable")
    axes.set_ylabel("test accuracy, %" if study.metric == "accuracy" else "area under the curve")
    axes.set_title(f"{study.title}: mean of {len(result.seeds)} seeds, bars from least to most", fontsize=10)
    axes.grid(alpha=0.3)
    axes.legend(frameon=False, fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5))
    save_figure(figure, path)
    return path


def _trade_off(cases: Sequence[Found], sweep: str, path: Path) -> Path:
    """The student's accuracy above, what it costs below."""
    figure = new_figure(6.4, 5.2)
    above, below = figure.subplots(2, 1, sharex=True)
    x = [case.value for case in cases]
    above.plot(x, [100 * mean(point.accuracy for point in case.points) for case in cases], "o-", color=BLUE)
    above.set_ylabel("student's accuracy, %")
    for attribute, style, label in (
        ("epsilon", "o-", "data-independent, publishable"),
        ("epsilon_2018", "x:", "data-dependent, bound of 2018 (private)"),
        ("epsilon_dependent", "*--", "data-dependent, exact (private)"),
    ):
        values = [[getattr(point, attribute) for point in case.points] for case in cases]
        if all(value is not None for each in values for value in each):
            below.plot(x, [mean(each) for each in values], style, label=label)
    below.set_yscale("log")
    log_scale(below)
    below.set_ylabel("epsilon")
    below.set_xlabel(_AXES[sweep])
    below.legend(frameon=False, fontsize=8)
    for axes in (above, below):
        axes.grid(alpha=0.3)
    save_figure(figure, path)
    return path
