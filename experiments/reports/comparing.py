"""Runs and baselines side by side: accuracy against epsilon."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pate.experiments.plots import log_scale, new_figure, save_figure
from pate.experiments.reports.plots import BLUE, GREEN, GREY, ORANGE, RED
from pate.experiments.results import Result

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_COLOURS = (BLUE, ORANGE, GREEN, RED, GREY)
_LONGEST = 70  # characters of a name
_NEAR = 12  # printer's points, within which two numbers would touch
_WIDE = 30.0  # a ratio of epsilons from which on the axis is logarithmic


@dataclass(frozen=True)
class Compared:
    """Results in order of data set and epsilon, each with the name of its run."""

    rows: tuple[tuple[str, Result], ...]

    @classmethod
    def read(cls, paths: Sequence[Path]) -> Compared:
        found = [(path.name if path.is_dir() else path.parent.name or path.name, Result.read(path)) for path in paths]
        return cls(tuple(sorted(found, key=lambda row: (row[1].data.name, row[1].privacy.promised))))

    @property
    def notes(self) -> list[str]:
        """Why some of them cannot be compared directly."""
        results = [result for _, result in self.rows]
        found = []
        for what, values in {
            "delta": {f"{result.privacy.delta:g}" for result in results},
            "the data set": {f"{result.data.name} ({result.data.protocol})" for result in results},
            "the unit of privacy": {result.data.unit for result in results},
            "the neighbouring relation": {result.privacy.neighbours.partition(":")[0] for result in results},
        }.items():
            if len(values) > 1:
                found.append(f"They differ in {what}: {'; '.join(sorted(values))}. Epsilons or accuracies are not of one kind.")
        if any(result.simulated for result in results):
            found.append("Simulations are not private: their epsilon is what a release would have.")
        if any(result.evaluation is None for result in results):
            found.append("Some have no test records, so no accuracy.")
        return found

    def to_json(self) -> dict[str, Any]:
        return {"runs": [_facts(name, result) for name, result in self.rows], "notes": self.notes}


def _facts(name: str, result: Result) -> dict[str, Any]:
    test, privacy = result.evaluation, result.privacy
    return {
        "run": name,
        "kind": result.kind,
        "data": result.data.name,
        "mechanism": privacy.mechanism,
        "student": result.student,
        "accuracy": None if test is None else test.accuracy,
        "standard_error": None if test is None else test.standard_error,
        "auc": None if test is None else test.auc,
        "epsilon": privacy.promised,
        "epsilon_dependent": privacy.data_dependent,
        "delta": privacy.delta,
        "answered": privacy.answered,
        "asked": privacy.asked,
        "mode": result.mode,
    }


def plot_comparison(compared: Compared, path: Path) -> None:
    """Accuracy against publishable epsilon, with a bar of one standard error; hollow: the data-dependent epsilon, private."""
    save_figure(comparison_figure(compared), path)


def comparison_figure(compared: Compared) -> Figure:
    """Points have numbers, and below the picture stands what they are: names are long, and good runs lie close together."""
    tested = [(name, result, result.evaluation) for name, result in compared.rows if result.evaluation is not None]
    figure = new_figure(7, 4.2 + 0.17 * len(tested))
    axes = figure.subplots()
    kinds = list(dict.fromkeys((result.kind, result.data.name) for _, result, _ in tested))
    private = False
    points = []
    for number, (name, result, test) in enumerate(tested, 1):
        kind, privacy = (result.kind, result.data.name), result.privacy
        colour = _COLOURS[kinds.index(kind) % len(_COLOURS)]
        accuracy, error = 100 * test.accuracy, 100 * test.standard_error
        axes.errorbar(privacy.promised, accuracy, yerr=error, fmt="o", color=colour, capsize=3)
        axes.plot([], [], "o", color=colour, label=f"{number}  {_shortened(name)}: {', '.join(kind)}")
        points.append((privacy.promised, accuracy))
        if privacy.data_dependent is not None:
            private = True
            axes.plot(privacy.data_dependent, accuracy, "o", mfc="none", color=colour, alpha=0.6)
    epsilons = [epsilon for epsilon, _ in points if epsilon > 0]
    if epsilons and max(epsilons) / min(epsilons) > _WIDE:
        log_scale(axes)
    axes.set_xlabel("epsilon; filled: publishable" + ("; hollow: data-dependent, private" if private else ""))
    axes.set_ylabel("test accuracy, %")
    axes.grid(alpha=0.3)
    axes.margins(x=0.08)
    if points:
        figure.legend(loc="outside lower left", frameon=False, fontsize=8)
        _number(figure, axes, points)
    return figure


def _shortened(name: str) -> str:
    """Both ends of a name that is too long: runs of one recipe differ in the last characters."""
    return name if len(name) <= _LONGEST else f"{name[: _LONGEST // 2]}…{name[1 - _LONGEST // 2 :]}"


def _number(figure: Figure, axes: Any, points: Sequence[tuple[float, float]]) -> None:
    """Numbers from 1, beside the points; in one place where several are too close for a number each."""
    figure.draw_without_rendering()  # only then it is known where points lie
    near = _NEAR * figure.dpi / 72
    together: list[tuple[int, list[int]]] = []
    places = axes.transData.transform(points)
    for index, place in enumerate(places):
        for first, others in together:
            if (abs(place - places[first]) < (near, near)).all():
                others.append(index)
                break
        else:
            together.append((index, [index]))
    for first, others in together:
        text = ", ".join(str(index + 1) for index in others)
        box = {"boxstyle": "square,pad=0.1", "fc": "white", "ec": "none", "alpha": 0.8}  # readable on another's bar
        axes.annotate(text, points[first], fontsize=8, xytext=(5, 5), textcoords="offset points", bbox=box)
