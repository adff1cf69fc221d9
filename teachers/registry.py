"""Teacher families by name: ``logistic``, an entry point of the group ``pate.teachers``, or ``package.module:Class``."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from pate.errors import ParameterError, ReferenceNotFound
from pate.references import LazyClasses, construct, first_lines, load_reference, resolve
from pate.teachers.family import TeacherFamily

ENTRY_POINT_GROUP = "pate.teachers"

BUILT_IN: Mapping[str, str] = MappingProxyType(
    {
        "logistic": "pate.teachers.batched.logistic:LogisticTeachers",
        "ridge": "pate.teachers.batched.ridge:RidgeTeachers",
        "mlp": "pate.teachers.batched.mlp:MLPTeachers",
        "cnn": "pate.teachers.neural.cnn:CNNTeachers",
        "torch": "pate.teachers.neural.family:TorchTeachers",
        "sklearn": "pate.teachers.sklearn_teachers:SklearnTeachers",
        "sklearn-logistic": "pate.teachers.sklearn_teachers:SklearnLogisticTeachers",
        "forest": "pate.teachers.sklearn_teachers:ForestTeachers",
        "boosting": "pate.teachers.sklearn_teachers:BoostingTeachers",
        "knn": "pate.teachers.sklearn_teachers:KNNTeachers",
    }
)
"""References to where each class is defined, not classes: a module is imported when its family is asked for."""


def teacher_family(name: str, settings: Mapping[str, Any] | None = None) -> TeacherFamily[Any]:
    """A family from its name and its constructor's arguments.

    name: built-in, an entry point, or "package.module:Class". A class there that is no TeacherFamily but has ``fit`` and
    ``predict`` is wrapped, and ``settings`` are its own parameters.

    >>> teacher_family("forest", {"n_estimators": 20}).n_estimators
    20
    """
    given = dict(settings or {})
    if ":" in name and not _is_family(found := load_reference(name)):
        if not (inspect.isclass(found) and all(callable(getattr(found, method, None)) for method in ("fit", "predict"))):
            raise ReferenceNotFound(
                f"{name!r} must be a subclass of pate.teachers.family.TeacherFamily, or a class with fit and predict, "
                f"got {found!r}."
            )
        return teacher_family("sklearn", {"estimator": name, "parameters": given})
    return construct(resolve(name, LazyClasses(BUILT_IN), ENTRY_POINT_GROUP, TeacherFamily), given, name)  # type: ignore[type-abstract]


def family_name(family: TeacherFamily[Any]) -> str:
    """The built-in name of a family, or the reference "package.module:Class" by which any process finds it again."""
    kind = type(family)
    if "<locals>" in kind.__qualname__:
        raise ParameterError(
            f"A teacher family must be a class at the top level of a module, so that a later process finds it again; "
            f"{kind.__qualname__} is defined inside a function. Move it out."
        )
    reference = f"{kind.__module__}:{kind.__qualname__}"
    return next((name for name, built_in in BUILT_IN.items() if built_in == reference), reference)


def describe(family: TeacherFamily[Any]) -> dict[str, Any]:
    """``{"family": name or reference, "settings": …}``: JSON, from which :func:`from_description` makes an equal family."""
    return {"family": family_name(family), "settings": family.settings()}


def from_description(description: Mapping[str, Any]) -> TeacherFamily[Any]:
    """The family that :func:`describe` described."""
    return teacher_family(description["family"], description["settings"])


def known_families() -> dict[str, str]:
    """The built-in names and what each is, in a line. Reads the source, so nothing heavy is imported."""
    return first_lines(BUILT_IN)


def _is_family(found: Any) -> bool:
    return inspect.isclass(found) and issubclass(found, TeacherFamily)
