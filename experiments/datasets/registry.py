"""Data sets by name: ``mnist``, an entry point of the group ``pate.datasets``, or ``package.module:Class``."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pate.errors import ParameterError
from pate.experiments.datasets.base import DatasetSource, Split
from pate.references import LazyClasses, construct, first_lines, resolve

ENTRY_POINT_GROUP = "pate.datasets"

BUILT_IN: Mapping[str, str] = MappingProxyType(
    {
        "mnist": "pate.experiments.datasets.mnist:MNIST",
        "fashion-mnist": "pate.experiments.datasets.fashion_mnist:FashionMNIST",
        "adult": "pate.experiments.datasets.adult:Adult",
        "diabetes": "pate.experiments.datasets.diabetes:Diabetes",
        "kddcup99": "pate.experiments.datasets.kddcup99:KDDCup99",
        "digits": "pate.experiments.datasets.digits:Digits",
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
    kind = resolve(name, LazyClasses(BUILT_IN), ENTRY_POINT_GROUP, DatasetSource)  # type: ignore[type-abstract]
    source = construct(kind, options, name)
    return source.load(data_root(root, name) if source.needs_files else Path())


def data_root(root: str | os.PathLike[str] | None, name: str) -> Path:
    """The directory of data sets: ``root``, else $PATE_DATA; or an error that says what to do."""
    given = root if root is not None else os.environ.get("PATE_DATA")
    if not given:
        raise ParameterError(
            f"{name} lies in files, and nobody said where. Set the environment variable PATE_DATA, or give root= (on the "
            "command line --data): a directory with MNIST/raw, FashionMNIST/raw, adult, diabetes, kddcup99."
        )
    folder = Path(given)
    if not folder.is_dir():
        said = "root" if root is not None else "PATE_DATA"
        raise ParameterError(f"{name}: {said} must be a directory with data sets, got {str(folder)!r}, which is none.")
    return folder


def known_datasets() -> dict[str, str]:
    """The built-in names and what each is, in a line."""
    return first_lines(BUILT_IN)
