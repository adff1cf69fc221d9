"""The audit of a whole run: canaries in and out, many small runs, and what all that is published proves."""

from __future__ import annotations

import os
import time
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from pate.arrays import FloatArray
from pate.errors import ParameterError
from pate.experiments.audits.pipeline import Pipeline, Polled, Published
from pate.experiments.audits.rules import NOISE_FALSE_ALARM, moved, same, structural_rules
from pate.experiments.audits.worlds import KINDS, Kind, Worlds, check_kinds, make_worlds
from pate.experiments.pipeline.launch import load_material
from pate.experiments.recipes.checking import make_source, with_noise
from pate.experiments.recipes.model import Recipe
from pate.noise import Noise
from pate.progress import Progress, Show, tracked
from pate.teachers import PrivateData
from pate.testing.audit import DEFAULT_CONFIDENCE, LEAST_RUNS, Claim, View, bound_of_outcomes, fresh_noise
from pate.testing.audit_aggregator import exact_bound
from pate.testing.audit_report import AuditReport, LowerBound
from pate.testing.bounds import check_confidence
from pate.testing.composed import Likelihood, epsilon_of_logs
from pate.testing.report import run_checks
from pate.validation import whole

RUNS = 200
_ATTEMPTS = 5
_SECONDS_FOR_STUDENTS = 90.0


def audit_run(
    recipe: Recipe,
    *,
    base: Path | None = None,
    data: str | os.PathLike[str] | None = None,
    runs: int = RUNS,
    canaries: Sequence[str] = KINDS,
    natural: bool = False,
    students: bool | None = None,
    confidence: float = DEFAULT_CONFIDENCE,
    seed: int | None = 0,
    show: Show = "none",
) -> AuditReport:
    """Audit the run of a recipe. base, data: as for :func:`pate.run`; the other arguments as for :func:`audit_pipeline`."""
    if recipe.aggregator.remote:
        raise ParameterError(
            'aggregator.name = "service": what answers is elsewhere. Audit the recipe of whoever keeps the data.'
        )
    split = load_material(recipe, base, data).split
    return audit_pipeline(
        Pipeline(with_noise(recipe), split),
        runs=runs,
        canaries=canaries,
        natural=natural,
        students=students,
        confidence=confidence,
        seed=seed,
        show=show,
    )


def audit_pipeline(
    pipeline: Pipeline,
    *,
    runs: int = RUNS,
    canaries: Sequence[str] = KINDS,
    natural: bool = False,
    students: bool | None = None,
    confidence: float = DEFAULT_CONFIDENCE,
    seed: int | None = 0,
    show: Show = "none",
) -> AuditReport:
    """A lower bound on the epsilon of everything that a run publishes, beside the run's own, and the rules it stands on.

    runs: in each of the two worlds, every one with noise of its own; a third of them choose what to look at.
    canaries: each is tried by the rules; the one that moves most votes is run. natural: labels as they are, not made up to tie.
    students: whether every run trains a student; unless told, if that takes less than some 90 seconds in all.
    seed: of the noise; None takes the operating system's. confidence: of the lower bound.
    """
    whole(runs, "runs", LEAST_RUNS)
    check_confidence(confidence)
    kinds = check_kinds(canaries)
    noise = fresh_noise(seed)
    pipeline.aggregator.check_ready(pipeline.electorate(pipeline.split.private), pipeline.recipe.queries.count)
    # Labels that are made up tie the votes, but make teachers see nothing else; what inputs leak shows under real ones.
    labels = (True,) if natural else (False, True)
    tried = [_tried(pipeline, kind, as_they_are) for as_they_are in labels for kind in kinds]
    delta = pipeline.recipe.privacy.delta
    worlds, inside, outside = max(tried, key=lambda each: _how_far_apart(pipeline, each[1], each[2], delta))
    repeats = same(inside, pipeline.poll(worlds.inside)) and same(outside, pipeline.poll(worlds.outside))
    seconds = _seconds_of_student(pipeline, inside, next(noise)) if students is None else 0.0
    with_student = students if students is not None else 2 * runs * seconds <= _SECONDS_FOR_STUDENTS
    rules = run_checks(structural_rules(pipeline, tried, noise, repeats=repeats, students=students is not False))
    polled = [(worlds.inside, inside if repeats else None), (worlds.outside, outside if repeats else None)]
    with tracked("runs", 2 * runs, show=show) as progress:
        outcomes = _outcomes(pipeline, polled, runs, noise, with_student, progress)
    claim = Claim.of(pipeline.claim(worlds.inside), delta)
    bound = bound_of_outcomes(
        *outcomes,
        claim,
        confidence=confidence,
        views=_views(pipeline, inside, outside, with_student),
        name="the whole run",
        canary=worlds.told,
    )
    notes = [
        "Made with private records: for their owner, unless they are public anyway.",
        f"The rules about noise raise a false alarm with probability at most {NOISE_FALSE_ALARM:g}; the others with none.",
        "Training repeats itself bit for bit, so teachers were trained once for each world."
        if repeats
        else "Training does not repeat itself, so every run trained its teachers anew.",
    ]
    table = pipeline.recipe.queries
    if table.rounds > 1:
        notes.append(f"Audited is the first of {table.rounds} rounds, and the claim is that of its answers.")
    if pipeline.recipe.privacy.sanitise:
        notes.append("The sanitised epsilon, which is published too, is neither audited nor in the claim.")
    if not with_student:
        notes.append(
            "Runs ended with the answers: students take too long to train so often. The rule about students looked at them."
        )
    exact = _exact(pipeline, inside, outside, claim, worlds.told) if repeats else None
    bounds: tuple[LowerBound, ...] = (bound,) if exact is None else (exact, bound)
    if not make_source(pipeline.recipe.data).benchmark:
        bounds = tuple(replace(each, private=True) for each in bounds)
    return AuditReport(f"{pipeline.recipe.run_name}: {pipeline.aggregator!r}", bounds, rules, tuple(notes))


def _exact(pipeline: Pipeline, inside: Polled, outside: Polled, claim: Claim, canary: str) -> LowerBound | None:
    """What the votes of both worlds cost under the noise that the aggregator states; what it draws, the runs show."""
    lower = _exact_epsilon(pipeline, inside, outside, claim.delta)
    return None if lower is None else exact_bound("the answers, with the stated noise", lower, claim, canary)


def _exact_epsilon(pipeline: Pipeline, inside: Polled, outside: Polled, delta: float) -> float | None:
    logs = _log_probs(pipeline, inside, outside)
    return None if logs is None else max(epsilon_of_logs(one, two, delta) for one, two in (logs, logs[::-1]))


def _how_far_apart(pipeline: Pipeline, inside: Polled, outside: Polled, delta: float) -> tuple[float, int]:
    return _exact_epsilon(pipeline, inside, outside, delta) or 0.0, moved(inside, outside)


def _tried(pipeline: Pipeline, kind: Kind, natural: bool) -> tuple[Worlds, Polled, Polled]:
    """The worlds of a canary whose id lets it be learnt from: some may be held out."""
    for attempt in range(_ATTEMPTS):
        worlds = make_worlds(pipeline, pipeline.split.private, kind, natural=natural, attempt=attempt)
        inside, outside = pipeline.poll(worlds.inside), pipeline.poll(worlds.outside)
        if moved(inside, outside):
            break
    return worlds, inside, outside


def _outcomes(
    pipeline: Pipeline,
    polled: Sequence[tuple[PrivateData, Polled | None]],
    runs: int,
    noise: Iterator[Noise],
    with_student: bool,
    progress: Progress,
) -> tuple[list[Hashable], list[Hashable]]:
    worlds: tuple[list[Hashable], list[Hashable]] = ([], [])
    for _ in range(runs):
        for world, (private, known) in zip(worlds, polled, strict=True):
            votes = pipeline.poll(private) if known is None else known
            world.append(pipeline.publish(votes, next(noise), with_student=with_student))
            progress.advance(1)
    return worlds


def _seconds_of_student(pipeline: Pipeline, polled: Polled, noise: Noise) -> float:
    start = time.monotonic()
    pipeline.publish(polled, noise)
    return time.monotonic() - start


def _views(pipeline: Pipeline, inside: Polled, outside: Polled, with_student: bool) -> Mapping[str, View]:
    """What an observer may look at, by name."""
    found: dict[str, View] = {"all that is published": lambda told: told.everything, "the answers": lambda told: told.answers}
    if with_student:
        found["the student"] = lambda told: told.student
    found["noisy counts, along the votes that differ"] = _along_difference(inside, outside)
    likelihood = _likelihood(pipeline, inside, outside)
    if likelihood is not None:
        found["the answers, as votes and noise would have them"] = likelihood
    return found


def _along_difference(inside: Polled, outside: Polled) -> View:
    """Where a noisy histogram is published: how far it leans to the first world. Of Gaussian noise the best score."""
    direction = (inside.votes.counts - outside.votes.counts).reshape(-1).astype(np.float64)
    queries = len(inside.votes)

    def score(told: Published) -> Hashable:
        histogram = np.array(told.answers[queries:])
        return float(histogram @ direction) if histogram.size == direction.size else 0.0

    return score


def _likelihood(pipeline: Pipeline, inside: Polled, outside: Polled) -> View | None:
    """The log-likelihood ratio of the labels under the claimed noise: the best score there is if nothing is wrong, and a good
    one if it is."""
    logs = _log_probs(pipeline, inside, outside)
    if logs is None:
        return None
    likelihood = Likelihood.of(*logs)

    def score(told: Published) -> Hashable:
        labels = np.array(told.answers[: len(likelihood.ratios)], dtype=np.int64)
        return likelihood(labels) if labels.size == len(likelihood.ratios) else 0.0

    return score


def _log_probs(pipeline: Pipeline, inside: Polled, outside: Polled) -> tuple[FloatArray, FloatArray] | None:
    """float64[query, outcome] of both worlds, where the aggregator states them."""
    if not pipeline.aggregator.adds_up:
        return None
    one, two = (pipeline.aggregator.outcome_log_probs(polled.votes.counts) for polled in (inside, outside))
    return None if one is None or two is None else (one, two)
