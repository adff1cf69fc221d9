"""Many runs of one recipe with other settings, side by side: what they reach, and what all of them cost together."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from pate.aggregators import curve_ahead
from pate.aggregators.asking import refusals_tell_of_open_ones
from pate.errors import BudgetExceeded, ExecutionError, ParameterError, PateError
from pate.execution import Executor, Lost, OnRay, Serial, Task
from pate.execution.base import Shared
from pate.experiments.array_files import write_text
from pate.experiments.pipeline.answering import Desk
from pate.experiments.pipeline.folder import RELEASE, RunFolder
from pate.experiments.pipeline.launch import launch, load_material, votes_of
from pate.experiments.pipeline.rounds import costs_ahead
from pate.experiments.pipeline.store import digest, private_folder
from pate.experiments.pipeline.voting import Material
from pate.experiments.recipes.checking import make_mechanism, mode_of, with_noise
from pate.experiments.recipes.model import Recipe
from pate.experiments.recipes.reading import change_all, check_recipe, load_tables
from pate.noise import SimulatedNoise
from pate.progress import Show, tracked
from pate.votes import Votes

FILE = "sweep.json"
PUBLIC_DATA = "public benchmark data, seeded simulations: nothing private was touched, and no budget spent"
NO_DATA = "simulated votes: no data was touched, and no budget spent; what is measured is the mechanism alone"
CHARGED = "private votes: every trial is charged to the ledger of the data. Choosing one of them costs all of them"

_BEFORE_VOTES = ("data", "features", "teachers", "queries", "seed", "mode")
_BEFORE_ANSWERS = (*_BEFORE_VOTES, "aggregator", "privacy")


@dataclass(frozen=True, eq=False)
class Trial:
    """One run: what was changed, and what came of it. ``error`` where nothing did."""

    changes: Mapping[str, Any]
    seed: int
    epsilon: float | None = None
    epsilon_dependent: float | None = None
    accuracy: float | None = None
    standard_error: float | None = None
    answered: int | None = None
    asked: int | None = None
    labels_right: float | None = None
    folder: str | None = None
    error: str | None = None


@dataclass(frozen=True)
class Sweep:
    """All trials, on what they ran, and what they cost together (data-independent; None where nothing was spent)."""

    title: str
    cost: str
    spent: float | None
    delta: float
    grid: Mapping[str, Sequence[Any]]
    trials: tuple[Trial, ...]
    folder: Path

    @property
    def failed(self) -> dict[str, list[Trial]]:
        """The trials of which nothing came, by what was said of them: seeds of one setting fail alike."""
        found: dict[str, list[Trial]] = {}
        for trial in self.trials:
            if trial.error is not None:
                found.setdefault(trial.error, []).append(trial)
        return found

    def to_json(self) -> dict[str, Any]:
        return {
            "title": self.title,
            "cost": self.cost,
            "spent": self.spent,
            "delta": self.delta,
            "grid": {key: list(values) for key, values in self.grid.items()},
            "trials": [{**each.__dict__, "changes": dict(each.changes)} for each in self.trials],
        }


@dataclass(frozen=True)
class Request:
    """What is to be tried.

    grid: values by path. seeds: how often each, with the recipe's seed and those after it.
    teacher_accuracy: not None: no data is touched; made-up teachers are right so often, and only the answers are judged.
    """

    recipe: str | Path | Mapping[str, Any]
    grid: Mapping[str, Sequence[Any]]
    changes: Mapping[str, Any]
    seeds: int = 1
    teacher_accuracy: float | None = None

    def trials(self) -> list[tuple[dict[str, Any], Recipe]]:
        """Every combination of the grid, checked before the first of them runs."""
        if not self.grid:
            raise ParameterError("A sweep needs something to vary: give --grid, for example --grid aggregator.sigma=20,40,80.")
        if "seed" in self.grid and self.seeds > 1:
            raise ParameterError("--grid seed=… already says which seeds; leave --seeds out.")
        subject, tables = load_tables(self.recipe)
        found = []
        for values in product(*self.grid.values()):
            chosen = dict(zip(self.grid, values, strict=True))
            for seed in range(self.seeds):
                own = json.loads(json.dumps(tables))
                change_all(own, {**self.changes, **chosen}, subject)
                if isinstance(first := own.get("seed", 0), int):  # else the check says what is wrong with it
                    own["seed"] = first + seed
                told = ", ".join(f"{key}={value}" for key, value in chosen.items())
                found.append((chosen, check_recipe(own, f"{subject} with {told}")))
        return found


def sweep(
    request: Request,
    *,
    base: Path | None = None,
    data: str | None = None,
    out: Path = Path("runs"),
    executor: Executor | None = None,
    show: Show = "auto",
    allow_unverified: bool = False,
) -> Sweep:
    """Run all trials. Those on public data run as tasks of the executor; those on private votes one by one, in order, so that
    which of them the budget refuses does not depend on who was faster."""
    wanted = request.trials()
    first = with_noise(wanted[0][1])
    if any(recipe.aggregator.remote for _, recipe in wanted):
        raise ParameterError("A sweep tries other noise and teachers, and those of a service are not here to change.")
    folder = private_folder(
        out / f"sweep-{digest([request.grid, first.to_dict(), request.seeds, request.teacher_accuracy])[:8]}"
    )
    spent = None
    if request.teacher_accuracy is not None:
        cost = NO_DATA
        trials = [_simulated(changes, with_noise(recipe), request, base, data) for changes, recipe in wanted]
    else:
        private = any(mode_of(recipe) == "release" for _, recipe in wanted)
        cost = CHARGED if private else PUBLIC_DATA
        # Absolute, since a worker's current directory is its own.
        place, folder_of_data = str(out.absolute()), None if data is None else str(Path(data).absolute())
        origin = None if base is None else str(base.absolute())
        jobs = [_Job(recipe, origin, folder_of_data, place, allow_unverified) for _, recipe in wanted]
        with executor or OnRay() as workers:
            if private:
                _afford(jobs)
            for job in {digest(job.recipe.model_dump(mode="json", include=set(_BEFORE_VOTES))): job for job in jobs}.values():
                votes_of(job.recipe, base, data, out, workers, show)
            outcomes = _run(jobs, Serial() if private else workers, show)
        trials = [Trial(changes, recipe.seed, **outcome) for (changes, recipe), outcome in zip(wanted, outcomes, strict=True)]
        if private:
            with _desk(jobs[0]).open() as ledger:
                spent = ledger.spent().epsilon
    found = Sweep(first.title, cost, spent, first.privacy.delta, request.grid, tuple(trials), folder)
    write_text(folder / FILE, json.dumps(found.to_json(), indent=1), 0o600)
    return found


@dataclass(frozen=True)
class _Job:
    recipe: Recipe
    base: str | None
    data: str | None
    out: str
    allow_unverified: bool


def run_trial(job: _Job, shared: Shared) -> dict[str, Any]:
    """The fields of a :class:`Trial`. What is raised on purpose is its result, and the others go on."""
    try:
        finished = launch(
            job.recipe,
            base=None if job.base is None else Path(job.base),
            data=job.data,
            out=Path(job.out),
            executor=Serial(),
            show="none",
            allow_unverified=job.allow_unverified,
        )
    except PateError as error:
        return {"error": str(error)}
    result = finished.result
    test = result.evaluation
    return {
        "epsilon": result.privacy.promised,
        "epsilon_dependent": result.privacy.data_dependent,
        "accuracy": None if test is None else test.accuracy,
        "standard_error": None if test is None else test.standard_error,
        "answered": result.privacy.answered,
        "asked": result.privacy.asked,
        "labels_right": None if result.label_noise is None else result.label_noise.right,
        "folder": str(finished.folder),
    }


def _run(jobs: Sequence[_Job], executor: Executor, show: Show) -> list[dict[str, Any]]:
    found: dict[int, dict[str, Any]] = {}
    with tracked("trials", len(jobs), show=show) as progress:
        for outcome in executor.run(run_trial, [Task(key, job) for key, job in enumerate(jobs)], {}):
            found[outcome.key] = {"error": outcome.reason} if isinstance(outcome, Lost) else outcome.value
            progress.advance(1, failed=int("error" in found[outcome.key]))
    if all("error" in each for each in found.values()):
        raise ExecutionError(f"All {len(jobs)} trials failed; the first: {found[0]['error']}")
    return [found[key] for key in range(len(jobs))]


def _afford(jobs: Sequence[_Job]) -> None:
    """Raise before the first trial if the budget does not cover all of them."""
    open_jobs = [job for job in jobs if not RunFolder(with_noise(job.recipe), Path(job.out)).file(RELEASE).exists()]
    if not open_jobs:
        return
    questions = {digest(job.recipe.model_dump(mode="json", include=set(_BEFORE_ANSWERS))): job for job in open_jobs}
    desk = _desk(open_jobs[0])
    costs = []
    for job in questions.values():
        costs += costs_ahead(with_noise(job.recipe), _material(job))
    total = sum(costs[1:], start=costs[0])
    with desk.open() as ledger:
        try:
            with refusals_tell_of_open_ones(ledger):
                ledger.afford(total)
        except BudgetExceeded as error:
            raise BudgetExceeded(
                f"{len(questions)} trials ask of private votes, and each is charged: {error} Try fewer, or choose on simulated "
                "votes (--simulate-votes 0.9), which costs nothing."
            ) from None


def _material(job: _Job) -> Material:
    return load_material(job.recipe, None if job.base is None else Path(job.base), job.data)


def _desk(job: _Job) -> Desk:
    private = _material(job).split.private
    return Desk.of(job.recipe, "release", Path(), private.fingerprint, private.unit)


def _simulated(changes: Mapping[str, Any], recipe: Recipe, request: Request, base: Path | None, data: str | None) -> Trial:
    """The answers of made-up teachers, each right with one probability and else anything: what the noise does to them."""
    if recipe.teachers.nearest or recipe.teachers.count is None:
        raise ParameterError(
            '--simulate-votes makes up an ensemble of teachers; with teachers.model = "nearest" there is none.'
        )
    if recipe.queries.rounds > 1:
        raise ParameterError("--simulate-votes has no student that could choose later queries; set queries.rounds=1.")
    accuracy = request.teacher_accuracy or 0.0
    if not 0 < accuracy <= 1:
        raise ParameterError(f"--simulate-votes must be a teacher's accuracy above 0 and at most 1, got {accuracy!r}.")
    n_classes = load_material(recipe, base, data).split.n_classes
    random = np.random.default_rng(recipe.seed)
    truth = random.integers(0, n_classes, recipe.queries.count)
    chances = np.full((len(truth), n_classes), (1 - accuracy) / (n_classes - 1))
    chances[np.arange(len(truth)), truth] = accuracy
    votes = Votes(random.multinomial(recipe.teachers.count, chances), recipe.teachers.count)
    mechanism = make_mechanism(recipe.aggregator)
    release = mechanism.release(votes, SimulatedNoise(recipe.seed))
    answered = release.answered
    right = float((release.labels == truth)[answered].mean()) if answered.any() else None
    return Trial(
        changes,
        recipe.seed,
        # The worst case, as a run reports it: a sum of what was realised is no claim.
        epsilon=curve_ahead(mechanism, votes.electorate, len(votes)).epsilon(recipe.privacy.delta).epsilon,
        answered=int(answered.sum()),
        asked=len(release),
        labels_right=right,
    )
