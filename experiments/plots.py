"""Pictures beside the numbers. matplotlib is imported only when one is drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pate.errors import ParameterError
from pate.extras import require

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from pate.experiments.accounting import Account

_COLOURS = {
    "data_independent": "#1b6ca8",
    "data_dependent": "#d1495b",
    "data_dependent_per_teacher": "#7a1f2b",
    "proposition8": "#7fb2d6",
    "theorem2_2017": "#7fb2d6",
    "theorem6": "#edae49",
    "theorem3_2017": "#edae49",
    "expected_2018": "#9a9a9a",
}
_LABEL_COLOURS = ("#1b6ca8", "#edae49", "#d1495b", "#7a1f2b", "#9a9a9a")


def plot_account(report: Account, path: Path) -> None:
    """Cumulative epsilon over queries, one line per accountant."""
    figure = new_figure(8, 5)
    axes = figure.subplots()
    for line in report.lines:
        values = line.epsilons(report.delta)
        style = "-" if line.key.startswith("data_") else "--" if line.is_bound else ":"
        note = "" if line.is_bound else " (no bound)"
        axes.plot(
            line.queries,
            values,
            style,
            color=_COLOURS.get(line.key),
            linewidth=2,
            label=f"{line.title}{note}: {values[-1]:.3f}",
        )
    axes.set_xlabel("queries asked")
    axes.set_ylabel(f"epsilon at delta = {report.delta:g}")
    axes.set_title(f"{report.aggregator!r}, {report.votes.n_teachers} teachers", fontsize=11)
    axes.set_xlim(0, len(report.votes))
    whole_numbers(axes.xaxis)
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend(frameon=False, fontsize=9)
    figure.text(
        0.995, 0.005, "owner's copy: data-dependent lines are private", ha="right", va="bottom", fontsize=7, color="#777777"
    )
    save_figure(figure, path)


def plot_students(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Accuracy by student, a panel for each data set, a colour for each kind of labels; a dot is a seed, a bar their mean.

    rows: of :func:`pate.experiments.bench.students.run`.
    """
    datasets = list(dict.fromkeys(row["dataset"] for row in rows))
    figure = new_figure(4.5 * len(datasets) + 1, 4.5)
    panels = figure.subplots(1, len(datasets), squeeze=False)[0]
    for axes, dataset in zip(panels, datasets, strict=True):
        own = [row for row in rows if row["dataset"] == dataset and row["accuracies"]]
        students = list(dict.fromkeys(row["student"] for row in own))
        kinds = list(dict.fromkeys(row["labels"] for row in own))
        for place, kind in enumerate(kinds):
            shift = (place - (len(kinds) - 1) / 2) * 0.25
            colour = _LABEL_COLOURS[place % len(_LABEL_COLOURS)]
            for row in (row for row in own if row["labels"] == kind):
                x = students.index(row["student"]) + shift
                percent = [100 * each for each in row["accuracies"]]
                axes.plot([x] * len(percent), percent, "o", color=colour, markersize=4, alpha=0.7)
                axes.plot([x - 0.1, x + 0.1], [100 * row["accuracy"]] * 2, "-", color=colour, linewidth=2)
            axes.plot([], [], "o", color=colour, label=kind)
        axes.set_xticks(range(len(students)), students, rotation=30, ha="right")
        axes.set_title(f"{dataset}, {own[0]['queries']} queries" if own else f"{dataset}: all failed", fontsize=11)
        axes.set_ylabel("test accuracy, %")
        axes.grid(axis="y", alpha=0.3)
        if own:
            axes.legend(title="labels", frameon=False, fontsize=8, title_fontsize=8)
    save_figure(figure, path)


def plot_history(history: Sequence[Mapping[str, Any]], title: str, path: Path) -> None:
    """What a student reported while learning: a panel for each number, a colour for each stage.

    history: of :attr:`pate.student.base.Student.record`.
    """
    names = list(dict.fromkeys(key for row in history for key in row if key not in ("stage", "step")))
    if not names:
        raise ParameterError(f"--plot: {title} reported no numbers while learning, so there is nothing to draw.")
    figure = new_figure(8, 2.5 * len(names) + 0.5)
    panels = figure.subplots(len(names), 1, squeeze=False, sharex=True)[:, 0]
    stages = list(dict.fromkeys(row["stage"] for row in history))
    for axes, name in zip(panels, names, strict=True):
        for number, stage in enumerate(stages):
            own = [(place, row[name]) for place, row in enumerate(history, 1) if row["stage"] == stage and name in row]
            if own:
                colour = _LABEL_COLOURS[number % len(_LABEL_COLOURS)]
                axes.plot(*zip(*own, strict=True), "o-", color=colour, linewidth=2, markersize=2, label=stage)
        axes.set_ylabel(name)
        axes.grid(alpha=0.3)
        axes.legend(frameon=False, fontsize=8)
    panels[0].set_title(title, fontsize=11)
    panels[-1].set_xlabel("reports")
    save_figure(figure, path)


def log_scale(axes: Any, which: str = "x") -> None:
    """The horizontal (or the "y") axis logarithmic, with the numbers that people read: 0.05, 0.1, 0.2, 0.5, 1."""
    ticker: Any = require("matplotlib.ticker", "plot")
    axes.set(**{f"{which}scale": "log"})
    axis = getattr(axes, f"{which}axis")
    axis.set_major_locator(ticker.LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_major_formatter(ticker.StrMethodFormatter("{x:g}"))
    axis.set_minor_locator(ticker.NullLocator())


def whole_numbers(axis: Any) -> None:
    """Marks of an axis (``axes.xaxis``) at whole numbers alone, for what is counted."""
    axis.get_major_locator().set_params(integer=True)


def new_figure(width: float, height: float) -> Figure:
    """An empty picture, in inches; drawn without a screen."""
    require("matplotlib", "plot")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def save_figure(figure: Figure, path: Path) -> None:
    """In the format that the name ends in; the same figures give the same bytes."""
    import matplotlib

    dated = {"Date": None} if path.suffix == ".svg" else {"CreationDate": None} if path.suffix == ".pdf" else {}
    try:
        with matplotlib.rc_context({"svg.hashsalt": "pate"}):
            figure.savefig(path, dpi=150, metadata=dated)
    except (OSError, ValueError) as error:
        raise ParameterError(
            f"--plot {path}: the picture cannot be written ({error}). Use a file name ending in .png, .svg or .pdf."
        ) from error
