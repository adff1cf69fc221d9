"""Names of parts: a built-in name, an entry point, or ``package.module:Class``. One resolver for all kinds of parts."""

from __future__ import annotations

import ast
import difflib
import importlib
import inspect
import re
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

from pate.errors import ParameterError, ReferenceNotFound

Part = TypeVar("Part")


def load_reference(reference: str) -> Any:
    """Import ``package.module:attribute``."""
    module_name, _, attribute = reference.partition(":")
    if not module_name or not attribute:
        raise ReferenceNotFound(f"A reference must look like 'package.module:Class', got {reference!r}.")
    try:
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and (module_name == error.name or module_name.startswith(error.name + ".")):
            raise ReferenceNotFound(
                f"No module named {error.name!r} for the reference {reference!r}; is its directory on PYTHONPATH or installed?"
            ) from error
        raise
    for name in attribute.split("."):
        if not hasattr(found, name):
            public = [each for each in dir(found) if not each.startswith("_")]
            raise ReferenceNotFound(f"{module_name!r} has no {attribute!r}{did_you_mean(name, public)}")
        found = getattr(found, name)
    return found


def resolve(name: str, builtin: Mapping[str, type[Part]], group: str, base: type[Part]) -> type[Part]:
    """The class called ``name``: built-in, entry point of ``group``, or a reference; checked to be a ``base``."""
    if name in builtin:
        return builtin[name]
    found: Any
    if ":" in name:
        found = load_reference(name)
    else:
        points = {point.name: point for point in entry_points(group=group)}
        if name not in points:
            known = sorted({*builtin, *points})
            raise ReferenceNotFound(
                f"{name!r} is no known {_spoken(base)}{did_you_mean(name, known)} "
                f"Known: {', '.join(known)}; your own is named 'package.module:Class'."
            )
        found = points[name].load()
    if not (inspect.isclass(found) and issubclass(found, base)):
        raise ReferenceNotFound(f"{name!r} must be a subclass of {base.__module__}.{base.__qualname__}, got {found!r}.")
    return found


def construct(kind: type[Part], parameters: Mapping[str, Any], subject: str) -> Part:
    """``kind(**parameters)`` with all wrong or missing names reported at once."""
    signature = inspect.signature(kind).parameters
    unknown = [f"{key!r}{did_you_mean(key, signature).rstrip('.')}" for key in parameters if key not in signature]
    missing = [key for key, value in signature.items() if value.default is inspect.Parameter.empty and key not in parameters]
    problems = [f"unknown parameter {each}" for each in unknown] + [f"missing parameter {key!r}" for key in missing]
    if problems:
        raise ParameterError(f"{subject}: {'; '.join(problems)}. It takes {', '.join(signature)}.")
    return kind(**parameters)


class LazyClasses(Mapping[str, type[Part]]):
    """Classes by built-in name, each imported when it is looked up. Made from references "package.module:Class" by name."""

    def __init__(self, references: Mapping[str, str]) -> None:
        self._references = references

    def __getitem__(self, name: str) -> type[Part]:
        found: type[Part] = load_reference(self._references[name])
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._references)

    def __len__(self) -> int:
        return len(self._references)

    def __contains__(self, name: object) -> bool:
        return name in self._references  # without importing anything


def first_lines(references: Mapping[str, str]) -> dict[str, str]:
    """The first line of each class's docstring, by name. Reads the source, so nothing heavy is imported."""
    return {name: _first_line(reference) for name, reference in references.items()}


def _first_line(reference: str) -> str:
    module, _, name = reference.partition(":")
    top, *rest = module.split(".")
    spec = find_spec(top)  # of the package alone: to find a module in a sub-package would import that
    folder = next(iter(spec.submodule_search_locations or ()), None) if spec else None
    tree = ast.parse(Path(folder, *rest).with_suffix(".py").read_text("utf-8") if folder else "")
    found = next((each for each in tree.body if isinstance(each, ast.ClassDef) and each.name == name), None)
    return "" if found is None else (ast.get_docstring(found) or "").partition("\n")[0]


def _spoken(kind: type) -> str:
    """A class's name as words: TeacherFamily is a teacher family."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", kind.__name__).lower()


def did_you_mean(wrong: str, known: Iterable[str]) -> str:
    """' (did you mean …?)' or '.', to end a sentence with."""
    close = difflib.get_close_matches(wrong, list(known), n=1)
    return f" (did you mean {close[0]!r}?)" if close else "."
