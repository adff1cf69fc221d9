"""The driver's side of training: chunks of teachers to the executor, records back, faults counted."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby

import numpy as np

from pate.errors import TeacherError
from pate.execution import Executor, Lost, Placement, Task
from pate.features import Features
from pate.progress import Progress, Show, tracked
from pate.teachers.chunks import FEATURES, RunSettings, TrainChunk, train_chunk
from pate.teachers.partitioned import Partitioned
from pate.teachers.run_directory import TeacherRecord


def train_all(
    settings: RunSettings,
    parts: Partitioned,
    features: Features | None,
    executor: Executor,
    max_failures: float,
    show: Show,
) -> None:
    """Train every teacher that is not trained yet. Raises if too many fail; what is finished stays in the run directory."""
    records: dict[int, TeacherRecord] = {}
    for teacher in range(parts.n_teachers):
        finished = settings.run.read_record(teacher, settings.family.suffix)
        if finished is not None and finished.outcome != "failed":  # who failed gets another chance
            records[teacher] = finished
    shared = dict(parts.shared())
    if features is not None:
        shared[FEATURES] = np.frombuffer(pickle.dumps(features), dtype=np.uint8)

    def train(chunks: Iterable[tuple[tuple[int, ...], Placement]], progress: Progress) -> Iterator[tuple[int, ...]]:
        """Train these chunks; yields those whose process died too often."""
        sent: dict[int, tuple[int, ...]] = {}
        for outcome in executor.run(train_chunk, _tasks(settings, parts, chunks, sent), shared):
            teachers = sent.pop(outcome.key)
            if isinstance(outcome, Lost):
                if len(teachers) == 1:
                    lost = _lost(settings, teachers[0], parts.content_hash(teachers[0]), outcome.reason)
                    settings.run.write_record(lost)
                    records[lost.teacher] = lost
                    progress.advance(1, failed=1)
                else:
                    yield teachers
            else:
                records.update((record.teacher, record) for record in outcome.value)
                progress.advance(len(outcome.value), failed=sum(record.outcome == "failed" for record in outcome.value))
            check_failures(failures(records.values()), parts.n_teachers, max_failures)

    todo = [teacher for teacher in range(parts.n_teachers) if teacher not in records]
    with tracked("teachers", parts.n_teachers, done=len(records), show=show, file=settings.run.progress_file) as progress:
        lost = list(train(chunked(todo, settings.family.chunk_size, parts.placement), progress))
        # One by one, so that a teacher that kills its process takes no other with it.
        alone = [((teacher,), parts.placement(teacher)) for teachers in lost for teacher in teachers]
        for _ in train(alone, progress):
            raise AssertionError("a chunk of one teacher is never handed back")


def chunked(
    teachers: Sequence[int], size: int, placement: Callable[[int], Placement]
) -> Iterator[tuple[tuple[int, ...], Placement]]:
    """Teachers in chunks of at most ``size``, each chunk in one place.

    Chunks end at multiples of ``size``, so that a resumed run cuts where the first one did.
    """
    for (_, place), alike in groupby(teachers, key=lambda teacher: (teacher // size, placement(teacher))):
        yield tuple(alike), place


def check_failures(failed: Mapping[int, str], n_teachers: int, max_failures: float) -> None:
    """Raise if too many teachers have no vote of their own. failed: the kind of error of each of them."""
    if len(failed) > max_failures * n_teachers:
        first = min(failed)
        raise TeacherError(
            f"{len(failed)} of {n_teachers} teachers failed, more than max_failures={max_failures:g} allows; the first is "
            f"teacher {first} ({failed[first]}). Its record in the run directory says more (pate teachers status --errors). "
            "What is finished is kept: mend it and resume."
        )


def _tasks(
    settings: RunSettings,
    parts: Partitioned,
    chunks: Iterable[tuple[tuple[int, ...], Placement]],
    sent: dict[int, tuple[int, ...]],
) -> Iterator[Task[TrainChunk]]:
    """Made as the executor asks for them: the loaders of thousands of teachers never wait in memory together."""
    for teachers, placement in chunks:
        loaders = tuple(parts.loader(teacher) for teacher in teachers)
        hashes = tuple(parts.content_hash(teacher) for teacher in teachers)
        sent[teachers[0]] = teachers
        yield Task(teachers[0], TrainChunk(settings, teachers, loaders, hashes), placement)


def failures(records: Iterable[TeacherRecord]) -> dict[int, str]:
    """The kind of error of every teacher that failed."""
    return {record.teacher: record.error_kind for record in records if record.outcome == "failed"}


def _lost(settings: RunSettings, teacher: int, data_hash: str, reason: str) -> TeacherRecord:
    return TeacherRecord(teacher, "failed", settings.teacher_seed(teacher), data_hash, error=f"Lost: {reason}")
