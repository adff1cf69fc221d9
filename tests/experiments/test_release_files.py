"""Releases on disk: what was released and nothing else, whole or not at all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pate.errors import ParameterError
from pate.experiments.release_files import new_file, read_release, release_text, write_release
from pate.release import ABSTAIN, Electorate, Release

GNMAX = {"aggregator": "gnmax", "sigma": 40.0}


def made(**changes: Any) -> Release:
    facts: dict[str, Any] = {"labels": [2, ABSTAIN, 0], "electorate": Electorate(250, 3), "mechanism": GNMAX, **changes}
    return Release(**facts)


@pytest.mark.parametrize(
    "release",
    [
        made(),
        made(mode="simulation", histogram=np.array([[0.1, 1 / 3, -1e-300], [1e300, 2, 3], [4, 5, np.pi]])),
        made(electorate=Electorate(1000, 3, participation=4), mechanism={"aggregator": "confident", "inner": {"sigma": None}}),
        made(labels=[]),
    ],
    ids=["plain", "histogram", "partial", "empty"],
)
@pytest.mark.parametrize("asked", [False, True])
def test_what_is_written_is_read_to_the_last_bit(tmp_path: Path, release: Release, asked: bool) -> None:
    queries = np.arange(len(release)) * 10**12 if asked else None
    write_release(tmp_path / "release.json", release, queries)
    found, rows = read_release(tmp_path / "release.json")
    assert found.labels.tolist() == release.labels.tolist()
    assert (found.electorate, dict(found.mechanism), found.mode) == (release.electorate, dict(release.mechanism), release.mode)
    assert (found.histogram is None) == (release.histogram is None)
    if release.histogram is not None:
        assert np.array_equal(found.histogram, release.histogram)
    assert (rows is None) if queries is None else np.array_equal(rows, queries)
    assert [path.name for path in tmp_path.iterdir()] == ["release.json"]


def test_a_file_says_what_a_release_says_and_nothing_else() -> None:
    facts = json.loads(release_text(made(mode="simulation")))
    assert set(facts) == {
        *("format", "version", "stamp", "mode", "mechanism", "electorate", "labels", "histogram", "queries"),
    }
    assert facts["stamp"] == "simulation, not private"


def test_what_is_paid_for_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "release.json"
    write_release(path, made())
    with pytest.raises(ParameterError, match="not overwritten"):
        write_release(path, made(labels=[1, 1, 1]))
    assert read_release(path).release.labels.tolist() == [2, ABSTAIN, 0]


def test_a_block_that_fails_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), new_file(tmp_path / "release.json", room=10) as file:
        file.write(b"half" * (1 // 0))
    assert list(tmp_path.iterdir()) == []


def test_room_is_taken_and_given_back(tmp_path: Path) -> None:
    path = tmp_path / "release.json"
    with new_file(path, room=5000) as file:
        assert max(each.stat().st_size for each in tmp_path.iterdir()) == 5000
        file.write(b"short")
    assert path.read_bytes() == b"short"


@pytest.mark.parametrize(
    ("release", "queries", "message"),
    [
        (made(mechanism={"sigma": np.float32(1)}), None, "JSON values only"),
        (made(mechanism={"sigma": float("nan")}), None, "JSON values only"),
        (made(), [0, 1], "2 rows for 3 answers"),
        (made(), [0, 1, -1], "int.query. from 0"),
        (made(), [0.0, 1.0, 2.0], "int.query. from 0"),
    ],
)
def test_what_cannot_be_written_leaves_no_file(tmp_path: Path, release: Release, queries: Any, message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        write_release(tmp_path / "release.json", release, queries)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "else"}, "JSON, but no release"),
        ({"version": 2}, "version 2 of the format; this pate reads 1"),
        ({"votes": [[1, 2]]}, "nothing else; it has votes"),
        ({"mode": None}, "must be one of release, simulation"),
        ({"mode": "simulation"}, "contradict each other"),
        ({"labels": [0, 1, 3]}, "must be a class 0..2"),
        ({"labels": [0, 1, 2.0]}, "labels must be a list of whole numbers"),
        ({"labels": [0, 1, True]}, "labels must be a list of whole numbers"),
        ({"labels": [0, 1, 10**30]}, "labels must be a list of whole numbers"),
        ({"electorate": {"n_teachers": 3}}, "electorate must hold"),
        ({"electorate": {"n_teachers": 0, "n_classes": 3, "participation": None}}, "n_teachers must be a whole number"),
        ({"mechanism": "gnmax"}, "mechanism must hold names"),
        ({"histogram": [[1, 2]]}, "histogram must have shape"),
        ({"histogram": [[1], [1, 2]]}, "histogram must be a list of numbers"),
        ({"queries": [1, 2]}, "2 rows for 3 answers"),
        ({"queries": [1, 2, "3"]}, "queries must be a list of whole numbers"),
    ],
)
def test_what_is_wrong_with_a_file_is_said(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    path = tmp_path / "release.json"
    path.write_text(json.dumps({**json.loads(release_text(made())), **change}))
    with pytest.raises(ParameterError, match=message) as caught:
        read_release(path)
    assert str(caught.value).startswith(str(path))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not a whole release file"),
        (release_text(made()).encode()[:100], "not a whole release file"),
        (b"\xff\xfe\x00", "not a whole release file"),
        (b"[1, 2]", "no release"),
        (b'{"format": NaN}', "NaN is no JSON number"),
        (b'{"format": 1, "format": 2}', "twice"),
    ],
)
def test_what_is_no_release_file(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "release.json").write_bytes(content)
    with pytest.raises(ParameterError, match=message):
        read_release(tmp_path / "release.json")


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="no such file"):
        read_release(tmp_path / "release.json")
    with pytest.raises(ParameterError, match="cannot be read"):
        read_release(tmp_path)
    with pytest.raises(ParameterError, match="there is no directory"):
        write_release(tmp_path / "no" / "release.json", made())
