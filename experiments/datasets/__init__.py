"""Data sets, each split into private, public and test records by a stated protocol: ``load("mnist", protocol="B")``."""

from pate.experiments.datasets.base import DatasetSource, HiddenLabels, Split, TestSet
from pate.experiments.datasets.registry import BUILT_IN, known_datasets, load

__all__ = ["BUILT_IN", "DatasetSource", "HiddenLabels", "Split", "TestSet", "known_datasets", "load"]
