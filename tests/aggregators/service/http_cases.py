"""A service behind a real HTTP server on a loopback port, for the tests of this folder."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import uvicorn
from browser import wait_for

from pate.aggregators import Aggregator, GNMax
from pate.aggregators.service.app import HttpSettings, create_app
from pate.aggregators.service.desk import Service
from pate.aggregators.service.front import Front, LocalFront
from pate.aggregators.service.server import Punctual
from pate.aggregators.service.sources import Pool, VoteSource
from pate.aggregators.service.tokens import Client, Tokens, new_token, token_hash
from pate.ledger import Budget
from pate.votes import Votes

POOL = 200
N_TEACHERS, N_CLASSES = 250, 5

OWNER, ANN, BOB, SLOW = (new_token() for _ in range(4))
TOKENS = Tokens(
    [
        Client("owner", "owner", token_hash(OWNER)),
        Client("ann", "analyst", token_hash(ANN)),
        Client("bob", "analyst", token_hash(BOB), quota=3),
        Client("slow", "analyst", token_hash(SLOW), rate=1.0),
    ]
)


def clear_votes() -> Votes:
    """Record i has all votes for class i modulo the number of classes: what GNMax answers is all but certain."""
    counts = np.zeros((POOL, N_CLASSES), dtype=np.int64)
    counts[np.arange(POOL), np.arange(POOL) % N_CLASSES] = N_TEACHERS
    return Votes(counts, N_TEACHERS)


def open_service(
    folder: Path,
    *,
    aggregator: Aggregator | None = None,
    source: VoteSource | None = None,
    budget: Budget | None = None,
) -> Service:
    source = source or Pool(clear_votes(), "ward")
    return Service(
        aggregator or GNMax(sigma=20), source, folder / "ledger.db", budget or Budget(5.0, 1e-5), quotas=TOKENS.quotas
    )


@dataclass
class Web:
    """A running server, and ways to ask it."""

    url: str
    service: Service | None
    http: httpx.Client

    def ask(self, key: str, ids: Any, token: str = ANN) -> httpx.Response:
        return self.post({"key": key, "ids": ids}, token)

    def post(self, body: Any, token: str | None = ANN, content_type: str = "application/json") -> httpx.Response:
        content = body if isinstance(body, str | bytes) else json.dumps(body)
        return self.http.post("/v1/queries", content=content, headers={"Content-Type": content_type, **bearer(token)})

    def get(self, path: str, token: str | None = ANN) -> httpx.Response:
        return self.http.get(path, headers=bearer(token))


def bearer(token: str | None) -> dict[str, str]:
    return {} if token is None else {"Authorization": f"Bearer {token}"}


def check_problem(answer: httpx.Response, code: str, status: int) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    body: dict[str, Any] = answer.json()
    assert body.keys() == {"type", "title", "status", "detail"}
    assert (body["type"], body["status"]) == (f"urn:pate:problem:{code}", status)
    return body


def rows_of(web: Web) -> int:
    assert web.service is not None
    return len(web.service.ledger.rows())


@contextmanager
def serving(front: Front, settings: HttpSettings | None = None, service: Service | None = None) -> Iterator[Web]:
    """uvicorn in a thread, as `pate serve` sets it up, on a port that the system picks."""
    config = uvicorn.Config(
        create_app(front, TOKENS, settings or HttpSettings()),
        host="127.0.0.1",
        port=0,
        log_config=None,
        access_log=False,
        server_header=False,
        http=Punctual,
        ws="none",
        lifespan="off",
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        wait_for(lambda: server.started, "the server")
        port = server.servers[0].sockets[0].getsockname()[1]
        url = f"http://127.0.0.1:{port}"
        with httpx.Client(base_url=url, timeout=20) as http:
            yield Web(url, service, http)
    finally:
        server.should_exit = True
        thread.join(15)
        assert not thread.is_alive()


@contextmanager
def web_service(folder: Path, settings: HttpSettings | None = None, **options: Any) -> Iterator[Web]:
    with open_service(folder, **options) as service, serving(LocalFront(service), settings, service) as web:
        yield web


def ids_of(answer: httpx.Response) -> Sequence[int | None]:
    assert answer.status_code == 200, answer.text
    return [each["label"] for each in answer.json()["answers"]]
