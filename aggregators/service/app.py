"""The service over HTTP: who asks, how often, how much; then the question goes to the service behind."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Annotated, TypeVar

from pate.aggregators.service import contract
from pate.aggregators.service.bodies import Room, read_question
from pate.aggregators.service.front import Front
from pate.aggregators.service.limits import RateLimiter
from pate.aggregators.service.metrics import MEDIA_TYPE as METRICS_TYPE
from pate.aggregators.service.metrics import Metrics
from pate.aggregators.service.problems import Problem, problem_of, rate_limited
from pate.aggregators.service.token_file import Known
from pate.aggregators.service.tokens import Client
from pate.errors import LedgerError, ParameterError
from pate.extras import require
from pate.release import ABSTAIN

require("fastapi", "serve")

from fastapi import Depends, FastAPI, Request, Response  # noqa: E402
from fastapi.exceptions import RequestValidationError  # noqa: E402
from fastapi.responses import HTMLResponse, JSONResponse  # noqa: E402
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer  # noqa: E402
from starlette.exceptions import HTTPException  # noqa: E402

from pate.aggregators.service.guard import QUERIES, Guard, state_of  # noqa: E402

_T = TypeVar("_T")
_BEARER = HTTPBearer(auto_error=False, description="A token of `pate token add`.")
_AUTH = ("unauthenticated", "rate-limited", "unavailable")


@dataclass(frozen=True)
class HttpSettings:
    """The limits of the HTTP layer.

    max_bytes: of a body. max_batch: questions of a request. rate: requests per second of a client whose entry among the tokens
    states none; None for no limit. pad_seconds: see :class:`~pate.aggregators.service.guard.Guard`. open_metrics: /metrics
    without a token. max_waiting: requests with questions that are in hand at once; max_in_hand: bytes of their bodies, where
    they are large. body_seconds: in which a body must have come.
    """

    max_bytes: int = 8 << 20
    max_batch: int = 1_000
    rate: float | None = None
    pad_seconds: float = 0.0
    open_metrics: bool = False
    max_waiting: int = 1_000
    body_seconds: float = 30.0
    max_in_hand: int = 64 << 20

    def __post_init__(self) -> None:
        for name in ("max_bytes", "max_batch", "max_waiting", "max_in_hand"):
            if getattr(self, name) < 1:
                raise ParameterError(f"{name} must be at least 1, got {getattr(self, name)}.")
        if not 0 <= self.pad_seconds <= 60:
            raise ParameterError(f"pad_seconds must lie between 0 and 60, got {self.pad_seconds}.")
        if self.rate is not None and not self.rate > 0:
            raise ParameterError(f"rate must be above 0 requests per second, got {self.rate}.")


def create_app(front: Front, tokens: Known, settings: HttpSettings | None = None) -> FastAPI:
    """The web application before ``front``. It keeps no state of its own but rates and counts: restart it as you like."""
    settings = settings or HttpSettings()
    metrics = Metrics()
    # docs_url, redoc_url: their pages would load scripts from elsewhere.
    app = FastAPI(
        title="PATE aggregator",
        version="1",
        description="Noisy labels for public questions, paid for from one privacy budget.",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.add_middleware(Guard, metrics=metrics, pad_seconds=settings.pad_seconds)
    app.add_exception_handler(Problem, _tell)
    app.add_exception_handler(HTTPException, _tell_http)
    app.add_exception_handler(RequestValidationError, _tell)
    gate = _Gate(tokens, settings)
    _add_asking(app, front, gate, settings)
    _add_health(app, front, gate, metrics)
    _add_owner(app, front, gate)
    return app


class _Gate:
    """Authentication, then the rate. A missing, malformed or unknown token is one and the same to the client."""

    def __init__(self, tokens: Known, settings: HttpSettings) -> None:
        self._tokens = tokens
        self._settings = settings
        self._limiter = RateLimiter()
        self.waiting = 0
        self.room = Room(max(settings.max_in_hand, settings.max_bytes))
        self.takes: str | None = None

    async def anybody(
        self, request: Request, given: Annotated[HTTPAuthorizationCredentials | None, Depends(_BEARER)]
    ) -> Client:
        state = state_of(request.scope)
        client = None if given is None else self._tokens.find(given.credentials)
        if client is None:
            raise Problem("unauthenticated")
        state.client = client.client
        wait = self._limiter.wait(client.client, self._settings.rate if client.rate is None else client.rate)
        if wait > 0:
            raise rate_limited(wait)
        return client

    async def owner(self, request: Request, given: Annotated[HTTPAuthorizationCredentials | None, Depends(_BEARER)]) -> Client:
        client = await self.anybody(request, given)
        if client.role != "owner":
            raise Problem("forbidden")
        return client

    async def scraper(self, request: Request, given: Annotated[HTTPAuthorizationCredentials | None, Depends(_BEARER)]) -> None:
        if not self._settings.open_metrics:
            await self.owner(request, given)


def _add_asking(app: FastAPI, front: Front, gate: _Gate, settings: HttpSettings) -> None:
    async def labels(request: Request) -> list[int]:
        if gate.waiting >= settings.max_waiting:
            raise Problem("unavailable")
        gate.waiting += 1
        try:
            if gate.takes is None:
                gate.takes = str((await front.mechanism())["takes"])
            with gate.room.place() as place:
                asked = await read_question(
                    request, gate.takes, settings.max_bytes, settings.max_batch, settings.body_seconds, place
                )
                return await front.ask(state_of(request.scope).client or "", asked.key, asked.queries)
        finally:
            gate.waiting -= 1

    @app.post(
        QUERIES,
        summary="Ask questions",
        dependencies=[Depends(gate.anybody)],
        openapi_extra=contract.question(settings.max_batch),
        response_model=contract.Answers,
        responses=contract.problems(*_AUTH, "malformed", "too-large", "key-conflict", "budget-exhausted", "quota-exhausted"),
    )
    async def queries(request: Request) -> Response:
        """Labels in the order of the questions, null for an abstention. Repeats are free, and the same key is safe to retry."""
        return Response(answers_json(await _told(labels(request))), media_type="application/json")

    @app.get(
        "/v1/budget",
        summary="What is left",
        dependencies=[Depends(gate.anybody)],
        response_model=contract.Budget,
        responses=contract.problems(*_AUTH),
    )
    async def budget() -> Response:
        """The budget that all clients share."""
        return JSONResponse(await _told(front.budget()))

    @app.get(
        "/v1/mechanism",
        summary="What is asked, and how",
        dependencies=[Depends(gate.anybody)],
        response_model=contract.Mechanism,
        responses=contract.problems(*_AUTH),
    )
    async def mechanism() -> Response:
        """The aggregator, its noise, and what a question must be."""
        return JSONResponse(await _told(front.mechanism()))


def _add_health(app: FastAPI, front: Front, gate: _Gate, metrics: Metrics) -> None:
    @app.get("/healthz", summary="The process is alive", response_model=contract.Status)
    async def healthz() -> Response:
        return JSONResponse({"status": "ok"})

    @app.get(
        "/readyz",
        summary="A question would be answered",
        response_model=contract.Status,
        responses=contract.problems("unavailable"),
    )
    async def readyz() -> Response:
        if not await _told(front.ready()):
            raise Problem("unavailable")
        return JSONResponse({"status": "ready"})

    @app.get(
        "/metrics",
        summary="For Prometheus",
        response_class=Response,
        dependencies=[Depends(gate.scraper)],
        responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}, **contract.problems(*_AUTH, "forbidden")},
    )
    async def scrape() -> Response:
        """Counts of requests, the latency of questions, and what is left of the budget. No client is named."""
        try:
            budget = await front.budget()
            ready = await front.ready()
        except Exception:  # whoever watches must still see that it is not ready
            budget, ready = None, False
        return Response(metrics.text(budget, ready, gate.waiting), media_type=METRICS_TYPE)


def _add_owner(app: FastAPI, front: Front, gate: _Gate) -> None:
    page, policy = owner_page()

    @app.get(
        "/v1/owner/summary",
        summary="For the owner's page",
        dependencies=[Depends(gate.owner)],
        response_model=contract.Summary,
        responses=contract.problems(*_AUTH, "forbidden"),
    )
    async def summary() -> Response:
        """Who asked how much, and the last rows of the ledger. Nothing of it depends on votes."""
        return JSONResponse(await _told(front.owner()))

    @app.post(
        "/v1/owner/verify",
        summary="Check the ledger",
        dependencies=[Depends(gate.owner)],
        response_model=contract.Verified,
        responses=contract.problems(*_AUTH, "forbidden", "unsound"),
    )
    async def verify() -> Response:
        """Read the ledger anew from its first row, and check every stored answer against it."""
        try:
            return JSONResponse(await front.verify())
        except LedgerError:
            raise Problem("unsound") from None

    @app.get("/owner", include_in_schema=False)
    async def owner() -> Response:
        return HTMLResponse(page, headers={"Content-Security-Policy": policy})


def owner_page() -> tuple[str, str]:
    """The page, which holds no data, and the policy that lets its own script and style run, known by their hashes."""
    text = resources.files("pate.aggregators.service").joinpath("owner.html").read_text(encoding="utf-8")
    hashes = {}
    for tag in ("script", "style"):
        (content,) = re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
        hashes[tag] = "'sha256-" + base64.b64encode(hashlib.sha256(content.encode()).digest()).decode() + "'"
    policy = (
        f"default-src 'none'; script-src {hashes['script']}; style-src {hashes['style']}; connect-src 'self'; img-src data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return text, policy


def answers_json(labels: Sequence[int]) -> bytes:
    """As :class:`contract.Answers` says. Put together here: batches are long, and a general encoder takes ten times as long.

    >>> answers_json([3, ABSTAIN])
    b'{"answers":[{"label":3},{"label":null}]}'
    """
    told = ",".join(f'{{"label":{"null" if label == ABSTAIN else label}}}' for label in labels)
    return f'{{"answers":[{told}]}}'.encode()


async def _told(work: Awaitable[_T]) -> _T:
    """The result, or the problem that stands for what was raised; the error's own words go nowhere."""
    try:
        return await work
    except Exception as error:
        raise problem_of(error) from error


async def _tell(request: Request, error: Exception) -> Response:
    """Also FastAPI's own errors of validation, which would quote the input."""
    problem = Problem("malformed") if isinstance(error, RequestValidationError) else problem_of(error)
    state = state_of(request.scope)
    state.code = problem.code
    if problem.code == "unavailable" and error.__cause__ is not None:
        state.error = type(error.__cause__).__name__
    return problem.response()


async def _tell_http(request: Request, error: Exception) -> Response:
    """Errors of the router."""
    status, headers = (error.status_code, error.headers or {}) if isinstance(error, HTTPException) else (503, {})
    code = {404: "not-found", 405: "method-not-allowed"}.get(status, "malformed" if status < 500 else "unavailable")
    allow = {name: value for name, value in headers.items() if name == "Allow"}
    return await _tell(request, Problem(code, headers=allow))
