"""Pictures beside the numbers. matplotlib is imported only when one is drawn."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pate.errors import ParameterError
from pate.extras import require

if TYPE_CHECKING:
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


def plot_account(report: Account, path: Path) -> None:
    """Cumulative epsilon over queries, one line per accountant."""
    require("matplotlib", "plot")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 5), layout="constrained")
    FigureCanvasAgg(figure)
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
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend(frameon=False, fontsize=9)
    figure.text(
        0.995, 0.005, "owner's copy: data-dependent lines are private", ha="right", va="bottom", fontsize=7, color="#777777"
    )
    try:
        figure.savefig(path, dpi=150)
    except (OSError, ValueError) as error:
        raise ParameterError(
            f"--plot {path}: the picture cannot be written ({error}). Use a file name ending in .png, .svg or .pdf."
        ) from error
