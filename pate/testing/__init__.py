"""Conformance for anybody's parts: ``check_aggregator(MyAggregator(...))``, or ``pate check my_module:MyAggregator``;
``check_family(MyTeachers(...))``. Audits, lower bounds on epsilon from outside: ``audit_mechanism``, ``audit_aggregator``."""

from __future__ import annotations

from pate.testing.audit import audit_mechanism, audit_outcomes
from pate.testing.audit_aggregator import audit_aggregator
from pate.testing.audit_report import AuditFailed, AuditReport, LowerBound
from pate.testing.bounds import lower_bound, one_run_lower_bound
from pate.testing.families import FamilyCheckFailed, FamilyReport, check_family
from pate.testing.report import AggregatorCheckFailed, Check, CheckReport
from pate.testing.suite import check_aggregator

__all__ = [
    "AggregatorCheckFailed",
    "AuditFailed",
    "AuditReport",
    "Check",
    "CheckReport",
    "FamilyCheckFailed",
    "FamilyReport",
    "LowerBound",
    "audit_aggregator",
    "audit_mechanism",
    "audit_outcomes",
    "check_aggregator",
    "check_family",
    "lower_bound",
    "one_run_lower_bound",
]
