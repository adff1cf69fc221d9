"""Serves a pool over HTTP and is killed. Run as a script by the tests: forks a server for each line that it reads.

A line {"die_at": step or null, "occurrence": n} starts a server and prints its process id. The servers are forked from a
process that has all imports behind it, so that a restart takes a moment and a kill meets a server at work.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import uvicorn

from pate.aggregators import GNMax
from pate.aggregators.service.app import HttpSettings, create_app
from pate.aggregators.service.desk import Service
from pate.aggregators.service.front import LocalFront
from pate.aggregators.service.sources import Pool
from pate.aggregators.service.tokens import Client, Tokens, token_hash
from pate.ledger import Budget, faultpoints
from pate.votes import Votes

POOL, CLIENTS = 4_000, 6
AGGREGATOR = GNMax(sigma=50.0)  # so noisy that a second draw would often be another label


def token_of(client: int) -> str:
    return f"pate_token_of_client_{client}"


def open_service(ledger: Path, epsilon: float) -> Service:
    votes = Votes([[60, 40, 50]] * POOL, n_teachers=150)
    return Service(AGGREGATOR, Pool(votes, "ward"), ledger, Budget(epsilon, 1e-5))


def die_at(step: str, occurrence: int) -> None:
    """Make this process kill itself the n-th time it reaches a step."""
    left = occurrence

    def reached(name: str) -> None:
        nonlocal left
        left -= name == step
        if name == step and left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    faultpoints.reached = reached


def serve(ledger: Path, epsilon: float, port: int, step: str | None, occurrence: int) -> None:
    service = open_service(ledger, epsilon)
    if step is not None:
        die_at(step, occurrence)
    tokens = Tokens(Client(f"client {i}", "analyst", token_hash(token_of(i))) for i in range(CLIENTS))
    app = create_app(LocalFront(service), tokens, HttpSettings())
    uvicorn.run(app, host="127.0.0.1", port=port, log_level="critical", access_log=False, lifespan="off")
    service.close()


def main() -> None:
    ledger, epsilon, port = Path(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the dead are not waited for
    for line in sys.stdin:
        order = json.loads(line)
        pid = os.fork()
        if pid == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            try:
                serve(ledger, epsilon, port, order["die_at"], order["occurrence"])
            finally:
                os._exit(1)
        print(pid, flush=True)


if __name__ == "__main__":
    main()
