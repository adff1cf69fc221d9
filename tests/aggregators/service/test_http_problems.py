"""Every problem that a client can hear of, from a real server on a loopback port."""

from __future__ import annotations

import json
import socket
import sqlite3
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from browser import wait_for
from http_cases import (
    ANN,
    BOB,
    OWNER,
    POOL,
    SLOW,
    Web,
    bearer,
    check_problem,
    clear_votes,
    ids_of,
    rows_of,
    web_service,
)

from pate.aggregators.service import server
from pate.aggregators.service.app import HttpSettings
from pate.aggregators.service.sources import Pool
from pate.aggregators.service.tokens import token_hash
from pate.errors import LedgerError
from pate.ledger import Budget


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    with web_service(tmp_path_factory.mktemp("web"), HttpSettings(max_bytes=20_000, max_batch=50)) as found:
        yield found


WRONG_TOKENS = {
    "none": None,
    "empty": "",
    "no token": "Bearer",
    "basic": "Basic YTpi",
    "one letter more": f"Bearer {ANN}x",
    "one letter less": f"Bearer {ANN[:-1]}",
    "no scheme": ANN,
    "no ASCII": "Bearer pate_é",
    "another scheme": f"Token {ANN}",
    "its hash": f"Bearer {token_hash(ANN)}",
}


@pytest.mark.parametrize("header", WRONG_TOKENS.values(), ids=WRONG_TOKENS.keys())
def test_every_wrong_token_is_the_same(web: Web, header: str | None) -> None:
    headers = {} if header is None else {"Authorization": header.encode("latin-1")}
    found = [
        web.http.post("/v1/queries", json={"key": "a", "ids": [1]}, headers=headers),  # type: ignore[arg-type]
        *(web.http.get(path, headers=headers) for path in ("/v1/budget", "/v1/mechanism", "/metrics")),  # type: ignore[arg-type]
        web.http.post("/v1/owner/verify", headers=headers),  # type: ignore[arg-type]
    ]
    bodies = [check_problem(answer, "unauthenticated", 401) for answer in found]
    assert all(body == bodies[0] for body in bodies)
    assert all(answer.headers["www-authenticate"].startswith("Bearer") for answer in found)


@pytest.mark.parametrize("path", ["/v1/owner/summary", "/metrics"])
def test_what_is_the_owners_is_refused_to_an_analyst(web: Web, path: str) -> None:
    check_problem(web.get(path, ANN), "forbidden", 403)
    assert web.get(path, OWNER).status_code == 200


def test_an_analyst_may_not_verify(web: Web) -> None:
    check_problem(web.http.post("/v1/owner/verify", headers=bearer(ANN)), "forbidden", 403)


MALFORMED: dict[str, Any] = {
    "nothing": "",
    "no JSON": "{",
    "two documents": '{"key": "a", "ids": [1]} {}',
    "no object": "[1]",
    "null": "null",
    "no key": {"ids": [1]},
    "no ids": {"key": "a"},
    "both": {"key": "a", "ids": [1], "inputs": [[1]]},
    "inputs to a pool": {"key": "a", "inputs": [[1]]},
    "unknown field": {"key": "a", "ids": [1], "sigma": 1},
    "empty key": {"key": "", "ids": [1]},
    "long key": {"key": "k" * 201, "ids": [1]},
    "key of a number": {"key": 1, "ids": [1]},
    "key with a line break": {"key": "a\nb", "ids": [1]},
    "half a surrogate": r'{"key": "\ud800", "ids": [1]}',
    "nothing asked": {"key": "a", "ids": []},
    "ids of text": {"key": "a", "ids": ["1"]},
    "one id": {"key": "a", "ids": 1},
    "a fraction": {"key": "a", "ids": [1.0]},
    "a truth value": {"key": "a", "ids": [True]},
    "below the pool": {"key": "a", "ids": [-1]},
    "beyond the pool": {"key": "a", "ids": [POOL]},
    "beyond 64 bits": {"key": "a", "ids": [10**30]},
    "thousands of digits": '{"key": "a", "ids": [' + "9" * 5000 + "]}",
    "NaN": '{"key": "a", "ids": [NaN]}',
    "Infinity": '{"key": "a", "ids": [Infinity]}',
    "1e999": '{"key": "a", "ids": [1e999]}',
    "key twice": '{"key": "a", "key": "b", "ids": [1]}',
    "deep": '{"key": "a", "ids": ' + "[" * 9000 + "]" * 9000 + "}",
    "no UTF-8": b'{"key": "\xff", "ids": [1]}',
    "UTF-16": '{"key": "a", "ids": [1]}'.encode("utf-16"),
}


@pytest.mark.parametrize("body", MALFORMED.values(), ids=MALFORMED.keys())
def test_a_malformed_body_is_told_so_and_costs_nothing(web: Web, body: Any) -> None:
    rows = rows_of(web)
    found = check_problem(web.post(body), "malformed", 422)
    assert "k" * 201 not in str(found)
    assert rows_of(web) == rows


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "", "application/jsonp"])
def test_another_content_type_is_malformed(web: Web, kind: str) -> None:
    check_problem(web.post({"key": "a", "ids": [1]}, content_type=kind), "malformed", 422)


def test_a_compressed_body_is_malformed(web: Web) -> None:
    headers = {"Content-Type": "application/json", "Content-Encoding": "gzip", **bearer(ANN)}
    check_problem(web.http.post("/v1/queries", content=b"\x1f\x8b", headers=headers), "malformed", 422)


def test_a_large_body_is_refused_with_and_without_its_length(web: Web) -> None:
    body = json.dumps({"key": "a", "ids": [1]}) + " " * 20_000
    check_problem(web.post(body), "too-large", 413)

    def chunks() -> Iterator[bytes]:
        for start in range(0, len(body), 1000):
            yield body[start : start + 1000].encode()

    headers = {"Content-Type": "application/json", **bearer(ANN)}
    check_problem(web.http.post("/v1/queries", content=chunks(), headers=headers), "too-large", 413)


def test_a_body_in_chunks_is_read(web: Web) -> None:
    headers = {"Content-Type": "application/json; charset=utf-8", **bearer(ANN)}
    answer = web.http.post("/v1/queries", content=iter([b'{"key": "chunks",', b' "ids": [2]}']), headers=headers)
    assert ids_of(answer) == [2]


def test_a_body_that_does_not_come_is_not_waited_for(tmp_path: Path) -> None:
    def slowly() -> Iterator[bytes]:
        yield b'{"key": "slow",'
        time.sleep(3.0)
        yield b' "ids": [2]}'

    with web_service(tmp_path, HttpSettings(body_seconds=0.2)) as web:
        headers = {"Content-Type": "application/json", **bearer(ANN)}
        check_problem(web.http.post("/v1/queries", content=slowly(), headers=headers), "malformed", 422)


@pytest.mark.parametrize(
    "said", [b"", b"GET /healthz HTTP/1.1\r\nHost: x\r\n", b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\nGET /h"]
)
def test_who_says_nothing_is_not_listened_to_for_ever(web: Web, monkeypatch: pytest.MonkeyPatch, said: bytes) -> None:
    monkeypatch.setattr(server, "_HEAD_SECONDS", 0.3)
    place = web.http.base_url
    with socket.create_connection((place.host, place.port or 0)) as line:
        line.settimeout(10)  # uvicorn's own limit, after a response, is 5 seconds
        line.sendall(said)
        while line.recv(1 << 16):
            pass


def test_large_bodies_have_room_for_so_many_bytes_and_small_ones_pass(tmp_path: Path) -> None:
    large = json.dumps({"key": "large", "ids": [1]}).encode() + b" " * 200_000
    halfway, end = threading.Event(), threading.Event()

    def slowly() -> Iterator[bytes]:
        yield large[:150_000]
        halfway.set()
        assert end.wait(10)
        yield large[150_000:]

    with web_service(tmp_path, HttpSettings(max_bytes=210_000, max_in_hand=210_000)) as web, ThreadPoolExecutor(1) as pool:
        headers = {"Content-Type": "application/json", **bearer(ANN)}
        first = pool.submit(lambda: web.http.post("/v1/queries", content=slowly(), headers=headers))
        assert halfway.wait(10)
        wait_for(lambda: web.post(large.replace(b"large", b"other")).status_code == 503, "a body for which there is no room")
        assert ids_of(web.ask("small", [3])) == [3]
        end.set()
        assert ids_of(first.result(10)) == [1]
        for number in range(5):  # the room of whoever was answered, or refused, is free again
            assert ids_of(web.post(large.replace(b"large", b"free%d" % number))) == [1]


def test_too_many_questions_are_too_large(web: Web) -> None:
    check_problem(web.ask("many", [0] * 51), "too-large", 413)


def test_a_key_belongs_to_one_request_of_one_client(web: Web) -> None:
    assert web.ask("mine", [1]).status_code == 200
    check_problem(web.ask("mine", [2]), "key-conflict", 409)
    assert web.ask("mine", [2], OWNER).status_code == 200


def test_a_quota_holds(web: Web) -> None:
    assert web.ask("q1", [120, 121], BOB).status_code == 200
    check_problem(web.ask("q2", [122, 123], BOB), "quota-exhausted", 403)
    assert web.ask("q3", [122, 120], BOB).status_code == 200
    check_problem(web.ask("q4", [124], BOB), "quota-exhausted", 403)
    assert ids_of(web.ask("q5", [120, 121, 122], BOB)) == [0, 1, 2]


def test_the_budget_refuses_before_anything_is_drawn(tmp_path: Path) -> None:
    with web_service(tmp_path, budget=Budget(0.7, 1e-5)) as web:
        codes = [web.ask(f"b{number}", [number]).status_code for number in range(60)]
        assert codes == sorted(codes)  # all answers, then all refusals
        assert codes.count(200) > 0
        rows = rows_of(web)
        check_problem(web.ask("more", [150]), "budget-exhausted", 403)
        check_problem(web.ask("malformed", [-1]), "malformed", 422)
        assert ids_of(web.ask("known", [0])) == [0]
        assert rows_of(web) == rows
        assert web.get("/v1/owner/summary", OWNER).json()["refused_since_start"] == codes.count(403) + 1


def test_a_rate_is_told_with_the_time_to_wait(web: Web) -> None:
    answers = [web.get("/v1/budget", SLOW) for _ in range(4)]
    assert answers[0].status_code == 200
    refused = [answer for answer in answers if answer.status_code == 429]
    assert refused
    for answer in refused:
        check_problem(answer, "rate-limited", 429)
        assert int(answer.headers["retry-after"]) >= 1


def test_who_asks_comes_before_how_often_before_how_much_before_what(tmp_path: Path) -> None:
    with web_service(tmp_path, HttpSettings(max_bytes=100, rate=1.0)) as web:
        large, wrong = "[" * 200, "{"
        check_problem(web.post(large, token=None), "unauthenticated", 401)
        assert web.get("/v1/budget").status_code == 200
        check_problem(web.post(large), "rate-limited", 429)
        check_problem(web.post(large, token=OWNER), "too-large", 413)
        check_problem(web.post(wrong, token=BOB), "malformed", 422)


@pytest.mark.parametrize("path", ["/", "/nothing", "/docs", "/redoc", "/v1/queries/", "/v1/../etc/passwd", "/owner/x"])
def test_what_is_not_there(web: Web, path: str) -> None:
    check_problem(web.get(path), "not-found", 404)


@pytest.mark.parametrize(
    ("method", "path"), [("GET", "/v1/queries"), ("DELETE", "/v1/budget"), ("POST", "/healthz"), ("OPTIONS", "/v1/queries")]
)
def test_another_method(web: Web, method: str, path: str) -> None:
    answer = web.http.request(method, path, headers={"Origin": "https://elsewhere.example", **bearer(ANN)})
    check_problem(answer, "method-not-allowed", 405)
    assert answer.headers["allow"]
    assert "access-control-allow-origin" not in answer.headers


def test_trouble_is_unavailable_and_a_retry_is_safe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = Pool(clear_votes(), "ward")
    with web_service(tmp_path, source=source) as web:
        with monkeypatch.context() as patch:
            patch.setattr(source, "votes", lambda queries: 1 / 0)
            answer = web.ask("a", [1])
            check_problem(answer, "unavailable", 503)
            assert int(answer.headers["retry-after"]) >= 1
        assert ids_of(web.ask("a", [1])) == [1]
        assert web.service is not None
        monkeypatch.setattr(web.service, "trouble", "OSError")
        check_problem(web.get("/readyz", None), "unavailable", 503)
        assert web.get("/healthz", None).json() == {"status": "ok"}
        assert "pate_ready 0.0" in web.get("/metrics", OWNER).text
        monkeypatch.setattr(web.service, "budget_facts", lambda: 1 / 0)
        check_problem(web.get("/v1/budget"), "unavailable", 503)
        assert "pate_ready 0.0" in web.get("/metrics", OWNER).text


def test_more_than_may_wait_are_told_to_come_back(tmp_path: Path) -> None:
    with web_service(tmp_path, HttpSettings(max_waiting=1)) as web, ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda number: web.ask(f"k{number}", [number]), range(30)))
        for answer in found:
            if answer.status_code != 200:
                check_problem(answer, "unavailable", 503)
        assert ids_of(web.ask("alone", [4])) == [4]


def test_a_changed_answer_is_unsound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def verify() -> dict[str, Any]:
        raise LedgerError(f"Ledger {tmp_path}: rows were changed")

    with web_service(tmp_path) as web:
        web.ask("a", [1])
        sound = web.http.post("/v1/owner/verify", headers=bearer(OWNER)).json()
        assert (sound["answers"], sound["open_reservations"]) == (1, 0)
        assert web.service is not None
        monkeypatch.setattr(web.service, "verify", verify)
        found = check_problem(web.http.post("/v1/owner/verify", headers=bearer(OWNER)), "unsound", 500)
        assert str(tmp_path) not in str(found)


def test_a_row_of_the_ledger_that_was_changed_is_unsound(tmp_path: Path) -> None:
    with web_service(tmp_path) as web:
        web.ask("a", [1])
        with sqlite3.connect(tmp_path / "ledger.db") as database:
            for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
                database.execute(f"DROP TRIGGER {name}")
            database.execute("UPDATE pate_ledger SET payload = replace(payload, 'queries', 'Queries')")
        found = check_problem(web.http.post("/v1/owner/verify", headers=bearer(OWNER)), "unsound", 500)
        assert str(tmp_path) not in str(found)
