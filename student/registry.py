"""Students by name: ``propagation``, an entry point of the group ``pate.students``, or ``package.module:Class``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from pate.errors import StudentError
from pate.estimators import package
from pate.references import LazyClasses, construct, first_lines, resolve
from pate.student.base import Student

ENTRY_POINT_GROUP = "pate.students"

_REFERENCE = re.compile(r"[\w.]+:[\w.]+")
_TRUSTED = frozenset({"pate", "sklearn", "torch", "torchvision"})

BUILT_IN: Mapping[str, str] = MappingProxyType(
    {
        "supervised": "pate.student.neural.supervised:Supervised",
        "vat": "pate.student.neural.vat:VAT",
        "gan": "pate.student.neural.gan:GAN",
        "fixmatch": "pate.student.neural.fixmatch:FixMatch",
        "propagation": "pate.student.neural.propagation:Propagation",
        "spreading": "pate.student.graph.spreading_student:Spreading",
        "self-training": "pate.student.tabular.self_training:SelfTraining",
        "vote-share": "pate.student.tabular.vote_share:VoteShare",
        "proportions": "pate.student.proportions:Proportions",
    }
)
"""References to where each class is defined, not classes: a module is imported when its student is asked for."""


def student(name: str, preset: str | None = None, **settings: Any) -> Student:
    """A student, not yet fitted.

    name: built-in, an entry point, or "package.module:Class".
    preset: a data set or kind of data for which good settings are known; see :func:`pate.student.presets.presets_of`.
    settings: its constructor's arguments; they go before those of the preset.

    >>> student("vote-share", preset="adult").title
    'vote-share'
    """
    from pate.student.presets import preset_settings

    given = settings if preset is None else {**preset_settings(name, preset), **settings}
    return construct(resolve(name, LazyClasses(BUILT_IN), ENTRY_POINT_GROUP, Student), given, name)  # type: ignore[type-abstract]


def named_in_file(name: str, settings: Mapping[str, Any], allow: frozenset[str]) -> Student:
    """As :func:`student`, but a reference to a class is followed only if it is in ``allow``: files may be strangers'."""
    for reference in (name, *_references(settings)):
        if ":" in reference and reference not in allow and package(reference) not in _TRUSTED:
            raise StudentError(
                f"The file names {reference!r}, whose import runs code. If you trust it, load with allow=[{reference!r}]."
            )
    return student(name, **settings)


def _references(value: Any) -> Iterator[str]:
    """Every "package.module:attribute" among the strings in JSON values."""
    if isinstance(value, str):
        if _REFERENCE.fullmatch(value):
            yield value
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _references(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _references(each)


def known_students() -> dict[str, str]:
    """The built-in names and what each is, in a line. Reads the source, so nothing heavy is imported."""
    return first_lines(BUILT_IN)
