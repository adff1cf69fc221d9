"""What of a table stays when a change names another part in it: the table's own keys, not the old part's parameters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pate.experiments.recipes.model import AUTO, AUTOMATIC, DataTable, TeachersTable
from pate.student.presets import presets_of

_NAMED_BY = {"data": "source", "features": "name", "teachers": "model", "aggregator": "name", "student": "model"}
"""By which key a table names its part. Not those of baselines: their other keys are of the training, whatever the model."""

_OF_NEAREST = frozenset({"votes_per_record", "votes_per_user", "voters"})

Place = tuple[str, ...]


def named_parts(tables: Mapping[str, Any]) -> dict[Place, Any]:
    """The part that each table names, by where the table stands."""
    return {place: table[key] for place, table, key in _tables(tables) if key in table}


def without_old_parameters(tables: dict[str, Any], before: Mapping[Place, Any], given: set[Place]) -> None:
    """Take out of each table whose part is not the one of ``before`` what belonged to that; ``given``, just set, stays."""
    for place, table, key in _tables(tables):
        old, new = before.get(place), table.get(key)
        if old is None or new == old:
            continue
        kept = {key, *_own_keys(place, table, new)}
        for name in [each for each in table if each not in kept and (*place, each) not in given]:
            del table[name]


def places_of(path: Place, value: Any) -> Iterator[Place]:
    """Every key that a change of this path to this value sets, or passes by."""
    for length in range(1, len(path) + 1):
        yield path[:length]
    if isinstance(value, Mapping):
        for key, each in value.items():
            yield from places_of((*path, *steps_of(str(key))), each)


def steps_of(path: str) -> Place:
    """The keys of a path such as "aggregator.sigma"; in Python, where a dot cannot stand, "aggregator__sigma"."""
    return tuple(path.replace("__", ".").split("."))


def _tables(tables: Mapping[str, Any]) -> Iterator[tuple[Place, dict[str, Any], str]]:
    for name, table in tables.items():
        if not isinstance(table, dict):
            continue
        if name in _NAMED_BY:
            yield (name,), table, _NAMED_BY[name]
        if isinstance(inner := table.get("features"), dict):  # of the teachers, the queries, a student or a baseline
            yield (name, "features"), inner, "name"


def _own_keys(place: Place, table: Mapping[str, Any], new: Any) -> set[str]:
    if place == ("data",):
        return set(DataTable.model_fields)
    if place == ("teachers",):
        return set(TeachersTable.model_fields) - ({"count"} if new == "nearest" else _OF_NEAREST)
    if place == ("student",):  # a preset names a kind of data, and one student has it and another has not
        return {"seed", "preset"} if table.get("preset") in presets_of(str(new)) else {"seed"}
    if place == ("aggregator",):
        return {"sigma"} if table.get("sigma") == AUTO and new in AUTOMATIC else set()
    return set()
