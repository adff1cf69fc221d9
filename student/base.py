"""The one protocol of all students."""

from __future__ import annotations

import inspect
import os
import sys
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pate.arrays import FloatArray, IntArray
from pate.errors import StudentError
from pate.execution.threads import one_thread
from pate.progress import Show
from pate.public import numeric_records
from pate.release import Release
from pate.student.answers import Answers
from pate.student.archive import packed, unpacked
from pate.student.diary import Diary
from pate.validation import whole


class OneClassWarning(UserWarning):
    """All answers name one class: the student became a constant."""


class Student(ABC):
    """Learns from public records and the noisy labels of some of them.

    What it does is post-processing of a release: it costs no privacy, and it cannot reach a vote (an import rule holds it to
    that). It never sees a test label: :meth:`score` is the only method that takes labels, and it only compares.

    The constructor stores its parameters under their own names, JSON values only; what is fitted ends in ``_``. Subclasses
    write :meth:`_fit`, :meth:`_probabilities`, :meth:`_save` and :meth:`_load`.
    """

    name: ClassVar[str] = ""
    """The built-in name; empty for a class of your own, which is named ``package.module:Class``."""

    seed: int = 0

    _record: Mapping[str, Any] | None = None

    def fit(
        self,
        x_public: ArrayLike,
        release: Release | Sequence[Release],
        queries: ArrayLike | Sequence[ArrayLike] | None = None,
        *,
        show: Show = "auto",
    ) -> Self:
        """Learn from ``x_public`` [record, ...] and the answers to some of its rows.

        release: the noisy labels; a list of them where there were several rounds.
        queries: int[query], the rows of ``x_public`` that were asked, in the order of the release (a list of such arrays for
            a list of releases). None: every row was asked, in order.
        show: progress on standard error: "bar", "lines", "none", or "auto", a bar on a terminal.

        Nothing answered is a StudentError. If every answer names one class, the student becomes that constant, with a
        OneClassWarning.
        """
        whole(self.seed, "seed", 0)
        x = numeric_records(x_public, f"{self.title}, x_public")
        answers = Answers.of(len(x), release, queries)
        self._record = None  # if it fails half-way, it is not fitted
        diary, start = Diary(self.title, show), time.monotonic()
        named = np.flatnonzero(answers.class_counts)
        constant = int(named[0]) if named.size == 1 else None
        if constant is None:
            with one_thread():
                self._fit(x, answers, diary)
        else:
            warnings.warn(
                f"All {len(answers)} answers name class {constant} of {answers.n_classes}: the student says {constant} to "
                "everything. Ask about more, or more varied, queries.",
                OneClassWarning,
                stacklevel=2,
            )
        self._record = {
            "n_classes": answers.n_classes,
            "record_shape": list(x.shape[1:]),
            "constant": constant,
            "public_records": answers.n_public,
            "asked": sum(map(len, answers.asked)),
            "answered": len(answers),
            "answers_by_class": answers.class_counts.tolist(),
            "mechanisms": [{**each.mechanism, "mode": each.mode} for each in answers.releases],
            "stamps": sorted({each.stamp for each in answers.releases}),
            "seconds": time.monotonic() - start,
            "pretraining_seconds": diary.pretraining_seconds,
            "versions": _versions(),
            "history": diary.rows,
        }
        return self

    @abstractmethod
    def _fit(self, x: NDArray[Any], answers: Answers, diary: Diary) -> None:
        """Learn. x: [record, ...], finite; answers of two classes or more; one thread; random numbers from ``seed``."""

    @abstractmethod
    def _probabilities(self, x: NDArray[Any]) -> NDArray[np.floating]:
        """[record, class] for x [record, ...]; at least one record."""

    @abstractmethod
    def _save(self, folder: Path) -> None:
        """Write what was fitted as files in ``folder``. No pickle."""

    @abstractmethod
    def _load(self, folder: Path) -> None:
        """Take back what :meth:`_save` wrote."""

    def predict_proba(self, x: ArrayLike) -> FloatArray:
        """How likely each class is, float64[record, class]; rows sum to 1."""
        record = self.record
        records = np.asarray(x)
        shape = tuple(record["record_shape"])
        if records.shape[1:] != shape or records.ndim == 0 or records.dtype.kind not in "biuf":
            raise StudentError(
                f"{self.title} learnt from records of shape {shape}; x must be numbers [record, ...] of that shape, "
                f"got {records.dtype} of shape {records.shape}."
            )
        n_classes = record["n_classes"]
        if not len(records):
            return np.empty((0, n_classes))
        if records.dtype.kind == "f" and not np.isfinite(records).all():
            raise StudentError(f"{self.title}: x must be finite; found NaN or infinity. Impute as for the public records.")
        if record["constant"] is not None:
            return np.tile(np.eye(n_classes)[record["constant"]], (len(records), 1))
        with one_thread():
            found = np.asarray(self._probabilities(records), dtype=np.float64)
        if found.shape != (len(records), n_classes):
            raise StudentError(f"{self.title} must return [{len(records)}, {n_classes}] probabilities, got {found.shape}.")
        shares: FloatArray = found / found.sum(axis=1, keepdims=True)
        return shares

    def predict(self, x: ArrayLike) -> IntArray:
        """The most likely class of each record, int64[record]."""
        best: IntArray = self.predict_proba(x).argmax(axis=1)
        return best

    def score(self, x: ArrayLike, y: ArrayLike) -> float:
        """The share of records whose class is predicted right."""
        labels = np.asarray(y)
        predicted = self.predict(x)
        if labels.shape != predicted.shape:
            raise StudentError(
                f"score needs a label for each of {len(predicted)} records, got an array of shape {labels.shape}."
            )
        if not len(labels):
            raise StudentError("score needs at least one record, got none.")
        return float((predicted == labels).mean())

    @property
    def record(self) -> Mapping[str, Any]:
        """What this student was made from and how: public facts, JSON values. Raises if it is not fitted."""
        if self._record is None:
            raise StudentError(f"{self.title} is not fitted. Call fit(x_public, release, queries) first, or load a fitted one.")
        return self._record

    @property
    def title(self) -> str:
        """What messages and files call it."""
        return type(self).name or f"{type(self).__module__}:{type(self).__qualname__}"

    def settings(self) -> dict[str, Any]:
        """The constructor's parameters: JSON values only."""
        return {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write one file: a zip of the settings, the record and what was learnt. No pickle.

        Students that compare with public records (spreading) keep those records' features in it.
        """
        header = {"student": self.title, "settings": self.settings(), "record": dict(self.record)}
        with packed(path, header) as folder:
            if self.record["constant"] is None:
                self._save(folder)

    @staticmethod
    def load(path: str | os.PathLike[str], allow: Collection[str] = ()) -> Student:
        """Read what :meth:`save` wrote. A class named ``package.module:Class`` in the file is imported only if in ``allow``."""
        from pate.student.registry import named_in_file

        with unpacked(path) as (header, folder):
            student = named_in_file(header["student"], header["settings"], frozenset(allow))
            student._record = header["record"]
            if student.record["constant"] is None:
                student._load(folder)
        return student

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{key}={value!r}' for key, value in self.settings().items())})"


def _versions() -> dict[str, str]:
    """What the libraries call themselves: the same seed repeats a student on the same versions and kind of machine."""
    loaded = {name: getattr(sys.modules.get(name), "__version__", None) for name in ("numpy", "scipy", "sklearn", "torch")}
    return {name: str(version) for name, version in loaded.items() if version} | {"python": sys.version.split()[0]}
