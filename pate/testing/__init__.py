"""Conformance for anybody's aggregator: ``check_aggregator(MyAggregator(...))``, or ``pate check my_module:MyAggregator``."""

from __future__ import annotations

from pate.testing.report import AggregatorCheckFailed, Check, CheckReport
from pate.testing.suite import check_aggregator

__all__ = ["AggregatorCheckFailed", "Check", "CheckReport", "check_aggregator"]
