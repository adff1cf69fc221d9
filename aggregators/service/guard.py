"""Around every request: its id, security headers, padding, one line of log, and an end to whatever was raised."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import logging
import math
import secrets
import time
from dataclasses import dataclass

from pate.aggregators.service.logs import log
from pate.aggregators.service.metrics import Metrics
from pate.aggregators.service.problems import problem_of
from pate.extras import require

require("fastapi", "serve")

from starlette.datastructures import MutableHeaders  # noqa: E402
from starlette.types import ASGIApp, Message, Receive, Scope, Send  # noqa: E402

QUERIES = "/v1/queries"
_PROBES = ("/healthz", "/readyz", "/metrics")  # asked every few seconds
_STATE = "pate.request"
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


@dataclass
class RequestState:
    """What is known of a request by its end, for the log and the metrics."""

    id: str
    arrived: float
    status: int = 0
    code: str | None = None
    client: str | None = None
    error: str | None = None


def state_of(scope: Scope) -> RequestState:
    state: RequestState = scope[_STATE]
    return state


class Guard:
    """ASGI middleware, the outermost of the application's own.

    pad_seconds: a response to a question leaves at a whole multiple of this after the question arrived, whatever its
    outcome; 0: as soon as it is there.
    """

    def __init__(self, app: ASGIApp, metrics: Metrics, pad_seconds: float = 0.0) -> None:
        self._app = app
        self._metrics = metrics
        self._pad = pad_seconds
        self._secret = secrets.token_bytes(16)
        self._count = itertools.count()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        state = scope[_STATE] = RequestState(self._new_id(), time.monotonic())
        is_query = scope["path"] == QUERIES and scope["method"] == "POST"

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
                headers["X-Request-Id"] = state.id
                state.status = message["status"]
                if is_query and self._pad > 0:
                    await self._wait(state.arrived)
            await send(message)

        try:
            await self._app(scope, receive, send_guarded)
        except Exception as error:
            # Its message may quote a vote or a path, so it is told to nobody, the log included.
            problem = problem_of(error)
            state.error, state.code = type(error).__name__, problem.code
            if not state.status:
                await problem.response()(scope, receive, send_guarded)
        finally:
            self._note(scope, state, is_query)

    def _new_id(self) -> str:
        """A number that does not tell how many there were. Asking the system for random bytes would give up the interpreter."""
        return hashlib.blake2b(next(self._count).to_bytes(8, "little"), key=self._secret, digest_size=8).hexdigest()

    async def _wait(self, arrived: float) -> None:
        passed = time.monotonic() - arrived
        due = arrived + max(1, math.ceil(passed / self._pad)) * self._pad
        while (left := due - time.monotonic()) > 0:  # an event loop may wake a little early
            await asyncio.sleep(left)

    def _note(self, scope: Scope, state: RequestState, is_query: bool) -> None:
        seconds = time.monotonic() - state.arrived
        self._metrics.request(state.status, state.code, seconds if is_query else None)
        # The path as it is written in the code: what a client put there is not told.
        route = getattr(scope.get("route"), "path", None)
        facts = {"id": state.id, "method": scope["method"] if route else None, "route": route}
        facts |= {"status": state.status, "code": state.code, "client": state.client, "error": state.error}
        level = logging.WARNING if state.status >= 500 else logging.DEBUG if route in _PROBES else logging.INFO
        log("request", level, milliseconds=round(1000 * seconds, 1), **{k: v for k, v in facts.items() if v is not None})
