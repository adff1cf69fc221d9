"""What the HTTP layer promises, asked of a real server on a loopback port."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from http_cases import (
    ANN,
    BOB,
    N_CLASSES,
    N_TEACHERS,
    OWNER,
    POOL,
    Web,
    check_problem,
    ids_of,
    rows_of,
    web_service,
)

from pate.aggregators import ConfidentGNMax
from pate.aggregators.service.app import HttpSettings
from pate.aggregators.service.sources import Live, Pool
from pate.errors import ParameterError
from pate.ledger import Budget
from pate.release import Electorate
from pate.votes import Votes


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    with web_service(tmp_path_factory.mktemp("web"), HttpSettings(max_bytes=20_000, max_batch=50)) as found:
        yield found


# Answers ---------------------------------------------------------------------------------------------------------------------


def test_answers_come_in_the_order_asked(web: Web) -> None:
    assert ids_of(web.ask("order", [3, 1, 4, 1])) == [3, 1, 4, 1]


def test_an_abstention_is_null(tmp_path: Path) -> None:
    votes = Votes(np.full((4, N_CLASSES), 50), 250)  # 50 of 250 will never reach 240, at 60 standard deviations
    with web_service(
        tmp_path, aggregator=ConfidentGNMax(240, 3, 3), source=Pool(votes, "ward"), budget=Budget(50, 1e-5)
    ) as web:
        assert ids_of(web.ask("a", [0, 1])) == [None, None]
        assert web.get("/v1/budget").json()["abstained"] == 2


def test_a_retry_and_a_repeat_are_free(web: Web) -> None:
    first = web.ask("retry", [10, 11])
    rows = rows_of(web)
    assert web.ask("retry", [10, 11]).content == first.content
    assert web.ask("another key", [11, 10], OWNER).status_code == 200
    assert rows_of(web) == rows


def test_the_budget_and_the_mechanism_are_for_anybody_with_a_token(web: Web) -> None:
    budget = web.get("/v1/budget").json()
    assert budget["epsilon"] == 5.0
    assert 0 < budget["remaining_fraction"] <= 1
    mechanism = web.get("/v1/mechanism", BOB).json()
    assert (mechanism["aggregator"], mechanism["takes"], mechanism["pool"]) == ("gnmax", "ids", POOL)
    assert mechanism["n_teachers"] == N_TEACHERS


def test_many_at_once_are_all_answered(web: Web) -> None:
    def ask(number: int) -> Any:
        return ids_of(web.ask(f"at once {number}", [100 + number % 10, number % 5]))

    with ThreadPoolExecutor(16) as pool:
        assert list(pool.map(ask, range(40))) == [[number % 5, number % 5] for number in range(40)]


def test_live_teachers_are_sent_records(tmp_path: Path) -> None:
    def vote(records: np.ndarray[Any, np.dtype[np.float32]]) -> Votes:
        counts = np.zeros((len(records), 3), dtype=np.int64)
        counts[np.arange(len(records)), records.sum(axis=(1, 2)).astype(int) % 3] = 90
        return Votes(counts, 90)

    with web_service(tmp_path, source=Live(vote, (2, 2), Electorate(90, 3), "ward"), budget=Budget(50, 1e-5)) as web:
        assert web.get("/v1/mechanism").json()["shape"] == [2, 2]
        assert ids_of(web.post({"key": "a", "inputs": [[[1, 0], [0, 0]], [[1.0, 1], [0, 0]]]})) == [1, 2]
        body = json.dumps({"key": "big", "inputs": [[[1, 0], [0, 1e-9]]] * 900})  # parsed away from the event loop
        assert len(ids_of(web.post(body + " " * 70_000))) == 900
        bad: list[Any] = [[["1", 0], [0, 0]], [[True, 0], [0, 0]], [[1, 0]], 1, [[1e39, 0], [0, 0]], [[None, 0], [0, 0]]]
        bad += [[[10**400, 0], [0, 0]], [[[[[[[[[[1]]]]]]]]]], {"x": 1}, []]
        for record in bad:
            check_problem(web.post({"key": "b", "inputs": [record]}), "malformed", 422)
        check_problem(web.post({"key": "b", "ids": [1]}), "malformed", 422)


# Headers, metrics, limits ----------------------------------------------------------------------------------------------------


def test_every_response_carries_the_security_headers(web: Web) -> None:
    answers = [web.get(path, OWNER) for path in ("/healthz", "/nothing", "/v1/budget", "/owner", "/openapi.json", "/metrics")]
    answers += [web.ask("headers", [1]), web.post("{", ANN), web.get("/v1/budget", None)]
    for answer in answers:
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
        assert "unsafe" not in answer.headers["content-security-policy"]
        assert "server" not in answer.headers
        assert "access-control-allow-origin" not in answer.headers
    assert len({answer.headers["x-request-id"] for answer in answers}) == len(answers)


def test_metrics_count_and_name_nobody(tmp_path: Path) -> None:
    with web_service(tmp_path, HttpSettings(open_metrics=True)) as web:
        web.ask("a", [1, 2])
        web.ask("b", [1, 2, 3, 4, 5, 6, 7], BOB)
        text = web.get("/metrics", None).text
        for line in (
            'pate_requests_total{status="200"} 1.0',
            "pate_answered 2.0",
            "pate_abstained 0.0",
            "pate_query_seconds_count 2.0",
        ):
            assert line in text
        assert 'pate_refused_total{reason="quota-exhausted"} 1.0' in text
        assert "ann" not in text
        assert "bob" not in text


def test_settings_are_checked() -> None:
    for wrong in ({"max_bytes": 0}, {"max_batch": 0}, {"pad_seconds": -1.0}, {"rate": 0.0}, {"pad_seconds": 100.0}):
        with pytest.raises(ParameterError):
            HttpSettings(**wrong)  # type: ignore[arg-type]


def test_the_owner_sees_what_was_spent_row_by_row(tmp_path: Path) -> None:
    with web_service(tmp_path) as web:
        web.ask("a", [1])
        first = web.get("/v1/owner/summary", OWNER).json()
        web.ask("b", [2, 3])
        second = web.get("/v1/owner/summary", OWNER).json()
        assert [row["kind"] for row in second["recent"]] == ["open", "reserve", "settle", "reserve", "settle"]
        assert second["recent"][: first["rows"]] == first["recent"]
        for facts in (first, second):
            assert facts["recent"][-1]["spent"] == pytest.approx(facts["spent"])
            assert facts["rows"] == len(facts["recent"])
