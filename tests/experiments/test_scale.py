"""Accounting at the sizes people bring: a million queries, thousands of teachers, 150 classes, in bounded memory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from pate.aggregators import Aggregator, ConfidentGNMax, GNMax, LNMax
from pate.experiments.accounting import account
from pate.votes import Votes

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.filterwarnings("ignore::pate.privacy.curve.GridEdgeWarning")  # five queries have their best order at the edge
@pytest.mark.parametrize(
    "aggregator", [GNMax(200.0), LNMax(0.01), ConfidentGNMax(3000, 1000.0, 200.0)], ids=["gnmax", "lnmax", "confident"]
)
def test_five_thousand_teachers_and_150_classes(aggregator: Aggregator) -> None:
    rng = np.random.default_rng(0)
    votes = Votes(rng.multinomial(5000, rng.dirichlet(np.full(150, 0.05), 5)), n_teachers=5000)
    report = account(votes, aggregator, 1e-5)
    assert 0 < report.dependent.epsilon(1e-5).epsilon < report.independent.epsilon(1e-5).epsilon


def test_chunks_add_up_to_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    votes = Votes(rng.multinomial(250, rng.dirichlet(np.full(5, 0.2), 900)), n_teachers=250)
    whole = account(votes, GNMax(40.0), 1e-5)
    monkeypatch.setattr("pate.experiments.accounting._CHUNK", 64)
    parts = account(votes, GNMax(40.0), 1e-5)
    for one, other in zip(whole.lines, parts.lines, strict=True):
        assert other.queries.tolist() == one.queries.tolist()
        assert other.rdp == pytest.approx(one.rdp, rel=1e-9)
    assert whole.dependent.queries[-1] == 900
    assert np.diff(whole.dependent.epsilons(1e-5)).min() >= 0


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peak memory is read from /proc")
def test_a_million_distinct_queries_in_bounded_memory() -> None:
    """Below 2 GiB where all costs at once would be 10. By VmHWM of its own process: rusage begins at the forker's peak."""
    program = """
import re
from pathlib import Path
from pate.aggregators import GNMax
from pate.experiments.accounting import account
from pate.experiments.bench.account import random_votes
from pate.votes import Votes
report = account(Votes(random_votes(1_000_000, 10, 0.1), 250), GNMax(40.0), 1e-5)
assert 0 < report.dependent.epsilon(1e-5).epsilon < report.independent.epsilon(1e-5).epsilon
print(re.search("VmHWM:[^0-9]*([0-9]+) kB", Path("/proc/self/status").read_text())[1])
"""
    ran = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert int(ran.stdout) < 2 * 2**20
