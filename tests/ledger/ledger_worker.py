"""Processes that spend and are killed. Run as a script by the tests of this folder; forks its victims itself.

A victim reserves two queries, releases (a line in a synced file stands for it), settles one query, and so on.
"""

from __future__ import annotations

import json
import os
import random
import resource
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

from pate.errors import BudgetExceeded, LedgerError
from pate.ledger import Budget, Ledger, faultpoints
from pate.privacy.curve import RdpCurve

BUDGET = Budget(epsilon=3.0, delta=1e-5)
QUERY = RdpCurve.of(lambda orders: orders / 40.0**2)
CHEAP = RdpCurve.of(lambda orders: orders / 4000.0**2)
"""So cheap that no machine is fast enough to spend the budget before it is killed."""
OWN_STEPS = ("reserved", "released", "settled")


def release(path: str, line: str) -> None:
    """Publish an answer: after this it cannot be taken back."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(handle, f"{line}\n".encode())
    os.fsync(handle)
    os.close(handle)


def spend_rounds(place: str, fingerprint: str, released: str, rounds: int, query: RdpCurve = QUERY) -> None:
    with Ledger.open(place, fingerprint, BUDGET) as ledger:
        for _ in range(rounds):
            try:
                paid = ledger.reserve(2 * query, {"queries": 2})
            except BudgetExceeded:
                return
            faultpoints.reached("reserved")
            release(released, str(paid.sequence))
            faultpoints.reached("released")
            ledger.settle(paid, query, {"answered": 1})
            faultpoints.reached("settled")


def die_at(step: str, occurrence: int) -> None:
    """Make this process kill itself the n-th time it reaches a step."""
    seen = 0

    def reached(name: str) -> None:
        nonlocal seen
        seen += name == step
        if name == step and seen == occurrence:
            os.kill(os.getpid(), signal.SIGKILL)

    faultpoints.reached = reached


def fork(work: Callable[[], None]) -> int:
    """Run ``work`` in a forked process; its exit status is 0 unless ``work`` raised."""
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        work()
        status = 0
    finally:
        os._exit(status)


def kill_at(place: str, fingerprint: str, released: str, step: str, occurrence: int) -> int:
    """Kill one spending process the n-th time it reaches a step; its wait status."""

    def work() -> None:
        die_at(step, occurrence)
        spend_rounds(place, fingerprint, released, 5)

    return os.waitpid(fork(work), 0)[1]


def crash_matrix(folder: str, only_database: str) -> list[dict[str, object]]:
    """Kill a fresh process at every step of its first three appends: open, reserve, settle."""
    results = []
    # A first round here, so that the victims have the imports behind them.
    spend_rounds(only_database or f"{folder}/warm-up.db", f"{Path(folder).name}-warm-up", f"{folder}/warm-up.released", 1)
    for step in (*faultpoints.APPEND_STEPS, *OWN_STEPS):
        if only_database and "file" in step:
            continue  # PostgreSQL has no head file
        for occurrence in range(1, 2 if step in OWN_STEPS else 6):
            name = f"{step}-{occurrence}".replace(" ", "-")
            place = only_database or f"{folder}/{name}.db"
            fingerprint, released = f"{Path(folder).name}-{name}", f"{folder}/{name}.released"
            status = kill_at(place, fingerprint, released, step, occurrence)
            results.append({"place": place, "fingerprint": fingerprint, "released": released, "status": status})
    return results


def random_kills(place: str, fingerprint: str, released: str, times: int, seed: int) -> int:
    """Kill a spending process at a random moment, again and again on the same ledger; how many died in the act."""
    moments, killed = random.Random(seed), 0
    # A first round here, so that victims have the imports behind them and die while they spend.
    spend_rounds(place, fingerprint, released, 1, CHEAP)
    for _ in range(times):
        pid = fork(lambda: spend_rounds(place, fingerprint, released, 100_000, CHEAP))
        time.sleep(moments.uniform(0.0, 0.2))
        os.kill(pid, signal.SIGKILL)
        killed += os.WIFSIGNALED(os.waitpid(pid, 0)[1])
    return killed


def race(place: str, fingerprint: str, released: str, racers: int) -> list[int]:
    """Several processes open the same new ledger and charge until they are refused."""

    def work() -> None:
        with Ledger.open(place, fingerprint, BUDGET) as ledger:
            while True:
                try:
                    paid = ledger.charge(4 * QUERY, {"queries": 4})
                except BudgetExceeded:
                    return
                release(released, str(paid.sequence))

    return [os.waitpid(pid, 0)[1] for pid in [fork(work) for _ in range(racers)]]


def limited_file_size(place: str, fingerprint: str, released: str) -> str:
    """Charge until the operating system refuses to let a file grow; the error's text."""
    with Ledger.open(place, fingerprint, BUDGET) as ledger:
        for _ in range(3):
            release(released, str(ledger.charge(QUERY, {}).sequence))
        largest = max(file.stat().st_size for file in Path(place).parent.iterdir())
        resource.setrlimit(resource.RLIMIT_FSIZE, (largest + 10_000, resource.RLIM_INFINITY))
        try:
            while True:
                release(released, str(ledger.charge(QUERY, {}).sequence))
        except LedgerError as error:
            return str(error)


def main() -> None:
    mode, *arguments = sys.argv[1:]
    texts, numbers = [text for text in arguments if not text.isdigit()], [int(text) for text in arguments if text.isdigit()]
    work: Callable[..., object] = {
        "kill-at": kill_at,
        "crash-matrix": crash_matrix,
        "random-kills": random_kills,
        "race": race,
        "limited-file-size": limited_file_size,
    }[mode]
    print(json.dumps(work(*texts, *numbers)))


if __name__ == "__main__":
    main()
