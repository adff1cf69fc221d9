"""Ray: the same code on a laptop and on a cluster. The one module that imports ray for computing.

Ray's own retries are switched off, since it retries out-of-memory kills without end; this loop counts them and stops.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby, islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pate.arrays import IntArray
from pate.errors import ClusterError, ExecutionError
from pate.execution.base import Executor, Finished, Lost, Payload, Placement, Shared, Task, Value, Work
from pate.execution.ray_setup import check_reachable, check_same_cluster, import_path_of_this_process, prepare_environment
from pate.execution.threads import one_thread
from pate.extras import require
from pate.validation import positive, whole

_POLL_SECONDS = 1.0
_FAN_IN = 8  # tasks that a worker adds up before it answers, at most


_Bundle = tuple[Work[Any, IntArray], Sequence[Any]]


@dataclass(frozen=True)
class _Attempt:
    task: Task[Any]
    submitted: float


@dataclass(frozen=True)
class _Died:
    task: Task[Any]
    reason: str


class OnRay(Executor):
    """Runs tasks on Ray: on a cluster at ``address``, on the one named by RAY_ADDRESS, or on this machine.

    workers: how many tasks run at once; all cores (or all of the cluster) unless given.
    cpus, gpus, memory: what one task asks for; ``gpus=0.25`` lets four tasks share a GPU; memory in bytes guides scheduling.
    retries: how often a task is started again after its process or node died; then again, with no other task of ours beside it.
    patience: seconds that a task may wait for a node with the resources and labels it needs, before it is given up.
    object_store: bytes of shared memory for a cluster started here; Ray's own choice unless given.

    A connection that exists already is used and left open. Everything on the cluster can read what its tasks read, so the
    cluster is inside the trust boundary.
    """

    def __init__(
        self,
        address: str | None = None,
        *,
        workers: int | None = None,
        cpus: float = 1.0,
        gpus: float = 0.0,
        memory: int | None = None,
        retries: int = 2,
        patience: float = 60.0,
        object_store: int | None = None,
    ) -> None:
        if workers is not None:
            whole(workers, "workers", 1)
        positive(cpus, "cpus")
        whole(retries, "retries", 0)
        if gpus:
            positive(gpus, "gpus")
        self.address = address
        self.workers = workers
        self.cpus = cpus
        self.gpus = gpus
        self.memory = memory
        self.retries = retries
        self.patience = patience
        self.object_store = object_store
        self._ray: Any = None
        self._function: Any = None
        self._started_here = False

    def run(
        self, work: Work[Payload, Value], tasks: Iterable[Task[Payload]], shared: Shared
    ) -> Iterator[Finished[Value] | Lost]:
        self._connect()
        call = partial(self._submit, work, *self._put(shared))
        died: list[Task[Payload]] = []
        for outcome in self._attempts(call, tasks, self._window):
            if isinstance(outcome, _Died):
                died.append(outcome.task)
            else:
                yield outcome
        # A process that dies takes with it what Ray had queued for it. So whose fault it was is found out one by one: a
        # task, and in the end a teacher, must not fail because of another one's data.
        for task in died:
            for outcome in self._attempts(call, [task], lambda: 1):
                yield Lost(task.key, outcome.reason) if isinstance(outcome, _Died) else outcome

    def _attempts(
        self, call: Callable[[Task[Payload]], Any], tasks: Iterable[Task[Payload]], window: Callable[[], int]
    ) -> Iterator[Finished[Any] | Lost | _Died]:
        """Every task until it finishes or has died too often; at most ``window()`` at once."""
        ray = self._ray
        waiting = iter(tasks)
        deaths = Counter[int]()
        running: dict[Any, _Attempt] = {}
        try:
            while True:
                for task in islice(waiting, max(0, window() - len(running))):
                    running[call(task)] = _Attempt(task, time.monotonic())
                if not running:
                    return
                ready, _ = ray.wait(list(running), num_returns=1, timeout=_POLL_SECONDS)
                if not ready:
                    yield from self._give_up_unplaceable(running)
                for ref in ready:
                    task = running.pop(ref).task
                    try:
                        value = ray.get(ref)
                    except ray.exceptions.RayTaskError as error:
                        raise _cause(error) from None
                    except ray.exceptions.RayError as error:
                        deaths[task.key] += 1
                        if deaths[task.key] <= self.retries:
                            running[call(task)] = _Attempt(task, time.monotonic())
                        else:
                            yield _Died(task, f"{_reason(error)} {deaths[task.key]} times, alone")
                    else:
                        yield Finished(task.key, value)
        finally:
            for ref in running:
                ray.cancel(ref, force=True)

    def total(self, work: Work[Payload, IntArray], tasks: Sequence[Task[Payload]], shared: Shared) -> IntArray:
        """As the base class says, summed on the way up a tree: workers add up several tasks, the driver adds up workers."""
        self._connect()
        # Few tasks are not bundled: every place should have several bundles, so that none waits long for the last one.
        size = min(_FAN_IN, max(1, len(tasks) // (4 * self._places())))
        bundles: list[Task[_Bundle]] = []
        for placement, alike in groupby(tasks, key=lambda task: task.placement):  # tasks tied to a node stay there
            payloads = [task.payload for task in alike]
            for start in range(0, len(payloads), size):
                bundles.append(Task(len(bundles), (work, payloads[start : start + size]), placement))
        return super().total(_sum_of_bundle, bundles, shared)

    def start(self) -> None:
        """Connect or start now rather than at the first task."""
        self._connect()

    def close(self) -> None:
        if self._started_here and self._ray is not None:
            self._ray.shutdown()
        self._ray = None
        self._started_here = False

    def __repr__(self) -> str:
        return f"OnRay({self.address or 'this machine'}, workers={self.workers or 'all'})"

    def _connect(self) -> Any:
        if self._ray is not None and self._ray.is_initialized():
            return self._ray
        ray = require("ray", "ray")
        if not ray.is_initialized():
            address = self.address or os.environ.get("RAY_ADDRESS") or "local"
            prepare_environment(local=address == "local")
            check_reachable(address)
            options: dict[str, Any] = {}
            if address == "local":
                options = {"num_cpus": self.workers, "object_store_memory": self.object_store, "include_dashboard": False}
            try:
                with import_path_of_this_process(address == "local"):
                    ray.init(address=address, log_to_driver=False, logging_level="ERROR", **options)
            except (ConnectionError, RuntimeError, OSError, ValueError) as error:
                raise ClusterError(f"Ray at {address!r} cannot be reached or started: {error}") from error
            self._started_here = True
        else:
            check_same_cluster(ray, self.address)
        self._ray = ray
        self._function = ray.remote(_call)  # once: every definition is sent to the cluster
        return ray

    def _put(self, shared: Shared) -> tuple[tuple[str, ...], tuple[Any, ...]]:
        """Each array once into the object store, as NumPy: a torch tensor there is copied for every task."""
        refs = []
        for name, array in shared.items():
            try:
                refs.append(self._ray.put(np.ascontiguousarray(array)))
            except (self._ray.exceptions.ObjectStoreFullError, self._ray.exceptions.OutOfDiskError) as error:
                raise ExecutionError(
                    f"The array {name!r} ({array.nbytes / 2**20:.0f} MiB) does not fit in Ray's object store or its disk. "
                    "Give more (object_store=), or let the workers read partitions from storage (StoredPartition)."
                ) from error
        return tuple(shared), tuple(refs)

    def _submit(self, work: Work[Any, Any], names: tuple[str, ...], arrays: tuple[Any, ...], task: Task[Any]) -> Any:
        options: dict[str, Any] = {"num_cpus": self.cpus, "num_gpus": self.gpus, "max_retries": 0}
        if self.memory is not None:
            options["memory"] = self.memory
        if task.placement.resources:
            options["resources"] = dict(task.placement.resources)
        if task.placement.labels:
            options["label_selector"] = dict(task.placement.labels)
        return self._function.options(**options).remote(work, task.payload, names, *arrays)

    def _window(self) -> int:
        """Tasks in flight: all that run, and as many again in the queue, so that no worker waits for the driver.

        Where ``workers`` keeps to a part of the cluster, no more than may run at once.
        """
        places = self._places()
        return places if places < self._room() else 2 * places

    def _places(self) -> int:
        """Tasks that may run at once."""
        return self._room() if self.workers is None else min(self._room(), self.workers)

    def _room(self) -> int:
        return max(1, int(self._ray.cluster_resources().get("CPU", 1) / self.cpus))

    def _give_up_unplaceable(self, running: dict[Any, _Attempt]) -> Iterator[Lost]:
        nodes = [node for node in self._ray.nodes() if node["Alive"]]
        for ref, attempt in list(running.items()):
            if time.monotonic() - attempt.submitted < self.patience or self._has_place(attempt.task.placement, nodes):
                continue
            self._ray.cancel(ref, force=True)
            del running[ref]
            yield Lost(attempt.task.key, f"no live node has what it needs ({_wanted(attempt.task.placement)})")

    def _has_place(self, placement: Placement, nodes: Sequence[dict[str, Any]]) -> bool:
        needs = {"CPU": self.cpus, "GPU": self.gpus, **placement.resources}
        return any(
            all(node["Resources"].get(name, 0.0) >= amount for name, amount in needs.items())
            and all(node.get("Labels", {}).get(key) == value for key, value in placement.labels.items())
            for node in nodes
        )


def _call(work: Work[Payload, Value], payload: Payload, names: tuple[str, ...], *arrays: NDArray[Any]) -> Value:
    with one_thread():
        return work(payload, dict(zip(names, arrays, strict=True)))


def _sum_of_bundle(bundle: _Bundle, shared: Shared) -> IntArray:
    work, payloads = bundle
    total = work(payloads[0], shared)
    for payload in payloads[1:]:
        total = total + work(payload, shared)
    return total


def _cause(error: Any) -> BaseException:
    """What the task itself raised."""
    cause: object = error.cause
    return cause if isinstance(cause, BaseException) else error


def _reason(error: Exception) -> str:
    names = {
        "OutOfMemoryError": "its process was killed for want of memory",
        "NodeDiedError": "its node died",
        "WorkerCrashedError": "its process died",
    }
    return names.get(type(error).__name__, f"it was lost ({type(error).__name__})")


def _wanted(placement: Placement) -> str:
    resources = [f"{name}: {amount:g}" for name, amount in placement.resources.items()]
    labels = [f"{key}={value}" for key, value in placement.labels.items()]
    return ", ".join(resources + labels) or "free CPUs"
