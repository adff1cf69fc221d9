"""What a conformance run found: one line a check, all of them, the failed ones first when raised."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from pate.errors import PateError


class AggregatorCheckFailed(PateError, AssertionError):
    """An aggregator broke its contract, or a cost it claims is too small. Lists every failed check."""


class Violation(Exception):
    """Raised inside a check that found its rule broken; the message becomes the check's detail."""


@dataclass(frozen=True)
class Check:
    """One rule and what was found."""

    name: str
    passed: bool
    detail: str


@dataclass(frozen=True)
class CheckReport:
    """All checks of one aggregator.

    evidence: what stands behind the privacy claims: "exact", or "empirical" with its confidence.
    """

    aggregator: str
    evidence: str
    checks: tuple[Check, ...]

    @property
    def passed(self) -> bool:
        return all(check.passed for check in self.checks)

    @property
    def failures(self) -> tuple[Check, ...]:
        return tuple(check for check in self.checks if not check.passed)

    def raise_if_failed(self) -> None:
        """Raise :class:`AggregatorCheckFailed` with every failed check, or do nothing."""
        if not self.passed:
            lines = "".join(f"\n  ✗ {check.name}: {check.detail}" for check in self.failures)
            raise AggregatorCheckFailed(f"{self.aggregator} fails {len(self.failures)} of {len(self.checks)} checks:{lines}")

    def to_json(self) -> dict[str, Any]:
        return {
            "aggregator": self.aggregator,
            "passed": self.passed,
            "evidence": self.evidence,
            "checks": [{"name": each.name, "passed": each.passed, "detail": each.detail} for each in self.checks],
        }

    def __str__(self) -> str:
        lines = [f"{'✓' if each.passed else '✗'} {each.name}: {each.detail}" for each in self.checks]
        return "\n".join([f"{self.aggregator} ({self.evidence})", *lines])


NamedCheck = tuple[str, Callable[[], str]]
"""A name, and a function that returns what it found or raises :class:`Violation`."""


def run_checks(checks: Iterable[NamedCheck]) -> tuple[Check, ...]:
    """Run every check; a stranger's code may raise anything, and that is a failed check, not the end."""
    return tuple(_run(name, check) for name, check in checks)


def _run(name: str, check: Callable[[], str]) -> Check:
    try:
        return Check(name, True, check())
    except Violation as violation:
        return Check(name, False, str(violation))
    except Exception as error:
        return Check(name, False, f"raised {type(error).__name__}: {error}")
