"""Conformance for anybody's parts: ``check_aggregator(MyAggregator(...))``, or ``pate check my_module:MyAggregator``;
``check_family(MyTeachers(...))``."""

from __future__ import annotations

from pate.testing.families import FamilyCheckFailed, FamilyReport, check_family
from pate.testing.report import AggregatorCheckFailed, Check, CheckReport
from pate.testing.suite import check_aggregator

__all__ = [
    "AggregatorCheckFailed",
    "Check",
    "CheckReport",
    "FamilyCheckFailed",
    "FamilyReport",
    "check_aggregator",
    "check_family",
]
