"""The pictures of docs/results.md."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle
from pathlib import Path
from statistics import mean

from pate.experiments.plots import log_scale, new_figure, save_figure
from pate.experiments.reports.plots import BLUE, GREEN, GREY, ORANGE, PURPLE, RED, SKY
from pate.experiments.reproduce.running import Found, StudyResult
from pate.experiments.reproduce.studies import DPSGD, ERM, PAPER, RECORDS, ROUNDS, SWEEP_RECORDS, TEACHERS, Study

_COLOURS = {RECORDS: BLUE, TEACHERS: ORANGE, PAPER: RED, DPSGD: GREEN, ERM: PURPLE, ROUNDS: SKY}
_DASHES = {"": "-", "A": "-", "B": "--"}
_MARKERS = ("^", "v", "s", "D", "P", "<", ">")
_PRIVATE, _PUBLISHED = "(private)", "(published)"
_AXES = {"teachers": "teachers, sigma = 0.16 of their number", "sigma": "sigma, 250 teachers"}


def draw_study(study: Study, result: StudyResult, folder: Path) -> list[Path]:
    """The figure against epsilon, with published points; and what teachers and noise trade, where the study tried it."""
    folder.mkdir(parents=True, exist_ok=True)
    drawn = [_against_epsilon(study, result, folder / f"{study.name}.svg")]
    for sweep in dict.fromkeys(case.sweep for case in result.cases if case.sweep):
        cases, path = [case for case in result.cases if case.sweep == sweep], folder / f"{study.name}-{sweep}.svg"
        drawn.append(_over_records(cases, study, path) if sweep == SWEEP_RECORDS else _trade_off(cases, sweep, path))
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
    for marker, what in zip(cycle(_MARKERS), dict.fromkeys(each.what for each in study.published), strict=False):
        points = [each for each in study.published if each.what == what]
        axes.plot(
            [p.epsilon for p in points], [scale * p.accuracy for p in points], marker, color=GREY, label=f"{what} {_PUBLISHED}"
        )
    axes.plot([], [], "*", color="black", alpha=0.6, label=f"same runs, data-dependent exact {_PRIVATE}")
    axes.plot([], [], "x", color="black", alpha=0.6, label=f"same runs, bound of 2018 {_PRIVATE}")
    log_scale(axes)
    axes.set_xlabel(f"epsilon at delta = {result.delta:g}; circles: publishable")
    axes.set_ylabel("test accuracy, %" if study.metric == "accuracy" else "area under the curve")
    axes.set_title(f"{study.title}: mean of {len(result.seeds)} seeds, bars from least to most", fontsize=10)
    axes.grid(alpha=0.3)
    entries = sorted(zip(*axes.get_legend_handles_labels(), strict=True), key=lambda entry: _kind(entry[1]))
    axes.legend(*zip(*entries, strict=True), frameon=False, fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5))
    save_figure(figure, path)
    return path


def _kind(label: str) -> int:
    """The order in the legend: our lines, our private figures, what others published."""
    return 2 if label.endswith(_PUBLISHED) else 1 if label.endswith(_PRIVATE) else 0


def _trade_off(cases: Sequence[Found], sweep: str, path: Path) -> Path:
    """The student's accuracy above, what it costs below."""
    figure = new_figure(6.4, 5.2)
    above, below = figure.subplots(2, 1, sharex=True)
    x = [case.value for case in cases]
    shares = [[100 * point.accuracy for point in case.points] for case in cases]
    middle = [mean(each) for each in shares]
    spread = [[mean(s) - min(s) for s in shares], [max(s) - mean(s) for s in shares]]
    above.errorbar(x, middle, yerr=spread, fmt="o-", color=BLUE, capsize=3)
    above.set_ylabel("student's accuracy, %")
    above.set_title(f"mean of {len(cases[0].points)} seeds, bars from least to most", fontsize=10)
    for attribute, style, colour, label in (
        ("epsilon", "o-", BLUE, "data-independent, publishable"),
        ("epsilon_2018", "x:", RED, f"data-dependent, bound of 2018 {_PRIVATE}"),
        ("epsilon_dependent", "*--", GREEN, f"data-dependent, exact {_PRIVATE}"),
    ):
        values = [[getattr(point, attribute) for point in case.points] for case in cases]
        if all(value is not None for each in values for value in each):
            means = [mean(each) for each in values]
            # What is 0 to the last bit has no place on this axis: say so, where a line would only end.
            zeros = ", ".join(f"{value:g}" for value, each in zip(x, means, strict=True) if value and not each)
            below.plot(x, means, style, color=colour, label=f"{label}, 0 at {zeros}" if zeros else label)
    log_scale(below, "y")
    log_scale(below)
    below.set_ylabel("epsilon")
    below.set_xlabel(_AXES[sweep])
    below.legend(frameon=False, fontsize=8)
    for axes in (above, below):
        axes.grid(alpha=0.3)
    save_figure(figure, path)
    return path


def _over_records(cases: Sequence[Found], study: Study, path: Path) -> Path:
    """What each line reaches with fewer private records."""
    figure = new_figure(6.4, 4.2)
    axes = figure.subplots()
    scale = 100 if study.metric == "accuracy" else 1
    for line in dict.fromkeys(case.line for case in cases):
        own = [case for case in cases if case.line == line]
        figures = [figure_of(case, study.metric) for case in own]
        bars = [[scale * (mean(e) - min(e)) for e in figures], [scale * (max(e) - mean(e)) for e in figures]]
        middle = [scale * mean(each) for each in figures]
        axes.errorbar([case.value for case in own], middle, yerr=bars, fmt="o-", color=_COLOURS[line], capsize=3, label=line)
    log_scale(axes)
    axes.set_xlabel("share of the private records")
    axes.set_ylabel("test accuracy, %" if study.metric == "accuracy" else "area under the curve")
    axes.set_title(f"{study.title}: mean of {len(cases[0].points)} seeds, bars from least to most", fontsize=10)
    axes.legend(frameon=False, fontsize=8)
    axes.grid(alpha=0.3)
    save_figure(figure, path)
    return path
