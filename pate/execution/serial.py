"""Everything in this process, one task after another."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pate.execution.base import Executor, Finished, Lost, Payload, Shared, Task, Value, Work
from pate.execution.threads import one_thread


class Serial(Executor):
    """Runs tasks here and now. No start-up time, one core.

    >>> from pate.execution import Task
    >>> tasks = [Task(key, payload) for key, payload in enumerate("ab")]
    >>> [outcome.value for outcome in Serial().run(lambda letter, shared: letter.upper(), tasks, {})]
    ['A', 'B']
    """

    def run(
        self, work: Work[Payload, Value], tasks: Iterable[Task[Payload]], shared: Shared
    ) -> Iterator[Finished[Value] | Lost]:
        locked = {name: array.view() for name, array in shared.items()}
        for array in locked.values():
            array.flags.writeable = False  # as on Ray, where the object store is read-only
        for task in tasks:
            with one_thread():
                value = work(task.payload, locked)
            yield Finished(task.key, value)

    def __repr__(self) -> str:
        return "Serial()"
