"""What an audit found: lower bounds beside claims, and rules that held or did not."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from pate.errors import PateError
from pate.testing.report import Check, Report

NO_PROOF = (
    "A lower bound above a claim refutes it. A small one is no proof of privacy: another canary, other data or a better event "
    "might show more."
)


class AuditFailed(PateError, AssertionError):
    """A claim is refuted, or a rule is broken on which it stands."""


@dataclass(frozen=True)
class LowerBound:
    """A lower bound on epsilon beside the claim.

    method: "exact", from stated probabilities; "black box", from many runs; "one run", from many canaries in one.
    lower, claim: epsilons at ``delta``. share: the largest share of the claim that is proven, at this or at another delta or
        Rényi order where the claim is stated too; above 1 the claim is ``refuted`` and ``proof`` says where.
    event: what was counted. canary: what differs between the two worlds. runs: of both together; None where nothing is drawn.
    confidence: a right claim is refuted with probability at most 1 - confidence; None where nothing is drawn.
    private: the claim depends on the data, so this line is for their owner only.
    """

    name: str
    method: Literal["exact", "black box", "one run"]
    lower: float
    claim: float
    delta: float
    refuted: bool
    share: float
    proof: str
    event: str
    canary: str
    runs: int | None = None
    confidence: float | None = None
    private: bool = False

    def check(self) -> Check:
        """As a rule: the bound does not exceed the claim."""
        sure = "" if self.confidence is None else f", {self.runs} runs, confidence {self.confidence:g}"
        found = f"epsilon is at least {self.lower:.4g}, claimed {self.claim:.4g} at delta {self.delta:g} ({self.method}{sure})"
        return Check(f"claim: {self.name}", not self.refuted, f"{found}; refuted {self.proof}" if self.refuted else found)

    def to_json(self) -> dict[str, Any]:
        found = asdict(self)
        # JSON knows no infinity.
        return {key: None if isinstance(value, float) and not np.isfinite(value) else value for key, value in found.items()}


@dataclass(frozen=True)
class AuditReport(Report):
    """All that an audit found.

    rules: structural checks, which need no statistics: what one record may change, and what must not change at all.
    notes: what the reader should know of how it was done.
    """

    audited: str
    lower_bounds: tuple[LowerBound, ...]
    rules: tuple[Check, ...] = ()
    notes: tuple[str, ...] = ()

    failure: ClassVar[type[PateError]] = AuditFailed

    @property
    def checks(self) -> tuple[Check, ...]:  # type: ignore[override]  # computed here, stored in the other reports
        return (*self.rules, *(bound.check() for bound in self.lower_bounds))

    @property
    def facts(self) -> dict[str, str]:
        return {"audited": self.audited}

    def to_json(self) -> dict[str, Any]:
        return {
            "audited": self.audited,
            "passed": self.passed,
            "lower_bounds": [bound.to_json() for bound in self.lower_bounds],
            "rules": [asdict(rule) for rule in self.rules],
            "notes": [*self.notes, NO_PROOF],
        }
