"""Arrays on disk: whole, private, and never unpickled."""

from __future__ import annotations

import os
import pickle
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pate.errors import ParameterError, VotesError
from pate.experiments.array_files import check_place_for, read_arrays, write_private_arrays


def test_what_is_written_is_read(tmp_path: Path) -> None:
    arrays: dict[str, Any] = {"counts": np.arange(6).reshape(2, 3), "predictions": np.ones((2, 2), dtype=np.int8)}
    write_private_arrays(tmp_path / "votes.npz", arrays)
    found = read_arrays(tmp_path / "votes.npz", alone="x", error=VotesError)
    assert {name: (array.dtype, array.tolist()) for name, array in found.items()} == {
        name: (array.dtype, array.tolist()) for name, array in arrays.items()
    }
    np.save(tmp_path / "alone.npy", arrays["counts"])
    assert list(read_arrays(tmp_path / "alone.npy", alone="x", error=VotesError)) == ["x"]


def test_only_the_owner_may_read_it_whatever_was_there_before(tmp_path: Path) -> None:
    path = tmp_path / "votes.npz"
    path.write_text("old")
    path.chmod(0o666)
    before = os.umask(0)
    try:
        write_private_arrays(path, {"counts": np.zeros(3)})
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_broken_write_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "votes.npz"
    path.write_text("old")
    with pytest.raises(ValueError, match="allow_pickle"):
        write_private_arrays(path, {"counts": np.array([{}], dtype=object)})
    assert path.read_text() == "old"
    assert [each.name for each in tmp_path.iterdir()] == ["votes.npz"]


class Trap:
    """Unpickled, it leaves a mark."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.mark,)


@pytest.mark.parametrize("kind", ["pickle", "objects", "text", "torn", "nothing", "directory"])
def test_files_that_hold_no_plain_arrays(tmp_path: Path, kind: str) -> None:
    path, mark = tmp_path / "votes.npz", tmp_path / "mark"
    if kind == "pickle":
        path.write_bytes(pickle.dumps(Trap(mark)))
    elif kind == "objects":
        with path.open("wb") as file:
            np.save(file, np.array([Trap(mark)], dtype=object), allow_pickle=True)
    elif kind == "text":
        path.write_text("a,b\n1,2\n")
    elif kind == "torn":
        write_private_arrays(path, {"counts": np.random.default_rng(1).integers(1000, size=5000)})
        path.write_bytes(path.read_bytes()[:2000])
    elif kind == "nothing":
        path.touch()
    else:
        path.mkdir()
    with pytest.raises(VotesError, match=r"votes\.npz: (not a readable|it cannot be read)") as caught:
        read_arrays(path, alone="counts", error=VotesError)
    assert "allow_pickle" not in str(caught.value)
    assert not mark.exists()


def test_damage_inside_an_array_is_found(tmp_path: Path) -> None:
    path = tmp_path / "votes.npz"
    write_private_arrays(path, {"counts": np.random.default_rng(1).integers(1000, size=5000)})
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(content)
    with pytest.raises(VotesError, match="not a readable"):
        read_arrays(path, alone="counts", error=VotesError)


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="no such file"):
        read_arrays(tmp_path / "x.npy", alone="x", error=ParameterError)


def test_a_place_is_checked_before_the_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_place_for(tmp_path / "votes.npz")
    with pytest.raises(ParameterError, match="it is a directory"):
        check_place_for(tmp_path)
    with pytest.raises(ParameterError, match="there is no directory"):
        check_place_for(tmp_path / "no" / "votes.npz")
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may write everywhere
    with pytest.raises(ParameterError, match="may not be written"):
        check_place_for(tmp_path / "votes.npz")
