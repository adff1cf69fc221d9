"""``pate audit``: what it prints, what it writes, and its exit codes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pate.arrays import IntArray

for package in ("sklearn", "threadpoolctl"):
    pytest.importorskip(package, reason=f"{package} is not installed (extra 'train')")

Pate = Callable[..., Any]

RECIPE = """
[data]
source = "digits"
[teachers]
model = "ridge"
count = 10
[queries]
count = 20
[aggregator]
name = "gnmax"
sigma = 8.0
[privacy]
epsilon = 4.0
[student]
model = "spreading"
"""

QUIET = """
from pate.aggregators import GNMax

class Quiet(GNMax):
    def release(self, votes, noise):
        return GNMax(self.sigma / 8).release(votes, noise)
"""


def test_an_honest_aggregator(pate: Pate) -> None:
    ran = pate(
        *("audit", "aggregator", "gnmax", "-s", "sigma=20", "--queries", 40, "--teachers", 40, "--classes", 3),
        *("--runs", 40, "--json"),
    )
    assert ran.code == 0, ran.out + ran.err
    found = ran.json
    assert (found["audited"], found["passed"]) == ("GNMax(sigma=20)", True)
    assert [each["method"] for each in found["lower_bounds"]] == ["exact", "black box"]
    assert found["lower_bounds"][1]["runs"] == 80
    assert found["lower_bounds"][1]["confidence"] == 0.99


def test_too_little_noise_is_exit_code_1(pate: Pate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """100 queries, 60 runs a world, confidence 0.99."""
    pytest.importorskip("matplotlib", reason="matplotlib is not installed (extra 'plot')")
    (tmp_path / "own_noise.py").write_text(QUIET)
    monkeypatch.syspath_prepend(str(tmp_path))
    picture = tmp_path / "audit.png"
    ran = pate(
        *("audit", "aggregator", "own_noise:Quiet", "-s", "sigma=20", "--queries", 100, "--teachers", 40, "--classes", 2),
        *("--runs", 60, "--plot", picture),
    )
    assert ran.code == 1, ran.out + ran.err
    assert "Refuted:" in ran.out
    assert "no proof of privacy" in ran.out
    assert picture.stat().st_size > 1000


def test_votes_of_a_run_are_audited_and_marked_private(pate: Pate, tmp_path: Path, mnist_votes: IntArray) -> None:
    file = tmp_path / "votes.npz"
    np.savez(file, counts=mnist_votes[:20])
    ran = pate(*("audit", "aggregator", "gnmax", "-s", "sigma=40", "--votes", file, "--queries", 12, "--runs", 20, "--json"))
    found = ran.json
    assert [each["private"] for each in found["lower_bounds"]] == [True, True, True]
    assert found["lower_bounds"][0]["name"] == "12 queries, these votes"


def test_a_run(pate: Pate, tmp_path: Path) -> None:
    recipe = tmp_path / "small.toml"
    recipe.write_text(RECIPE)
    ran = pate("audit", "run", recipe, "--runs", 20, "--canaries", "mislabelled", "--no-students")
    assert ran.code == 0, ran.out + ran.err
    assert "small: GNMax(sigma=8.0): rules" in ran.out
    assert "one change: a mislabelled record" in ran.out
    assert "alone with its teacher" in ran.out
    assert "runs: 40 of 40" in ran.err


def test_dpsgd(pate: Pate) -> None:
    for package in ("torch", "dp_accounting"):
        pytest.importorskip(package, reason=f"{package} is not installed (extras 'train' and 'dpsgd')")
    plain = ("-s", "dpsgd.rate=1.0", "-s", "dpsgd.noise_multiplier=2.0")
    ran = pate("audit", "dpsgd", "digits", *plain, "--runs", 20, "--steps", 2, "--json")
    assert ran.code == 0, ran.out + ran.err
    assert [each["method"] for each in ran.json["lower_bounds"]] == ["black box", "one run"]
    assert "2 steps" in ran.json["notes"][0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("aggregator", "gnmaxx", "-s", "sigma=3"), "did you mean 'gnmax'?"),
        (("aggregator", "gnmax", "-s", "sigma=3", "--runs", 5, "--quick"), "leave it out where --runs says"),
        (("aggregator", "gnmax", "-s", "sigma=3", "--runs", 5), "runs must be a whole number of at least 20"),
        (("aggregator", "gnmax", "-s", "sigma=3", "--delta", 2), "delta must lie strictly"),
        (("run", "digit"), "did you mean 'digits'?"),
        (("run", "digits", "--canaries", "cat"), "A canary is one of mislabelled, outlier; got 'cat'"),
        (("run", "digits", "--confidence", 1), "confidence must lie strictly"),
        (("dpsgd", "digits", "--runs", 2), "runs must be a whole number of at least 20"),
    ],
)
def test_mistakes(pate: Pate, arguments: tuple[Any, ...], message: str) -> None:
    ran = pate("audit", *arguments)
    assert ran.code == 2, ran.out + ran.err
    assert message in ran.err.splitlines()[-1]


def test_votes_say_who_voted(pate: Pate, vote_file: Path) -> None:
    ran = pate("audit", "aggregator", "gnmax", "-s", "sigma=40", "--votes", vote_file, "--teachers", 250)
    assert ran.code == 2
    assert "leave out --teachers and --classes" in ran.err
