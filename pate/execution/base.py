"""What an executor is: tasks in, outcomes out, in the order in which they finish.

Two rules make every executor give the same answer, bit by bit: a task's value depends on its payload and on the shared
arrays only, and numerical libraries run on one thread.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from numpy.typing import NDArray

from pate.arrays import IntArray
from pate.errors import ExecutionError

Payload = TypeVar("Payload")
Value = TypeVar("Value")

Shared = Mapping[str, NDArray[Any]]
"""Arrays that every task may read, sent once. Read-only to the tasks."""

Work = Callable[[Payload, Shared], Value]
"""A function at the top level of a module. It may run more than once for a task, so it must be idempotent."""


@dataclass(frozen=True)
class Placement:
    """Where a task must run: where its node has these custom resources and these labels.

    resources: for example ``{"silo:north": 0.01}`` for a node started with ``--resources='{"silo:north": 1}'``.
    labels: for example ``{"silo": "north"}`` for a node started with ``--labels silo=north``.
    """

    resources: Mapping[str, float] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)


ANYWHERE = Placement()


@dataclass(frozen=True)
class Task(Generic[Payload]):
    """One piece of work. The payload is small: indices or file names, never data."""

    key: int
    payload: Payload
    placement: Placement = ANYWHERE


@dataclass(frozen=True)
class Finished(Generic[Value]):
    key: int
    value: Value


@dataclass(frozen=True)
class Lost:
    """A task whose process or node died more often than the executor retries. Its code raised nothing."""

    key: int
    reason: str


class Executor(ABC):
    """Runs tasks. What a task raises is raised here; what kills its process is retried, then reported as ``Lost``."""

    @abstractmethod
    def run(
        self, work: Work[Payload, Value], tasks: Iterable[Task[Payload]], shared: Shared
    ) -> Iterator[Finished[Value] | Lost]:
        """Run ``work(task.payload, shared)`` for every task; yield outcomes as they come. ``tasks`` is read lazily."""

    def total(self, work: Work[Payload, IntArray], tasks: Sequence[Task[Payload]], shared: Shared) -> IntArray:
        """The sum of equally shaped integer arrays, one from each task. A lost task is an error: no part may be missing."""
        total: IntArray | None = None
        for outcome in self.run(work, tasks, shared):
            if isinstance(outcome, Lost):
                raise ExecutionError(f"Task {outcome.key} was lost ({outcome.reason}), so the sum would lack its part.")
            total = outcome.value if total is None else total + outcome.value
        if total is None:
            raise ExecutionError("A sum over tasks needs at least one task, got none.")
        return total

    def close(self) -> None:  # noqa: B027 (nothing to give back is the rule)
        """Give back what was started. Using the executor again starts it again."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
