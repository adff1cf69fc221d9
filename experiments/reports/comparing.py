"""Runs and baselines side by side: accuracy against epsilon."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pate.experiments.plots import log_scale, new_figure, save_figure
from pate.experiments.reports.plots import BLUE, GREEN, GREY, ORANGE, RED
from pate.experiments.results import Result

_COLOURS = (BLUE, ORANGE, GREEN, RED, GREY)
_WIDE = 30.0  # a ratio of epsilons from which on the axis is logarithmic


@dataclass(frozen=True)
class Compared:
    """Results in order of data set and epsilon, each with the name of its run."""

    rows: tuple[tuple[str, Result], ...]

    @classmethod
    def read(cls, paths: Sequence[Path]) -> Compared:
        found = [(path.name if path.is_dir() else path.parent.name or path.name, Result.read(path)) for path in paths]
        return cls(tuple(sorted(found, key=lambda row: (row[1].data.name, row[1].privacy.data_independent))))

    @property
    def notes(self) -> list[str]:
        """Why some of them cannot be compared directly."""
        results = [result for _, result in self.rows]
        found = []
        for what, values in {
            "delta": {f"{result.privacy.delta:g}" for result in results},
            "the data set": {f"{result.data.name} ({result.data.protocol})" for result in results},
            "the unit of privacy": {result.data.unit for result in results},
            "the neighbouring relation": {result.privacy.neighbours for result in results},
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
        "epsilon": privacy.data_independent,
        "epsilon_dependent": privacy.data_dependent,
        "delta": privacy.delta,
        "answered": privacy.answered,
        "asked": privacy.asked,
        "mode": result.mode,
    }


def plot_comparison(compared: Compared, path: Path) -> None:
    """Accuracy against publishable epsilon, with a bar of one standard error; hollow: the data-dependent epsilon, private."""
    figure = new_figure(7, 4.6)
    axes = figure.subplots()
    kinds = list(dict.fromkeys((result.kind, result.data.name) for _, result in compared.rows))
    private = False
    for name, result in compared.rows:
        test, privacy = result.evaluation, result.privacy
        if test is None:
            continue
        colour = _COLOURS[kinds.index((result.kind, result.data.name)) % len(_COLOURS)]
        accuracy, error = 100 * test.accuracy, 100 * test.standard_error
        axes.errorbar(privacy.data_independent, accuracy, yerr=error, fmt="o", color=colour, capsize=3)
        axes.annotate(name, (privacy.data_independent, accuracy), fontsize=7, xytext=(4, 4), textcoords="offset points")
        if privacy.data_dependent is not None:
            private = True
            axes.plot(privacy.data_dependent, accuracy, "o", mfc="none", color=colour, alpha=0.6)
    for place, (kind, data) in enumerate(kinds):
        axes.plot([], [], "o", color=_COLOURS[place % len(_COLOURS)], label=f"{kind}, {data}")
    epsilons = [result.privacy.data_independent for _, result in compared.rows if result.privacy.data_independent > 0]
    if epsilons and max(epsilons) / min(epsilons) > _WIDE:
        log_scale(axes)
    axes.set_xlabel("epsilon; filled: publishable" + ("; hollow: data-dependent, private" if private else ""))
    axes.set_ylabel("test accuracy, %")
    axes.grid(alpha=0.3)
    axes.legend(frameon=False, fontsize=9)
    save_figure(figure, path)
