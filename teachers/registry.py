"""Teacher families by name: ``logistic``, an entry point of the group ``pate.teachers``, or ``package.module:Class``."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pate.errors import ParameterError, ReferenceNotFound
from pate.references import construct, load_reference, resolve
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


class _BuiltInClasses(Mapping[str, type[TeacherFamily[Any]]]):
    """The built-in classes, each imported when it is looked up."""

    def __getitem__(self, name: str) -> type[TeacherFamily[Any]]:
        found: type[TeacherFamily[Any]] = load_reference(BUILT_IN[name])
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(BUILT_IN)

    def __len__(self) -> int:
        return len(BUILT_IN)


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
    return construct(resolve(name, _BuiltInClasses(), ENTRY_POINT_GROUP, TeacherFamily), given, name)  # type: ignore[type-abstract]


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
    return {name: _first_line(reference) for name, reference in BUILT_IN.items()}


def _is_family(found: Any) -> bool:
    return inspect.isclass(found) and issubclass(found, TeacherFamily)


def _first_line(reference: str) -> str:
    """The first line of a class's docstring."""
    module, _, name = reference.partition(":")
    spec = find_spec(module)
    tree = ast.parse(Path(spec.origin).read_text("utf-8") if spec and spec.origin else "")
    found = next((each for each in tree.body if isinstance(each, ast.ClassDef) and each.name == name), None)
    return "" if found is None else (ast.get_docstring(found) or "").partition("\n")[0]
