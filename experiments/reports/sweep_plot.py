"""What a sweep found, as a picture."""

from __future__ import annotations

from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, Any

from pate.experiments.plots import new_figure, save_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from pate.experiments.sweeps import Sweep, Trial

_BLUE, _RED = "#1b6ca8", "#d1495b"


def plot_sweep(sweep: Sweep, folder: Path) -> list[Path]:
    """sweep.png and sweep.svg: over the setting where one number was varied, else quality against epsilon."""
    done = [trial for trial in sweep.trials if trial.error is None]
    numbers = len(sweep.grid) == 1 and all(isinstance(value, int | float) for value in next(iter(sweep.grid.values())))
    figure = new_figure(9 if numbers else 6.5, 4)
    name = "test accuracy, %" if any(trial.accuracy is not None for trial in done) else "labels right, %"
    if numbers:
        key = next(iter(sweep.grid))
        left, right = figure.subplots(1, 2)
        _over_setting(left, done, key, {trial: _quality(trial) for trial in done}, _BLUE)
        _over_setting(right, done, key, {trial: trial.epsilon for trial in done}, _RED)
        left.set_ylabel(name)
        right.set_ylabel(f"publishable epsilon at delta = {sweep.delta:g}")
    else:
        axes = figure.subplots()
        for trial in done:
            if (quality := _quality(trial)) is not None and trial.epsilon is not None:
                axes.plot(trial.epsilon, quality, "o", color=_BLUE)
                axes.annotate(", ".join(map(str, trial.changes.values())), (trial.epsilon, quality), fontsize=7)
        axes.set_xlabel(f"publishable epsilon at delta = {sweep.delta:g}")
        axes.set_ylabel(name)
        axes.grid(alpha=0.3)
    figure.suptitle(f"{sweep.title}: {sweep.cost.partition(':')[0]}", fontsize=11)
    paths = [folder / "sweep.png", folder / "sweep.svg"]
    for path in paths:
        save_figure(figure, path)
    return paths


def _over_setting(axes: Axes, trials: list[Trial], key: str, values: dict[Trial, float | None], colour: str) -> None:
    """A dot for each seed, a line through their means."""
    by_setting: dict[Any, list[float]] = {}
    for trial in trials:
        if (value := values[trial]) is not None:
            by_setting.setdefault(trial.changes[key], []).append(value)
    for setting, found in by_setting.items():
        axes.plot([setting] * len(found), found, "o", color=colour, alpha=0.5, markersize=4)
    settings = sorted(by_setting)
    axes.plot(settings, [mean(by_setting[setting]) for setting in settings], "-", color=colour, linewidth=2)
    axes.set_xlabel(key)
    axes.grid(alpha=0.3)


def _quality(trial: Trial) -> float | None:
    found = trial.labels_right if trial.accuracy is None else trial.accuracy
    return None if found is None else 100 * found
