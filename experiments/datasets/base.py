"""What a data set is to an experiment: private, public and test records, and labels that stay shut until they are asked for."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pate.arrays import IntArray
from pate.digests import keyed_place
from pate.errors import DataError, ParameterError
from pate.experiments.datasets.files import KnownFile
from pate.teachers import PrivateData

_PLACES = 1 << 30  # a share of the records is cut as finely


class TestSet:
    """The test split: opened once, at the end.

    read: gives x [record, ...] and y int[record]. It is called by :meth:`open` and by nothing else, so until then no test
    label is in anybody's hands; what was read is not kept.

    >>> test = TestSet(lambda: (np.zeros((2, 3)), np.array([0, 1])))
    >>> x, y = test.open()
    >>> test.open()
    Traceback (most recent call last):
        ...
    pate.errors.ParameterError: The test split was opened already (at the end). Choices made after a look at it are choices \
made on it. If you must, open(again="why"): the reason is kept in TestSet.openings.
    """

    __test__ = False  # pytest would take it for a class of tests

    def __init__(self, read: Callable[[], tuple[NDArray[Any], NDArray[Any]]]) -> None:
        self._read = read
        self._openings: list[str] = []

    def open(self, again: str | None = None) -> tuple[NDArray[Any], IntArray]:
        """x [record, ...] and y int64[record]. A second call must say why, and the reason is kept."""
        if self._openings and not (again and again.strip()):
            raise ParameterError(
                f"The test split was opened already ({'; '.join(self._openings)}). Choices made after a look at it are choices "
                'made on it. If you must, open(again="why"): the reason is kept in TestSet.openings.'
            )
        self._openings.append(f"again: {again}" if self._openings else "at the end")
        x, y = self._read()
        labels = np.asarray(y).astype(np.int64)
        if len(x) != len(labels) or not len(labels):
            raise DataError(f"A test split needs a label for each record, got {len(x)} records and {len(labels)} labels.")
        return x, labels

    @property
    def openings(self) -> tuple[str, ...]:
        """Why it was opened, each time."""
        return tuple(self._openings)

    def __repr__(self) -> str:
        return f"TestSet({f'opened {len(self._openings)} times' if self._openings else 'not opened'})"


class HiddenLabels:
    """The true labels of the public records. PATE has none: this is for simulated releases, which ask for a few rows.

    read: gives y int[record], for all public records; called at the first question.
    """

    def __init__(self, read: Callable[[], NDArray[Any]]) -> None:
        self._read = read
        self._asked = 0

    def of(self, rows: ArrayLike) -> IntArray:
        """The labels of these public records, int64[row]."""
        places = np.asarray(rows)
        self._asked += len(places)
        labels: IntArray = np.asarray(self._read())[places].astype(np.int64)
        return labels

    @property
    def asked(self) -> int:
        """How many labels were given out."""
        return self._asked

    def __repr__(self) -> str:
        return f"HiddenLabels({self._asked} given out)"


@dataclass(frozen=True, eq=False)
class Split:
    """A data set under one protocol.

    private: records with labels; a record's id is its row in the source file.
    public_x: [record, ...], what students, features and queries are made of.
    test: looked at once, at the end; None where there are no test records.
    class_names: of the classes 0, 1, …; public.
    public_labels: for simulations only, no student is ever given it; None where nobody knows them.
    test_is_public: whether figures about the test records may be published. No noise covers them.
    protocol: how the records were divided, in a line.
    """

    name: str
    protocol: str
    private: PrivateData
    public_x: NDArray[Any]
    test: TestSet | None
    class_names: tuple[str, ...]
    public_labels: HiddenLabels | None = None
    test_is_public: bool = False

    @property
    def n_classes(self) -> int:
        return len(self.class_names)

    def with_fewer(self, share: float) -> Split:
        """The same with about this share of the private records (or users), each kept or not by a hash of its own id."""
        whole = self.private
        kept = (keyed_place(whole.unit_ids, "fewer", _PLACES) < share * _PLACES)[whole.unit_of]
        rows = np.flatnonzero(kept)
        ids, units = np.array(whole.record_ids, dtype=object)[rows], np.array(whole.unit_ids, dtype=object)
        users = None if whole.unit == "record" else units[whole.unit_of[rows]].tolist()
        name = f"{whole.name}-{share:g}"
        return replace(self, private=PrivateData(whole.x[rows], whole.y[rows], ids.tolist(), group_by=users, name=name))

    def __repr__(self) -> str:
        return (
            f"Split({self.name!r}, {self.protocol}: {len(self.private)} private, {len(self.public_x)} public records of shape "
            f"{self.public_x.shape[1:]}, {self.n_classes} classes, {self.test!r})"
        )


class DatasetSource(ABC):
    """Where a data set comes from and how it is divided. The constructor's arguments are the options of ``load``."""

    name: ClassVar[str] = ""
    """The built-in name; empty for a class of your own, which is named ``package.module:Class``."""

    needs_files: ClassVar[bool] = True
    """Whether there is a directory to read from. Where not, ``load`` is given the current one."""

    files: ClassVar[tuple[KnownFile, ...]] = ()
    """What must lie there: for ``pate data list|fetch|verify``."""

    @property
    def benchmark(self) -> bool:
        """Whether the records are public anyway, so that a run may be a seeded simulation."""
        return False

    @property
    def no_release(self) -> str | None:
        """Why a run on these data must not be a release, beginning with the option at fault; None where it may be one."""
        return None

    @abstractmethod
    def load(self, root: Path) -> Split:
        """Read what lies under ``root``, check it, divide it. Encodings use declared constants, no statistic of the data."""


class Benchmark(DatasetSource):
    """A public data set, on which PATE is tried out."""

    @property
    def benchmark(self) -> bool:
        return True
