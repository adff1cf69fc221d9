"""Students from files: what ``pate student`` does, as functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pate.arrays import IntArray
from pate.errors import ParameterError, StudentError
from pate.experiments.array_files import read_arrays
from pate.experiments.release_files import read_release
from pate.features import features_named
from pate.features.cache import fit_cached
from pate.progress import duration
from pate.public import PublicData
from pate.release import Release
from pate.student.archive import unpacked
from pate.student.base import Student
from pate.student.diary import Diary
from pate.student.presets import presets_of
from pate.student.queries import select_queries
from pate.student.records import Float32Array, float_records
from pate.student.registry import known_students, student


def models() -> dict[str, dict[str, Any]]:
    """The built-in students: what each is, in a line, and the names of its presets."""
    return {name: {"what": line, "presets": list(presets_of(name))} for name, line in known_students().items()}


def read_rows(path: Path) -> IntArray:
    """Rows of public records: an .npy, an .npz under the name ``rows``, or a release file that says what was asked."""
    if path.suffix == ".json":
        rows = read_release(path).queries
        if rows is None:
            raise ParameterError(f"{path}: this release does not say which rows were asked. Give the file of the queries.")
        return rows
    arrays = read_arrays(path, alone="rows", error=ParameterError)
    if "rows" not in arrays:
        raise ParameterError(f"{path}: the rows of queries are the array 'rows', found {', '.join(arrays) or 'none'}.")
    found = arrays["rows"]
    if found.ndim != 1 or found.dtype.kind not in "iu":
        raise ParameterError(f"{path}: rows must be whole numbers, int[query], got {found.dtype} of shape {found.shape}.")
    return found.astype(np.int64)


def read_answers(releases: Sequence[Path], queries: Sequence[Path], n_public: int) -> tuple[list[Release], list[IntArray]]:
    """Releases from files, one for each round, and the rows of the public records that each was asked about.

    queries: a file for each release; none where the releases say it themselves, or answer all public records in order.
    """
    if queries and len(queries) != len(releases):
        raise ParameterError(f"Give --queries once for each --release, or not at all; got {len(queries)} and {len(releases)}.")
    files = [read_release(path) for path in releases]
    asked = []
    for place, (path, file) in enumerate(zip(releases, files, strict=True)):
        rows = file.queries
        if queries:
            rows = read_rows(queries[place])
            if file.queries is not None and not np.array_equal(rows, file.queries):
                raise ParameterError(f"{path} says that other rows were asked than {queries[place]}. Leave --queries out.")
        if rows is None:
            if len(file.release) != n_public:
                raise ParameterError(
                    f"{path}: it answers {len(file.release)} queries and does not say which of the {n_public} public records. "
                    "Give their rows with --queries."
                )
            rows = np.arange(n_public, dtype=np.int64)
        asked.append(rows)
    return [file.release for file in files], asked


def fitted_features(name: str, settings: Mapping[str, Any], x: NDArray[Any], diary: Diary) -> Float32Array:
    """float32[record, feature...] of public records; fitted on them, or found in the cache from an earlier fit."""
    records = float_records(x)  # as students see them, so that they find the same fit
    with diary.fitting() as told:
        return fit_cached(features_named(name, settings), PublicData(records), progress=told).transform(records)


def choose(
    x: NDArray[Any],
    n: int,
    strategy: str,
    *,
    features: Float32Array | None = None,
    asked: Sequence[Path] = (),
    learner: Student | None = None,
    seed: int = 0,
) -> IntArray:
    """:func:`pate.student.queries.select_queries`, with what was asked before read from files."""
    before = np.concatenate([read_rows(path) for path in asked]) if asked else None
    return select_queries(x, n, strategy, features=features, student=learner, asked=before, seed=seed)


def new_student(name: str, preset: str | None, settings: Mapping[str, Any], seed: int | None) -> Student:
    """A student, not yet fitted; ``seed`` is one of its settings."""
    if "name" in settings or "preset" in settings:
        raise ParameterError("--set gives a student's own settings; its name and preset are given with --model and --preset.")
    if seed is not None and "seed" in settings:
        raise ParameterError("The seed is given twice: with --seed and with --set seed=…. Leave one out.")
    return student(name, preset, **settings, **({} if seed is None else {"seed": seed}))


def stored(path: Path) -> dict[str, Any]:
    """What a student's file says of it, without importing the student: its name, settings and record."""
    with unpacked(path) as (header, _):
        facts = {name: header.get(name) for name in ("student", "settings", "record")}
    if not isinstance(facts["student"], str) or not all(isinstance(facts[name], dict) for name in ("settings", "record")):
        raise StudentError(f"{path}: the file does not say what student it holds. Fit and save it again.")
    return facts


def facts_of(learner: Student) -> dict[str, Any]:
    """What :func:`stored` will say of it."""
    return {"student": learner.title, "settings": learner.settings(), "record": dict(learner.record)}


def fact_rows(facts: Mapping[str, Any]) -> dict[str, str]:
    """What :func:`stored` found, as the rows of a table."""
    record = facts["record"]
    by_class = record.get("answers_by_class", [])
    rows = {
        "student": facts["student"],
        "settings": _listed(facts["settings"]),
        "public records": f"{record.get('public_records')} of shape {tuple(record.get('record_shape', ()))}",
        "asked, answered": f"{record.get('asked')}, {record.get('answered')}",
        "answers by class": ", ".join(map(str, by_class)),
        "mechanism": "; ".join(_listed(each) for each in record.get("mechanisms", [])),
        "noise": "; ".join(record.get("stamps", [])),
        "took": duration(record.get("seconds", 0.0)),
        "versions": _listed(record.get("versions", {})),
    }
    if record.get("constant") is not None:
        rows["says always"] = f"class {record['constant']}: all answers named it"
    for stage, last in {row["stage"]: row for row in record.get("history", [])}.items():
        numbers = {key: value for key, value in last.items() if key not in ("stage", "step")}
        rows[f"end of {stage}"] = ", ".join(f"{key} {value:.4g}" for key, value in numbers.items()) or "done"
    return rows


def _listed(settings: Mapping[str, Any]) -> str:
    return ", ".join(f"{key}={value}" for key, value in settings.items())
