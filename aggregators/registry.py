"""Aggregators by name: ``gnmax``, an entry point of the group ``pate.aggregators``, or ``package.module:Class``."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from pate.aggregators.base import Aggregator
from pate.aggregators.confident import ConfidentGNMax
from pate.aggregators.interactive import InteractiveGNMax
from pate.aggregators.noisy_max import GNMax, LNMax, NoisyHistogram
from pate.aggregators.stability import SparseVector, StableMax
from pate.references import construct, resolve

ENTRY_POINT_GROUP = "pate.aggregators"

BUILT_IN: Mapping[str, type[Aggregator]] = MappingProxyType(
    {kind.name: kind for kind in (LNMax, GNMax, ConfidentGNMax, InteractiveGNMax, NoisyHistogram, StableMax, SparseVector)}
)


def aggregator_class(name: str) -> type[Aggregator]:
    """The aggregator class called ``name``."""
    return resolve(name, BUILT_IN, ENTRY_POINT_GROUP, Aggregator)  # type: ignore[type-abstract]


def make_aggregator(name: str, parameters: Mapping[str, Any]) -> Aggregator:
    """An aggregator from its name and constructor arguments.

    >>> make_aggregator("gnmax", {"sigma": 40})
    GNMax(sigma=40)
    """
    return construct(aggregator_class(name), parameters, name)
