"""``pate demo``: the whole way from private data to a published epsilon."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pate.experiments import demo
from pate.experiments.datasets import load
from pate.ledger import Ledger
from pate.noise import SimulatedNoise

pytest.importorskip("sklearn", reason="scikit-learn is not installed (extra 'train')")

Pate = Callable[..., Any]


def test_demo_prints_a_result_and_pays_for_it(pate: Pate, tmp_path: Path) -> None:
    ran = pate("demo", "--out", tmp_path)
    assert ran.code == 0, ran.err
    assert "student accuracy" in ran.out
    assert "Noise from the operating system" in ran.out
    with Ledger.open(tmp_path / "ledger.db", load("digits").private.fingerprint) as ledger:
        assert 0 < ledger.spent(demo.DELTA).epsilon <= demo.BUDGET.epsilon


def test_a_second_run_on_the_same_data_and_ledger_is_refused_by_the_budget(pate: Pate, tmp_path: Path) -> None:
    assert pate("demo", "--out", tmp_path, "--seed", 1).code == 0
    again = pate("demo", "--out", tmp_path, "--seed", 1)
    assert again.code == 3
    assert len(again.err.strip().splitlines()) == 1


def test_a_seeded_demo_is_repeatable_and_says_that_it_is_not_private(pate: Pate, tmp_path: Path) -> None:
    ran = pate("demo", "--out", tmp_path / "a", "--seed", 3)
    assert "Simulation, not private" in ran.out
    first, second = (demo.run(SimulatedNoise(3), tmp_path / name, lambda line: None) for name in ("b", "c"))
    assert [each.accuracy for each in first.outcomes] == [each.accuracy for each in second.outcomes]


def test_students_learn(tmp_path: Path) -> None:
    """Chance is 10%. Mean accuracies over noise are about 90%, so 70% leaves room for any seed."""
    result = demo.run(SimulatedNoise(5), tmp_path, lambda line: None)
    assert all(each.accuracy > 0.7 for each in result.outcomes)
    assert all(each.dependent.epsilon <= each.independent.epsilon for each in result.outcomes)
    assert result.total.epsilon <= demo.BUDGET.epsilon
