"""The aggregator service as a Ray actor: the same answers, paid for together, and a budget that holds when it is killed."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

pytest.importorskip("ray", reason="ray is not installed (extra 'ray')")

from ray_service_cases import CANARY, HERE, N_TEACHERS, POOL, Options, open_service, opening

from pate.aggregators.service.front import LocalFront
from pate.errors import BudgetExceeded, ClusterError, ExecutionError, KeyConflict, LedgerError, QueryError, QuotaExceeded
from pate.execution import OnRay
from pate.execution.ray_service import Aggregator, Opening, RayFront
from pate.ledger import Ledger


@pytest.fixture(scope="module")
def ray() -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_ADDRESS", "")
        with OnRay(workers=2, object_store=100_000_000) as cluster:
            cluster.start()
            import ray

            yield ray


@pytest.fixture
def options(tmp_path: Path) -> Options:
    return Options(str(tmp_path / "ledger.db"))


def test_the_answers_are_those_of_one_process(ray: Any, options: Options, tmp_path: Path) -> None:
    requests = [("ann", "1", [3, 1, 4]), ("bob", "1", [1, 5, 9]), ("ann", "1", [3, 1, 4]), ("ann", "2", [2, 6])]

    async def all_of(front: Any) -> list[Any]:
        answers = [await front.ask(*request) for request in requests]
        return [answers, await front.budget(), await front.mechanism(), (await front.verify())["answers"], await front.ready()]

    with open_service(Options(str(tmp_path / "local.db"))) as service:
        expected = asyncio.run(all_of(LocalFront(service)))
    with Aggregator(opening(options)) as aggregator:
        found = asyncio.run(all_of(aggregator.front()))
        with pytest.raises(ClusterError, match="already"):
            Aggregator(opening(options))
    assert found == expected
    with pytest.raises(LedgerError, match="Another service"), open_service(options):
        Aggregator(opening(options))


def test_concurrent_requests_are_paid_for_together(ray: Any, options: Options) -> None:
    async def crowd(front: RayFront) -> list[list[int]]:
        return await asyncio.gather(*(front.ask(f"client {i}", "k", [i]) for i in range(60)))

    with Aggregator(opening(options)) as aggregator:
        answers = asyncio.run(crowd(aggregator.front()))
    assert len(answers) == 60
    with Ledger.open(options.ledger, "ward") as ledger:
        reserved = [entry for entry in ledger.entries() if entry.kind == "reserve"]
    assert sum(entry.memo["queries"] for entry in reserved) == 60
    assert len(reserved) < 20


def test_errors_come_back_as_themselves(ray: Any, options: Options) -> None:
    async def try_all(front: RayFront) -> None:
        with pytest.raises(QueryError, match="whole numbers"):
            await front.ask("ann", "k", [POOL])
        with pytest.raises(QueryError, match="at least one"):
            await front.ask("ann", "k", [])
        await front.ask("ann", "k", [1])
        with pytest.raises(KeyConflict):
            await front.ask("ann", "k", [2])
        with pytest.raises(QuotaExceeded):
            await front.ask("ann", "k2", [2, 3, 4])
        with pytest.raises(BudgetExceeded) as refused:
            await front.ask("bob", "k", list(range(POOL)))
        assert type(refused.value) is BudgetExceeded

    limited = Options(options.ledger, quotas=(("ann", 3),), epsilon=1.0)
    with Aggregator(opening(limited)) as aggregator:
        front = aggregator.front()
        asyncio.run(try_all(front))
    with pytest.raises(ExecutionError, match="not there just now"):
        asyncio.run(front.ask("ann", "k", [1]))
    assert asyncio.run(front.ready()) is False
    with pytest.raises(ExecutionError, match=r"could not answer \(ZeroDivisionError\)"):
        Aggregator(Opening(f"{HERE}:open_nothing"))


async def insistent(front: RayFront, client: str, key: str, queries: list[int], heard: dict[Any, list[int]]) -> None:
    """A client that asks again, with the same key, until it has an answer or the budget ends."""
    for _ in range(400):
        try:
            answer = await front.ask(client, key, queries)
        except BudgetExceeded:
            return
        except ExecutionError:
            await asyncio.sleep(0.05)
        else:
            assert heard.setdefault((client, key), answer) == answer
            return
    pytest.fail("no answer in all that time")


def test_kill_9_under_load(ray: Any, options: Options) -> None:
    """Keys asked before, during and after two kills have one answer each, all of them paid for."""
    unseeded = Options(options.ledger, seed=None, epsilon=2.5)  # as in production: a second draw would be another answer
    heard: dict[Any, list[int]] = {}
    killed: list[int] = []
    asked = [(f"client {i % 8}", f"key {i}", [i % POOL, (7 * i) % POOL]) for i in range(160)]

    async def load(front: RayFront) -> None:
        async def one(lane: int) -> None:
            for client, key, queries in asked[lane::16]:
                await insistent(front, client, key, queries, heard)

        async def kill() -> None:
            for answers in (10, 60):
                while len(heard) < answers:
                    await asyncio.sleep(0.002)
                pid = None
                while pid is None or pid in killed:
                    try:
                        _, pid = await ray.get_actor(front.name, namespace="pate").opened.remote()
                    except ray.exceptions.RayActorError:
                        await asyncio.sleep(0.02)
                killed.append(pid)
                os.kill(pid, signal.SIGKILL)

        await asyncio.gather(kill(), *(one(lane) for lane in range(16)))

    async def again(front: RayFront) -> None:
        await asyncio.gather(*(insistent(front, *request, heard) for request in asked))
        assert await front.ready()

    with Aggregator(opening(unseeded)) as aggregator:
        asyncio.run(load(aggregator.front()))
        assert len(killed) == 2
        assert len(heard) > 60
        asyncio.run(again(aggregator.front()))
    with open_service(unseeded) as service:
        sound = service.verify()
        names = {str(name) for client, key, queries in asked if (client, key) in heard for name in queries}
        assert names <= set(service.book.answers)
        assert sound["answers"] == len(service.book.answers)
        for client, key, queries in asked:
            if (client, key) in heard:
                assert service.ask(client, key, queries) == heard[client, key]
        assert service.ledger.spent().epsilon <= 2.5
        rows = {entry.sequence for entry in service.ledger.entries() if entry.kind == "reserve"}
        assert {answer.reservation for answer in service.book.answers.values()} <= rows


def test_it_waits_for_the_lock_of_another(ray: Any, options: Options) -> None:
    """Whoever took the ledger while it was dead keeps it; then it goes on from what is written there."""
    heard: dict[Any, list[int]] = {}
    with Aggregator(opening(options)) as aggregator:
        asyncio.run(insistent(aggregator.front(), "ann", "k", [1, 2, 3], heard))
        os.kill(aggregator.pid, signal.SIGKILL)
        other, until = None, time.monotonic() + 10
        while other is None and time.monotonic() < until:
            with suppress(LedgerError):
                other = open_service(options)
        assert other is not None
        heard["ann", "k2"] = other.ask("ann", "k2", [4, 5, 6, 7, 8, 9])
        time.sleep(1.5)
        other.close()
        for key, queries in (("k", [1, 2, 3]), ("k2", [4, 5, 6, 7, 8, 9])):
            asyncio.run(insistent(aggregator.front(), "ann", key, queries, heard))


def test_live_teachers_vote_as_tasks(ray: Any, options: Options) -> None:
    async def both(front: RayFront) -> list[int]:
        with pytest.raises(QueryError, match="finite"):
            await front.ask("ann", "k", [[float("nan"), 0.0, 0.0]])
        return await front.ask("ann", "k", [[1.0, 0.0, 0.0], [-1.0, 0.0, 0.0]])

    with Aggregator(opening(Options(options.ledger, live=True))) as aggregator:
        assert asyncio.run(both(aggregator.front())) == [1, 0]


def test_http_before_it(ray: Any, tmp_path: Path) -> None:
    """The whole of `pate serve --ray`, but for the command: two replicas, one actor, killed between two questions."""
    pytest.importorskip("ray.serve", reason="Ray Serve is not installed (extra 'ray-serve')", exc_type=ImportError)
    httpx = pytest.importorskip("httpx", reason="httpx is not installed (extra 'client')")
    from pate.aggregators.service.app import HttpSettings
    from pate.aggregators.service.server import Listening
    from pate.aggregators.service.tokens import Tokens, add_client
    from pate.experiments.serving import ServeOptions
    from pate.experiments.serving_on_ray import service_on_ray

    np.savez(tmp_path / "votes.npz", counts=[[CANARY, N_TEACHERS - CANARY]] * POOL, fingerprint="ward")
    token = add_client(tmp_path / "tokens.json", "ann", "analyst")
    tokens = Tokens.read(tmp_path / "tokens.json")
    options = ServeOptions("gnmax", str(tmp_path / "ledger.db"), {"sigma": 40}, str(tmp_path / "votes.npz"), budget_epsilon=1.0)
    with (
        service_on_ray(options, lambda: tokens, HttpSettings(), Listening(port=0), replicas=2) as url,
        httpx.Client(base_url=url, headers={"Authorization": f"Bearer {token}"}, timeout=30) as client,
    ):

        def ask(key: str, ids: list[int]) -> Any:
            return client.post("/v1/queries", json={"key": key, "ids": ids})

        first = ask("k", list(range(20)))
        assert first.status_code == 200
        assert client.get("/v1/budget", headers={"Authorization": "Bearer x"}).status_code == 401
        assert ask("k", [1]).json()["type"] == "urn:pate:problem:key-conflict"
        assert ask("k2", list(range(POOL))).json()["type"] == "urn:pate:problem:budget-exhausted"
        _, pid = ray.get(ray.get_actor("pate-aggregator", namespace="pate").opened.remote())
        os.kill(pid, signal.SIGKILL)
        until = time.monotonic() + 60
        while (again := ask("k", list(range(20)))).status_code == 503 and time.monotonic() < until:
            time.sleep(0.05)
        assert again.json() == first.json()
        assert client.get("/readyz").status_code == 200
        assert client.get("/v1/budget").json()["answered"] == 20


def test_the_command_serves_until_it_is_told_to_stop(ray: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`pate serve --ray` in this process, whose Serve is replaced: what is tested is the way to its start and its end."""
    pytest.importorskip("fastapi", reason="fastapi is not installed (extra 'serve')")
    from pate.aggregators.service.logs import LOGGER
    from pate.cli import app
    from pate.experiments import serving_on_ray

    @contextmanager
    def replicas_on_serve(made: Opening, host: str, port: int, replicas: int, *tls: object) -> Iterator[int]:
        assert made(RayFront()).title == "PATE aggregator"
        assert (host, replicas, tls) == ("127.0.0.1", 3, (None, None))
        threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGTERM)).start()
        yield 8080

    monkeypatch.setattr(serving_on_ray, "ray_serve", lambda: None)
    monkeypatch.setattr(serving_on_ray, "replicas_on_serve", replicas_on_serve)
    monkeypatch.setattr(serving_on_ray, "log_to_standard_error", lambda level: None)
    handled: list[str] = []
    monkeypatch.setattr(LOGGER, "log", lambda level, event, **facts: handled.append(event))
    np.savez(tmp_path / "votes.npz", counts=[[CANARY, N_TEACHERS - CANARY]], fingerprint="ward")
    monkeypatch.chdir(tmp_path)  # paths are made whole: the actor is elsewhere
    words = ["serve", "--votes", "votes.npz", "-a", "gnmax", "-s", "sigma=40", "--ledger", "ledger.db", "--replicas", "3"]
    refused = CliRunner().invoke(app, [*words, "--budget-epsilon", "1"])
    assert refused.exit_code == 2
    assert "belong to --ray" in refused.output
    before = signal.getsignal(signal.SIGTERM)
    done = CliRunner().invoke(app, [*words, "--budget-epsilon", "1", "--port", "0", "--ray"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert handled == ["listening", "stopped"]
    assert "analyst pate_" in done.stdout
    assert signal.getsignal(signal.SIGTERM) == before
    with open_service(Options("ledger.db", epsilon=1.0)):
        pass  # it let go of the ledger


def test_ray_writes_no_count_down(ray: Any) -> None:
    """Last: after all of the above, no log of Ray's holds a count, nor the record of any task."""
    time.sleep(1.0)
    logs = Path(ray._private.worker._global_node.get_logs_dir_path())
    text = b"".join(path.read_bytes() for path in logs.rglob("*") if path.is_file())
    assert text
    for secret in (CANARY, N_TEACHERS - CANARY):
        assert str(secret).encode() not in text
        assert f"{secret:_}".encode() not in text
