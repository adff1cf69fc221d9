"""A small service for tests: a pool with clear majorities, a budget of a known number of questions, parts that can fail."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pate.aggregators import Aggregator, GNMax, curve_ahead
from pate.aggregators.service.desk import Service
from pate.aggregators.service.sources import Pool
from pate.errors import ParameterError
from pate.ledger import Budget
from pate.votes import Votes

CLASSES, TEACHERS = 4, 100
GNMAX = GNMax(sigma=20.0)
PLENTY = Budget(50.0, 1e-5)


def pool_votes(size: int, shift: int = 0) -> Votes:
    """Question i has most votes for class i % 4; ``shift`` moves one teacher's vote away from it, everywhere."""
    counts = [[0] * CLASSES for _ in range(size)]
    for row, votes in enumerate(counts):
        votes[row % CLASSES] = TEACHERS - 10 - shift
        votes[(row + 1) % CLASSES] = 10 + shift
    return Votes(counts, n_teachers=TEACHERS)


def budget_for(questions: int, aggregator: Aggregator = GNMAX) -> Budget:
    """A budget that covers so many questions, and not one more."""
    low, high = 0.0, 100.0
    for _ in range(60):
        middle = (low + high) / 2
        if affordable(middle, aggregator) < questions:
            low = middle
        else:
            high = middle
    assert affordable(high, aggregator) == questions
    return Budget(high, 1e-5, order=8.0)


def affordable(epsilon: float, aggregator: Aggregator) -> int:
    try:
        return Budget(epsilon, 1e-5, order=8.0).queries_affordable(curve_ahead(aggregator, pool_votes(1).electorate, 1))
    except ParameterError:  # too small for anything
        return 0


class TestPool(Pool):
    """Tells when votes are collected, can fail, and can be held up so that requests pile up behind it."""

    __test__ = False

    def __init__(self, size: int = 40, shift: int = 0, fingerprint: str = "ward") -> None:
        super().__init__(pool_votes(size, shift), fingerprint)
        self.told: Callable[[str], None] = lambda _: None
        self.failing = False
        self.go = threading.Event()
        self.go.set()
        self.held = threading.Event()

    def votes(self, queries: Sequence[Any]) -> Votes:
        self.told("votes collected")
        self.held.set()
        assert self.go.wait(30)
        if self.failing:
            raise RuntimeError("canary: 90 votes for class 3")
        return super().votes(queries)


def opened(folder: Path, source: Pool | None = None, questions: int = 30, **more: Any) -> Service:
    aggregator = more.pop("aggregator", GNMAX)
    budget = more.pop("budget", None) or budget_for(questions, aggregator)
    return Service(aggregator, source or TestPool(), folder / "ledger.db", budget, **more)


def reservations(service: Service) -> list[int]:
    """How many questions each reservation paid for."""
    return [entry.memo["queries"] for entry in service.ledger.entries() if entry.kind == "reserve"]
