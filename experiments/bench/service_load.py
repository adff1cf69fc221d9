"""A server process and a crowd of clients on this machine, for the service's benchmark and soak test."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from pate.aggregators import GNMax
from pate.aggregators.service.desk import Service
from pate.aggregators.service.sources import Pool
from pate.errors import ExecutionError
from pate.ledger import Budget
from pate.votes import Votes

CLASSES, TEACHERS = 10, 250
TOKEN = "pate_token_of_the_benchmark"
SIGMA = 1000.0  # so much noise that any other draw would be another label, and so cheap that the budget lasts
BUDGET = Budget(1e4, 1e-5)
_START_SECONDS = 60


class _LargePool(Pool):
    """As many questions as one likes, without a table of them: question i has the votes of record i % table."""

    def __init__(self, votes: Votes, size: int) -> None:
        super().__init__(votes, "benchmark")
        self._size, self._table = size, len(votes)

    def names(self, queries: Sequence[Any]) -> list[str]:
        super().names([each % self._table if type(each) is int and 0 <= each < self._size else -1 for each in queries])
        return list(map(str, queries))

    def votes(self, queries: Sequence[Any]) -> Votes:
        return super().votes([each % self._table for each in queries])


def open_service(ledger: Path, pool: int) -> Service:
    """A service for a pool of as many questions, all alike: what they cost in time does not depend on votes."""
    counts = np.zeros((1000, CLASSES), dtype=np.int64)
    counts[:, 0] = TEACHERS
    return Service(GNMax(SIGMA), _LargePool(Votes(counts, n_teachers=TEACHERS), pool), ledger, BUDGET)


def _serve(ledger: str, pool: int, pipe: Any) -> None:
    """The service as `pate serve` runs it. Its log goes nowhere, but is written."""
    from pate.aggregators.service.app import HttpSettings
    from pate.aggregators.service.front import LocalFront
    from pate.aggregators.service.server import Listening, run_server
    from pate.aggregators.service.tokens import Client, Tokens, token_hash

    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    listening = Listening(port=0)
    with open_service(Path(ledger), pool) as service, listening.open() as listener:
        pipe.send(listener.getsockname()[1])
        tokens = Tokens([Client("crowd", "owner", token_hash(TOKEN))])
        run_server(LocalFront(service), tokens, HttpSettings(), listening, listener)


def _serve_nothing(pipe: Any) -> None:
    """An endpoint that reads its request and answers at once: what HTTP alone costs."""
    import uvicorn
    from fastapi import FastAPI, Request

    app = FastAPI()

    async def empty(request: Request) -> dict[str, Any]:
        await request.body()
        return {"answers": []}

    # Not as a decorator: FastAPI reads annotations from the module, and Request is not at its top.
    empty.__annotations__ = {"request": Request}
    app.post("/v1/queries", response_model=None)(empty)
    with socket.create_server(("127.0.0.1", 0), backlog=2048) as listener:
        pipe.send(listener.getsockname()[1])
        config = uvicorn.Config(app, log_config=None, access_log=False, lifespan="off", http="h11", ws="none")
        uvicorn.Server(config).run(sockets=[listener])


@dataclass(frozen=True)
class Running:
    port: int
    pid: int


@contextmanager
def _running(target: Callable[..., None], *arguments: Any) -> Iterator[Running]:
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=target, args=(*arguments, theirs))
    process.start()
    try:
        if not ours.poll(_START_SECONDS):
            raise ExecutionError(f"The server did not start within {_START_SECONDS} seconds.")
        yield Running(ours.recv(), process.pid or 0)
    finally:
        process.terminate()  # as an operator would: what is due is answered
        process.join(60)
        if process.is_alive():
            process.kill()
            process.join()


def service_process(ledger: Path, pool: int) -> Any:
    """A context: the service in a process of its own, on 127.0.0.1."""
    return _running(_serve, str(ledger), pool)


def empty_process() -> Any:
    """A context: the empty endpoint in a process of its own."""
    return _running(_serve_nothing)


@dataclass
class Heard:
    """What a crowd was told: the seconds of each request, and the label of each question."""

    elapsed: float = 0.0
    seconds: list[float] = field(default_factory=list)
    labels: dict[int, int] = field(default_factory=dict)


async def _client(port: int, batches: Iterator[list[int]], until: float, name: str, heard: Heard) -> None:
    """Asks, waits and asks again over one connection. Plain sockets: an HTTP library would be the bottleneck."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = (
        f"POST /v1/queries HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {TOKEN}\r\nContent-Type: application/json\r\n"
    )
    try:
        for number, ids in enumerate(batches):
            if number and time.monotonic() >= until:  # each asks once, however slow the machine
                return
            body = json.dumps({"key": f"{name} {number}", "ids": ids}).encode()
            begun = time.perf_counter()
            writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            answer = await reader.readuntil(b"\r\n\r\n")
            length = next(int(line[15:]) for line in answer.lower().split(b"\r\n") if line.startswith(b"content-length:"))
            content = await reader.readexactly(length)
            heard.seconds.append(time.perf_counter() - begun)
            if not answer.startswith(b"HTTP/1.1 200"):
                raise ExecutionError(f"The server refused under load: {content.decode(errors='replace')[:200]}")
            for question, each in zip(ids, json.loads(content)["answers"], strict=False):
                if heard.labels.setdefault(question, each["label"]) != each["label"]:
                    raise ExecutionError(f"Question {question} has two answers.")
    finally:
        writer.close()


def ask_for(port: int, clients: int, batches: Iterator[list[int]], seconds: float, name: str) -> Heard:
    """Let ``clients`` ask at once, each its next batch of ``batches``, for some seconds or until there are none."""
    heard = Heard()

    async def crowd() -> None:
        until = time.monotonic() + seconds
        each = (_client(port, batches, until, f"{name} {i}", heard) for i in range(clients))
        await asyncio.wait_for(asyncio.gather(*each), seconds + 60)

    begun = time.perf_counter()
    asyncio.run(crowd())
    heard.elapsed = time.perf_counter() - begun
    return heard


def lost(ledger: Path, pool: int, labels: dict[int, int]) -> int:
    """How many answers that a client heard are not in the book as it heard them. The service must have ended.

    Reads ledger and book anew and checks one against the other; raises LedgerError where they do not agree.
    """
    with open_service(ledger, pool) as service:
        service.verify()
        book = service.book.answers
        return sum(str(question) not in book or book[str(question)].label != label for question, label in labels.items())
