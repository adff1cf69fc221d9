"""Two neighbouring worlds to tell apart: private data with a canary, and without."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from pate.arrays import BoolArray, IntArray
from pate.errors import ParameterError
from pate.experiments.audits.pipeline import Pipeline
from pate.teachers import Partition, PrivateData

Kind = Literal["mislabelled", "outlier"]
KINDS: tuple[Kind, ...] = ("mislabelled", "outlier")

_FAR = 1000.0  # an outlier's size, in largest public values
_RECORDS_A_TEACHER = 8
_MOST_VOTERS = 2000


def check_kinds(names: Sequence[str]) -> tuple[Kind, ...]:
    """The kinds of canaries by name, each once."""
    kinds = tuple(kind for kind in KINDS if kind in names)
    unknown = [name for name in names if name not in KINDS]
    if unknown or not kinds:
        raise ParameterError(f"A canary is one of {', '.join(KINDS)}; got {', '.join(map(repr, unknown)) or 'none'}.")
    return kinds


@dataclass(frozen=True)
class Worlds:
    """Private data that differ in one unit, and what that unit is: in short, and at length."""

    inside: PrivateData
    outside: PrivateData
    name: str
    told: str


def make_worlds(pipeline: Pipeline, private: PrivateData, kind: Kind, *, natural: bool = False, attempt: int = 0) -> Worlds:
    """The canary ``kind`` in and out of some records of ``private``.

    A claim holds for every data set, so an audit takes one on which a leak shows. Unless ``natural``, labels are made up: half
    of the teachers learn class A and half class B, a tie on every query, and the canary's teacher has nothing but the canary,
    which says A; without it, that teacher votes its default, B.

    kind: "mislabelled": public records that are asked about, labelled A. "outlier": the same, a thousand times as large.
    attempt: which id the canary has, as its id decides where it goes.
    """
    table = pipeline.recipe.teachers
    if pipeline.n_classes < 2 or table.default_vote >= pipeline.n_classes:
        raise ParameterError(f"An audit needs two classes and a default vote among them, got {pipeline.n_classes} classes.")
    class_b = table.default_vote
    class_a = 1 if class_b == 0 else 0
    asked = pipeline.public_x[pipeline.rows]
    x = asked if private.unit == "user" else asked[:1]
    if kind == "outlier":
        x = np.sign(x + (x == 0)) * _FAR * max(float(np.abs(pipeline.public_x).max()), 1e-3)
    canary = _Unit(f"audit canary {attempt}", x.astype(private.x.dtype), np.full(len(x), class_a))
    if table.nearest:
        return _voters(pipeline, private, canary, (class_a, class_b), kind, natural)
    return _teachers(pipeline, private, canary, (class_a, class_b), kind, natural)


@dataclass(frozen=True)
class _Unit:
    """Whoever comes and goes: a name, its records and their labels."""

    name: str
    x: NDArray[Any]
    y: IntArray


def _teachers(
    pipeline: Pipeline, private: PrivateData, canary: _Unit, classes: tuple[int, int], kind: Kind, natural: bool
) -> Worlds:
    # Where an honest partition puts everybody; what the audited one does with them is seen later.
    table = pipeline.recipe.teachers
    count = table.count or 0
    home = int(_honest(_with(private, canary), count, table.salt)[-1])
    places = _honest(private, count, table.salt)
    keep = _first_of_each(places, _RECORDS_A_TEACHER)
    if natural:
        outside = _some(private, keep, private.y)
        told = f"{_named(kind, private)} of class {classes[0]} beside real records"
        return Worlds(_with(outside, canary), outside, f"{_named(kind, private)}, real labels", told)
    keep &= places != home
    if not keep.any():
        raise ParameterError("There are too few private records to audit: every one lies with the canary's teacher.")
    class_a, class_b = classes
    filled = np.unique(places[keep])
    # Teachers without records vote B, and so does the canary's without it.
    of_a = filled[: min(count // 2, filled.size)]
    outside = _some(private, keep, np.where(np.isin(places, of_a), class_a, class_b))
    return Worlds(
        _with(outside, canary),
        outside,
        f"{_named(kind, private)}, labels of a tie",
        f"{_named(kind, private)} of class {class_a}, alone with its teacher; {of_a.size} of the other teachers learnt that "
        f"class, {count - 1 - of_a.size} class {class_b}",
    )


def _voters(
    pipeline: Pipeline, private: PrivateData, canary: _Unit, classes: tuple[int, int], kind: Kind, natural: bool
) -> Worlds:
    """Records that vote by themselves are replaced, not removed: how many may vote is published."""
    keep = private.unit_of < _MOST_VOTERS
    class_a, class_b = classes
    labels = private.y if natural else np.where(private.turns % np.uint64(2) == 0, class_a, class_b)
    others = _some(private, keep, labels)
    stand_in = _Unit(canary.name, canary.x, np.full(len(canary.y), class_b))
    return Worlds(
        _with(others, canary),
        _with(others, stand_in),
        f"{_named(kind, private)}, {'real labels' if natural else 'labels of a tie'}",
        f"{_named(kind, private)}, whose label is {class_a} in one world and {class_b} in the other",
    )


def _named(kind: Kind, private: PrivateData) -> str:
    return f"{'an' if kind == 'outlier' else 'a'} {kind} {private.unit}"


def _honest(private: PrivateData, count: int, salt: str) -> IntArray:
    return Partition.by_hash(private, count, salt=salt, allow_empty=True).teacher_of


def _first_of_each(places: IntArray, most: int) -> BoolArray:
    """bool[record]: the first few of every teacher."""
    order = np.argsort(places, kind="stable")
    ordered = places[order]
    rank = np.arange(len(ordered)) - np.searchsorted(ordered, ordered, side="left")
    keep = np.zeros(len(places), dtype=np.bool_)
    keep[order[rank < most]] = True
    return keep


def _some(private: PrivateData, keep: BoolArray, labels: IntArray) -> PrivateData:
    rows = np.flatnonzero(keep)
    users = None if private.unit == "record" else [private.unit_ids[private.unit_of[row]] for row in rows]
    ids = [private.record_ids[row] for row in rows]
    return PrivateData(private.x[rows], labels[rows], ids=ids, group_by=users, name=private.name)


def _with(private: PrivateData, canary: _Unit) -> PrivateData:
    """``private`` and the canary, its records at the end."""
    names = [f"{canary.name}, {number}".encode() for number in range(len(canary.y))]
    ids = [*private.record_ids, *names]
    users = None
    if private.unit == "user":
        users = [*(private.unit_ids[unit] for unit in private.unit_of), *([canary.name.encode()] * len(names))]
    x = np.concatenate([private.x, canary.x])
    return PrivateData(x, np.concatenate([private.y, canary.y]), ids=ids, group_by=users, name=private.name)
