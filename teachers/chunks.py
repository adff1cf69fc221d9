"""What a worker does with a chunk of teachers: train those that are not trained, or let them vote.

A chunk is chosen from public numbers only. Both functions may run again after their process died: what is finished is
found in the run directory and not done twice.
"""

from __future__ import annotations

import hashlib
import pickle
import platform
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pate.arrays import IntArray
from pate.errors import PartitionError, TeacherError
from pate.execution.base import Shared
from pate.features import Features
from pate.teachers.family import Part, TeacherFamily, check_labels
from pate.teachers.partitioned import PartLoader
from pate.teachers.run_directory import RunDirectory, TeacherRecord

FEATURES = "features"
QUERIES = "queries"


@dataclass(frozen=True)
class RunSettings:
    """What all chunks of a run share."""

    directory: str
    family: TeacherFamily[Any]
    n_classes: int
    seed: int
    holdout: float
    retries: int
    default_vote: int

    @property
    def run(self) -> RunDirectory:
        return RunDirectory(self.directory)

    def teacher_seed(self, teacher: int) -> int:
        """32 bits for this teacher, from the run's seed and its number."""
        digest = hashlib.blake2b(f"{self.seed}/{teacher}".encode(), digest_size=4).digest()
        return int.from_bytes(digest, "big")


@dataclass(frozen=True)
class TrainChunk:
    settings: RunSettings
    teachers: tuple[int, ...]
    loaders: tuple[PartLoader, ...]
    data_hashes: tuple[str, ...]


@dataclass(frozen=True)
class VoteChunk:
    settings: RunSettings
    teachers: tuple[int, ...]
    absent: tuple[int, ...]
    """Those among them that have no model and vote the default."""
    n_teachers: int


@dataclass(frozen=True)
class _Prepared:
    part: Part
    held_x: NDArray[Any]
    held_y: IntArray
    data_hash: str


def train_chunk(chunk: TrainChunk, shared: Shared) -> list[TeacherRecord]:
    """Train every teacher of the chunk that is not finished; the records of all of them.

    What an error says may quote the data: it stays in the run directory, and only its kind is sent back.
    """
    settings = chunk.settings
    features: Features | None = pickle.loads(shared[FEATURES].tobytes()) if FEATURES in shared else None
    records: list[TeacherRecord] = []
    prepared: list[_Prepared] = []
    for teacher, loader, data_hash in zip(chunk.teachers, chunk.loaders, chunk.data_hashes, strict=True):
        finished = settings.run.read_record(teacher, settings.family.suffix)
        if finished is None or finished.outcome == "failed":
            try:
                prepared.append(_prepare(settings, teacher, loader, data_hash, shared, features))
                continue
            except (OSError, ImportError, PartitionError):
                raise  # storage that fails, or changed since it was split, is no fault of this teacher: no default vote for it
            except _EmptyPart:
                finished = TeacherRecord(teacher, "empty", settings.teacher_seed(teacher), data_hash)
            except Exception as error:
                finished = _failed(settings, teacher, data_hash, error)
            settings.run.write_record(finished)
        records.append(finished)
    size = settings.family.batch_size
    for start in range(0, len(prepared), size):
        records += _train_batch(settings, prepared[start : start + size])
    return [replace(each, error=each.error_kind) for each in sorted(records, key=lambda record: record.teacher)]


class _EmptyPart(Exception):
    pass


def _prepare(
    settings: RunSettings, teacher: int, loader: PartLoader, data_hash: str, shared: Shared, features: Features | None
) -> _Prepared:
    x, y, keys = loader.load(shared)
    if not len(y):
        raise _EmptyPart
    if y.min() < 0 or y.max() >= settings.n_classes:
        raise ValueError(f"labels must lie in 0..{settings.n_classes - 1}")
    if features is not None:
        x = features.transform(x)
    held = held_out(keys, settings.holdout)
    part = Part(teacher, x[~held], y[~held], settings.teacher_seed(teacher))
    return _Prepared(part, x[held], y[held], data_hash)


def held_out(keys: NDArray[np.uint64], share: float) -> NDArray[np.bool_]:
    """Which records are held out, bool[record]: each decided by its own key; none where nothing would be left to learn."""
    mixed = (keys ^ (keys >> np.uint64(31))) * np.uint64(0x9E3779B97F4A7C15)  # the low bits chose the teacher: mix again
    held: NDArray[np.bool_] = (mixed >> np.uint64(11)).astype(np.float64) / 2.0**53 < share
    return np.zeros_like(held) if held.all() else held


def _train_batch(settings: RunSettings, batch: Sequence[_Prepared]) -> list[TeacherRecord]:
    start = time.perf_counter()
    try:
        models = _quietly(settings.family.fit_batch, [each.part for each in batch], settings.n_classes)
    except ImportError:
        raise  # a missing package is no fault of this teacher
    except Exception as error:
        if len(batch) > 1:  # one teacher's fault must not be the others'
            return [record for each in batch for record in _train_batch(settings, [each])]
        return [_retried(settings, batch[0], error)]
    seconds = (time.perf_counter() - start) / len(batch)
    return [_finish(settings, each, model, seconds) for each, model in zip(batch, models, strict=True)]


def _retried(settings: RunSettings, one: _Prepared, error: Exception) -> TeacherRecord:
    for _ in range(settings.retries):
        start = time.perf_counter()
        try:
            model = _quietly(settings.family.fit, one.part, settings.n_classes)
        except Exception as again:
            error = again
        else:
            return _finish(settings, one, model, time.perf_counter() - start)
    record = _failed(settings, one.part.teacher, one.data_hash, error)
    settings.run.write_record(record)
    return record


def _finish(settings: RunSettings, one: _Prepared, model: Any, seconds: float) -> TeacherRecord:
    family, teacher = settings.family, one.part.teacher
    try:
        accuracy = None
        if len(one.held_y):
            votes = check_labels(
                _quietly(family.predict, model, one.held_x, settings.n_classes), len(one.held_y), settings.n_classes
            )
            accuracy = float((votes == one.held_y).mean())
        digest = settings.run.save_model(teacher, family.suffix, lambda path: family.save(model, path))
    except (OSError, ImportError):
        raise  # nor is a full disk
    except Exception as error:
        record = _failed(settings, teacher, one.data_hash, error)
    else:
        record = TeacherRecord(
            teacher=teacher,
            outcome="trained",
            seed=one.part.seed,
            data_hash=one.data_hash,
            records=len(one.part.y) + len(one.held_y),
            held_out=len(one.held_y),
            accuracy=accuracy,
            seconds=seconds,
            model=digest,
            trust_note=family.trust_note,
        )
    settings.run.write_record(record)
    return record


def _failed(settings: RunSettings, teacher: int, data_hash: str, error: Exception) -> TeacherRecord:
    text = f"{type(error).__name__}: {error}"[:2000]
    return TeacherRecord(teacher, "failed", settings.teacher_seed(teacher), data_hash, error=text)


def predict_chunk(chunk: VoteChunk, shared: Shared) -> tuple[NDArray[Any], dict[int, str]]:
    """The votes of a chunk, int8/16/32[teacher, query]; and the teachers that could not vote, each with the kind of error.

    Those vote the default on every query of the batch. A model that is missing or damaged is nobody's vote: that is an error.
    """
    settings, queries = chunk.settings, shared[QUERIES]
    votes = np.full((len(chunk.teachers), len(queries)), settings.default_vote, dtype=vote_dtype(settings.n_classes))
    present = [(row, teacher) for row, teacher in enumerate(chunk.teachers) if teacher not in chunk.absent]
    failed: dict[int, str] = {}
    size = settings.family.batch_size
    for start in range(0, len(present), size):
        batch = present[start : start + size]
        models = [_load(settings, teacher) for _, teacher in batch]
        try:
            votes[[row for row, _ in batch]] = _predictions(settings, models, queries)
        except Exception:  # one teacher's fault must not be the others'
            for (row, teacher), model in zip(batch, models, strict=True):
                try:
                    votes[row] = _predictions(settings, [model], queries)[0]
                except Exception as error:
                    failed[teacher] = type(error).__name__
    return votes, failed


def count_chunk(chunk: VoteChunk, shared: Shared) -> IntArray:
    """The chunk's histogram and failures in one array that can be summed: int64[query * class + teacher]."""
    votes, failed = predict_chunk(chunk, shared)
    flags = np.bincount(np.array(sorted(failed), dtype=np.int64), minlength=chunk.n_teachers)
    return np.concatenate([_histogram(votes, chunk.settings.n_classes), flags]).astype(np.int64)


def count_chunk_apart(chunk: VoteChunk, shared: Shared) -> IntArray:
    """The chunk's histogram, int64[query * class], where a teacher votes the default on those queries alone that it cannot.

    What one teacher does here depends on no other, so that the histogram is still of one vote a teacher.
    """
    settings, queries = chunk.settings, shared[QUERIES]
    votes, failed = predict_chunk(chunk, shared)
    for row, teacher in enumerate(chunk.teachers):
        if teacher in failed:
            votes[row] = _each_it_can(settings, _load(settings, teacher), queries)
    return _histogram(votes, settings.n_classes)


def _each_it_can(settings: RunSettings, model: Any, queries: NDArray[Any]) -> IntArray:
    try:
        votes: IntArray = _predictions(settings, [model], queries)[0]
        return votes
    except Exception:
        if len(queries) == 1:
            return np.full(1, settings.default_vote, dtype=np.int64)
        return np.concatenate([_each_it_can(settings, model, half) for half in np.array_split(queries, 2)])


def _histogram(votes: NDArray[Any], n_classes: int) -> IntArray:
    """int64[query * class] of int[teacher, query]."""
    n_queries = votes.shape[1]
    cells = np.arange(n_queries)[None, :] * n_classes + votes
    return np.bincount(cells.ravel(), minlength=n_queries * n_classes).astype(np.int64)


def _load(settings: RunSettings, teacher: int) -> Any:
    suffix = settings.family.suffix
    record = settings.run.read_record(teacher, suffix)
    if record is None or record.outcome != "trained":
        raise TeacherError(
            f"Teacher {teacher}: its model in {settings.directory} is missing or damaged, as seen from {platform.node()}. "
            "Put the run directory on storage that every node sees, or tie teachers to their nodes; then train with resume."
        )
    return settings.family.load(settings.run.model_path(teacher, suffix))


def _predictions(settings: RunSettings, models: Sequence[Any], queries: NDArray[Any]) -> IntArray:
    votes = _quietly(settings.family.predict_batch, models, queries, settings.n_classes)
    return np.stack([check_labels(row, len(queries), settings.n_classes) for row in votes])


def vote_dtype(n_classes: int) -> type[np.signedinteger[Any]]:
    """The smallest signed integer that holds every class."""
    return np.int8 if n_classes <= 2**7 else np.int16 if n_classes <= 2**15 else np.int32


def _quietly(function: Any, *arguments: Any) -> Any:
    """Without warnings: thousands of teachers would repeat the same ones."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return function(*arguments)
