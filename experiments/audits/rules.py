"""What needs no statistics: which teachers one canary moves, and whether a student depends on anything but answers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np

from pate.errors import PateError
from pate.experiments.audits.pipeline import Pipeline, Polled
from pate.experiments.audits.worlds import Worlds
from pate.noise import Noise
from pate.testing.randomness import noise_checks
from pate.testing.report import NamedCheck, Violation
from pate.testing.subject import Subject

NOISE_FALSE_ALARM = 1e-8  # two thousand near ties tell shared noise from fresh at any such level
_MOST_TEACHERS, _SAMPLES = 2000, 100_000


def structural_rules(
    pipeline: Pipeline,
    tried: Sequence[tuple[Worlds, Polled, Polled]],
    noise: Iterator[Noise],
    *,
    repeats: bool,
    students: bool,
) -> Iterator[NamedCheck]:
    """One teacher for every canary, fresh noise, a student of answers alone. repeats: whether training gives the same again."""
    for worlds, inside, outside in tried:
        yield f"one change: {worlds.name}", partial(_one_change, inside, outside, repeats)
    electorate = pipeline.electorate(tried[0][0].inside)
    n_teachers = int(np.clip(electorate.n_teachers, 4, _MOST_TEACHERS))
    subject = Subject(pipeline.aggregator, n_teachers, pipeline.n_classes, _SAMPLES, NOISE_FALSE_ALARM)
    if pipeline.aggregator.adds_up:  # else equal queries of a batch are not alike, and the checks compare them
        yield from noise_checks(subject, NOISE_FALSE_ALARM)
    if students:
        yield "student: answers alone", lambda: _student_of_answers(pipeline, tried[0][1], tried[0][2], next(noise))


def moved(inside: Polled, outside: Polled) -> int:
    """How many votes differ between the worlds."""
    return int(np.abs(inside.votes.counts - outside.votes.counts).sum())


def same(one: Polled, two: Polled) -> bool:
    """Whether two polls are the same to the last vote."""
    if not np.array_equal(one.votes.counts, two.votes.counts):
        return False
    return one.predictions is None or two.predictions is None or np.array_equal(one.predictions, two.predictions)


def _one_change(inside: Polled, outside: Polled, repeats: bool) -> str:
    if inside.votes.electorate != outside.votes.electorate:
        electorates = f"{inside.votes.electorate} in one world, {outside.votes.electorate} in the other"
        raise Violation(f"the electorate is published, and it is {electorates}.")
    if not repeats:
        return "not told: training does not repeat itself, so votes differ anyway; the runs must show it"
    if inside.predictions is not None and outside.predictions is not None:
        changed = np.flatnonzero((inside.predictions != outside.predictions).any(axis=1))
        if changed.size > 1:
            raise Violation(
                f"one canary changed the votes of {changed.size} of {len(inside.predictions)} teachers, the first are "
                f"{changed[:5].tolist()}; every cost counts on one. Parts overlap, or something was learnt from all of "
                "the private data."
            )
        queries = int((inside.predictions != outside.predictions).any(axis=0).sum())
        return f"{changed.size or 'no'} teacher votes otherwise, on {queries} of {inside.predictions.shape[1]} queries"
    difference = moved(inside, outside)
    participation = inside.votes.participation
    most = 2 * (len(inside.votes) if participation is None else participation)
    if difference > most:
        raise Violation(f"one canary changed counts by {difference} in all; one voter may change them by {most} at most.")
    return f"counts differ by {difference} in all, at most {most} are allowed"


def _student_of_answers(pipeline: Pipeline, inside: Polled, outside: Polled, noise: Noise) -> str:
    """The same answers, other votes: the same student."""
    try:
        release = pipeline.answer(inside, noise)
        said = [pipeline.told(pipeline.learn(release, polled)) for polled in (inside, inside, outside)]
    except PateError as error:
        return f"not told: no student could be made of answers ({type(error).__name__})"
    if said[0] != said[1]:
        return "not told: the student does not repeat itself; the runs must show it"
    if said[0] != said[2]:
        raise Violation("the same answers gave another student when votes were other: it depends on more than the release.")
    return "the same answers give the same student, whatever the votes"
