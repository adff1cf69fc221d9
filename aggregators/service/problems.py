"""What a client hears when it gets no answer: RFC 9457 problem details, one fixed text for each code.

No text depends on a vote, an input, a path or an exception, so a refusal tells nothing but its code.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pate.errors import BudgetExceeded, KeyConflict, QueryError, QuotaExceeded
from pate.extras import require

require("fastapi", "serve")

from starlette.responses import Response  # noqa: E402

MEDIA_TYPE = "application/problem+json"
_RETRY_SECONDS = 5


@dataclass(frozen=True)
class Kind:
    status: int
    title: str
    detail: str


KINDS: dict[str, Kind] = {
    "unauthenticated": Kind(401, "No valid token", "Send the header Authorization: Bearer TOKEN with a token of this service."),
    "forbidden": Kind(403, "Not for this token", "This is for the owner of the data. Ask with an owner's token."),
    "malformed": Kind(422, "The request cannot be read", "GET /v1/mechanism and /openapi.json say what a request must be."),
    "too-large": Kind(413, "The request is too large", "Send fewer questions at once, each request with a key of its own."),
    "key-conflict": Kind(
        409, "The key is taken", "This key belongs to another request of yours. Use a new key for a new request."
    ),
    "budget-exhausted": Kind(
        403, "The budget does not cover this", "GET /v1/budget says how much is left. Answers given before are free."
    ),
    "quota-exhausted": Kind(
        403, "Your quota does not cover this", "Ask the owner for more, or for less at once. Answers given before are free."
    ),
    "rate-limited": Kind(429, "Too many requests", "Wait as long as Retry-After says, then send the same request again."),
    "unavailable": Kind(
        503, "No answer just now", "Send the same request with the same key again: it is paid for at most once."
    ),
    "not-found": Kind(404, "Nothing here", "/openapi.json lists what there is."),
    "method-not-allowed": Kind(405, "Not with this method", "/openapi.json lists what there is."),
    "unsound": Kind(
        500, "The ledger is unsound", "Stop the service, run `pate ledger verify`, and restore the ledger from a backup."
    ),
}


class Problem(Exception):
    """Raised anywhere behind HTTP; told to the client as it is. ``detail``, where given, must be a fixed text."""

    def __init__(self, code: str, detail: str | None = None, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(code)
        self.code = code
        self.kind = KINDS[code]
        self.detail = self.kind.detail if detail is None else detail
        self.headers = dict(headers or {})

    @property
    def body(self) -> dict[str, Any]:
        kind = self.kind
        return {"type": f"urn:pate:problem:{self.code}", "title": kind.title, "status": kind.status, "detail": self.detail}

    def response(self) -> Response:
        headers = dict(self.headers)
        if self.code == "unauthenticated":
            headers["WWW-Authenticate"] = 'Bearer realm="pate"'
        if self.code == "unavailable":
            headers.setdefault("Retry-After", str(_RETRY_SECONDS))
        return Response(json.dumps(self.body), self.kind.status, headers, MEDIA_TYPE)


def rate_limited(seconds: float) -> Problem:
    return Problem("rate-limited", headers={"Retry-After": str(max(1, math.ceil(seconds)))})


def problem_of(error: Exception) -> Problem:
    """The problem that stands for an error of the service. What it does not know is "unavailable": retrying is safe."""
    if isinstance(error, Problem):
        return error
    codes: tuple[tuple[type[Exception], str], ...] = (
        (QuotaExceeded, "quota-exhausted"),
        (BudgetExceeded, "budget-exhausted"),
        (KeyConflict, "key-conflict"),
        (QueryError, "malformed"),
    )
    return Problem(next((code for kind, code in codes if isinstance(error, kind)), "unavailable"))
