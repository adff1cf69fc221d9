"""What /openapi.json says: the shapes of requests and responses. The code that keeps to them is in ``app`` and ``bodies``."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from pate.aggregators.service.desk import MOST_KEY
from pate.aggregators.service.problems import KINDS, MEDIA_TYPE


class Label(BaseModel):
    label: int | None = Field(description="The noisy winner; null where the mechanism abstained.", ge=0)


class Answers(BaseModel):
    answers: list[Label] = Field(description="In the order of the questions.")


class Status(BaseModel):
    status: str


class Budget(BaseModel):
    """Figures that do not depend on votes other than through what was answered."""

    epsilon: float
    delta: float
    spent: float
    remaining_fraction: float
    queries_left: int
    answered: int
    abstained: int
    unit: str
    neighbours: str


class Mechanism(BaseModel):
    """The aggregator with its parameters, and what a question must be."""

    model_config = ConfigDict(extra="allow")

    takes: str = Field(description='"ids", with "pool", how many there are; or "inputs", with "shape", of one record.')
    classes: int
    n_teachers: int
    mode: str


class Summary(Budget):
    model_config = ConfigDict(extra="allow")

    refused_since_start: int
    clients: list[dict[str, Any]]
    rows: int
    recent: list[dict[str, Any]]


class Verified(BaseModel):
    rows: int
    head: str
    open_reservations: int
    answers: int


class Problem(BaseModel):
    """RFC 9457."""

    type: str
    title: str
    status: int
    detail: str


def question(most_questions: int) -> dict[str, Any]:
    """The request body of POST /v1/queries."""
    key = {
        "type": "string",
        "minLength": 1,
        "maxLength": MOST_KEY,
        "description": "Yours alone and new for every new request. The same key with the same questions is answered once.",
    }
    counts = {"minItems": 1, "maxItems": most_questions}
    ids = {"type": "array", "items": {"type": "integer", "minimum": 0}, **counts}
    inputs = {"type": "array", "items": {"description": "A number, or lists of them to the depth of one record."}, **counts}
    schemas = [
        {"type": "object", "properties": {"key": key, name: value}, "required": ["key", name], "additionalProperties": False}
        for name, value in (("ids", ids), ("inputs", inputs))
    ]
    content = {"application/json": {"schema": {"oneOf": schemas, "description": 'GET /v1/mechanism "takes" says which.'}}}
    return {"requestBody": {"required": True, "content": content}}


def problems(*codes: str) -> dict[int | str, dict[str, Any]]:
    """The documented responses for these codes."""
    found: dict[int | str, dict[str, Any]] = {}
    for code in codes:
        kind = KINDS[code]
        known = found.setdefault(
            kind.status, {"description": "", "content": {MEDIA_TYPE: {"schema": Problem.model_json_schema()}}}
        )
        known["description"] += f"{'; ' if known['description'] else ''}{code}: {kind.title}"
        header = {401: "WWW-Authenticate", 429: "Retry-After", 503: "Retry-After"}.get(kind.status)
        if header:
            known["headers"] = {header: {"schema": {"type": "string"}, "required": True}}
    return found
