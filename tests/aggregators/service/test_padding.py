"""With padding, how long a response takes says nothing about what it is."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from http_cases import ANN, N_CLASSES, OWNER, Web, ids_of, web_service
from scipy import stats

from pate.aggregators import ConfidentGNMax
from pate.aggregators.service.app import HttpSettings
from pate.aggregators.service.sources import Pool
from pate.ledger import Budget
from pate.votes import Votes

EACH = 24
SLOWER = 0.1  # seconds
PAD = 0.4
ALARM = 1e-7


class Telltale(Pool):
    """Even records are agreed on by all; odd ones by nobody, and take longer: a leak that anybody could measure."""

    def __init__(self) -> None:
        counts = np.full((4 * EACH, N_CLASSES), 50)
        counts[::2] = [250, 0, 0, 0, 0]
        super().__init__(Votes(counts, 250), "ward")

    def votes(self, queries: Sequence[Any]) -> Votes:
        time.sleep(SLOWER * (queries[0] % 2))
        return super().votes(queries)


def latencies(web: Web) -> tuple[list[float], list[float]]:
    """Seconds for answers and for abstentions, asked in turn, so that a busy moment of the machine meets both alike."""
    found: tuple[list[float], list[float]] = ([], [])
    for record in range(2 * EACH):
        begun = time.perf_counter()
        answer = web.ask(f"{record}", [record])
        found[record % 2].append(time.perf_counter() - begun)
        assert ids_of(answer) == [None if record % 2 else 0]
    return found


@pytest.mark.parametrize("pad", [0.0, PAD])
def test_answers_and_abstentions_cannot_be_told_apart_by_time(tmp_path: Path, pad: float) -> None:
    """Kolmogorov-Smirnov on 24 against 24 latencies.

    Padded, the test may cry wolf once in ten million runs (p < 1e-7). Unpadded, the same test finds the leak at the same
    level, so that its silence means something. A busy machine may be late by 0.1 s unpadded, and by 0.3 s padded.
    """
    options: dict[str, Any] = {"aggregator": ConfidentGNMax(200, 3, 3), "source": Telltale(), "budget": Budget(1e4, 1e-5)}
    with web_service(tmp_path, HttpSettings(pad_seconds=pad), **options) as web:
        answered, abstained = latencies(web)
    p_value = stats.ks_2samp(answered, abstained).pvalue
    assert (p_value < ALARM) == (pad == 0), (answered, abstained)
    assert min(answered + abstained) >= pad


def test_every_outcome_leaves_at_a_multiple_of_the_padding(tmp_path: Path) -> None:
    """A response is never early; that it is late by less than half the padding is asked of the median only."""
    pad = 0.4
    with web_service(tmp_path, HttpSettings(pad_seconds=pad, max_bytes=1000), budget=Budget(0.5, 1e-5)) as web:
        codes, late = set(), []
        web.ask("known", [0])
        bodies: list[tuple[Any, str | None]] = [
            ({"key": "known", "ids": [0]}, ANN),
            ({"key": "known", "ids": [1]}, ANN),
            ({"key": "other", "ids": [0]}, OWNER),
            ({"key": "too much", "ids": list(range(100))}, ANN),
            ({"key": "wrong", "ids": [-1]}, ANN),
            ("{", ANN),
            (" " * 2000, ANN),
            ({"key": "known", "ids": [0]}, None),
        ]
        for body, token in bodies:
            begun = time.perf_counter()
            answer = web.post(body, token)
            took = time.perf_counter() - begun
            codes.add(answer.status_code)
            assert took >= pad
            late.append(took % pad)
        assert codes == {200, 401, 403, 409, 413, 422}
        assert sorted(late)[len(late) // 2] < pad / 2
        begun = time.perf_counter()
        assert min(web.get("/v1/budget").elapsed.total_seconds() for _ in range(5)) < pad
