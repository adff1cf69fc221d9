"""``pate run`` in a process of its own, and Ctrl-C at many moments around the paying of answers: the budget is never lost."""

from __future__ import annotations

import multiprocessing
import os
import random
import re
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from command_cases import Ran

from pate.aggregators import GNMax
from pate.cli import main
from pate.experiments.pipeline import launch as launching
from pate.ledger import Budget, Ledger
from pate.votes import Votes

for package in ("sklearn", "matplotlib", "jinja2"):
    pytest.importorskip(package, reason=f"{package} is not installed (extras 'train' and 'plot')")

CASES = str(Path(__file__).parents[1] / "experiments")
MOMENTS = 20
WARD = {
    "title": "ward",
    "data": {"source": "pipeline_cases:Ward"},
    "teachers": {"model": "ridge", "count": 10},
    "queries": {"count": 8},
    "aggregator": {"name": "gnmax", "sigma": "auto"},
    "privacy": {"epsilon": 2.0},
    "student": {"model": "spreading"},
}


def _in_child(folder: str, words: tuple[str, ...], before: Callable[[], None] | None) -> None:
    os.chdir(folder)
    out = os.open("out", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(out, 1)
    os.dup2(out, 2)
    sys.stdout = sys.stderr = os.fdopen(out, "w", buffering=1)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.argv = ["pate", *words]
    if before is not None:
        before()
    try:
        main()
    finally:
        sys.stdout.flush()


def started(folder: Path, *words: object, before: Callable[[], None] | None = None) -> Any:
    """``pate`` in a child, with a terminal's handling of Ctrl-C."""
    (folder / "out").unlink(missing_ok=True)
    child = multiprocessing.get_context("fork").Process(target=_in_child, args=(str(folder), tuple(map(str, words)), before))
    child.start()
    return child


def said(folder: Path) -> str:
    return (folder / "out").read_text() if (folder / "out").exists() else ""


def ended(child: Any, folder: Path) -> Ran:
    child.join(60)
    assert child.exitcode is not None, "it hangs"
    return Ran(child.exitcode, said(folder), "")


def wait_for(child: Any, folder: Path, text: str) -> None:
    until = time.monotonic() + 30
    while text not in said(folder) and child.is_alive() and time.monotonic() < until:
        time.sleep(0.001)


def no_pictures() -> None:
    launching.write_all = lambda result, folder: None  # type: ignore[assignment]


@pytest.fixture
def ward(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Folders with a recipe, and with teachers and votes of an earlier run, that nobody was asked for in."""
    monkeypatch.syspath_prepend(CASES)
    monkeypatch.setattr(launching, "write_all", lambda result, folder: None)

    def folder(name: str) -> Path:
        place = tmp_path / name
        place.mkdir()
        (place / "ward.toml").write_text(tomli_w.dumps(WARD))
        monkeypatch.setenv("PATE_HOME", str(place / "home"))
        if (tmp_path / "warm").exists() and name != "warm":
            shutil.copytree(
                tmp_path / "warm" / "runs" / "stages", place / "runs" / "stages", ignore=shutil.ignore_patterns("answers*")
            )
        return place

    warm = folder("warm")
    ran = ended(started(warm, "run", "ward.toml", "--serial", before=no_pictures), warm)
    assert ran.code == 0, ran.out
    return folder


def rows(folder: Path) -> list[str]:
    place = folder / "home" / "ledger.db"
    (fingerprint,) = Ledger.datasets(place)
    with Ledger.open(place, fingerprint) as ledger:
        assert ledger.verify().pending == 0, "a reservation of the whole budget, and no answers"
        return [entry.kind for entry in ledger.entries()]


def test_ctrl_c_at_any_moment_loses_no_budget(ward: Callable[[str], Path]) -> None:
    """sigma is auto: a run takes the whole budget, so that a second charge would be refused with exit code 3."""
    draws = random.Random(0)
    stopped = 0
    for moment in range(MOMENTS):
        folder = ward(f"moment{moment}")
        child = started(folder, "run", "ward.toml", "--serial", before=no_pictures)
        wait_for(child, folder, "[6/9]")
        time.sleep(draws.uniform(0, 0.06))
        if child.is_alive():
            os.kill(child.pid, signal.SIGINT)
        ran = ended(child, folder)
        assert ran.code in (0, 130), ran.out
        stopped += ran.code == 130
        again = ended(started(folder, "run", "ward.toml", "--serial", before=no_pictures), folder)
        assert again.code == 0, (moment, ran.out, again.out)
        assert rows(folder) == ["open", "reserve", "settle"]
    assert stopped >= MOMENTS // 3, "else nothing was tried"


def slow_noise() -> None:
    """Ctrl-C comes while noise is drawn, for sure."""
    no_pictures()
    plain = GNMax.release

    def release(self: GNMax, votes: Votes, noise: Any) -> Any:
        print("drawing", flush=True)
        time.sleep(0.5)
        return plain(self, votes, noise)

    GNMax.release = release  # type: ignore[method-assign]


def test_ctrl_c_while_noise_is_drawn_waits_for_the_answers(ward: Callable[[str], Path]) -> None:
    folder = ward("drawing")
    child = started(folder, "run", "ward.toml", "--serial", before=slow_noise)
    wait_for(child, folder, "drawing")
    os.kill(child.pid, signal.SIGINT)
    ran = ended(child, folder)
    assert ran.code == 130
    assert "What is being paid for is finished first" in ran.out
    assert ran.out.strip().endswith("pate: Stopped. What is finished is kept: the same command goes on from there.")
    assert rows(folder) == ["open", "reserve", "settle"]
    assert list(folder.glob("runs/ward-*/release.json"))
    assert ended(started(folder, "run", "ward.toml", "--serial", before=no_pictures), folder).code == 0


def test_after_kill_9_the_refusal_says_what_was_lost(ward: Callable[[str], Path]) -> None:
    folder = ward("killed")
    child = started(folder, "run", "ward.toml", "--serial", before=slow_noise)
    wait_for(child, folder, "drawing")
    os.kill(child.pid, signal.SIGKILL)
    child.join(60)
    ran = ended(started(folder, "run", "ward.toml", "--serial", before=no_pictures), folder)
    assert ran.code == 3
    assert "1 reservation (row 2 of" in ran.out
    held = re.search(r"(\d+)% of the budget, was never settled", ran.out)
    assert held is not None
    assert int(held[1]) > 95, "sigma is the least that fits"
    assert "the answers are lost" in ran.out


def test_pate_ask_writes_its_answers_first(tmp_path: Path) -> None:
    import numpy as np

    from pate.experiments.vote_files import write_votes

    write_votes(tmp_path / "votes.npz", Votes(np.full((6, 3), 70), 210), fingerprint="ward-1", unit="record")
    words = ("ask", "--votes", "votes.npz", "-a", "gnmax", "-s", "sigma=20", "--ledger", "ledger.db", "--out", "release.json")
    child = started(tmp_path, *words, "--budget-epsilon", 1, before=slow_noise)
    wait_for(child, tmp_path, "drawing")
    os.kill(child.pid, signal.SIGINT)
    ran = ended(child, tmp_path)
    assert ran.code == 130
    assert "pate: Stopped. The answers are charged, and written: release.json." in ran.out
    assert (tmp_path / "release.json").exists()
    with Ledger.open(tmp_path / "ledger.db", "ward-1", Budget(1.0, 1e-5)) as ledger:
        assert ledger.verify().pending == 0
