"""Data sets by name: ``mnist``, an entry point of the group ``pate.datasets``, or ``package.module:Class``."""

from __future__ import annotations

import inspect
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

from pate.errors import DataError, ParameterError, ReferenceNotFound
from pate.experiments.datasets.base import DatasetSource, Split
from pate.places import data_home
from pate.references import LazyClasses, construct, first_lines, load_reference, resolve

ENTRY_POINT_GROUP = "pate.datasets"

BUILT_IN: Mapping[str, str] = MappingProxyType(
    {
        "mnist": "pate.experiments.datasets.mnist:MNIST",
        "fashion-mnist": "pate.experiments.datasets.fashion_mnist:FashionMNIST",
        "adult": "pate.experiments.datasets.adult:Adult",
        "diabetes": "pate.experiments.datasets.diabetes:Diabetes",
        "kddcup99": "pate.experiments.datasets.kddcup99:KDDCup99",
        "digits": "pate.experiments.datasets.digits:Digits",
        "svhn": "pate.experiments.datasets.svhn:SVHN",
        "cifar10": "pate.experiments.datasets.cifar10:CIFAR10",
        "files": "pate.experiments.datasets.own_files:Files",
    }
)


def load(name: str, root: str | os.PathLike[str] | None = None, **options: Any) -> Split:
    """A data set, checked and divided.

    name: built-in, an entry point, or "package.module:Class".
    root: the directory with the files; else the environment variable PATE_DATA says where.
    options: the source's own, such as ``protocol="B"``.

    >>> load("digits")
    Split('digits', by a hash of the row number: 956 private, 435 public records of shape (8, 8), 10 classes, \
TestSet(not opened))
    """
    source = source_named(name, options)
    return source.load(data_root(root, name) if source.needs_files else Path())


def source_named(name: str, options: Mapping[str, Any]) -> DatasetSource:
    """A source, nothing read yet; options that it does not take are told.

    name: built-in, an entry point, or "package.module:…": a subclass of DatasetSource, or a function that gives a Split.
    """
    if ":" in name and not inspect.isclass(found := load_reference(name)):
        if not callable(found):
            raise ReferenceNotFound(f"{name!r} must be a DatasetSource, or a function that gives a Split, got {found!r}.")
        try:
            inspect.signature(found).bind(**options)
        except TypeError as error:  # told before a run begins, not in the middle of it
            raise ParameterError(f"{name}: {error}. It takes {', '.join(inspect.signature(found).parameters)}.") from None
        return _Called(name, dict(options))
    return construct(resolve(name, LazyClasses(BUILT_IN), ENTRY_POINT_GROUP, DatasetSource), options, name)  # type: ignore[type-abstract]


@dataclass(frozen=True)
class _Called(DatasetSource):
    """A user's own function, called with the options."""

    reference: str
    options: dict[str, Any]
    needs_files: ClassVar[bool] = False

    def load(self, root: Path) -> Split:
        found = load_reference(self.reference)(**self.options)
        if not isinstance(found, Split):
            raise DataError(f"{self.reference} must give a pate.experiments.datasets.Split, got {type(found).__name__}.")
        return found


def data_root(root: str | os.PathLike[str] | None, name: str) -> Path:
    """The directory of data sets: ``root``, else $PATE_DATA, else where `pate data fetch` puts them."""
    given = root if root is not None else os.environ.get("PATE_DATA") or data_home() / "data"
    folder = Path(given)
    if folder.is_dir():
        return folder
    said = "root" if root is not None else "PATE_DATA" if os.environ.get("PATE_DATA") else "the default place"
    raise DataError(
        f"{name} lies in files: {said} must be a directory with data sets, got {str(folder)!r}, which is none. Fetch them with "
        f"`pate data fetch {name}`. Set the environment variable PATE_DATA, or give root= (on the command line --data), if "
        "they lie elsewhere."
    )


def known_datasets() -> dict[str, str]:
    """The built-in names and what each is, in a line."""
    return first_lines(BUILT_IN)
