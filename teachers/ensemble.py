"""Teachers trained on disjoint private parts, and their votes."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pate.errors import TeacherError
from pate.execution import ANYWHERE, Executor, Lost, Placement, Serial, Task
from pate.features import Features
from pate.progress import Show
from pate.public import PublicData, numeric_records
from pate.teachers.chunks import QUERIES, RunSettings, VoteChunk, count_chunk, count_chunk_apart, predict_chunk
from pate.teachers.family import TeacherFamily
from pate.teachers.partitioned import Partitioned
from pate.teachers.registry import describe, from_description, teacher_family
from pate.teachers.resuming import check_same_run, check_settings, describe_features, references_in, refuse_private_features
from pate.teachers.run_directory import RunDirectory, TeacherRecord
from pate.teachers.training import check_failures, chunked, failures, train_all
from pate.votes import Votes


class Ensemble:
    """A fixed number of teachers, each trained on its own part. Made by :meth:`train` or :meth:`open`.

    The ensemble never shrinks: a teacher that failed for good, or has no data, votes ``default_vote`` on every query.
    """

    def __init__(self, settings: RunSettings, records: Sequence[TeacherRecord], run: Mapping[str, Any]) -> None:
        """Use :meth:`train` or :meth:`open`."""
        self._settings = settings
        self._records = tuple(records)
        self._run = dict(run)

    @classmethod
    def train(
        cls,
        parts: Partitioned,
        model: str | TeacherFamily[Any],
        run_dir: str | os.PathLike[str],
        *,
        n_classes: int,
        parameters: Mapping[str, Any] | None = None,
        features: Features | None = None,
        executor: Executor | None = None,
        seed: int = 0,
        holdout: float = 0.1,
        default_vote: int = 0,
        retries: int = 1,
        max_failures: float = 0.05,
        resume: bool = False,
        show: Show = "auto",
    ) -> Ensemble:
        """Train a teacher on every part.

        parts: a ``Partition`` or a ``StoredPartition``.
        model: a built-in name ("logistic", "ridge", "mlp", "cnn", "forest", "boosting", "knn", "sklearn", "torch"), an entry
            point, "package.module:Class", or a family; ``parameters`` are its settings where it is named.
        run_dir: where models and records go; on a cluster, storage that every node sees. It is private.
        n_classes: declared, not counted: the largest private label would be a release of its own.
        features: public features before every teacher, computed once for each record by the worker that owns it.
        executor: ``Serial()`` unless given; ``OnRay(...)`` for all cores or a cluster. The votes are the same.
        holdout: share of each part that its teacher does not learn from, to measure it; each record's own id decides.
        default_vote: the class that a teacher without a model votes.
        retries: how often a teacher whose code raises is tried again.
        max_failures: the largest share of failed teachers that is no error.
        resume: go on with a run that was stopped; finished teachers are kept.
        """
        family = teacher_family(model, parameters or {}) if isinstance(model, str) else model
        check_settings(n_classes, default_vote, holdout, retries, max_failures)
        executor = executor or Serial()
        refuse_private_features(features, parts, executor)
        run = RunDirectory(run_dir)
        settings = RunSettings(str(run.path), family, n_classes, seed, holdout, retries, default_vote)
        facts = {
            "teachers": describe(family),
            "n_teachers": parts.n_teachers,
            "n_classes": n_classes,
            "seed": seed,
            "holdout": holdout,
            "default_vote": default_vote,
            "features": None if features is None else describe_features(features),
            "unit": parts.unit,
            "fingerprint": parts.fingerprint,
            "max_failures": max_failures,
        }
        # As they will be read back: a tuple is a list by then.
        facts = json.loads(json.dumps(facts))
        check_same_run(run, facts, parts, resume)
        run.create()
        with run.locked():
            run.write_partition(parts.manifest())
            if features is not None:
                features.save(run.features_path)
            run.write_run(facts | {"placements": _placements(parts)})
            train_all(settings, parts, features, executor, max_failures, show)
        return cls.open(run.path)

    @classmethod
    def open(cls, run_dir: str | os.PathLike[str]) -> Ensemble:
        """The ensemble of a finished run."""
        run = RunDirectory(run_dir)
        facts = run.read_run()
        settings = RunSettings(
            directory=str(run.path),
            family=from_description(facts["teachers"]),
            n_classes=facts["n_classes"],
            seed=facts["seed"],
            holdout=facts["holdout"],
            retries=0,
            default_vote=facts["default_vote"],
        )
        found = [run.read_record(teacher, settings.family.suffix) for teacher in range(facts["n_teachers"])]
        missing = sum(record is None for record in found)
        if missing:
            raise TeacherError(
                f"Run directory {run.path}: {missing} of {len(found)} teachers are not finished. Train with resume first."
            )
        records = [record for record in found if record is not None]
        check_failures(failures(records), len(found), facts["max_failures"])
        shape = run.read_partition().get("record_shape")
        return cls(settings, records, facts | {"record_shape": shape})

    def vote(self, queries: ArrayLike | PublicData, *, executor: Executor | None = None) -> Votes:
        """Every teacher votes once on each query. Only histograms leave the workers, summed on the way.

        queries: [query, ...], public, as the teachers' records were before ``features``.
        """
        x = self._inputs(queries)
        tasks = self._vote_tasks()
        sums = (executor or Serial()).total(count_chunk, tasks, {QUERIES: x})
        cells = len(x) * self.n_classes
        self._check_voters(dict.fromkeys(np.flatnonzero(sums[cells:]).tolist(), "could not vote"), x)
        return Votes(sums[:cells].reshape(len(x), self.n_classes), self.n_teachers)

    def vote_apart(self, queries: ArrayLike | PublicData, *, executor: Executor | None = None) -> Votes:
        """As :meth:`vote`, for queries that do not belong together: one that a teacher cannot vote on changes no other's votes.

        It votes the default on that query alone. However many teachers cannot is no error, which would tell of their records.
        """
        x = self._inputs(queries)
        counts = (executor or Serial()).total(count_chunk_apart, self._vote_tasks(), {QUERIES: x})
        return Votes(counts.reshape(len(x), self.n_classes), self.n_teachers)

    def predict(self, queries: ArrayLike | PublicData, *, executor: Executor | None = None) -> NDArray[Any]:
        """Each teacher's own votes, int8 (int16, int32 for many classes)[teacher, query]. Private."""
        x = self._inputs(queries)
        tasks = self._vote_tasks()
        blocks: dict[int, NDArray[Any]] = {}
        failed: dict[int, str] = {}
        for outcome in (executor or Serial()).run(predict_chunk, tasks, {QUERIES: x}):
            if isinstance(outcome, Lost):
                raise TeacherError(f"Teachers could not vote: {outcome.reason}. Ask again, with more memory or fewer workers.")
            blocks[outcome.key], silent = outcome.value
            failed |= silent
        self._check_voters(failed, x)
        return np.concatenate([blocks[task.key] for task in tasks])

    @property
    def n_teachers(self) -> int:
        return len(self._records)

    @property
    def n_classes(self) -> int:
        return self._settings.n_classes

    @property
    def fingerprint(self) -> str:
        """Names the private data in the ledger."""
        return str(self._run["fingerprint"])

    @property
    def unit(self) -> str:
        """ "record" or "user"."""
        return str(self._run["unit"])

    @property
    def record_shape(self) -> tuple[int, ...] | None:
        """Of one record before ``features``; None where parts of one's own do not say it."""
        found = self._run["record_shape"]
        return None if found is None else tuple(found)

    @property
    def records(self) -> tuple[TeacherRecord, ...]:
        """What is known of each teacher. Private."""
        return self._records

    @property
    def failures(self) -> dict[int, str]:
        """Teachers that failed for good, each with the kind of error; the whole of it is in the run directory."""
        return failures(self._records)

    def __repr__(self) -> str:
        return f"Ensemble({self.n_teachers} teachers, {self._settings.family!r})"

    def _inputs(self, queries: ArrayLike | PublicData) -> NDArray[Any]:
        x = queries.x if isinstance(queries, PublicData) else numeric_records(queries, "queries")
        if self._run["features"] is None:
            return x
        # A class of one's own that the run names is imported as the run's teacher family is.
        names = references_in(self._run["features"])
        return Features.load(self._settings.run.features_path, allow=names).transform(x)

    def _vote_tasks(self) -> list[Task[VoteChunk]]:
        absent = {record.teacher for record in self._records if record.outcome != "trained"}
        places = {int(teacher): Placement(**place) for teacher, place in self._run["placements"].items()}
        chunks = chunked(range(self.n_teachers), self._settings.family.chunk_size, lambda t: places.get(t, ANYWHERE))
        return [
            Task(
                key,
                VoteChunk(self._settings, teachers, tuple(t for t in teachers if t in absent), self.n_teachers),
                placement,
            )
            for key, (teachers, placement) in enumerate(chunks)
        ]

    def _check_voters(self, silent: Mapping[int, str], x: NDArray[Any]) -> None:
        trained = sum(record.outcome == "trained" for record in self._records)
        if trained and len(silent) == trained:
            raise TeacherError(
                f"None of {trained} teachers could vote on queries of shape {x.shape[1:]}, {x.dtype}. Queries must have "
                "the shape of the records that the teachers learned from."
            )
        check_failures({**self.failures, **silent}, self.n_teachers, self._run["max_failures"])


def _placements(parts: Partitioned) -> dict[str, Any]:
    """Where teachers are tied to a place: they vote where they were trained."""
    places = {teacher: parts.placement(teacher) for teacher in range(parts.n_teachers)}
    return {str(teacher): asdict(place) for teacher, place in places.items() if place != ANYWHERE}
