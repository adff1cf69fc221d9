"""Asking an aggregator service over HTTP. A retry always carries the same key, so nothing is asked or paid for twice."""

from __future__ import annotations

import asyncio
import ipaddress
import os
import secrets
import time
import warnings
from collections.abc import Generator, Sequence
from typing import Any, ClassVar, NamedTuple, TypeVar, cast

import numpy as np
from numpy.typing import ArrayLike

from pate.errors import BudgetExceeded, KeyConflict, ParameterError, PateError, QueryError, QuotaExceeded, ServiceError
from pate.extras import require
from pate.release import ABSTAIN, Electorate, Release
from pate.validation import positive, whole

T = TypeVar("T")

TOKEN_VARIABLE = "PATE_TOKEN"
MOST = 1_000
"""Questions in one request, less where they are large; more are sent in pieces, under the keys key/0, key/1, …"""
_MOST_NUMBERS = 250_000  # in one request: written out they stay below the 8 MB that a service takes
MOST_KEY = 190
"""Characters of a key: the service takes 200, and a piece has its number behind it."""
_LONGEST_WAIT = 30.0  # seconds between two tries, unless the service names its own
_MOST_PATIENCE = 300.0  # seconds that a Retry-After is believed
_PROBLEM = "urn:pate:problem:"
_RETRIED = (0, 429, 503)
_ERRORS: dict[str, type[PateError]] = {
    **dict.fromkeys(("malformed", "too-large"), QueryError),
    "key-conflict": KeyConflict,
    "budget-exhausted": BudgetExceeded,
    "quota-exhausted": QuotaExceeded,
}
_ABOUT_QUESTIONS = ("takes", "classes", "pool", "shape", "n_teachers", "mode")  # the rest is the aggregator's own


class Call(NamedTuple):
    """One request, whatever sends it."""

    method: str
    path: str
    body: dict[str, Any] | None = None


class Reply(NamedTuple):
    """What came back. status 0: nothing did, and ``body`` says why."""

    status: int
    body: Any
    retry_after: str | None = None


Conversation = Generator[Call, Reply, T]
"""Calls out, replies in, a result at the end: written once for both clients, and testable without a network."""


class _Base:
    _kind: ClassVar[str]

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        timeout: float = 60.0,
        retries: int = 8,
        verify: Any = True,
        batch: int = MOST,
    ) -> None:
        """token: else $PATE_TOKEN. timeout: seconds a try. verify: as httpx takes it. batch: questions in one request."""
        httpx = require("httpx", "client")
        try:
            parts = httpx.URL(url)
        except httpx.InvalidURL:
            parts = httpx.URL("")
        if parts.scheme not in ("http", "https") or not parts.host or parts.userinfo or parts.query or parts.fragment:
            raise ParameterError("A service's address must be http(s)://host[:port][/path], without a password or query.")
        if parts.scheme == "http" and not _is_here(parts.host):
            warnings.warn(f"The token and the answers travel to {parts.host} in the clear. Use https.", stacklevel=2)
        token = os.environ.get(TOKEN_VARIABLE, "") if token is None else token
        if not token or not token.isascii() or not token.isprintable() or " " in token:  # and never shown
            raise ParameterError(f"A service wants a token: give one, in printable ASCII, or set ${TOKEN_VARIABLE}.")
        positive(timeout, "timeout")
        whole(retries, "retries", 0)
        whole(batch, "batch", 1)
        self.url = url.rstrip("/")
        self._retries, self._batch = retries, batch
        headers = {"Authorization": f"Bearer {token}", "Accept": "application/json"}
        self._http: Any = getattr(httpx, self._kind)(headers=headers, timeout=timeout, verify=verify)
        self._faults: tuple[type[Exception], ...] = (httpx.RequestError,)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"


class Client(_Base):
    """Asks a service and waits. A context manager.

    >>> with Client("http://127.0.0.1:8000", "secret") as client:
    ...     client
    Client('http://127.0.0.1:8000')
    """

    _kind = "Client"

    def ask(self, queries: ArrayLike, key: str | None = None) -> list[int]:
        """A label or ABSTAIN for each question: int[query], rows of the pool, or float[query, ...], records themselves.

        key: the same key and questions give the same answers for ever, after a crash of either side too. New unless given.
        """
        return self._hold(asking(queries, key, self._batch))

    def release(self, queries: ArrayLike, key: str | None = None) -> Release:
        """As :meth:`ask`, with how the labels were made: what a student learns from."""
        return self._hold(releasing(queries, key, self._batch))

    def budget(self) -> dict[str, Any]:
        """What was spent, and what is left."""
        return self._hold(reading("/v1/budget"))

    def mechanism(self) -> dict[str, Any]:
        """How answers are made, and what a question must be."""
        return self._hold(reading("/v1/mechanism"))

    def close(self) -> None:
        self._http.close()

    def _hold(self, conversation: Conversation[T]) -> T:
        steps, reply = patient(conversation, self._retries), None
        try:
            while True:
                step = steps.send(reply)
                reply = None
                if isinstance(step, float):
                    time.sleep(step)
                    continue
                try:
                    reply = reply_of(self._http.request(step.method, self.url + step.path, json=step.body))
                except self._faults as error:
                    reply = Reply(0, type(error).__name__)
        except StopIteration as done:
            return cast(T, done.value)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncClient(_Base):
    """As :class:`Client`, for asyncio."""

    _kind = "AsyncClient"

    async def ask(self, queries: ArrayLike, key: str | None = None) -> list[int]:
        return await self._hold(asking(queries, key, self._batch))

    async def release(self, queries: ArrayLike, key: str | None = None) -> Release:
        return await self._hold(releasing(queries, key, self._batch))

    async def budget(self) -> dict[str, Any]:
        return await self._hold(reading("/v1/budget"))

    async def mechanism(self) -> dict[str, Any]:
        return await self._hold(reading("/v1/mechanism"))

    async def close(self) -> None:
        await self._http.aclose()

    async def _hold(self, conversation: Conversation[T]) -> T:
        steps, reply = patient(conversation, self._retries), None
        try:
            while True:
                step = steps.send(reply)
                reply = None
                if isinstance(step, float):
                    await asyncio.sleep(step)
                    continue
                try:
                    reply = reply_of(await self._http.request(step.method, self.url + step.path, json=step.body))
                except self._faults as error:
                    reply = Reply(0, type(error).__name__)
        except StopIteration as done:
            return cast(T, done.value)

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


# What is said, without a network ---------------------------------------------------------------------------------------------


def asking(queries: ArrayLike, key: str | None, batch: int) -> Conversation[list[int]]:
    """The questions in pieces of at most ``batch``, one after the other."""
    field, values = body_of(queries)
    if key is None:
        key = secrets.token_hex(16)
    elif not key.isprintable() or not 0 < len(key) <= MOST_KEY:
        raise ParameterError(f"An idempotency key must be 1 to {MOST_KEY} printable characters.")
    batch = min(batch, max(1, _MOST_NUMBERS // int(np.size(values[0]))))
    pieces = [values[start : start + batch] for start in range(0, len(values), batch)]
    labels: list[int] = []
    for number, piece in enumerate(pieces):
        name = key if len(pieces) == 1 else f"{key}/{number}"
        reply = yield Call("POST", "/v1/queries", {"key": name, field: piece})
        labels += labels_of(reply, len(piece))
    return labels


def releasing(queries: ArrayLike, key: str | None, batch: int) -> Conversation[Release]:
    facts = yield from reading("/v1/mechanism")
    labels = yield from asking(queries, key, batch)
    return release_of(labels, facts)


def reading(path: str) -> Conversation[dict[str, Any]]:
    found = body_or_error((yield Call("GET", path)))
    if not isinstance(found, dict):
        raise ServiceError(f"{path}: the service answered, but not as an aggregator does. Check the address.")
    return found


def patient(conversation: Conversation[T], retries: int) -> Generator[Call | float, Reply | None, T]:
    """The same conversation, where a call that found nobody, or a busy service, is sent again after so many seconds."""
    tries = 0
    try:
        call = next(conversation)
        while True:
            reply = yield call
            if reply is not None and reply.status in _RETRIED and tries < retries:
                yield pause(tries, reply.retry_after)
                tries += 1
            else:
                tries = 0
                call = conversation.send(cast(Reply, reply))
    except StopIteration as done:
        return cast(T, done.value)


def pause(tries: int, retry_after: str | None) -> float:
    """Seconds before the next try: twice as long each time, from half of it up at random, and what the service asks for."""
    longest: float = min(_LONGEST_WAIT, 0.1 * 2**tries)
    # Not a seeded generator: clients that were started together must not come back together.
    wait = longest * (0.5 + secrets.randbelow(1001) / 2000)
    asked = (
        float(retry_after) if retry_after and retry_after.isdecimal() else 0.0
    )  # a date, which ours never sends, is passed over
    return max(wait, min(asked, _MOST_PATIENCE))


def _is_here(host: str) -> bool:
    """Whether it is this machine; a name like 127.0.0.1.example.org is not."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def body_of(queries: ArrayLike) -> tuple[str, list[Any]]:
    """The name and the value of the field that asks: whole numbers on one axis are ids, all else is records."""
    try:
        values = np.asarray(queries)
    except ValueError:
        raise QueryError("Questions must be an array: int[query] of ids, or float[query, ...] of records.") from None
    if values.ndim == 0 or values.size == 0:
        raise QueryError("Ask at least one question: int[query] of ids, or float[query, ...] of records.")
    if values.ndim == 1:
        if values.dtype.kind not in "iu":
            raise QueryError(f"ids must be whole numbers, got {values.dtype}. Records have further axes.")
        return "ids", values.tolist()
    if values.dtype.kind not in "iuf" or not np.isfinite(values).all():
        raise QueryError(f"Records must be finite numbers, got {values.dtype}.")
    return "inputs", values.tolist()


def labels_of(reply: Reply, count: int) -> list[int]:
    """Labels, ABSTAIN for null, of a reply to ``count`` questions."""
    body = body_or_error(reply)
    answers = body.get("answers") if isinstance(body, dict) else None
    if not isinstance(answers, list) or len(answers) != count:
        raise ServiceError(f"The service answered otherwise than it was asked: not {count} answers. Check the address.")
    labels: list[Any] = [each.get("label", "") if isinstance(each, dict) else "" for each in answers]
    if not all(label is None or (type(label) is int and label >= 0) for label in labels):
        raise ServiceError("The service answered otherwise than it should: a label is no class. Check the address.")
    return [ABSTAIN if label is None else label for label in labels]


def release_of(labels: Sequence[int], facts: dict[str, Any]) -> Release:
    """The labels with what the service says of its mechanism."""
    mechanism = {name: value for name, value in facts.items() if name not in _ABOUT_QUESTIONS}
    try:
        electorate = Electorate(facts["n_teachers"], facts["classes"])
        return Release(np.array(labels, dtype=np.int64), electorate, mechanism, facts["mode"])
    except (KeyError, TypeError, ParameterError) as error:
        raise ServiceError(f"The service says of itself what cannot be ({error}). Ask its owner.") from None


def reply_of(response: Any) -> Reply:
    """What httpx brought."""
    try:
        body = response.json()
    except ValueError:
        body = None
    return Reply(response.status_code, body, response.headers.get("retry-after"))


def body_or_error(reply: Reply) -> Any:
    """The body of a good reply; else the error that it stands for."""
    if reply.status == 200:
        return reply.body
    if reply.status == 0:
        raise ServiceError(f"The service cannot be reached ({reply.body}). Check its address; the same key is safe again.")
    facts = reply.body if isinstance(reply.body, dict) else {}
    code = str(facts.get("type", "")).removeprefix(_PROBLEM)
    title, detail = (str(facts.get(each) or "").strip().rstrip(".") for each in ("title", "detail"))
    said = " ".join(f"{'. '.join(each for each in (title, detail) if each) or f'Status {reply.status}'}.".split())[:500]
    raise _ERRORS.get(code, ServiceError)(said if code in _ERRORS else f"The service refused ({reply.status}): {said}")
