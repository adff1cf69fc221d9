"""Aggregators: noise and its cost in one object.

>>> from pate.aggregators import ConfidentGNMax
>>> ConfidentGNMax(threshold=200, sigma1=150, sigma2=40)
ConfidentGNMax(threshold=200, sigma1=150, sigma2=40, charging='joint')
"""

from __future__ import annotations

if __name__ != "pate.aggregators":  # under its bare name every class would exist twice
    raise ImportError("Import this package as pate.aggregators, not as aggregators.")

from pate.aggregators.asking import ask
from pate.aggregators.base import Aggregator, curve_ahead, curve_bound, curve_dependent
from pate.aggregators.confident import Confident, ConfidentGNMax
from pate.aggregators.interactive import InteractiveGNMax
from pate.aggregators.noisy_max import GNMax, LNMax, NoisyHistogram
from pate.aggregators.registry import BUILT_IN, aggregator_class, make_aggregator
from pate.aggregators.stability import SparseVector, StableMax

__all__ = [
    "BUILT_IN",
    "Aggregator",
    "Confident",
    "ConfidentGNMax",
    "GNMax",
    "InteractiveGNMax",
    "LNMax",
    "NoisyHistogram",
    "SparseVector",
    "StableMax",
    "aggregator_class",
    "ask",
    "curve_ahead",
    "curve_bound",
    "curve_dependent",
    "make_aggregator",
]
