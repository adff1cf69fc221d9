"""Estimators by class path and parameters: found, checked and built; and which types a file of theirs may hold."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any, TypeAlias

from pate.errors import ParameterError, ReferenceNotFound
from pate.extras import require
from pate.references import did_you_mean, load_reference

Step: TypeAlias = tuple[str, Mapping[str, Any]]
"""A class path and the constructor's parameters."""

LIBRARIES = frozenset({"sklearn", "numpy", "scipy"})
_SEEDS = 2**31
"""Seeds below this fit every library's type."""

_NO_CLASSIFIERS = ("RegressorMixin", "ClusterMixin", "OutlierMixin")


def estimator_class(path: str) -> Any:
    """The class at "package.module.Class" or "package.module:Class"."""
    if package(path) == "sklearn":
        require("sklearn", "train")
    module, colon, name = path.partition(":")
    if not colon:
        module, _, name = path.rpartition(".")
    found = load_reference(f"{module}:{name}")
    if not inspect.isclass(found):
        raise ReferenceNotFound(f"{path!r} must be a class, got {found!r}.")
    return found


def package(path: str) -> str:
    """The top-level package of a class path."""
    return path.partition(":")[0].partition(".")[0]


def build_estimator(steps: Sequence[Step], seed: int) -> Any:
    """An unfitted estimator, or a pipeline of several; each step that draws random numbers draws them from ``seed``."""
    built = [_build(path, parameters, seed) for path, parameters in steps]
    return built[0] if len(built) == 1 else require("sklearn.pipeline", "train").make_pipeline(*built)


def _build(path: str, parameters: Mapping[str, Any], seed: int) -> Any:
    kind = estimator_class(path)
    known, _ = _parameter_names(kind)
    ours = {"random_state": seed % _SEEDS}
    if package(path) != "sklearn":  # there None is one, and where n_jobs is deprecated a 1 is warned of
        ours["n_jobs"] = 1
    unset = {name: value for name, value in ours.items() if name in known and parameters.get(name) is None}
    return kind(**{**parameters, **unset})


def check_steps(steps: Sequence[Step]) -> None:
    """Raise for a class that is no classifier or transformer, and for wrong parameter names, all at once."""
    problems = [each for path, parameters in steps for each in _wrong_names(path, parameters)]
    if problems:
        raise ParameterError(f"Estimators: {'; '.join(problems)}.")
    *transformers, (classifier, _) = steps
    for path, needed in [*((path, ("fit", "transform")) for path, _ in transformers), (classifier, ("fit", "predict"))]:
        kind = estimator_class(path)
        lacking = [name for name in needed if not callable(getattr(kind, name, None))]
        if lacking:
            raise ParameterError(f"{path!r} must have {' and '.join(needed)}, but has no {' and no '.join(lacking)}.")
    bases = {base.__name__ for base in estimator_class(classifier).__mro__ if package(base.__module__) == "sklearn"}
    if bases.intersection(_NO_CLASSIFIERS):
        raise ParameterError(f"{classifier!r} must be a classifier: it must learn labels from records and predict labels.")


def _wrong_names(path: str, parameters: Mapping[str, Any]) -> list[str]:
    known, open_ended = _parameter_names(estimator_class(path))
    required = [
        name
        for name, each in inspect.signature(estimator_class(path)).parameters.items()
        if each.default is each.empty and each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)
    ]
    unknown = [] if open_ended else [name for name in parameters if name not in known]
    problems = [f"{path} has no parameter {name!r}{did_you_mean(name, known).rstrip('.')}" for name in unknown]
    if unknown:
        problems.append(f"it takes {', '.join(sorted(known)) or 'none'}")
    return problems + [f"{path} needs the parameter {name!r}" for name in required if name not in parameters]


def _parameter_names(kind: Any) -> tuple[set[str], bool]:
    """The constructor's parameters, and whether it takes others too."""
    try:
        return set(kind().get_params(deep=False)), False  # knows more than the signature where that is **kwargs
    except (AttributeError, TypeError):  # no scikit-learn estimator, or it needs arguments
        parameters = inspect.signature(kind).parameters.values()
        named = {each.name for each in parameters if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)}
        return named, any(each.kind is each.VAR_KEYWORD for each in parameters)


def foreign_types(names: Iterable[str], own: Set[str]) -> list[str]:
    """Of the type names in a skops file, those that are no class of scikit-learn, numpy or scipy, nor of a package in ``own``.

    A function of those libraries is foreign too: put where an estimator calls it (``numpy.load``), it could do harm.
    """
    return [name for name in names if not (package(name) in own or _is_library_class(name))]


def _is_library_class(name: str) -> bool:
    if package(name) not in LIBRARIES:
        return False
    try:
        estimator_class(name)
    except ReferenceNotFound:
        return False
    return True
