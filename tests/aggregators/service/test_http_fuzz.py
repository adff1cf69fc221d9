"""Thousands of generated requests, right and wrong: never a 5xx, always as the OpenAPI document says, and nothing is spent.

The budget of the service is used up but for answers given before, which are free to ask again. So no request may add a row to
the ledger, change what is spent, or store an answer, whatever it is: that is checked after all of them.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
import schemathesis
from http_cases import ANN, BOB, OWNER, POOL, TOKENS, bearer, open_service
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
)

from pate.aggregators.service.app import HttpSettings, create_app
from pate.aggregators.service.desk import Service
from pate.aggregators.service.front import LocalFront
from pate.errors import BudgetExceeded
from pate.ledger import Budget

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    unsupported_method,
]
# 600 of schemathesis, 800 bodies of our own and 200 other requests; the slow ones are 10,200 of schemathesis and 17,000 others.
SIZES = [pytest.param(1, id="short"), pytest.param(17, id="long", marks=pytest.mark.slow)]


@dataclass
class Target:
    """The application in this process, its service, and what came back from it."""

    app: Any
    service: Service
    statuses: Counter[int] = field(default_factory=Counter)

    def state(self) -> tuple[Any, ...]:
        ledger, book = self.service.ledger, self.service.book
        rows = [row.hash for row in ledger.rows()]
        return rows, ledger.spent(), ledger.remaining(), dict(book.answers), dict(book.paid)


@pytest.fixture
def target(tmp_path: Path) -> Iterator[Target]:
    with open_service(tmp_path, budget=Budget(0.6, 1e-5)) as service:
        for record in range(POOL):
            try:
                service.ask("ann", f"first {record}", [record])
            except BudgetExceeded:
                break
        assert 0 < len(service.book.answers) < POOL // 2
        yield Target(create_app(LocalFront(service), TOKENS, HttpSettings(max_bytes=1 << 16, max_batch=100)), service)


def many(examples: int) -> Any:
    return settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck), database=None)


@pytest.mark.parametrize("times", SIZES)
def test_requests_from_the_openapi_document(target: Target, times: int) -> None:
    """For questions, what the document allows and what it does not; for the rest, where nothing can vary, each token."""
    before = target.state()
    schema = schemathesis.openapi.from_asgi("/openapi.json", target.app)
    operations = [found.ok() for found in schema.get_all_operations()]
    assert len(operations) == 8
    for operation in operations:
        asks = operation.path == "/v1/queries"
        for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)[: 1 + asks]:

            @given(
                case=operation.as_strategy(generation_mode=mode),
                token=st.sampled_from([ANN, ANN, OWNER, BOB, "pate_unknown", None]),
            )
            @many(300 * times if asks else 10)
            def send(case: Any, token: str | None) -> None:
                case.headers.pop("Authorization", None)
                answer = case.call(headers=bearer(token))
                target.statuses[answer.status_code] += 1
                case.validate_response(answer, checks=CHECKS)

            send()
    assert {200, 401, 403, 422} <= target.statuses.keys()
    assert max(target.statuses) < 500
    assert target.state() == before
    assert sum(target.statuses.values()) >= 600 * times


_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=20)
    | st.sampled_from([10**400, -(2**63), 1e308]),
    lambda inner: (
        st.lists(inner, max_size=5) | st.dictionaries(st.sampled_from(["key", "ids", "inputs", "x"]), inner, max_size=4)
    ),
    max_leaves=15,
)
_IDS = st.lists(st.integers(-2, POOL + 2) | st.sampled_from([2**31, 2**63, 2**64, -1]), max_size=120)
_GOOD = st.fixed_dictionaries(
    {"key": st.sampled_from("abcdef"), "ids": st.lists(st.integers(0, POOL - 1), min_size=1, max_size=3)}
)
_KNOWN = st.fixed_dictionaries({"key": st.sampled_from("uvwxyz"), "ids": st.lists(st.integers(0, 3), min_size=1, max_size=2)})
_NEARLY = st.fixed_dictionaries(
    {"key": st.text(max_size=210) | _JSON, "ids": _IDS | _JSON}, optional={"inputs": _JSON, "x": _JSON}
)


@st.composite
def _bodies(draw: st.DrawFn) -> bytes:
    """JSON of any shape, a question that is nearly right, and either of them with a few bytes changed; or bytes."""
    if draw(st.integers(0, 9)) == 0:
        return draw(st.binary(max_size=300))
    body = bytearray(json.dumps(draw(st.one_of(_GOOD, _KNOWN, _NEARLY, _NEARLY, _JSON))).encode())
    for _ in range(draw(st.sampled_from([0, 0, 1, 3]))):
        at = draw(st.integers(0, len(body)))
        body[at : at + draw(st.integers(0, 2))] = draw(
            st.sampled_from([b"", b"[", b"}", b"NaN", b"\xff", b'"key":1,', b"9" * 400])
        )
    return bytes(body)


@pytest.mark.parametrize("times", SIZES)
def test_bodies_of_any_bytes(target: Target, times: int) -> None:
    before = target.state()

    async def post(http: httpx.AsyncClient, body: bytes, headers: dict[str, str]) -> httpx.Response:
        return await http.post("/v1/queries", content=body, headers=headers)

    with asyncio.Runner() as runner:
        http = httpx.AsyncClient(transport=httpx.ASGITransport(target.app), base_url="http://service")

        @given(
            body=_bodies(),
            kind=st.sampled_from(["application/json"] * 6 + ["text/plain", "application/json;charset=x"]),
            token=st.sampled_from([ANN, ANN, ANN, ANN, OWNER, BOB, "x"]),
        )
        @many(800 * times)
        def send(body: bytes, kind: str, token: str) -> None:
            answer = runner.run(post(http, body, {"Content-Type": kind, **bearer(token)}))
            target.statuses[answer.status_code] += 1
            assert answer.status_code in (200, 401, 403, 409, 413, 422), answer.text
            if answer.status_code == 200:
                assert answer.json().keys() == {"answers"}
            else:
                assert answer.headers["content-type"] == "application/problem+json"
                assert answer.json().keys() == {"type", "title", "status", "detail"}

        send()
        runner.run(http.aclose())
    assert {200, 401, 403, 409, 422} <= target.statuses.keys()
    assert target.state() == before
    assert sum(target.statuses.values()) >= 800 * times


_METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "TRACE", "PROPFIND")
_PATHS = (
    "/v1/queries",
    "/v1/budget",
    "/v1/mechanism",
    "/v1/owner/summary",
    "/metrics",
    "/owner",
    "/healthz",
    "/readyz",
    "/openapi.json",
)
_ODD = st.text("/.%2e~v1queriesowner?&=#\\ é\x00", max_size=30).map(lambda text: "/x" + quote(text, safe="/?&=.~%"))


@pytest.mark.parametrize("times", SIZES)
def test_other_methods_paths_and_headers(target: Target, times: int) -> None:
    before = target.state()
    # In ASCII, as a server hands them on.
    words = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=60)

    async def send_one(http: httpx.AsyncClient, method: str, path: str, headers: dict[str, str]) -> httpx.Response:
        return await http.request(
            method, httpx.URL("http://service", raw_path=path.encode("ascii", "replace")), headers=headers
        )

    with asyncio.Runner() as runner:
        http = httpx.AsyncClient(transport=httpx.ASGITransport(target.app))

        @given(
            method=st.sampled_from(_METHODS),
            path=st.sampled_from(_PATHS) | _ODD,
            headers=st.dictionaries(
                st.sampled_from(
                    ["Authorization", "Content-Type", "Content-Length", "Accept", "Range", "X-Request-Id", "Origin"]
                ),
                words,
            ),
            token=st.sampled_from([None, ANN, OWNER]),
        )
        @many(200 * times)
        def send(method: str, path: str, headers: dict[str, str], token: str | None) -> None:
            answer = runner.run(send_one(http, method, path, {**headers, **bearer(token)}))
            target.statuses[answer.status_code] += 1
            assert answer.status_code in (200, 401, 403, 404, 405, 413, 422), answer.text
            assert answer.headers["x-request-id"] != headers.get("X-Request-Id")

        send()
        runner.run(http.aclose())
    assert target.state() == before
