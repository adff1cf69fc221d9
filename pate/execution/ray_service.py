"""The aggregator service on Ray: one actor that owns ledger and votes, and a front that speaks to it.

Nothing is retried here. A call that is lost may have been paid for and answered: its caller asks again with the same key,
and the book says which. What travels through Ray is what an analyst sends and gets, and public facts; errors travel as
values, so that Ray writes no traceback into its records.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Protocol, Self, cast

from pate.errors import ClusterError, ExecutionError, LedgerError, PateError
from pate.execution.on_ray import OnRay
from pate.extras import require
from pate.references import load_reference

NAMESPACE = "pate"
NAME = "pate-aggregator"  # says nothing about the data: anybody with the dashboard can read it
_LOCK_PATIENCE = 30.0  # seconds in which the lock of a process that died must have gone
_TRY_AGAIN = 2.0  # seconds between two attempts to open what would not open
_LONGEST = 300.0  # seconds that a call may take; live teachers on a large group are slow
_READY_SECONDS = 5.0
_AT_ONCE = 1000  # calls under way: those that wait while the disk is written are paid for together

_Outcome = tuple[bool, Any]
"""True and the value, or False and the PateError."""


class Desk(Protocol):
    """What the actor needs of ``pate.aggregators.service.desk.Service``, which lies above this package."""

    trouble: str | None

    def submit(self, client: str, key: str, queries: Sequence[Any]) -> Future[list[int]]: ...
    def budget_facts(self) -> dict[str, Any]: ...
    def mechanism_facts(self) -> dict[str, Any]: ...
    def owner_facts(self) -> dict[str, Any]: ...
    def verify(self) -> dict[str, Any]: ...
    def close(self) -> None: ...


@dataclass(frozen=True)
class Opening:
    """How something is made in another process: a function named "package.module:name" and what it is called with."""

    reference: str
    arguments: tuple[Any, ...] = field(default=(), repr=False)

    def __call__(self, *before: Any) -> Any:
        return load_reference(self.reference)(*before, *self.arguments)


class _Aggregator:
    """Runs as the actor. Its state is what ledger and book say: the constructor reads them, at the start and after a crash."""

    def __init__(self, opening: Opening) -> None:
        self._opening = opening
        self._desk: Desk | None = None
        self._fault: PateError | None = None
        self._next_try = 0.0
        self._opening_now = asyncio.Lock()
        # After kill -9 the operating system, or PostgreSQL, may hold the lock of the dead process for a moment.
        restarted = require("ray", "ray").get_runtime_context().was_current_actor_reconstructed
        end = time.monotonic() + (_LOCK_PATIENCE if restarted else 0.0)
        self._open()
        while isinstance(self._fault, LedgerError) and time.monotonic() < end:
            time.sleep(0.2)
            self._open()

    def _open(self) -> None:
        try:
            self._desk, self._fault = cast(Desk, self._opening()), None
        except Exception as error:
            self._fault = _told(error)
        self._next_try = time.monotonic() + _TRY_AGAIN

    async def opened(self) -> _Outcome:
        """Whether the service could be opened, and the process it is in; for who starts it."""
        return (True, os.getpid()) if self._fault is None else (False, self._fault)

    async def ask(self, client: str, key: str, queries: list[Any]) -> _Outcome:
        async def submitted(desk: Desk) -> list[int]:
            if isinstance(queries[0] if queries else None, list):  # records: arrays are made aside, or all others would wait
                future = await asyncio.to_thread(desk.submit, client, key, queries)
            else:
                future = desk.submit(client, key, queries)
            return await asyncio.wrap_future(future)

        return await self._outcome(submitted)

    async def budget(self) -> _Outcome:
        return await self._outcome(lambda desk: asyncio.to_thread(desk.budget_facts))

    async def mechanism(self) -> _Outcome:
        return await self._outcome(lambda desk: asyncio.to_thread(desk.mechanism_facts))

    async def owner(self) -> _Outcome:
        return await self._outcome(lambda desk: asyncio.to_thread(desk.owner_facts))

    async def verify(self) -> _Outcome:
        return await self._outcome(lambda desk: asyncio.to_thread(desk.verify))

    async def ready(self) -> _Outcome:
        async def no_trouble(desk: Desk) -> bool:
            return desk.trouble is None

        return await self._outcome(no_trouble)

    async def close(self) -> _Outcome:
        """Answer what waits, then stop."""
        return await self._outcome(lambda desk: asyncio.to_thread(desk.close)) if self._desk is not None else (True, None)

    async def _outcome(self, ask: Callable[[Desk], Awaitable[Any]]) -> _Outcome:
        try:
            async with self._opening_now:
                if self._desk is None and time.monotonic() > self._next_try:  # a database that was away may be back
                    await asyncio.to_thread(self._open)
            if self._desk is None:
                raise _away(type(self._fault).__name__)
            return True, await ask(self._desk)
        except Exception as error:
            return False, _told(error)


class RayFront:
    """The service in the actor, in the words of ``pate.aggregators.service.front.Front``. Finds the actor by its name."""

    def __init__(self, name: str = NAME) -> None:
        self.name = name
        self._actor: Any = None

    def __reduce__(self) -> tuple[Any, ...]:
        return RayFront, (self.name,)

    async def ask(self, client: str, key: str, queries: Sequence[Any]) -> list[int]:
        return cast(list[int], await self._call("ask", client, key, list(queries)))

    async def budget(self) -> dict[str, Any]:
        return cast(dict[str, Any], await self._call("budget"))

    async def mechanism(self) -> dict[str, Any]:
        return cast(dict[str, Any], await self._call("mechanism"))

    async def owner(self) -> dict[str, Any]:
        return cast(dict[str, Any], await self._call("owner"))

    async def verify(self) -> dict[str, Any]:
        return cast(dict[str, Any], await self._call("verify"))

    async def ready(self) -> bool:
        try:
            return bool(await self._call("ready", seconds=_READY_SECONDS))
        except PateError:
            return False

    async def _call(self, method: str, *arguments: Any, seconds: float = _LONGEST) -> Any:
        ray = require("ray", "ray")
        try:
            if self._actor is None:
                self._actor = await asyncio.to_thread(ray.get_actor, self.name, NAMESPACE)
            done, value = await asyncio.wait_for(getattr(self._actor, method).remote(*arguments), seconds)
        except ray.exceptions.RayTaskError as error:
            raise _told(error.cause if isinstance(error.cause, Exception) else error) from None
        except (ray.exceptions.RayError, ValueError, TimeoutError) as error:  # ValueError: no actor of this name
            self._actor = None  # a service that was started anew is another actor
            raise _away(type(error).__name__) from None
        if not done:
            raise value
        return value


class Aggregator:
    """The actor from its start to :meth:`close`, for the process that runs the service.

    It runs on this machine, where the ledger's file and the votes are, and lives no longer than this process.
    """

    def __init__(self, opening: Opening, address: str | None = None, name: str = NAME) -> None:
        self._cluster = OnRay(address)
        self._cluster.start()
        self._ray = ray = require("ray", "ray")
        self.name = name
        try:
            here = ray.get_runtime_context().get_node_id()
            placed = require("ray.util.scheduling_strategies", "ray").NodeAffinitySchedulingStrategy(here, soft=False)
            try:
                self._actor = (
                    ray.remote(_Aggregator)
                    .options(
                        name=name,
                        namespace=NAMESPACE,
                        num_cpus=0,  # its work is waiting for the disk; the cores are for teachers
                        max_restarts=-1,
                        max_task_retries=0,
                        max_concurrency=_AT_ONCE,
                        scheduling_strategy=placed,
                    )
                    .remote(opening)
                )
            except ValueError:  # the name is taken
                raise ClusterError("An aggregator service runs on this Ray cluster already. Stop it first.") from None
            try:
                self.pid = self._get("opened")
            except BaseException:
                self._ray.kill(self._actor)
                raise
        except BaseException:
            self._cluster.close()
            raise

    def _get(self, method: str) -> Any:
        try:
            done, value = self._ray.get(getattr(self._actor, method).remote(), timeout=_LONGEST)
        except self._ray.exceptions.RayError as error:
            raise _away(type(error).__name__) from None
        if not done:
            raise value
        return value

    def front(self) -> RayFront:
        return RayFront(self.name)

    def close(self) -> None:
        """Answer what waits, then stop; and leave Ray, if this started it."""
        try:
            self._get("close")
        except ExecutionError:
            pass  # it died first: what it had answered and charged is on the disk
        finally:
            self._ray.kill(self._actor)
            self._cluster.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def _away(why: str) -> ExecutionError:
    return ExecutionError(f"The aggregator is not there just now ({why}). Ask again with the same key; it is paid for once.")


def _told(error: Exception) -> PateError:
    """Our own errors say nothing private, so they stay. Of another, which could quote a vote, only the kind is told."""
    if isinstance(error, PateError):
        return error
    return ExecutionError(f"The service could not answer ({type(error).__name__}). Ask again with the same key.")
