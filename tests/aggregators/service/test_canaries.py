"""Votes never leave: vote counts that are easy to know again are looked for in all that a client, a log or a scraper sees."""

from __future__ import annotations

import io
import itertools
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from http_cases import ANN, BOB, OWNER, TOKENS, Web, bearer, web_service

from pate.aggregators import ConfidentGNMax
from pate.aggregators.service.logs import JsonLines
from pate.aggregators.service.sources import Pool
from pate.errors import LedgerError
from pate.ledger import Budget
from pate.votes import Votes

# Primes of seven and more digits: the chance that a time or a request's id holds one is below one in a million.
COUNTS = (1299709, 15485863, 32452843, 49979687)
CANARIES = [str(each) for each in COUNTS] + [f"{each:,}" for each in COUNTS] + [str(sum(COUNTS[:3]))]
STAGES, EACH = 10, 24  # each stage asks about records that no earlier one asked about


def canary_votes() -> Votes:
    counts = np.array(list(itertools.permutations(COUNTS)) * STAGES)
    return Votes(counts, int(counts[0].sum()))


class Careless(Pool):
    """A source that puts all its votes into its errors."""

    careless = False

    def votes(self, queries: Sequence[Any]) -> Votes:
        found = super().votes(queries)
        if self.careless:
            raise ValueError(f"could not count {found.counts.tolist()}")
        return found


@pytest.fixture
def logged() -> Iterator[io.StringIO]:
    """All that the process would log, as `pate serve` writes it, down to debug."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines())
    root, own = logging.getLogger(), logging.getLogger("pate.service")
    before = root.level, own.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    own.setLevel(logging.DEBUG)
    yield stream
    root.removeHandler(handler)
    root.setLevel(before[0])
    own.setLevel(before[1])


def everything(web: Web, stage: int) -> Iterator[str]:
    """Every endpoint with every role, right and wrong requests: status, headers and body."""
    first = stage * EACH
    answers = [
        web.get(path, token)
        for path in (
            "/v1/budget",
            "/v1/mechanism",
            "/v1/owner/summary",
            "/metrics",
            "/openapi.json",
            "/owner",
            "/readyz",
            "/no",
        )
        for token in (OWNER, ANN, None)
    ]
    answers += [web.ask(f"{stage} {number}", [first + number, first + number + 1]) for number in range(0, 20, 3)]
    answers += [
        web.ask(f"{stage} {number}", [first + number, first + 20]) for number in range(3)
    ]  # conflicts, and beyond what is answered
    answers += [web.ask(f"{stage} {number}", [first + 20, first + 21, first + 22, first + 23], BOB) for number in range(2)]
    answers += [web.ask(f"{stage} bad", [9999]), web.post("{"), web.http.post("/v1/owner/verify", headers=bearer(OWNER))]
    yield from (f"{answer.status_code} {answer.headers} {answer.text}" for answer in answers)


def test_no_vote_is_ever_seen(tmp_path: Path, logged: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    source = Careless(canary_votes(), "ward")
    # Near the largest count, with noise of that size: answers and abstentions both.
    aggregator = ConfidentGNMax(threshold=50_000_000, sigma1=16_000_000, sigma2=16_000_000)
    seen: list[str] = []
    with web_service(tmp_path, aggregator=aggregator, source=source, budget=Budget(1.0, 1e-5)) as web:
        seen += everything(web, 0)
        assert any('"label":null' in text for text in seen)
        source.careless = True
        seen += everything(web, 1)
        source.careless = False
        service = web.service
        assert service is not None
        failures = {
            "settle": OSError(28, f"No space left on device: {COUNTS}", str(tmp_path / "ledger.db")),
            "reserve": LedgerError(f"Ledger {tmp_path}: {COUNTS}"),
            "entries": RuntimeError(f"{COUNTS}"),
            "spent": OSError(5, f"{COUNTS}"),
            "verify": LedgerError(f"Ledger {tmp_path}: {COUNTS}"),
        }
        for stage, (name, error) in enumerate(failures.items(), 2):
            with monkeypatch.context() as patch:

                def fail(*_: Any, _error: Exception = error, **__: Any) -> Any:
                    raise _error

                patch.setattr(service.ledger, name, fail)
                seen += everything(web, stage)
        with monkeypatch.context() as patch:

            async def crash(*_: Any) -> Any:
                raise RuntimeError(f"a defect near {COUNTS}")

            patch.setattr("pate.aggregators.service.app.read_question", crash)
            patch.setattr("pate.aggregators.service.metrics.Metrics.text", lambda *_: 1 // 0)
            seen += everything(web, STAGES - 1)
        seen.append(repr(source) + repr(service) + repr(TOKENS))
    log = logged.getvalue()
    assert log.count('"event": "request"') >= 8 * 30  # else the log would prove nothing
    assert '"error": "ValueError"' in log
    assert '"error": "OSError"' in log
    statuses = {text[:3] for text in seen}
    assert {"200", "401", "403", "404", "422", "500", "503"} <= statuses
    for text in (*seen, log):
        for canary in (*CANARIES, str(tmp_path), "Traceback", "No space left"):
            assert canary not in text
    assert not any(token in log for token in (OWNER, ANN, BOB))
