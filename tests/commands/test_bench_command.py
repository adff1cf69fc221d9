"""``pate bench``: the benchmarks run and compare what they say. No speed is asserted: that would be a coin toss."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pate.experiments.bench.soak import soak

Pate = Callable[..., Any]


def test_bench_account(pate: Pate) -> None:
    rows = pate("bench", "account", "--queries", 10, "--orders", 3, "--rounds", 1, "--json").json
    accountants = {row["accountant"] for row in rows}
    assert {"2018 bound, plain loop, one direction", "exact, NumPy, both directions"} <= accountants
    assert all(row["seconds"] > 0 and row["orders"] in (1, 3) for row in rows)
    assert {"smooth sensitivity by table", "2018 smooth sensitivity, all queries at once"} <= accountants
    assert "times faster" in pate("bench", "account", "--queries", 10, "--orders", 3, "--rounds", 1).out


def test_bench_noise(pate: Pate) -> None:
    rows = pate("bench", "noise", "--draws", 1000, "--rounds", 1, "--json").json
    assert [row["sampler"] for row in rows][1:3] == ["exact Gaussian, operating system", "exact Gaussian, seeded"]
    assert "draws a second" in pate("bench", "noise", "--draws", 1000, "--rounds", 1).out


def test_bench_service(pate: Pate) -> None:
    words = ("--seconds", 0.6, "--rounds", 1, "--batches", "1,20", "--clients", "1,8", "--json")
    rows = pate("bench", "service", *words).json
    assert [(row["batch"], row["clients"]) for row in rows] == [(1, 1), (1, 8), (20, 1), (20, 8)]
    assert all(row["answers_lost"] == 0 and row["answers_checked"] > 20 for row in rows)
    assert all(row["answers_per_second"] > 0 and 0 < row["p50_ms"] <= row["p99_ms"] for row in rows)
    assert all(row[name] > 0 for row in rows for name in ("times_bare_commits", "times_bare_requests", "times_empty_endpoint"))
    assert pate("bench", "service", "--clients", "none").code == 2


def test_the_soak_runs_and_finds_nothing_lost(capsys: pytest.CaptureFixture[str]) -> None:
    assert soak(2.0, every=0.5)
    assert " 0 of " in capsys.readouterr().out
