"""The client of a service: the same key on every try, errors by their names, and a token that is told to nobody."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from service_cases import TOKENS, serving

from pate import client as module
from pate.aggregators import ConfidentGNMax, GNMax
from pate.aggregators.service.app import HttpSettings
from pate.aggregators.service.desk import Service
from pate.aggregators.service.sources import Live, Pool
from pate.client import AsyncClient, Call, Client, Reply, asking, body_of, labels_of, patient, pause
from pate.errors import BudgetExceeded, KeyConflict, ParameterError, PateError, QueryError, QuotaExceeded, ServiceError
from pate.ledger import Budget
from pate.noise import SimulatedNoise
from pate.release import ABSTAIN, Electorate
from pate.votes import Votes

VOTES = Votes([[100, 0], [0, 100], [50, 50]] * 10, n_teachers=100)
AGGREGATOR = ConfidentGNMax(75, 2.0, 2.0)


@pytest.fixture
def service(tmp_path: Path) -> Service:
    source = Pool(VOTES, "ward")
    return Service(AGGREGATOR, source, tmp_path / "l.db", Budget(200.0, 1e-5), quotas={"bob": 2}, noise=SimulatedNoise(1))


@pytest.fixture
def url(service: Service) -> Iterator[str]:
    with serving(service, HttpSettings(max_batch=10)) as found:
        yield found


def test_answers_abstentions_and_pieces(url: str, service: Service) -> None:
    with Client(url, TOKENS["ann"], batch=10) as client:
        assert client.ask([0, 1, 2], "first") == [0, 1, ABSTAIN]
        assert client.ask(np.arange(25), "many") == ([0, 1, ABSTAIN] * 9)[:25]
        assert client.ask(np.arange(25), "many") == ([0, 1, ABSTAIN] * 9)[:25]
        assert len(client.ask([3])) == 1
    asked = [("ann", key) for key in ("first", "many/0", "many/1", "many/2", "many", "many/3")]
    assert set(service.book.digests(asked)) == set(asked[:4])


def test_a_release_for_students(url: str) -> None:
    with Client(url, TOKENS["ann"]) as client:
        release = client.release([0, 1, 2], "first")
        facts = client.mechanism()
        assert client.budget()["answered"] == 2
    assert release.labels.tolist() == [0, 1, ABSTAIN]
    assert release.electorate == Electorate(100, 2)
    assert dict(release.mechanism) == AGGREGATOR.mechanism
    assert release.mode == facts["mode"] == "simulation"


def test_the_asynchronous_client_says_the_same(url: str) -> None:
    async def main() -> None:
        async with AsyncClient(url, TOKENS["ann"], batch=10) as client:
            parts = await asyncio.gather(*(client.ask([i, i + 1], f"{i}") for i in range(0, 20, 2)))
            assert [label for part in parts for label in part] == ([0, 1, ABSTAIN] * 7)[:20]
            assert (await client.release(np.arange(12), "r")).labels.tolist() == [0, 1, ABSTAIN] * 4
            assert (await client.budget())["epsilon"] == 200.0
            assert (await client.mechanism())["takes"] == "ids"
            with pytest.raises(KeyConflict):
                await client.ask([5], "0")

    asyncio.run(main())


def test_problems_come_back_as_the_errors_they_were(url: str, tmp_path: Path) -> None:
    with Client(url, TOKENS["ann"]) as ann, Client(url, TOKENS["bob"]) as bob:
        ann.ask([0], "1")
        with pytest.raises(KeyConflict):
            ann.ask([1], "1")
        with pytest.raises(QuotaExceeded):
            bob.ask([1, 2, 3])
        with pytest.raises(QueryError):
            ann.ask([99])
        with pytest.raises(QueryError):
            ann.ask(list(range(11)))  # more than this service takes at once
        with pytest.raises(QueryError):
            ann.ask([[0.5, 1.0]])  # records, where it takes ids
    with Service(GNMax(1.0), Pool(VOTES, "other"), tmp_path / "small.db", Budget(2.0, 1e-5)) as small:
        with serving(small) as address, Client(address, TOKENS["ann"]) as ann, pytest.raises(BudgetExceeded) as caught:
            ann.ask(list(range(20)))
        assert type(caught.value) is BudgetExceeded


def test_records_themselves(tmp_path: Path) -> None:
    def vote(records: Any) -> Votes:
        return Votes([[100, 0] if record.sum() > 0 else [0, 100] for record in records], n_teachers=100)

    source = Live(vote, (2, 2), Electorate(100, 2), "ward")
    with (
        serving(Service(GNMax(2.0), source, tmp_path / "l.db", Budget(500.0, 1e-5))) as url,
        Client(url, TOKENS["ann"]) as client,
    ):
        records = np.random.default_rng(0).normal(size=(5, 2, 2)).astype(np.float32)
        assert client.ask(records) == [0 if record.sum() > 0 else 1 for record in records]
        assert client.ask(records) == client.ask(records.tolist())
        with pytest.raises(QueryError):
            client.ask(records[:, 0])


@pytest.mark.parametrize("where", ["argument", "environment"])
def test_the_token_is_told_to_nobody(
    url: str, where: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    secret = "pate_wrong_canary_7f3a"
    monkeypatch.setenv("PATE_TOKEN", secret if where == "environment" else "")
    caplog.set_level(logging.DEBUG)
    with Client(url, secret if where == "argument" else None, retries=0) as client:
        with pytest.raises(ServiceError, match="401") as caught:
            client.ask([0])
        told = [repr(client), str(client), str(caught.value), repr(caught.value), caplog.text, repr(vars(client))]
    assert not any(secret in text for text in told)


def test_what_is_wrong_with_an_address_or_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PATE_TOKEN", raising=False)
    for address in (
        "",
        "ward.example",
        "ftp://ward.example",
        "http://",
        "http://ann:secret@ward.example",
        "http://a/?b=c",
        "http://[::1",
        "http://a:x",
    ):
        with pytest.raises(ParameterError) as caught:
            Client(address, "t")
        assert "secret" not in str(caught.value)
    for token in (None, "", "two words", "line\nbreak", "sn\u00f6"):
        with pytest.raises(ParameterError, match="PATE_TOKEN") as caught:
            Client("http://127.0.0.1", token)
        assert not token or token not in str(caught.value)


def test_a_token_in_the_clear_is_warned_of() -> None:
    with pytest.warns(UserWarning, match=r"to ward\.example in the clear"):
        Client("http://ward.example", "t").close()
    with pytest.warns(UserWarning, match="in the clear"):
        Client("http://127.0.0.1.ward.example", "t").close()  # a name, not this machine
    for address in ("https://ward.example", "http://127.0.0.1:80", "http://[::1]:80", "http://localhost"):
        Client(address, "t").close()


def test_nobody_there() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and nobody listens
        address = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with Client(address, "t", retries=2) as client, pytest.raises(ServiceError, match=r"reached \(ConnectError\)"):
            client.ask([0])


# Without a network ---------------------------------------------------------------------------------------------------------

GOOD = Reply(200, {"answers": [{"label": 1}]})


def told(replies: list[Reply], retries: int = 8) -> tuple[list[Call], list[float], list[int] | PateError]:
    """What is sent, how long is waited, and what comes of it, when these replies come one after the other."""
    calls: list[Call] = []
    waits: list[float] = []
    steps, reply, left = patient(asking([7], None, 10), retries), None, iter(replies)
    try:
        while True:
            step = steps.send(reply)
            if isinstance(step, float):
                waits.append(step)
                reply = None
            else:
                calls.append(step)
                reply = next(left)
    except StopIteration as done:
        return calls, waits, done.value
    except PateError as error:
        return calls, waits, error


def test_every_retry_has_the_same_key_and_waits_longer() -> None:
    calls, waits, labels = told([Reply(0, "ConnectError"), Reply(503, None), Reply(429, None), Reply(0, "ReadError"), GOOD])
    assert labels == [1]
    assert len(calls) == 5
    assert all(call == calls[0] for call in calls)
    assert all(0.05 * 2**i <= wait <= 0.1 * 2**i for i, wait in enumerate(waits))


def test_retry_after_is_heeded_within_reason() -> None:
    _, waits, _ = told(
        [Reply(429, None, "7"), Reply(503, None, "Wed, 21 Oct 2026 07:28:00 GMT"), Reply(429, None, "1e99"), GOOD]
    )
    assert waits[0] == 7.0
    assert max(waits[1:]) < 1
    assert told([Reply(429, None, "99999999"), GOOD])[1] == [300.0]
    assert max(pause(50, None) for _ in range(100)) <= 30


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 413, 422, 500])
def test_what_will_not_change_is_not_tried_again(status: int) -> None:
    calls, waits, error = told([Reply(status, None), GOOD])
    assert len(calls) == 1
    assert waits == []
    assert isinstance(error, ServiceError)


def test_tries_end() -> None:
    problem = {"title": "Try again later", "detail": "No answer just now"}
    calls, _, error = told([Reply(503, problem)] * 10, retries=3)
    assert len(calls) == 4
    assert isinstance(error, ServiceError)
    assert "Try again later. No answer just now." in str(error)


@pytest.mark.parametrize(
    "body",
    [
        None,
        [],
        {},
        {"answers": []},
        {"answers": [{"label": -1}]},
        {"answers": [{"label": True}]},
        {"answers": [{}]},
        {"answers": [1]},
    ],
)
def test_a_reply_that_is_no_answer_is_not_taken_for_one(body: Any) -> None:
    with pytest.raises(ServiceError):
        labels_of(Reply(200, body), 1)


@pytest.mark.parametrize("queries", [[], 5, [0.5], ["a"], [[]], [True], [[1.0], [1.0, 2.0]], [[np.nan]], [["a"]]])
def test_questions_that_cannot_be_sent(queries: Any) -> None:
    with pytest.raises(QueryError):
        body_of(queries)


def test_large_records_are_sent_in_pieces_that_a_service_takes() -> None:
    records = np.zeros((100, 100, 100))
    conversation = asking(records, "k", 1000)
    call = next(conversation)
    assert call.body is not None
    assert len(call.body["inputs"]) == module._MOST_NUMBERS // 10_000
    assert call.body["key"] == "k/0"
