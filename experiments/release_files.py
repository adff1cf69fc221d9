"""A release as one JSON file: the labels and how they were made, the rows asked if wished, and nothing else."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from pate.arrays import FloatArray, IntArray
from pate.errors import ParameterError
from pate.experiments.array_files import check_place_for
from pate.release import Electorate, Release

_FORMAT, _VERSION = "pate release", 1
_ELECTORATE = ("n_teachers", "n_classes", "participation")
_KEYS = {"format", "version", "stamp", "mode", "mechanism", "electorate", "labels", "histogram", "queries"}
_SOME = {"reinforced"}  # of mechanisms that were told what a student predicts


class ReleaseFile(NamedTuple):
    """queries: int64[query], the rows of the public records asked, where the file says so."""

    release: Release
    queries: IntArray | None


def write_release(path: Path, release: Release, queries: ArrayLike | None = None) -> None:
    """A new file, put in its place whole. Answers are paid for, so one that is there already is not overwritten."""
    text = release_text(release, queries)
    with new_file(path) as file:
        file.write(text.encode())


def read_release(path: Path) -> ReleaseFile:
    """What :func:`write_release` wrote, checked."""
    try:
        facts = json.loads(path.read_text("utf-8"), parse_constant=_no_constant, object_pairs_hook=_each_once)
    except FileNotFoundError:
        raise ParameterError(f"{path}: no such file.") from None
    except OSError as error:
        raise ParameterError(f"{path}: it cannot be read ({error.strerror or error}).") from error
    except ValueError as error:  # what is no JSON, or no text
        raise ParameterError(f"{path}: not a whole release file of JSON ({error}). Write one with `pate ask`.") from error
    if not isinstance(facts, dict) or facts.get("format") != _FORMAT:
        raise ParameterError(f'{path}: JSON, but no release; a release file says "format": "{_FORMAT}".')
    if facts.get("version") != _VERSION:
        raise ParameterError(
            f"{path}: version {facts.get('version')!r} of the format; this pate reads {_VERSION}. Use a newer one."
        )
    try:
        return _from_facts(facts)
    except ParameterError as error:
        raise ParameterError(f"{path}: {error}") from error


def release_text(release: Release, queries: ArrayLike | None = None) -> str:
    """What stands in a release file."""
    rows = None if queries is None else _rows(queries, len(release))
    facts = {
        "format": _FORMAT,
        "version": _VERSION,
        "stamp": release.stamp,
        "mode": release.mode,
        "mechanism": dict(release.mechanism),
        "electorate": {name: getattr(release.electorate, name) for name in _ELECTORATE},
        "labels": release.labels.tolist(),
        "histogram": None if release.histogram is None else release.histogram.tolist(),
        "queries": None if rows is None else rows.tolist(),
    }
    if release.reinforced is not None:
        facts["reinforced"] = release.reinforced.tolist()
    try:
        lines = [f"  {json.dumps(key)}: {json.dumps(value, allow_nan=False)}" for key, value in facts.items()]
    except (TypeError, ValueError) as error:
        raise ParameterError(
            f"A release file holds JSON values only, so the mechanism's parameters must be such, got "
            f"{dict(release.mechanism)!r} ({error})."
        ) from None
    return "{\n" + ",\n".join(lines) + "\n}\n"


@contextmanager
def new_file(path: Path, room: int = 0) -> Iterator[IO[bytes]]:
    """A file to write into, which becomes ``path`` at the end of the block; nothing is left of it if the block fails.

    room: bytes that are written, flushed and thrown away first, so that a disk that is full shows before the block begins.
    """
    check_place_for(path)
    try:
        path.open("xb").close()  # takes the name, so that of two commands with one name the second fails at once
    except FileExistsError:
        raise ParameterError(f"{path}: there is a file already, and it is not overwritten. Name another one.") from None
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with temporary.open("xb") as file:
            file.write(b" " * room)
            _flush(file)
            file.seek(0)
            yield file
            file.truncate()
            _flush(file)
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        path.unlink(missing_ok=True)
        raise


def _flush(file: IO[bytes]) -> None:
    file.flush()
    os.fsync(file.fileno())


def _from_facts(facts: Mapping[str, Any]) -> ReleaseFile:
    if set(facts) - _SOME != _KEYS:
        lacks, more = sorted(_KEYS - set(facts)), sorted(set(facts) - _KEYS - _SOME)
        found = "; ".join(f"{what} {', '.join(names)}" for what, names in (("it lacks", lacks), ("it has", more)) if names)
        raise ParameterError(f"a release file holds {', '.join(sorted(_KEYS))} and nothing else; {found}.")
    electorate, mechanism = facts["electorate"], facts["mechanism"]
    if not isinstance(electorate, dict) or set(electorate) != set(_ELECTORATE):
        raise ParameterError(f"electorate must hold {', '.join(_ELECTORATE)}, got {electorate!r}.")
    if not isinstance(mechanism, dict):
        raise ParameterError(f"mechanism must hold names and values, got {mechanism!r}.")
    labels, histogram = _integers(facts["labels"], "labels"), facts["histogram"]
    release = Release(
        labels,
        Electorate(**electorate),
        mechanism,
        facts["mode"],
        None if histogram is None else _numbers(histogram),
        _integers(facts["reinforced"], "reinforced") if "reinforced" in facts else None,
    )
    if facts["stamp"] != release.stamp:  # somebody changed one of them by hand
        raise ParameterError(
            f"mode {release.mode!r} and stamp {facts['stamp']!r} contradict each other. Do not trust the file."
        )
    queries = facts["queries"]
    return ReleaseFile(release, None if queries is None else _rows(_integers(queries, "queries"), len(release)))


def _rows(queries: ArrayLike, n_answers: int) -> IntArray:
    rows = np.asarray(queries)
    if rows.ndim != 1 or (rows.size and (rows.dtype.kind not in "iu" or rows.min() < 0)):
        raise ParameterError(
            f"queries must be the rows of the public records that were asked, int[query] from 0, got {rows.dtype} of shape "
            f"{rows.shape}."
        )
    if len(rows) != n_answers:
        raise ParameterError(f"queries and answers must be as many, got {len(rows)} rows for {n_answers} answers.")
    return rows.astype(np.int64)


def _integers(values: Any, what: str) -> IntArray:
    if not isinstance(values, list) or not all(type(each) is int and abs(each) < 2**63 for each in values):
        raise ParameterError(f"{what} must be a list of whole numbers.")
    return np.array(values, dtype=np.int64)


def _numbers(table: Any) -> FloatArray:
    try:
        return np.array(table, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise ParameterError("histogram must be a list of numbers for each query, or null.") from None


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON number")


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name stands in it twice")
    return found
