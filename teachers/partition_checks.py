"""What proves that parts are disjoint. Every error gives counts and teachers' numbers, never a record or an id."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pate.arrays import IntArray
from pate.errors import PartitionError
from pate.teachers.partitioned import Partitioned

_SHOWN = 20


def teacher_of_rows(rows: Sequence[ArrayLike], n_records: int) -> IntArray:
    """The one part in which each record lies, int64[record], given the row numbers of every part; or an error."""
    parts = [_row_numbers(part, teacher, n_records) for teacher, part in enumerate(rows)]
    if not parts:
        raise PartitionError("A partition needs at least one part (teacher), got none.")
    everything = np.concatenate(parts)
    uses = np.bincount(everything, minlength=n_records)
    if uses.max() > 1:
        raise PartitionError(_why_not_disjoint(parts, int((uses > 1).sum()), n_records))
    left_out = int((uses == 0).sum())
    if left_out:
        raise PartitionError(
            f"Every record must be in a part; {left_out} of {n_records} are in none. If they are left out on purpose, leave "
            "them out of the PrivateData."
        )
    teacher_of = np.empty(n_records, dtype=np.int64)
    teacher_of[everything] = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
    return teacher_of


def _row_numbers(part: ArrayLike, teacher: int, n_records: int) -> IntArray:
    array = np.asarray(part)
    if array.size == 0 and array.ndim == 1:
        return np.empty(0, dtype=np.int64)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise PartitionError(
            f"Part {teacher} must be an array of row numbers, got {array.dtype} of shape {array.shape}. Turn a mask into row "
            "numbers with numpy.flatnonzero."
        )
    outside = int(((array < 0) | (array >= n_records)).sum())
    if outside:
        raise PartitionError(f"Part {teacher}: row numbers must lie in 0..{n_records - 1}; {outside} lie outside.")
    return array.astype(np.int64)


def _why_not_disjoint(parts: Sequence[IntArray], shared: int, n_records: int) -> str:
    filled = [np.sort(part).tobytes() for part in parts if len(part)]
    same = len(filled) - len(set(filled))
    repeating = sum(len(np.unique(part)) < len(part) for part in parts)
    found = f"{shared} of {n_records} records are used more than once"
    if same:
        found += f", and {same} of {len(parts)} parts are copies of another part"
    if repeating:
        found += f", and {repeating} of {len(parts)} parts repeat a record of their own, as sampling with replacement does"
    return (
        f"Parts must be disjoint: {found}. One record would then change several teachers, and the cost of an answer would be "
        "more than accounted. Give every record to one teacher, once."
    )


def check_together(unit_of: IntArray, place_of: IntArray, place: str) -> None:
    """Raise if a user's records lie in two places. unit_of: int64[record], all of 0..n_units-1; place_of: int64[record]."""
    units, first = np.unique(unit_of, return_index=True)
    apart = np.unique(unit_of[place_of != place_of[first][unit_of]]).size
    if apart:
        raise PartitionError(
            f"All records of a user must be with one {place}; {apart} of {len(units)} users are with several: one user "
            f"would change several teachers. Give each user to one {place} (by_hash does so)."
        )


def check_filled(sizes: IntArray, n_units: int, unit: str, allow_empty: bool) -> None:
    """Raise if there are teachers without records, sizes int64[teacher], unless that is allowed."""
    if allow_empty:
        return
    cure = (
        "Use fewer teachers, or allow it (teachers.allow_empty in a recipe, --allow-empty on the command line, "
        "allow_empty=True in Python): a teacher without records then votes the public default."
    )
    if len(sizes) > n_units:
        raise PartitionError(f"{len(sizes)} teachers are more than there are {unit}s ({n_units}), so some have no data. {cure}")
    empty = np.flatnonzero(sizes == 0)
    if len(empty):
        raise PartitionError(f"{len(empty)} of {len(sizes)} teachers have no record: {_numbers(empty.tolist())}. {cure}")


def check_no_copies(digests: NDArray[np.void], parts: Iterable[IntArray]) -> None:
    """Raise if two teachers hold the same contents under other ids. digests: V16[record] of inputs and labels.

    Two people may well have equal records, and small parts of common records may be equal by chance. So parts are taken for
    copies if two or more records of each have contents that lie nowhere else.
    """
    number = {digest: place for place, digest in enumerate(dict.fromkeys(digests.tolist()))}
    if len(number) == len(digests):
        return
    content = np.array([number[digest] for digest in digests.tolist()])
    uses = np.bincount(content)
    equal: dict[bytes, list[int]] = defaultdict(list)
    for teacher, rows in enumerate(parts):
        equal[np.sort(content[rows]).tobytes()].append(teacher)
    for key, teachers in equal.items():
        kinds, held = np.unique(np.frombuffer(key, dtype=content.dtype), return_counts=True)
        only_here = held[uses[kinds] == held * len(teachers)].sum()
        if len(teachers) > 1 and only_here > 1:
            raise PartitionError(
                f"Teachers must learn from different records; {len(teachers)} teachers hold the same {int(held.sum())} records "
                f"under other ids: {_numbers(teachers)}. A copied record changes all of them. Give every record to one "
                "teacher, once, under its one id."
            )


def differing_teachers(manifest: Mapping[str, Any], partition: Partitioned) -> list[int]:
    """The teachers whose records are not those written down in ``manifest``."""
    before, now = manifest.get("teachers", []), partition.manifest()["teachers"]
    both = min(len(before), len(now))
    changed = [teacher for teacher in range(both) if before[teacher] != now[teacher]]
    return changed + list(range(both, max(len(before), len(now))))


def check_manifest(manifest: Mapping[str, Any], partition: Partitioned) -> None:
    """Raise unless ``partition`` splits the same data in the same way as the one that wrote ``manifest``."""
    now = partition.manifest()
    names = [name for name in dict.fromkeys([*now, *manifest]) if name != "teachers"]
    changed = [name for name in names if manifest.get(name) != now.get(name)]
    facts = [f"{name} was {manifest.get(name)!r} and is {now.get(name)!r}" for name in changed]
    teachers = differing_teachers(manifest, partition)
    if teachers:
        facts.append(f"{len(teachers)} teachers have other records: {_numbers(teachers)}")
    if facts:
        raise PartitionError(
            f"The partition is not the one written in the manifest: {'; '.join(facts)}. Use the data, ids, salt and number of "
            "teachers of that run, or start a new run."
        )


def _numbers(teachers: Sequence[int]) -> str:
    shown = ", ".join(str(teacher) for teacher in teachers[:_SHOWN])
    return shown if len(teachers) <= _SHOWN else f"{shown} and {len(teachers) - _SHOWN} more"
