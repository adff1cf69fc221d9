"""``pate data``: what there is, fetching it, and whether it is whole."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest
from command_cases import Ran

from pate.experiments.datasets import BUILT_IN
from pate.experiments.datasets.adult import Adult
from pate.experiments.datasets.fetching import ORIGINS, Origin
from pate.experiments.datasets.files import KnownFile

Pate = Callable[..., Ran]


@pytest.fixture
def small_adult(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory in which adult is two small files, and the addresses from which they come."""
    files = tuple(
        KnownFile(f"adult/{name}", len(name), hashlib.sha256(name.encode()).hexdigest())
        for name in ("adult.data", "adult.test")
    )
    origin = tmp_path / "origin"
    origin.mkdir()
    for name in ("adult.data", "adult.test"):
        (origin / name).write_text(name)
    monkeypatch.setattr(Adult, "files", files)
    monkeypatch.setitem(ORIGINS, "adult", Origin("nobody", lambda file: [(origin / Path(file.path).name).as_uri()]))
    monkeypatch.delenv("PATE_DATA", raising=False)
    monkeypatch.setenv("PATE_HOME", str(tmp_path / "home"))
    return tmp_path / "home" / "data"


def test_list(pate: Pate, small_adult: Path) -> None:
    rows = {row["name"]: row for row in pate("data", "list", "--json").json["datasets"]}
    assert set(rows) == set(BUILT_IN)
    assert rows["adult"]["here"] == "–"
    assert rows["adult"]["bytes"] == 20
    assert rows["svhn"]["bytes"] is None
    assert (rows["digits"]["here"], rows["files"]["here"]) == ("built in", "yours")
    assert all(rows[name]["what"] for name in rows)
    (small_adult / "adult").mkdir(parents=True)
    (small_adult / "adult/adult.data").write_text("adult.data")
    shown = pate("data", "list")
    assert shown.code == 0
    assert "1 of 2 files" in shown.out
    assert "MIT licence" in shown.out


def test_fetch_and_verify(pate: Pate, small_adult: Path) -> None:
    asked = pate("data", "verify", "adult")
    assert asked.code == 5
    assert "missing  adult/adult.data" in asked.out
    assert asked.err.startswith("pate: 2 of 2 files are not sound; the first: adult/adult.data: missing")
    fetched = pate("data", "fetch", "adult")
    assert (fetched.code, fetched.out) == (0, f"adult: 2 files fetched, in {small_adult}\n")
    assert pate("data", "fetch", "adult").out == f"adult: all there already, in {small_adult}\n"
    assert pate("data", "verify", "adult").out == "ok       adult/adult.data\nok       adult/adult.test\n"
    (small_adult / "adult/adult.test").write_text("adult.tset")
    wrong = pate("data", "verify", "--json")
    assert wrong.code == 5, "a wrong file is told even where nobody asked for it"
    states = {row["file"]: row["state"].partition(":")[0] for row in wrong.json["files"]}
    assert states["adult/adult.test"] == "wrong"
    assert states["SVHN/train_32x32.mat"] == "missing"
    assert wrong.err.count("\n") == 1


def test_verify_of_what_is_here_alone(pate: Pate, small_adult: Path) -> None:
    assert pate("data", "verify", "--data", small_adult.parent).code == 0, "nothing was asked for by name"


def test_a_file_that_cannot_be_had(pate: Pate, small_adult: Path, tmp_path: Path) -> None:
    (tmp_path / "origin/adult.test").unlink()
    failed = pate("data", "fetch", "adult", "--data", tmp_path / "elsewhere")
    assert failed.code == 5
    last = failed.err.splitlines()[-1]
    assert "adult.test could not be fetched" in last
    assert f"put the original at {tmp_path / 'elsewhere/adult/adult.test'} by hand: 10 bytes, SHA-256" in last
    assert (tmp_path / "elsewhere/adult/adult.data").exists(), "what is whole is kept"


@pytest.mark.parametrize("verb", ["fetch", "verify"])
def test_an_unknown_name(pate: Pate, verb: str) -> None:
    failed = pate("data", verb, "adlut")
    assert failed.code == 2
    assert "did you mean 'adult'?" in failed.err
