"""The pictures of a report, each as PNG and SVG. A public copy of a result has no private figures, so neither have they."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pate.experiments.plots import new_figure, save_figure, whole_numbers
from pate.experiments.results import Result

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Okabe and Ito's colours, which people who confuse colours tell apart.
BLUE, ORANGE, GREEN, RED, GREY, PURPLE = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#8a8a8a", "#CC79A7"
SKY = "#56B4E9"
_PRIVATE = "private: owner's copy only"
_MOST_CLASSES = 20  # with numbers in the cells of a confusion matrix


def draw(result: Result, folder: Path) -> dict[str, Path]:
    """Every picture that the result has figures for; the SVG of each by its name."""
    folder.mkdir(exist_ok=True)
    folder.chmod(0o755 if result.copy_for == "public" else 0o700)
    drawn = {}
    for name, (paint, wanted) in _PICTURES.items():
        if wanted(result):
            figure = paint(result)
            for suffix in (".png", ".svg"):
                save_figure(figure, folder / f"{name}{suffix}")
            drawn[name] = folder / f"{name}.svg"
    return drawn


def _epsilon(result: Result) -> Figure:
    privacy = result.privacy
    assert privacy.curve is not None
    figure = new_figure(6.4, 3.8)
    axes = figure.subplots()
    queries = privacy.curve.queries
    axes.plot(queries, privacy.curve.independent, color=BLUE, linewidth=2, label="data-independent, publishable")
    if privacy.curve.dependent is not None:
        axes.plot(queries, privacy.curve.dependent, "--", color=RED, linewidth=2, label=f"data-dependent ({_PRIVATE})")
    axes.axhline(privacy.budget_epsilon, color=GREY, linewidth=1, linestyle=":")
    axes.annotate("budget", (queries[0], privacy.budget_epsilon), fontsize=8, color=GREY, va="bottom")
    axes.set_xlabel(privacy.curve.over)
    whole_numbers(axes.xaxis)
    axes.set_ylabel(f"epsilon at delta = {privacy.delta:g}")
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend(frameon=False, fontsize=9)
    return figure


def _consensus(result: Result) -> Figure:
    assert result.consensus is not None
    figure = new_figure(6.4, 3.2)
    axes = figure.subplots()
    edges = 100 * np.array(result.consensus.edges)
    axes.bar(edges[:-1], result.consensus.counts, width=np.diff(edges), align="edge", color=ORANGE, edgecolor="white")
    axes.set_xlabel("share of the votes for the winner, %")
    axes.set_ylabel("queries")
    whole_numbers(axes.yaxis)
    axes.set_title(f"How far the teachers agreed ({_PRIVATE})", fontsize=10, color=RED)
    axes.grid(axis="y", alpha=0.3)
    return figure


def _labels(result: Result) -> Figure:
    noise, privacy = result.label_noise, result.privacy
    assert noise is not None
    asked = privacy.asked or 0
    parts = [("abstained", asked - (privacy.answered or 0), GREY)]
    if noise.right is None:
        parts.insert(0, ("answered, truth unknown", noise.answered, BLUE))
    else:
        right = round(noise.right * noise.answered)
        parts = [("right", right, GREEN), ("wrong", noise.answered - right, RED), *parts]
    figure = new_figure(6.4, 1.7)
    axes = figure.subplots()
    start = 0
    for name, count, colour in parts:
        axes.barh([0], [count], left=start, color=colour, label=f"{name}: {count}")
        start += count
    axes.set_yticks([])
    axes.set_xlim(0, asked)
    whole_numbers(axes.xaxis)
    axes.set_xlabel("queries asked")
    axes.legend(frameon=False, fontsize=9, ncols=3, loc="lower center", bbox_to_anchor=(0.5, 1.0))
    return figure


def _confusion(result: Result) -> Figure:
    assert result.evaluation is not None
    counts = np.array(result.evaluation.confusion)
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    side = 2.2 + 0.42 * min(len(counts), 24)
    figure = new_figure(side + 1, side)
    axes = figure.subplots()
    axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    names = result.data.class_names
    slanted = max(map(len, names)) > 2
    axes.set_xticks(range(len(names)), names, rotation=45 if slanted else 0, ha="right" if slanted else "center")
    axes.set_yticks(range(len(names)), names)
    axes.set_xlabel("the student says")
    axes.set_ylabel("true class")
    if len(counts) <= _MOST_CLASSES:
        for (row, column), count in np.ndenumerate(counts):
            if count:
                colour = "white" if shares[row, column] > 0.5 else "#333333"
                axes.text(column, row, str(count), ha="center", va="center", fontsize=7, color=colour)
    return figure


def _times(result: Result) -> Figure:
    figure = new_figure(6.4, 3.2)
    axes = figure.subplots()
    stages = result.stages[::-1]
    axes.barh([stage.name for stage in stages], [stage.seconds for stage in stages], color=BLUE)
    axes.set_xlabel(f"seconds ({_PRIVATE})")
    axes.grid(axis="x", alpha=0.3)
    return figure


_PICTURES: dict[str, tuple[Callable[[Result], Figure], Callable[[Result], bool]]] = {
    "epsilon": (_epsilon, lambda result: result.privacy.curve is not None and len(result.privacy.curve.queries) > 1),
    "labels": (_labels, lambda result: result.label_noise is not None),
    "confusion": (_confusion, lambda result: result.evaluation is not None),
    "consensus": (_consensus, lambda result: result.consensus is not None),
    "times": (_times, lambda result: bool(result.stages)),
}
