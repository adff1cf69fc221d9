"""The service under constant load for as long as one likes: does its memory grow, is anything lost?

Run with ``make soak``, or ``python -m pate.experiments.bench.soak --seconds 60``.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from pate.experiments.bench.service_load import ask_for, lost, service_process

POOL, CLIENTS, BATCH = 200_000, 16, 10
FRESH = 0.05
"""The share of questions that nobody asked before: answers are kept for ever, so they must not be all of the growth."""
_EVERY = 30.0  # seconds between two lines
MOST_GROWTH = 32 << 20
"""Bytes that the server may grow by after the first quarter of the run, beside what it must remember."""
BYTES_PER_ANSWER = 400
"""What an answer may take in memory. Requests need none in the long run: beyond 50,000 they are looked up on disk."""


def _resident(pid: int) -> int:
    """Bytes of memory that a process has for itself."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) << 10
    return 0


def _questions(draw: random.Random, asked: list[int]) -> Iterator[list[int]]:
    """Mostly known questions, in ever new requests. asked: how many questions are known, in its only place."""
    while True:
        batch = []
        for _ in range(BATCH):
            if asked[0] < POOL and (asked[0] == 0 or draw.random() < FRESH):
                batch.append(asked[0])
                asked[0] += 1
            else:
                batch.append(draw.randrange(asked[0]))
        yield batch


def soak(seconds: float, every: float = _EVERY) -> bool:
    """Ask without a pause; print memory, speed and latency now and then; whether all was well."""
    draw, asked = random.Random(1), [0]
    labels: dict[int, int] = {}
    questions = _questions(draw, asked)
    baseline, at_baseline, requests = 0, 0, 0
    with tempfile.TemporaryDirectory() as folder:
        ledger = Path(folder) / "ledger.db"
        with service_process(ledger, POOL) as server:
            begun = time.monotonic()
            turn = 0
            while (left := begun + seconds - time.monotonic()) > 0:
                turn += 1
                heard = ask_for(server.port, CLIENTS, questions, min(every, left), f"turn {turn}")
                for question, label in heard.labels.items():
                    if labels.setdefault(question, label) != label:
                        print(f"Question {question} has two answers.", flush=True)
                        return False
                requests += len(heard.seconds)
                passed, memory = time.monotonic() - begun, _resident(server.pid)
                slow = sorted(heard.seconds)[int(0.99 * len(heard.seconds))]
                print(
                    f"{passed:6.0f} s  {memory / 2**20:7.1f} MiB  {len(heard.seconds) / heard.elapsed:7.0f} requests/s  "
                    f"p99 {1e3 * slow:6.1f} ms  {asked[0]:8,} questions  {requests:10,} requests",
                    flush=True,
                )
                if not baseline and passed >= seconds / 4:
                    baseline, at_baseline = memory, asked[0]
            memory = _resident(server.pid)
        missing = lost(ledger, POOL, labels)
    bound = MOST_GROWTH + BYTES_PER_ANSWER * (asked[0] - at_baseline)
    grown = memory - baseline
    print(
        f"Memory grew by {grown / 2**20:.1f} MiB after the warm-up; at most {bound / 2**20:.1f} MiB is allowed. "
        f"{missing} of {len(labels):,} answers were lost.",
        flush=True,
    )
    return missing == 0 and grown <= bound


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--every", type=float, default=_EVERY)
    chosen = parser.parse_args()
    sys.exit(0 if soak(chosen.seconds, chosen.every) else 1)


if __name__ == "__main__":
    main()
