"""kill -9 under load: what a client heard is in the book and paid for, and no question ever has two answers."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from browser import wait_for
from ports import free_port
from service_worker import CLIENTS, POOL, open_service, token_of

import pate
from pate.aggregators.service.book import request_digest
from pate.client import Client
from pate.errors import BudgetExceeded, ServiceError
from pate.ledger import faultpoints

STEPS = (*faultpoints.APPEND_STEPS, "reserved", "noise drawn", "answers committed")
EPSILON = 8.0


@dataclass
class Servers:
    """Servers on one ledger, one after the other, each to be killed."""

    ledger: Path
    epsilon: float
    process: subprocess.Popen[str]
    port: int
    pid: int = 0

    def start(self, step: str | None = None, occurrence: int = 1) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps({"die_at": step, "occurrence": occurrence}) + "\n")
        self.process.stdin.flush()
        self.pid = int(self.process.stdout.readline())

    def wait_ready(self) -> None:
        for _ in range(400):
            with suppress(httpx.TransportError):
                if httpx.get(f"http://127.0.0.1:{self.port}/readyz", timeout=5).status_code == 200:
                    return
            time.sleep(0.025)
        pytest.fail("the server did not come up")

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        self.wait_dead()

    def wait_dead(self) -> None:
        for _ in range(1200):
            try:
                os.kill(self.pid, 0)
            except ProcessLookupError:
                return
            time.sleep(0.025)
        pytest.fail("the server did not die")


@contextmanager
def servers(folder: Path, epsilon: float = EPSILON) -> Iterator[Servers]:
    port = free_port()
    script = Path(__file__).with_name("service_worker.py")
    process = subprocess.Popen(
        [sys.executable, str(script), str(folder / "ledger.db"), str(epsilon), str(port)],
        env={**os.environ, "PYTHONPATH": str(Path(pate.__file__).parents[1]), "OPENBLAS_NUM_THREADS": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    found = Servers(folder / "ledger.db", epsilon, process, port)
    try:
        yield found
    finally:
        if found.pid:
            found.kill()
        assert process.stdin is not None
        process.stdin.close()
        process.wait(30)
        assert process.stdout is not None
        process.stdout.close()


@dataclass
class Crowd:
    """Clients that ask random batches which overlap, and now and then repeat a request of theirs. heard: all they were told."""

    port: int
    seed: int
    stop: threading.Event = field(default_factory=threading.Event)
    heard: list[tuple[str, str, list[int], list[int]]] = field(default_factory=list)
    refused: int = 0
    faults: list[BaseException] = field(default_factory=list)

    def run(self, number: int) -> None:
        draw = random.Random(self.seed + number)
        sent: list[tuple[str, list[int]]] = []
        with Client(f"http://127.0.0.1:{self.port}", token_of(number), retries=60, timeout=20) as client:
            while not self.stop.is_set() and len(sent) < 20_000:
                if sent and draw.random() < 0.2:
                    key, ids = draw.choice(sent)
                else:
                    key, ids = f"request {len(sent)}", [draw.randrange(POOL) for _ in range(draw.randint(1, 8))]
                    sent.append((key, ids))
                try:
                    labels = client.ask(ids, key)
                except BudgetExceeded:
                    self.refused += 1
                    continue
                except ServiceError:
                    if self.stop.is_set():
                        return  # the last server is gone
                    raise
                self.heard.append((f"client {number}", key, ids, labels))

    @contextmanager
    def asking(self) -> Iterator[None]:
        def work(number: int) -> None:
            try:
                self.run(number)
            except BaseException as error:
                self.faults.append(error)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(CLIENTS)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self.stop.set()
            for thread in threads:
                thread.join(60)
        assert self.faults == []


def check(ledger: Path, epsilon: float, crowd: Crowd) -> dict[str, Any]:
    """Recompute everything from the ledger's rows and the book, and compare with what clients heard."""
    with open_service(ledger, epsilon) as service:
        facts = service.verify()  # the chain from its first row, and every answer against it
        book, at = service.book, service.ledger.budget.order_index
        payloads = {row.sequence: (row.kind, json.loads(row.payload)) for row in service.ledger.rows()}
        cap, spent = service.ledger.budget.cap_units, service.ledger._chain.spent
        by_key: dict[tuple[str, str], list[int]] = {}
        for client, key, ids, labels in crowd.heard:
            assert by_key.setdefault((client, key), labels) == labels
            assert book.digests([(client, key)]) == {(client, key): request_digest([str(each) for each in ids])}
            for question, label in zip(ids, labels, strict=True):
                answer = book.answers[str(question)]
                assert answer.label == label
                assert payloads[answer.reservation][0] == "reserve"
    costs = {row: payload["cost"][at] for row, (kind, payload) in payloads.items() if kind == "reserve"}
    settled = {payload["reservation"]: payload["cost"][at] for kind, payload in payloads.values() if kind == "settle"}
    assert sum((costs | settled).values()) == spent <= cap
    # Each reservation paid for the answers that hang on it, no fewer than there are; an open one has none.
    hanging: dict[int, int] = {}
    for answer in book.answers.values():
        hanging[answer.reservation] = hanging.get(answer.reservation, 0) + 1
    assert hanging == {row: payload["memo"]["queries"] for row, (_, payload) in payloads.items() if row in settled}
    assert set(hanging) <= set(costs)
    assert facts["open_reservations"] == len(costs) - len(settled)
    return facts


def kill_at_random(folder: Path, kills: int, seed: int, epsilon: float, last: int = 100) -> tuple[dict[str, Any], Crowd]:
    moments = random.Random(seed)
    with servers(folder, epsilon) as running:
        running.start()
        running.wait_ready()
        crowd = Crowd(running.port, seed)
        with crowd.asking():
            for _ in range(kills):
                time.sleep(moments.uniform(0.0, 0.6))  # also while it starts
                running.kill()
                running.start()
            running.wait_ready()
            enough = len(crowd.heard) + last  # however slow the machine is
            wait_for(lambda: len(crowd.heard) >= enough or crowd.refused > 20, "answers after the last start", 60)
        running.kill()
        return check(running.ledger, epsilon, crowd), crowd


def test_killed_at_random_moments(tmp_path: Path) -> None:
    facts, crowd = kill_at_random(tmp_path, kills=12, seed=1, epsilon=EPSILON)
    assert facts["answers"] > 100
    assert len(crowd.heard) > 50


def test_killed_at_random_moments_at_the_end_of_the_budget(tmp_path: Path) -> None:
    """A budget of about 200 questions: some are refused, and what the crashes lost is not given back."""
    facts, crowd = kill_at_random(tmp_path, kills=6, seed=2, epsilon=1.6)
    assert crowd.refused > 0
    assert facts["answers"] > 50


@pytest.mark.slow
def test_killed_a_hundred_times(tmp_path: Path) -> None:
    facts, _ = kill_at_random(tmp_path, kills=100, seed=3, epsilon=EPSILON, last=250)
    assert facts["answers"] > 500


def test_killed_at_every_named_moment(tmp_path: Path) -> None:
    with servers(tmp_path) as running:
        running.start()
        running.wait_ready()
        crowd = Crowd(running.port, 4)
        with crowd.asking():
            for step in STEPS:
                running.kill()
                # A few rounds in, so that it dies with answers behind it and others waiting.
                running.start(step, occurrence=40 if step == "transaction begun" else 4)
                running.wait_dead()
                running.start()
                running.wait_ready()
        running.kill()
        facts = check(running.ledger, EPSILON, crowd)
    assert facts["open_reservations"] >= 1  # whoever dies between charge and commit leaves the charge
    assert len(crowd.heard) > 20
