"""A request's body: bounded while it comes in, strict JSON, and one of the two questions there are."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pate.aggregators.service.desk import MOST_KEY
from pate.aggregators.service.problems import Problem
from pate.extras import require

require("fastapi", "serve")

from starlette.requests import ClientDisconnect, Request  # noqa: E402

_BIG = 1 << 16  # bytes; parsing more would hold up everyone else's requests
_DEEPEST = 8  # axes of one record, and the list of records


@dataclass(frozen=True)
class Question:
    key: str
    queries: list[Any]


class Room:
    """For large bodies, of all clients together: until they are answered, numbers take far more memory than their text."""

    def __init__(self, most_bytes: int) -> None:
        self._left = most_bytes

    @contextmanager
    def place(self) -> Iterator[Place]:
        place = Place(self)
        try:
            yield place
        finally:
            self._left += place.taken

    def take(self, more: int) -> None:
        if more > self._left:
            raise Problem("unavailable")
        self._left -= more


class Place:
    """The room that one body has. What is small needs none, so that it is never in the way of what is large, nor kept out."""

    def __init__(self, room: Room) -> None:
        self._room = room
        self.taken = 0

    def hold(self, size: int) -> None:
        """Have room for so many bytes, or raise the problem that is told."""
        more = size - _BIG - self.taken
        if more > 0:
            self._room.take(more)
            self.taken += more


async def read_question(
    request: Request, takes: str, most_bytes: int, most_questions: int, seconds: float, place: Place
) -> Question:
    """The question in a request, or the problem with it. takes: "ids" or "inputs"."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise Problem("malformed", "The Content-Type must be application/json.")
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise Problem("malformed", "The body must not be compressed.")
    body = await _read(request, most_bytes, seconds, place)
    if len(body) > _BIG:
        return await asyncio.to_thread(_parse, body, takes, most_questions)
    return _parse(body, takes, most_questions)


async def _read(request: Request, most_bytes: int, seconds: float, place: Place) -> bytes:
    """Bytes are counted as they come: a body in chunks states no length, and one that does may be wrong."""
    too_large = Problem("too-large", f"A body may have at most {most_bytes} bytes.")
    stated = request.headers.get("content-length", "")
    if stated.isdecimal() and int(stated[:20]) > most_bytes:
        raise too_large
    body = bytearray()
    try:
        async with asyncio.timeout(seconds):
            async for chunk in request.stream():
                body += chunk
                if len(body) > most_bytes:
                    raise too_large
                place.hold(len(body))
    except TimeoutError:
        raise Problem("malformed", f"The body must arrive within {seconds:g} seconds.") from None
    except ClientDisconnect:
        raise Problem("malformed") from None  # nobody hears it
    return bytes(body)


def _parse(body: bytes, takes: str, most_questions: int) -> Question:
    found = _strict_json(body)
    if not isinstance(found, dict) or set(found) != {"key", takes}:
        raise Problem("malformed", f'The body must be a JSON object with the fields "key" and "{takes}", and no others.')
    key, queries = found["key"], found[takes]
    if not isinstance(key, str) or not 0 < len(key) <= MOST_KEY or not key.isprintable():
        raise Problem("malformed", f'"key" must be text of 1 to {MOST_KEY} printable characters.')
    if not isinstance(queries, list) or not queries:
        raise Problem("malformed", f'"{takes}" must be a list of at least one question.')
    if len(queries) > most_questions:
        raise Problem("too-large", f"A request may ask at most {most_questions} questions.")
    if takes == "ids" and not all(type(each) is int for each in queries):
        raise Problem("malformed", '"ids" must be whole numbers.')
    if takes == "inputs" and not _numbers(queries, _DEEPEST):
        raise Problem("malformed", '"inputs" must be numbers in nested lists.')
    return Question(key, queries)


def _strict_json(body: bytes) -> Any:
    try:
        return json.loads(body.decode(), parse_constant=_refuse, object_pairs_hook=_each_once)
    except (ValueError, RecursionError):  # also bytes that are no text, and numbers with thousands of digits
        raise Problem("malformed", "The body must be JSON in UTF-8: no NaN, no name twice, no deep nesting.") from None


def _refuse(constant: str) -> None:
    raise ValueError(constant)


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name stands there twice")
    return found


def _numbers(value: Any, depth: int) -> bool:
    """Text and truth values are refused here: NumPy would take "1" and true for numbers."""
    if isinstance(value, list):
        return depth > 0 and all(_numbers(each, depth - 1) for each in value)
    return type(value) in (int, float)
