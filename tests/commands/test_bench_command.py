"""``pate bench``: the benchmarks run and compare what they say. No speed is asserted: that would be a coin toss."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Pate = Callable[..., Any]


def test_bench_account(pate: Pate) -> None:
    rows = pate("bench", "account", "--queries", 10, "--orders", 3, "--rounds", 1, "--json").json
    accountants = {row["accountant"] for row in rows}
    assert {"2018 bound, plain loop, one direction", "exact, NumPy, both directions"} <= accountants
    assert all(row["seconds"] > 0 and row["orders"] == 3 for row in rows)
    assert "times faster" in pate("bench", "account", "--queries", 10, "--orders", 3, "--rounds", 1).out


def test_bench_noise(pate: Pate) -> None:
    rows = pate("bench", "noise", "--draws", 1000, "--rounds", 1, "--json").json
    assert [row["sampler"] for row in rows][1:3] == ["exact Gaussian, operating system", "exact Gaussian, seeded"]
    assert "draws a second" in pate("bench", "noise", "--draws", 1000, "--rounds", 1).out
