"""Fitted extractors from the cache: the same bits without fitting, and never the wrong ones."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from feature_cases import BUILT_IN, pictures, unfitted
from numpy.typing import NDArray

from pate.errors import ParameterError
from pate.features import PCA, Chain, Concat, Contrastive, Features, Identity, Scale, fit_cached
from pate.features.base import Float32Array, Progress
from pate.features.cache import cache_folder
from pate.public import PublicData


class Middle(Features):
    """A class of a user: takes the mean away, and counts how often it is fitted."""

    fits: ClassVar[int] = 0
    mean_: NDArray[Any]

    def __init__(self, times: int = 1) -> None:
        self.times = times

    @property
    def needs_fit(self) -> bool:
        return True

    def _fit(self, public: PublicData, progress: Progress | None) -> None:
        Middle.fits += 1
        self.mean_ = self.times * public.x.astype(np.float64).mean(axis=0)

    def _transform_block(self, x: Float32Array) -> NDArray[Any]:
        return x - self.mean_


def fits(features: Features, public: PublicData, folder: Path | None) -> int:
    """How many fits of Middle a call made."""
    before = Middle.fits
    assert fit_cached(features, public, folder) is features
    return Middle.fits - before


@pytest.fixture
def public() -> PublicData:
    return PublicData(pictures(64, seed=1), "blobs")


@pytest.mark.parametrize("name", BUILT_IN)
def test_what_comes_from_the_cache_is_what_fitting_makes(
    name: str, tmp_path: Path, public: PublicData, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name in ("contrastive", "masked"):
        pytest.importorskip("torch", reason="the extra 'train' is not installed")
    x = pictures(5, seed=2)
    first = fit_cached(unfitted(name), public, tmp_path)
    plain = unfitted(name).fit(public)
    for kind in (PCA, Contrastive):
        monkeypatch.setattr(kind, "_fit", None)  # fitting now fails
    again = fit_cached(unfitted(name), public, tmp_path)
    for each in (first, again):
        assert each.transform(x).tobytes() == plain.transform(x).tobytes()
        assert each.fitted_on == plain.fitted_on
        assert each.fitted_digests.tobytes() == plain.fitted_digests.tobytes()
        each.save(tmp_path / "saved")
        assert Features.load(tmp_path / "saved").transform(x).tobytes() == plain.transform(x).tobytes()


def test_everything_that_decides_a_fit_is_in_the_key(tmp_path: Path, public: PublicData) -> None:
    x = public.x
    assert fits(Middle(), public, tmp_path) == 1
    assert fits(Middle(), PublicData(x.copy(), "blobs"), tmp_path) == 0
    others = [
        PublicData(x[::-1], "blobs"),
        PublicData(x[:-1], "blobs"),
        PublicData(x, "other"),
        PublicData(x.astype(np.float64), "blobs"),
        PublicData(x.reshape(64, -1), "blobs"),
        PublicData(np.nextafter(x, np.float32(2)), "blobs"),
    ]
    for other in others:
        assert fits(Middle(), other, tmp_path) == 1
        assert fits(Middle(), other, tmp_path) == 0
    assert fits(Middle(times=2), public, tmp_path) == 1
    assert fits(Middle(), public, tmp_path / "elsewhere") == 1


@pytest.mark.parametrize("module", ["torch", "numpy"])
def test_another_version_of_a_library_fits_anew(
    module: str, tmp_path: Path, public: PublicData, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pate.features import cache

    assert fits(Middle(), public, tmp_path) == 1
    version = cache._version
    monkeypatch.setattr(cache, "_version", lambda name: "0.0" if name == module else version(name))
    assert fits(Middle(), public, tmp_path) == 1


def test_other_code_fits_anew(tmp_path: Path, public: PublicData, monkeypatch: pytest.MonkeyPatch) -> None:
    from pate.features import cache

    assert fits(Chain(Identity(), Middle()), public, tmp_path) == 1
    changed = tmp_path / "changed.py"
    changed.write_text("the class's module, edited")
    monkeypatch.setattr(cache.inspect, "getfile", lambda kind: str(changed if kind is Middle else Path(__file__)))
    assert fits(Chain(Identity(), Middle()), public, tmp_path) == 1


@pytest.mark.parametrize("damage", ["empty", "cut", "flipped", "text", "folder", "other class"])
def test_a_damaged_file_is_made_again(damage: str, tmp_path: Path, public: PublicData) -> None:
    assert fits(Middle(), public, tmp_path) == 1
    (path,) = tmp_path.glob("*.npz")
    content = path.read_bytes()
    middle = len(content) // 2
    path.unlink()
    if damage == "folder":
        path.mkdir()
    elif damage == "other class":
        with path.open("wb"):
            Scale(0, 1).save(path)
    else:
        flipped = content[:middle] + bytes([content[middle] ^ 255]) + content[middle + 1 :]
        wrong = {"empty": b"", "cut": content[:middle], "flipped": flipped, "text": b"not an archive"}
        path.write_bytes(wrong[damage])
    features = Middle()
    assert fits(features, public, tmp_path) == 1
    assert features.transform(public.x).tobytes() == Middle().fit(public).transform(public.x).tobytes()
    assert fits(Middle(), public, tmp_path) == (1 if damage == "folder" else 0)
    assert not list(tmp_path.glob(".*")), "nothing temporary is left"


def test_a_concatenation_shares_its_parts(tmp_path: Path, public: PublicData) -> None:
    assert fits(Middle(), public, tmp_path) == 1
    both = Concat(Middle(), Chain(Identity(), Middle(3)))
    assert fits(both, public, tmp_path) == 1
    assert both.fitted_on == "blobs"
    assert fits(Chain(Identity(), Middle(3)), public, tmp_path) == 0


def test_where_nothing_can_be_kept_all_else_works(tmp_path: Path, public: PublicData, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    assert fits(Middle(), public, tmp_path / "file") == 1
    assert fits(Middle(), public, tmp_path / "file" / "below") == 1

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Middle, "save", full)
    assert fits(Middle(), public, tmp_path) == 1
    assert not list(tmp_path.glob(".*"))
    for name in ("PATE_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)

    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", homeless)
    assert cache_folder() is None
    assert fits(Middle(), public, None) == 1


def test_the_default_folder(tmp_path: Path, public: PublicData, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("PATE_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "not/absolute")
    assert cache_folder() == tmp_path / "home" / ".cache" / "pate" / "features"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder() == tmp_path / "xdg" / "pate" / "features"
    monkeypatch.setenv("PATE_CACHE", str(tmp_path / "own"))
    assert cache_folder() == tmp_path / "own" / "features"
    assert fits(Middle(), public, None) == 1
    assert len(os.listdir(tmp_path / "own" / "features")) == 1
    assert not (tmp_path / "xdg").exists()


def test_private_data_is_refused_and_what_needs_no_fit_is_not_kept(tmp_path: Path, public: PublicData) -> None:
    for features in (Middle(), Concat(Middle()), Identity()):
        with pytest.raises(ParameterError, match="fitted on PublicData only, got ndarray"):
            fit_cached(features, public.x, tmp_path)  # type: ignore[arg-type]
    fit_cached(Identity(), public, tmp_path)
    assert not list(tmp_path.iterdir())


def test_progress_is_told_where_there_is_a_fit(tmp_path: Path, public: PublicData) -> None:
    pytest.importorskip("torch", reason="the extra 'train' is not installed")
    told: list[tuple[str, int, int]] = []
    for _ in range(2):
        fit_cached(unfitted("masked"), public, tmp_path, lambda *step: told.append(step))
    assert told == [("masked", 1, 1)]
