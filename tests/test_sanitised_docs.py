"""The page about the sanitised epsilon: its code and commands run, and its figures are what it says."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from doc_pages import DOCS, blocks, check_options, run, run_commands

from pate.aggregators import Aggregator, ConfidentGNMax, GNMax, LNMax
from pate.arrays import IntArray
from pate.experiments.sanitising import Sanitiser
from pate.experiments.vote_files import write_votes
from pate.ledger import Budget, Ledger
from pate.noise import SimulatedNoise
from pate.votes import Votes

PAGE = DOCS / "sanitised-epsilon.md"


def test_its_python_runs(tmp_path: Path) -> None:
    ran = run(tmp_path, "-W", "error", "-c", "\n".join(blocks(PAGE, "python")))
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith("epsilon ")
    assert "simulation, not private" in ran.stdout
    assert ran.stdout.endswith("True True\n")


def test_its_commands_run(tmp_path: Path) -> None:
    check_options(PAGE)
    counts = np.repeat([[110, 5, 5], [70, 40, 10], [118, 1, 1]], 20, axis=0)
    write_votes(tmp_path / "votes.npz", Votes(counts, 120), fingerprint="ward", unit="record")
    Ledger.open(tmp_path / "ledger.db", "ward", Budget(20.0, 1e-5)).close()
    run_commands(PAGE, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("aggregator", "growth", "gnss"),
    [
        (GNMax(40.0), 1.55, 1.99),
        (ConfidentGNMax(200, 150.0, 40.0), 1.34, 1.63),
        (ConfidentGNMax(300, 200.0, 40.0), 1.11, 1.40),
        (LNMax(0.05), 2.17, 2.85),
    ],
    ids=repr,
)
def test_its_table(aggregator: Aggregator, growth: float, gnss: float, mnist_votes: IntArray) -> None:
    """Medians of 41 draws with stated seeds, so no chance is left."""
    votes = Votes(mnist_votes[:640], 250)
    assert f"**{growth:.2f}** | {gnss:.2f}" in PAGE.read_text()
    plans = [Sanitiser.plan(aggregator, votes.electorate, 640, 1e-5, method) for method in ("growth", "gnss")]
    medians = [np.median([plan.draw(votes, SimulatedNoise(seed)).epsilon for seed in range(41)]) for plan in plans]
    np.testing.assert_allclose(medians, [growth, gnss], atol=0.006)
