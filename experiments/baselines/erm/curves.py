"""Accuracy over epsilon and over the number of records, as the paper draws it; PATE and DP-SGD beside it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import mean
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, ValidationError

from pate.arrays import FloatArray
from pate.errors import DataError, ParameterError
from pate.execution import Serial
from pate.execution.threads import one_thread
from pate.experiments.array_files import write_text
from pate.experiments.baselines.erm.losses import HuberHinge, Logistic
from pate.experiments.baselines.erm.mechanisms import perturbation
from pate.experiments.baselines.erm.models import kernel_of
from pate.experiments.baselines.erm.rows import Bound, people_of
from pate.experiments.baselines.erm.settings import ErmSettings
from pate.experiments.baselines.erm.solving import People, Task, minimise
from pate.experiments.pipeline.launch import load_material
from pate.experiments.pipeline.summary import environment
from pate.experiments.pipeline.telling import Teller
from pate.experiments.pipeline.voting import fitted_features
from pate.experiments.plots import log_scale, new_figure, save_figure
from pate.experiments.recipes.checking import erm_settings, mode_of
from pate.experiments.recipes.model import ErmRecipe
from pate.experiments.reports.plots import BLUE, GREEN, GREY, ORANGE, RED
from pate.experiments.reproduce.page import spread
from pate.experiments.reproduce.running import Found, StudyResult, code_state, machine
from pate.experiments.reproduce.studies import SWEEP_RECORDS
from pate.noise import SimulatedNoise
from pate.student.records import float_records
from pate.teachers.resuming import refuse_private_features

EPSILONS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0)
SHARES = (1 / 64, 1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0)
METHODS = ("output", "gaussian", "objective")
WITHOUT = "without privacy"
_HARDLY = 1e-5  # regularisation of the model without privacy
_COLOURS = {"output": ORANGE, "gaussian": GREEN, "objective": BLUE, WITHOUT: GREY}
_NAMES = {"output": "output perturbation", "gaussian": "the same, Gaussian noise", "objective": "objective perturbation"}
_BESIDE = {"teacher ensemble": ("s", RED), "partial votes": ("D", RED), "DP-SGD": ("^", "black")}


class _Facts(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class CurvePoint(_Facts):
    """accuracies: one for each seed. epsilon: None without privacy."""

    method: str
    epsilon: float | None
    records: int
    regularisation: float
    accuracies: list[float]


class Curves(_Facts):
    """What was found, and by what. Epsilons are of one release by itself; "gaussian" at delta, the others at every delta."""

    format: Literal["pate-erm-curves"] = "pate-erm-curves"
    data: str
    protocol: str
    model: str
    delta: float
    columns: int
    data_norm: float
    weight_norm: float
    tested: int
    seeds: list[int]
    over_epsilon: list[CurvePoint]
    over_records: list[CurvePoint]
    seconds: float
    commit: str
    changed_since_commit: bool
    created: str
    machine: str
    environment: dict[str, str]

    @classmethod
    def read(cls, path: Path) -> Curves:
        try:
            return cls.model_validate_json(path.read_bytes())
        except (OSError, ValidationError) as error:
            raise DataError(f"{path}: not a result of `pate erm RECIPE --curves`. Run it again.") from error

    def write(self, path: Path) -> None:
        write_text(path, self.model_dump_json(indent=1) + "\n")


def simulated_curves(
    recipe: ErmRecipe,
    *,
    base: Path | None = None,
    data: Any = None,
    seeds: Sequence[int] = (0, 1, 2),
    epsilons: Sequence[float] = EPSILONS,
    shares: Sequence[float] = SHARES,
    say: Callable[[str], object] = lambda _: None,
) -> Curves:
    """Every method at every epsilon, and at the recipe's own on shares of the private records. Public benchmark data only.

    Test labels are opened once, after the settings were fixed.
    """
    if mode_of(recipe) != "simulation":
        raise ParameterError(
            "Curves are many runs of one data set, with seeds: for public benchmark data only, and these are not."
        )
    start = time.monotonic()
    commit, changed = code_state()  # before the work: the code may be edited meanwhile
    laboratory = _Laboratory(recipe, base, data)
    own, everybody = recipe.privacy.epsilon, laboratory.count
    over_epsilon, over_records = [], []
    with one_thread():
        for method in METHODS:
            for epsilon in epsilons:
                say(f"{method} at epsilon {epsilon:g}")
                over_epsilon.append(laboratory.point(method, epsilon, everybody, seeds))
        over_epsilon.append(laboratory.point(WITHOUT, None, everybody, seeds[:1]))
        for share in shares:
            records = max(2, round(share * everybody))
            say(f"{records} records at epsilon {own:g}")
            over_records += [laboratory.point(method, own, records, seeds) for method in METHODS]
            over_records.append(laboratory.point(WITHOUT, None, records, seeds))
    settings = laboratory.settings
    return Curves(
        data=recipe.data.source,
        protocol=laboratory.protocol,
        model=recipe.erm.model,
        delta=recipe.privacy.delta,
        columns=laboratory.rows.shape[1],
        data_norm=settings.data_norm,
        weight_norm=settings.weight_norm,
        tested=len(laboratory.test_ones),
        seeds=list(seeds),
        over_epsilon=over_epsilon,
        over_records=over_records,
        seconds=time.monotonic() - start,
        commit=commit,
        changed_since_commit=changed,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        machine=machine(),
        environment=environment(),
    )


class _Laboratory:
    """The recipe's data as rows, and one point after the other."""

    def __init__(self, recipe: ErmRecipe, base: Path | None, data: Any) -> None:
        split = load_material(recipe, base, data).split
        if split.n_classes != 2 or split.test is None:
            raise DataError(f"Curves need two classes and test records; {split.name!r} has {split.n_classes} classes.")
        wanted = recipe.features_before_training
        features = None if wanted is None else fitted_features(wanted, split, Teller("none"))
        refuse_private_features(features, split.private, Serial())
        self.settings: ErmSettings = erm_settings(recipe.erm)
        self.protocol, self._delta = split.protocol, recipe.privacy.delta
        self._loss = Logistic() if recipe.erm.model == "logistic" else HuberHinge(self.settings.width)

        def rows(x: NDArray[Any]) -> FloatArray:
            flat = np.asarray(x if features is None else features.transform(x), dtype=np.float64).reshape(len(x), -1)
            kernel = kernel_of(self.settings)
            bound = Bound(self.settings.data_norm, self.settings.intercept)
            return bound.rows(flat if kernel is None else kernel.fit_transform(flat))

        self.rows, self._ones = rows(split.private.x), split.private.y == 1
        self._units = None if split.private.unit == "record" else split.private.unit_of
        self.count = len(split.private.unit_ids)
        test_x, test_y = split.test.open()
        self.test_rows, self.test_ones = rows(float_records(test_x)), test_y == 1

    def point(self, method: str, epsilon: float | None, records: int, seeds: Sequence[int]) -> CurvePoint:
        mechanism = None if epsilon is None else perturbation(method, epsilon, self._delta)
        columns = self.rows.shape[1]
        strength = _HARDLY
        if mechanism is not None:
            strength = mechanism.regularisation(self._loss.most_curved, records, columns, self.settings.weight_norm)
        task = Task(self._loss, float(records), columns, strength, self._units is not None)
        accuracies = []
        for seed in seeds:
            people = self._sample(records, seed)
            weights = minimise(task, people) if mechanism is None else mechanism.release(task, people, SimulatedNoise(seed))
            accuracies.append(float(((self.test_rows @ weights > 0) == self.test_ones).mean()))
        return CurvePoint(method=method, epsilon=epsilon, records=records, regularisation=strength, accuracies=accuracies)

    def _sample(self, records: int, seed: int) -> People:
        """So many persons, drawn anew with every seed; all of them where that is all."""
        if records == self.count:
            return people_of(self.rows, self._ones, self._units)
        drawn = np.random.default_rng(seed).permutation(self.count)[:records]
        own = drawn if self._units is None else np.flatnonzero(np.isin(self._units, drawn))
        return people_of(self.rows[own], self._ones[own], None if self._units is None else self._units[own])


def draw_curves(found: Curves, path: Path, beside: StudyResult | None = None) -> None:
    """Two panels: accuracy over epsilon and over records. beside: the study of `pate reproduce` on the same data."""
    figure = new_figure(11.5, 4.6)
    left, right = figure.subplots(1, 2)
    _panel(left, found.over_epsilon, lambda point: point.epsilon)
    _panel(right, found.over_records, lambda point: float(point.records))
    for point in (each for each in found.over_epsilon if each.method == WITHOUT):
        left.axhline(100 * mean(point.accuracies), color=GREY, linestyle=":", label=WITHOUT)
    everybody = max(point.records for point in found.over_epsilon)
    own = next(point.epsilon for point in found.over_records if point.epsilon is not None)
    for axes, sweep in ((left, ""), (right, SWEEP_RECORDS)):
        for line, cases in {} if beside is None else _comparable(found, beside, sweep).items():
            marker, colour = _BESIDE[line]
            x = [each.value * everybody if sweep else mean(point.epsilon for point in each.points) for each in cases]
            y = [100 * mean(point.accuracy for point in each.points) for each in cases]
            style = f"{marker}--" if sweep else marker
            axes.plot(x, y, style, color=colour, label=line if colour != RED else f"PATE, {line}")
    for axes, what in ((left, f"epsilon; delta = {found.delta:g} but for pure DP"), (right, f"records; epsilon {own:g}")):
        log_scale(axes)
        axes.set_xlabel(what)
        axes.grid(alpha=0.3)
    for axes, points in ((left, found.over_epsilon), (right, found.over_records)):
        means = [100 * mean(point.accuracies) for point in points]
        means += [float(each) for line in axes.get_lines() for each in line.get_ydata()]
        axes.set_ylim(min(means) - 3, max(means) + 2)  # of the means; the bar of a bad point may leave the picture below
    left.set_ylabel("test accuracy, %")
    left.set_title(f"{found.data}, {found.protocol}: {everybody} records", fontsize=10)
    right.set_title(f"mean of {len(found.seeds)} seeds, bars from least to most", fontsize=10)
    left.legend(frameon=False, fontsize=8)
    save_figure(figure, path)


def curve_table(points: Sequence[CurvePoint], over: Literal["epsilon", "records"]) -> str:
    """Markdown: mean accuracy in per cent, and the standard deviation over seeds where there are several."""
    methods = list(dict.fromkeys(point.method for point in points))
    places = [each for each in dict.fromkeys(getattr(point, over) for point in points) if each is not None]
    lines = [f"| {over} | {' | '.join(_NAMES.get(method, method) for method in methods)} |", "|---" * (len(methods) + 1) + "|"]
    for place in places:
        cells = []
        for method in methods:
            # Without privacy one figure stands for every epsilon.
            (point,) = (each for each in points if each.method == method and getattr(each, over) in (place, None))
            cells.append(spread([100 * each for each in point.accuracies], 1))
        lines.append(f"| {place:,} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _panel(axes: Any, points: Sequence[CurvePoint], place: Callable[[CurvePoint], float | None]) -> None:
    for method in dict.fromkeys(point.method for point in points):
        own = [point for point in points if point.method == method and place(point) is not None]
        if not own:
            continue
        y = [100 * mean(point.accuracies) for point in own]
        bars = [
            [middle - 100 * min(point.accuracies) for point, middle in zip(own, y, strict=True)],
            [100 * max(point.accuracies) - middle for point, middle in zip(own, y, strict=True)],
        ]
        axes.errorbar(
            [place(point) for point in own],
            y,
            yerr=bars,
            fmt="o-",
            capsize=3,
            color=_COLOURS[method],
            label=_NAMES.get(method, method),
        )


def _comparable(found: Curves, beside: StudyResult, sweep: str) -> dict[str, list[Found]]:
    """Of each line of the study that is known here the cases of the same protocol."""
    lines: dict[str, list[Found]] = {}
    for case in beside.cases:
        same = found.protocol.startswith(f"protocol {case.protocol}" if case.protocol else "")
        if same and case.sweep == sweep and case.line in _BESIDE:
            lines.setdefault(case.line, []).append(case)
    return lines
