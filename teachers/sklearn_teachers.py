"""Any scikit-learn classifier as a teacher, or anybody's class with ``fit`` and ``predict``; and presets for tables.

Each teacher is fitted alone, on one thread, from its own records and its own seed, so who else is trained beside it cannot
matter. Labels are numbered 0..c-1 over the classes that the part holds, since many estimators want that, and translated back
in votes; a part with one class only gives a teacher that always votes for it.
"""

from __future__ import annotations

import json
import warnings
import zipfile
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pate.arrays import IntArray
from pate.errors import ParameterError, TeacherError
from pate.estimators import LIBRARIES, Step, build_estimator, check_steps, foreign_types, package
from pate.execution.threads import one_thread
from pate.extras import require
from pate.teachers.family import Part, TeacherFamily, check_labels

Storage = Literal["skops", "joblib"]

JOBLIB_NOTE = "A joblib file runs code when it is loaded: load models only from a run directory that you trust."

EstimatorRecipe: TypeAlias = str | Mapping[str, Any]
"""A class path, or ``{"pipeline": [[class path, parameters], …]}`` whose last step is the classifier."""


@dataclass(frozen=True)
class FittedTeacher:
    """One fitted teacher. Private, like the records it learned from.

    estimator: knows the classes as 0..c-1; None where the part held one class only.
    classes: int64[c], the classes that the part held, in order. warnings: what the estimator warned of while it was fitted.
    """

    estimator: Any | None
    classes: IntArray
    warnings: tuple[str, ...] = ()


class EstimatorTeachers(TeacherFamily[FittedTeacher]):
    """Teachers that are estimators with ``fit`` and ``predict``. A subclass says which one, by :meth:`steps`."""

    @abstractmethod
    def steps(self, n_records: int) -> Sequence[Step]:
        """The estimator for a part of ``n_records``: (class path, parameters), after any transformers before it."""

    @property
    def storage_format(self) -> Storage:
        return "skops"

    @property
    def suffix(self) -> str:
        return f".{self.storage_format}"

    @property
    def trust_note(self) -> str:
        return JOBLIB_NOTE if self.storage_format == "joblib" else ""

    def fit(self, part: Part, n_classes: int) -> FittedTeacher:
        if not len(part.y):
            raise TeacherError(f"Teacher {part.teacher}: a part must hold at least one record, got none.")
        classes, codes = np.unique(part.y, return_inverse=True)
        if len(classes) == 1:
            return FittedTeacher(None, classes)
        estimator = build_estimator(self.steps(len(part.y)), part.seed)
        # One thread only now: building has imported what would start threads.
        with one_thread(), warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            estimator.fit(_flat(part.x), codes)
        found = sorted({f"{each.category.__name__}: {(str(each.message).splitlines() or [''])[0]}" for each in caught})
        return FittedTeacher(estimator, classes, tuple(found))

    def predict(self, model: FittedTeacher, x: NDArray[Any], n_classes: int) -> IntArray:
        if model.estimator is None:
            return np.full(len(x), model.classes[0], dtype=np.int64)
        with one_thread(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            codes = np.asarray(model.estimator.predict(_flat(x)))
        if codes.shape == (len(x), 1):  # a column, as some libraries give
            codes = codes[:, 0]
        votes: IntArray = model.classes[check_labels(codes, len(x), len(model.classes))]
        return votes

    def save(self, model: FittedTeacher, path: Path) -> None:
        content = {"estimator": model.estimator, "classes": model.classes, "warnings": list(model.warnings)}
        if self.storage_format == "joblib":
            require("joblib", "train").dump(content, path, compress=1)
            return
        try:
            require("skops.io", "train").dump(content, path, compression=zipfile.ZIP_DEFLATED, compresslevel=1)
        except Exception as error:  # an estimator of anybody's may hold anything
            raise TeacherError(
                f"{type(model.estimator).__name__} cannot be written by skops ({type(error).__name__}: {error}). "
                f"Use storage='joblib', and know that: {JOBLIB_NOTE}"
            ) from error
        if self._own_packages():  # what could not be loaded must be known before thousands are trained
            self._types(path)

    def load(self, path: Path) -> FittedTeacher:
        if self.storage_format == "joblib":
            content = require("joblib", "train").load(path)
        else:
            content = require("skops.io", "train").load(path, trusted=self._types(path))
        return FittedTeacher(content["estimator"], content["classes"], tuple(content["warnings"]))

    def _own_packages(self) -> set[str]:
        """Packages that the estimator comes from, other than scikit-learn: whoever named them trusts them."""
        return {package(path) for path, _ in self.steps(1)} - LIBRARIES

    def _types(self, path: Path) -> list[str]:
        """The types in a skops file beyond those that skops itself knows as harmless; an error unless all are known here."""
        types: list[str] = require("skops.io", "train").get_untrusted_types(file=path)
        foreign = foreign_types(types, self._own_packages())
        if foreign:
            raise TeacherError(
                f"{path.name} holds types of neither scikit-learn nor the estimator's own package: {', '.join(foreign)}. "
                "If this run did not write the file, do not load it. If it did, the estimator holds more than skops is trusted "
                f"with: use storage='joblib', and know that: {JOBLIB_NOTE}"
            )
        return types


class SklearnTeachers(EstimatorTeachers):
    """Any scikit-learn classifier, or any class with fit and predict, by its class path and parameters.

    estimator: a class path, "sklearn.svm.SVC" or "my_package.module:MyClassifier"; or a recipe of a pipeline,
    ``{"pipeline": [["sklearn.preprocessing.StandardScaler", {}], ["sklearn.svm.SVC", {"C": 1}]]}``. A scaler there is fitted
    by each teacher on its own part, which is private-safe: a record still touches the votes of its own teacher only. A
    scaler fitted on all private data would let one record touch every teacher.
    parameters: the constructor's, JSON values. Unless given, ``random_state`` is the teacher's seed and ``n_jobs`` is 1.
    storage: "skops" reads back numbers and known types; "joblib" takes any estimator, but its files run code when loaded.

    >>> SklearnTeachers("sklearn.linear_model.LogisticRegression", {"C": 10})
    SklearnTeachers(estimator='sklearn.linear_model.LogisticRegression', parameters={'C': 10}, storage='skops')
    """

    def __init__(
        self, estimator: EstimatorRecipe, parameters: Mapping[str, Any] | None = None, storage: Storage = "skops"
    ) -> None:
        if storage not in ("skops", "joblib"):
            raise ParameterError(f"storage must be 'skops' or 'joblib', got {storage!r}.")
        self.estimator = estimator
        self.parameters = dict(parameters or {})
        self.storage = storage
        try:
            json.dumps([estimator, self.parameters], allow_nan=False)
        except (TypeError, ValueError) as error:
            raise ParameterError(
                f"estimator and parameters must be JSON, since a run's manifest keeps them: {error}."
            ) from error
        check_steps(self.steps(1))

    @property
    def storage_format(self) -> Storage:
        return self.storage

    def steps(self, n_records: int) -> Sequence[Step]:
        if isinstance(self.estimator, str):
            return [(self.estimator, self.parameters)]
        steps = self.estimator.get("pipeline") if isinstance(self.estimator, Mapping) else None
        if not steps or len(self.estimator) > 1 or self.parameters or not all(_is_step(each) for each in steps):
            raise ParameterError(
                "estimator must be a class path with its parameters beside it, or {'pipeline': [[class path, parameters], …]} "
                f"with no parameters beside it, got {self.estimator!r} and {self.parameters!r}."
            )
        return [(path, parameters) for path, parameters in steps]


@dataclass(frozen=True, repr=False)
class ForestTeachers(EstimatorTeachers):
    """Random forests: tables without tuning; slower and larger on disk than linear teachers."""

    n_estimators: int = 50
    max_depth: int | None = None
    min_samples_leaf: int = 1
    max_features: str | float = "sqrt"

    def steps(self, n_records: int) -> Sequence[Step]:
        return [("sklearn.ensemble:RandomForestClassifier", self.settings())]


@dataclass(frozen=True, repr=False)
class BoostingTeachers(EstimatorTeachers):
    """Gradient boosting on histograms, set for parts of 60 to some thousand records; takes missing values (NaN).

    Leaves of 5 records and 8 leaves a tree, where the library's own 20 and 31 would hardly split a part of 60. It never stops
    early: a held-out tenth of a small part is no judge, and cannot be drawn where a class has one record.
    """

    max_iter: int = 50
    learning_rate: float = 0.1
    max_leaf_nodes: int = 8
    min_samples_leaf: int = 5
    l2_regularization: float = 1.0

    def steps(self, n_records: int) -> Sequence[Step]:
        return [("sklearn.ensemble:HistGradientBoostingClassifier", {**self.settings(), "early_stopping": False})]


@dataclass(frozen=True, repr=False)
class SklearnLogisticTeachers(EstimatorTeachers):
    """scikit-learn's logistic regression, weakly regularised: a plurality averages variance away, not bias."""

    C: float = 10.0
    max_iter: int = 1000

    def steps(self, n_records: int) -> Sequence[Step]:
        return [("sklearn.linear_model:LogisticRegression", self.settings())]


@dataclass(frozen=True, repr=False)
class KNNTeachers(EstimatorTeachers):
    """Nearest neighbours within the teacher's own part; a part of fewer records than n_neighbors uses them all.

    weights: "distance" lets the nearer neighbours decide, so that an even count is no draw. The model is the part itself.
    """

    n_neighbors: int = 5
    weights: str = "distance"

    def steps(self, n_records: int) -> Sequence[Step]:
        parameters = {**self.settings(), "n_neighbors": min(self.n_neighbors, n_records)}
        return [("sklearn.neighbors:KNeighborsClassifier", parameters)]


def _flat(x: NDArray[Any]) -> NDArray[Any]:
    """[record, ...] as [record, feature], in one order in memory whatever it was cut from."""
    return np.ascontiguousarray(x).reshape(len(x), -1)


def _is_step(step: Any) -> bool:
    return isinstance(step, Sequence) and len(step) == 2 and isinstance(step[0], str) and isinstance(step[1], Mapping)
