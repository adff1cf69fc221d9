"""``pate ask``: from votes to answers that are paid for, and never an answer lost or a charge forgotten."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_cases import one_line

from pate.experiments import asking, release_files
from pate.experiments.release_files import read_release
from pate.experiments.vote_files import read_votes, write_votes
from pate.ledger import Budget, Ledger
from pate.votes import Votes

Pate = Callable[..., Any]
N_QUERIES = 12


class Files:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.votes, self.rows = folder / "votes.npz", folder / "queries.npy"
        self.ledger, self.out = folder / "ledger.db", folder / "release.json"
        leaders = np.arange(N_QUERIES) % 3
        self.counts = np.eye(3, dtype=np.int64)[leaders] * 180 + 10
        write_votes(self.votes, Votes(self.counts, 210), fingerprint="ward-1", unit="user")
        np.save(self.rows, np.arange(N_QUERIES) * 5)

    @property
    def ask(self) -> tuple[Any, ...]:
        return ("ask", "--votes", self.votes, "-a", "gnmax", "-s", "sigma=20", "--ledger", self.ledger, "--out", self.out)

    @property
    def begin(self) -> tuple[Any, ...]:
        return (*self.ask, "--budget-epsilon", 1, "--delta", 1e-5)

    def spent(self, fingerprint: str = "ward-1") -> float:
        with Ledger.open(self.ledger, fingerprint) as ledger:
            return ledger.spent().epsilon

    @property
    def written(self) -> list[str]:
        return sorted(path.name for path in self.folder.iterdir() if "release" in path.name)


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def test_answers_are_charged_and_written(pate: Pate, files: Files) -> None:
    ran = pate(*files.begin, "--queries", files.rows, "--json")
    assert ran.code == 0, ran.err
    release, rows = read_release(files.out)
    # A lead of 180 votes under noise of 28: an answer other than the leader has probability below 1e-9 each.
    assert release.labels.tolist() == (np.arange(N_QUERIES) % 3).tolist()
    assert rows is not None
    assert rows.tolist() == (np.arange(N_QUERIES) * 5).tolist()
    assert (release.mode, release.electorate.n_teachers, dict(release.mechanism)) == (
        "release",
        210,
        {"aggregator": "gnmax", "sigma": 20},
    )
    assert ran.json["spent"]["epsilon"] == files.spent() > 0
    assert (ran.json["dataset"], ran.json["unit"], ran.json["answered"]) == ("ward-1", "user", N_QUERIES)


def test_nothing_private_is_printed_or_written(pate: Pate, files: Files) -> None:
    ran = pate(*files.begin)
    assert ran.code == 0, ran.err
    shown = ran.out + ran.err + files.out.read_text()
    assert "190" not in shown  # the leader's count
    assert "dependent" not in shown.replace("data-independent", "")
    assert "noise from the operating system" in ran.out


def test_the_budget_refuses_before_anything_is_written(pate: Pate, files: Files) -> None:
    assert pate(*files.begin).code == 0
    before, kept = files.spent(), files.out.read_text()
    again = (*files.ask, "--out", files.folder / "release2.json")
    one_line(pate(*again), "does not cover this request", code=3)
    assert files.spent() == before
    assert files.written == ["release.json"]
    one_line(pate(*files.ask), "not overwritten")
    assert files.out.read_text() == kept


def test_a_simulation_repeats_itself_and_says_so(pate: Pate, files: Files) -> None:
    first = pate(*files.begin, "--simulate", 7)
    assert first.code == 0, first.err
    assert "simulation, not private" in first.out
    other = (*files.ask, "--ledger", files.folder / "other.db", "--out", files.folder / "release2.json")
    assert pate(*other, "--budget-epsilon", 2, "--simulate", 7).code == 0
    assert files.out.read_text() == (files.folder / "release2.json").read_text()
    assert read_release(files.out).release.mode == "simulation"


def test_a_disk_that_fails_shows_before_the_charge(pate: Pate, files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    Ledger.open(files.ledger, "ward-1", Budget(1, 1e-5), unit="user").close()
    monkeypatch.setattr(release_files.os, "fsync", full)
    one_line(pate(*files.ask), "No space left on device")
    assert files.spent() == 0
    assert files.written == []


def test_a_disk_that_fails_after_the_charge_loses_no_answer(pate: Pate, files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(source: object, target: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(release_files, "os", _Os(broken))
    ran = pate(*files.begin, "--queries", files.rows)
    one_line(ran, "charged to the ledger, but the file could not be written")
    assert files.spent() > 0
    assert files.written == []
    saved = files.folder / "saved.json"
    saved.write_text(ran.out)
    assert read_release(saved).release.labels.tolist() == (np.arange(N_QUERIES) % 3).tolist()


class _Os:
    """The module os, with a replace of its own for one module alone."""

    def __init__(self, replace: Callable[[object, object], None]) -> None:
        self.replace = replace

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)


def test_room_is_enough_for_any_answers(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    rooms: list[int] = []

    def noticed(path: Path, room: int) -> Any:
        rooms.append(room)
        return release_files.new_file(path, room)

    monkeypatch.setattr(asking, "new_file", noticed)
    from pate.aggregators import make_aggregator

    votes = read_votes(files.votes).votes
    for name, settings in (
        ("noisy-histogram", {"sigma": 20 / 3}),
        ("confident-gnmax", {"threshold": 400, "sigma1": 40.0, "sigma2": 40.0}),  # abstains
    ):
        with Ledger.open(files.folder / f"{name}.db", "ward-1", Budget(1000, 1e-5)) as ledger:
            out = files.folder / f"{name}.json"
            asking.ask_into(out, make_aggregator(name, settings), votes, ledger, queries=np.arange(N_QUERIES))
        assert out.stat().st_size <= rooms[-1]


def test_the_data_set_that_pays(pate: Pate, files: Files) -> None:
    np.save(files.folder / "bare.npy", files.counts)
    bare = (*files.begin[:2], files.folder / "bare.npy", *files.begin[3:])
    one_line(pate(*bare), "name its fingerprint with --dataset")
    assert pate(*bare, "--dataset", "ward-0").code == 0
    files.out.unlink()
    grown = pate(*files.ask, "--dataset", "ward-9", "--budget-epsilon", 2)
    one_line(grown, "must name one that the ledger holds already")
    one_line(pate(*files.ask, "--unit", "record"), "The votes protect a user")
    one_line(pate(*files.ask), "nothing is recorded for data set 'ward-1'", code=4)
    one_line(pate(*files.begin, "--dataset", "ward-0"), "unit", code=4)  # begun for records, and these are users
    assert files.written == []


def test_partial_votes_state_their_participation(pate: Pate, files: Files) -> None:
    votes = Votes.from_predictions(np.where(np.arange(6)[:, None] == np.arange(6), 1, -1), 2, participation=1)
    write_votes(files.votes, votes, fingerprint="ward-1", unit="record")
    one_line(pate(*files.begin, "--participation", 2), "the file states participation = 1")
    assert pate(*files.begin).code == 0
    assert read_release(files.out).release.electorate.participation == 1
    report = pate("account", files.votes, "-a", "gnmax", "-s", "sigma=20", "--json")
    assert report.json["participation"] == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--delta", 1e-5), "--delta belongs to --budget-epsilon"),
        (("--budget-epsilon", -1), "epsilon must be a finite number above 0"),
        (("-s", "sgima=3"), "did you mean 'sigma'?"),
        (("--votes", "none.npz"), "no such file"),
        (("--queries", "none.npy"), "no such file"),
        (("--budget-epsilon", 2, "--queries", "few.npy"), "3 rows for 12 answers"),
        (("--out", "no/release.json"), "there is no directory"),
    ],
)
def test_a_mistake_is_one_line_and_costs_nothing(
    pate: Pate, files: Files, monkeypatch: pytest.MonkeyPatch, arguments: tuple[Any, ...], message: str
) -> None:
    monkeypatch.chdir(files.folder)
    np.save("few.npy", np.arange(3))
    one_line(pate(*files.ask, *arguments), message)
    assert files.written == []
    if files.ledger.exists():
        assert files.spent() == 0


def test_queries_that_are_missing_end_with_5_and_a_seed_below_0_with_2(pate: Pate, files: Files) -> None:
    one_line(pate(*files.begin, "--queries", files.folder / "nowhere.npy"), "no such file", 5)
    assert pate(*files.begin, "--simulate", -1).code == 2
    assert not files.ledger.exists()
