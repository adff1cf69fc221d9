"""A service that an actor can open by name: made-up votes, nearly tied, with counts that are easy to find where they leak."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from pate.aggregators import GNMax
from pate.aggregators.service.desk import Service
from pate.aggregators.service.sources import Live, Pool
from pate.execution import OnRay, Task
from pate.execution.ray_service import Opening
from pate.ledger import Budget
from pate.noise import SimulatedNoise
from pate.release import Electorate
from pate.votes import Votes

HERE = __name__  # by which the actor finds it
N_TEACHERS = 999_983
CANARY = 499_987  # a count that is nobody's process number or port; nearly a tie, so that a second draw would be noticed
POOL = 400


@dataclass(frozen=True)
class Options:
    """As `pate serve` sends them: what to open, never votes themselves."""

    ledger: str
    epsilon: float = 2.0
    live: bool = False
    seed: int | None = 7
    quotas: tuple[tuple[str, int], ...] = ()


def count_votes(teachers: int, shared: Any) -> Any:
    label = (shared["queries"][:, 0] > 0).astype(int)
    return np.eye(2, dtype=np.int64)[label] * teachers


def votes_of_teachers(records: Any) -> Votes:
    """Three groups of teachers vote in tasks of their own."""
    groups = [Task(0, 400_000), Task(1, 400_000), Task(2, N_TEACHERS - 800_000)]
    return Votes(OnRay().total(count_votes, groups, {"queries": records}), N_TEACHERS)


def open_service(options: Options) -> Service:
    winners = np.arange(POOL) % 2
    counts = np.where(winners[:, None] == np.arange(2), CANARY, N_TEACHERS - CANARY)
    source = (
        Live(votes_of_teachers, (3,), Electorate(N_TEACHERS, 2), "ward")
        if options.live
        else Pool(Votes(counts, n_teachers=N_TEACHERS), "ward")
    )
    noise = None if options.seed is None else SimulatedNoise(options.seed)
    budget = Budget(options.epsilon, 1e-5)
    return Service(GNMax(sigma=40), source, options.ledger, budget, quotas=dict(options.quotas), noise=noise)


def open_nothing() -> Service:
    raise ZeroDivisionError(f"an error of ours that quotes {CANARY}")


def opening(options: Options) -> Opening:
    return Opening(f"{HERE}:open_service", (options,))
