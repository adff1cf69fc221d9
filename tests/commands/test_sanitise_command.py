"""``pate account --sanitise``: a release like any other, paid for by a ledger and shown by it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_cases import one_line

from pate.experiments.vote_files import write_votes
from pate.ledger import Budget, Ledger
from pate.votes import Votes

Pate = Callable[..., Any]


@pytest.fixture
def voted(tmp_path: Path) -> Path:
    counts = np.repeat([[110, 5, 5], [70, 40, 10], [118, 1, 1]], 20, axis=0)
    write_votes(tmp_path / "votes.npz", Votes(counts, 120), fingerprint="ward-1", unit="user")
    Ledger.open(tmp_path / "ledger.db", "ward-1", Budget(20.0, 1e-5), "user").close()
    return tmp_path


def command(folder: Path, *more: object) -> tuple[object, ...]:
    return ("account", folder / "votes.npz", "-a", "gnmax", "-s", "sigma=15", "--sanitise", *more)


def test_it_is_charged_recorded_and_never_drawn_again_unasked(pate: Pate, voted: Path) -> None:
    paying = command(voted, "--ledger", voted / "ledger.db", "--json")
    first = pate(*paying)
    assert first.code == 0, first.err
    report = first.json
    assert report["epsilon"]["sanitised"] == report["sanitised"]["epsilon"]
    assert report["sanitised"]["stamp"] == "noise from the operating system"
    assert report["epsilon"]["data_dependent"] < report["epsilon"]["sanitised"]
    with Ledger.open(voted / "ledger.db", "ward-1") as ledger:
        spent, rows = ledger.spent().epsilon, len(ledger.entries())
    told = f"{report['sanitised']['epsilon']:.4g}"
    one_line(pate(*paying), f"{told}, and the ledger does not know for which votes", code=4)
    with Ledger.open(voted / "ledger.db", "ward-1") as ledger:
        assert (ledger.spent().epsilon, len(ledger.entries())) == (spent, rows)
    shown = pate("ledger", "show", voted / "ledger.db", "--json").json["datasets"][0]
    assert shown["sanitised"] == [report["sanitised"]]
    assert f"epsilon {report['sanitised']['epsilon']:.4g} sanitised" in pate("ledger", "show", voted / "ledger.db").out
    other = pate(*paying, "--again").json["sanitised"]
    assert other["drawn"] != report["sanitised"]["drawn"]


def test_the_table_shows_it_with_its_spread(pate: Pate, voted: Path) -> None:
    ran = pate(*command(voted, "--ledger", voted / "ledger.db"))
    assert ran.code == 0, ran.err
    for text in ("sanitised", "one standard deviation of its noise", "this release"):
        assert text in ran.out


@pytest.mark.parametrize("method", ["growth", "gnss"])
def test_a_simulation_needs_no_ledger_and_is_stamped(pate: Pate, voted: Path, method: str) -> None:
    ran = [pate(*command(voted, "--simulate", 5, "--method", method, "--json")) for _ in range(2)]
    assert ran[0].json == ran[1].json
    assert ran[0].json["sanitised"]["stamp"] == "simulation, not private"
    assert "simulation, not private" in pate(*command(voted, "--simulate", 5, "--method", method)).out


def test_without_a_ledger_it_is_refused(pate: Pate, voted: Path) -> None:
    one_line(pate(*command(voted)), "--sanitise is a release")
    one_line(pate(*command(voted, "--ledger", voted / "other.db")), "other.db", code=4)


def test_its_options_do_nothing_alone(pate: Pate, voted: Path) -> None:
    one_line(pate("account", voted / "votes.npz", "-a", "gnmax", "-s", "sigma=15", "--again"), "belong to --sanitise")


def test_what_cannot_be_sanitised_is_refused_in_one_line(pate: Pate, voted: Path) -> None:
    partial = ("account", voted / "partial.npy", "-a", "gnmax", "-s", "sigma=15", "--teachers", 400, "--participation", 2)
    np.save(voted / "partial.npy", np.array([[300, 20], [10, 250]]))
    one_line(pate(*partial, "--sanitise", "--simulate", 1), "nothing to sanitise")


def test_a_seed_below_0_and_options_without_a_ledger_are_told(pate: Pate, voted: Path) -> None:
    refused = pate(*command(voted, "--simulate", -1))
    assert refused.code == 2
    assert "unexpected" not in refused.err
    for option in (("--again",), ("--dataset", "ward-1")):
        one_line(pate(*command(voted, "--simulate", 1, *option)), "--again and --dataset belong to --ledger", code=2)
