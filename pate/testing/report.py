"""What a conformance run found: one line a check, all of them, the failed ones first when raised."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

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


class Report(ABC):
    """All checks of one part: an aggregator, a teacher family."""

    checks: tuple[Check, ...]
    failure: ClassVar[type[PateError]]
    """What is raised when a check failed."""

    @property
    @abstractmethod
    def facts(self) -> dict[str, str]:
        """What was checked, by its kind, before anything else that is known."""

    @property
    def subject(self) -> str:
        return next(iter(self.facts.values()))

    @property
    def passed(self) -> bool:
        return all(check.passed for check in self.checks)

    @property
    def failures(self) -> tuple[Check, ...]:
        return tuple(check for check in self.checks if not check.passed)

    def raise_if_failed(self) -> None:
        """Raise :attr:`failure` with every failed check, or do nothing."""
        if not self.passed:
            lines = "".join(f"\n  ✗ {check.name}: {check.detail}" for check in self.failures)
            raise self.failure(f"{self.subject} fails {len(self.failures)} of {len(self.checks)} checks:{lines}")

    def to_json(self) -> dict[str, Any]:
        return {**self.facts, "passed": self.passed, "checks": [asdict(check) for check in self.checks]}

    def __str__(self) -> str:
        subject, *others = self.facts.values()
        lines = [f"{'✓' if each.passed else '✗'} {each.name}: {each.detail}" for each in self.checks]
        return "\n".join([f"{subject} ({', '.join(others)})" if others else subject, *lines])


@dataclass(frozen=True)
class CheckReport(Report):
    """All checks of one aggregator.

    evidence: what stands behind the privacy claims: "exact", or "empirical" with its confidence.
    """

    aggregator: str
    evidence: str
    checks: tuple[Check, ...]

    failure: ClassVar[type[PateError]] = AggregatorCheckFailed

    @property
    def facts(self) -> dict[str, str]:
        return {"aggregator": self.aggregator, "evidence": self.evidence}


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
