"""A user's own directories of pictures."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from own_cases import load_from

from pate.errors import DataError

PICTURES = {"private": "private", "public": "public", "test": "test"}


def draw(path: Path, level: int | tuple[int, int, int], size: tuple[int, int] = (3, 2), mode: str = "L") -> None:
    """size: (width, height), as Pillow counts."""
    image = pytest.importorskip("PIL.Image")
    path.parent.mkdir(parents=True, exist_ok=True)
    image.new(mode, size, level).save(path)


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    draw(tmp_path / "private/well/ann.png", 0)
    draw(tmp_path / "private/sick/bob.png", 255)
    draw(tmp_path / "private/sick/cid.png", 51)
    draw(tmp_path / "public/2024/one.png", 102)
    draw(tmp_path / "public/two.png", 204)
    draw(tmp_path / "test/sick/dan.png", 255)
    (tmp_path / "public/readme.txt").write_text("not a picture")
    return tmp_path


def test_pictures(pictures: Path) -> None:
    split = load_from(pictures, PICTURES)
    assert split.private.x.shape == (3, 2, 3)
    assert split.private.x.dtype == split.public_x.dtype == np.float32
    levels = dict(zip(split.private.record_ids, split.private.x[:, 0, 0].tolist(), strict=True))
    assert levels == pytest.approx({b"ann.png": 0.0, b"bob.png": 1.0, b"cid.png": 0.2})
    assert split.private.y.tolist() == [0, 1, 1]
    np.testing.assert_allclose(split.public_x[:, 0, 0], [0.4, 0.8])
    assert split.test is not None
    assert split.test.open()[1].tolist() == [1]


def test_pictures_in_colour_and_of_another_size(pictures: Path) -> None:
    draw(pictures / "private/well/eve.png", (255, 0, 51), (6, 6), "RGB")
    with pytest.raises(DataError, match=r"eve\.png: 6 x 6 pixels, the public ones have 2 x 3. Declare data.size"):
        load_from(pictures, PICTURES)
    split = load_from(pictures, PICTURES, size=[4, 5], colour=True)
    assert split.private.x.shape == (4, 3, 4, 5)
    eve = split.private.record_ids.index(b"eve.png")
    np.testing.assert_allclose(split.private.x[eve, :, 0, 0], [1, 0, 0.2], rtol=1e-6)


def test_the_size_of_pictures_is_that_of_the_public_ones(pictures: Path) -> None:
    """Also where a private picture comes first, or is alone."""
    draw(pictures / "private/well/aaa.png", 0, (6, 6))
    with pytest.raises(DataError, match=r"aaa\.png: 6 x 6 pixels, the public ones have 2 x 3"):
        load_from(pictures, PICTURES)
    for name in ("well/aaa", "well/ann", "sick/bob", "sick/cid"):
        draw(pictures / "private" / f"{name}.png", 0, (6, 6))
    with pytest.raises(DataError, match="the public ones have 2 x 3"):
        load_from(pictures, PICTURES)


def test_a_bad_picture_is_named(pictures: Path) -> None:
    (pictures / "public/two.png").write_bytes(b"\x89PNG torn")
    with pytest.raises(DataError, match=r"two\.png: not a picture that can be read"):
        load_from(pictures, PICTURES)
    draw(pictures / "public/two.png", 40_000, mode="I;16")
    with pytest.raises(DataError, match=r"two\.png: pixels must be whole numbers 0\.\.255"):
        load_from(pictures, PICTURES)


def test_directories_of_pictures_are_checked(pictures: Path) -> None:
    with pytest.raises(DataError, match="must be apart"):  # else private pictures would be read as public ones
        load_from(pictures, PICTURES | {"public": "."})
    with pytest.raises(DataError, match=r"data\.group_by names a column"):
        load_from(pictures, PICTURES, group_by="who")
    (pictures / "empty").mkdir()
    with pytest.raises(DataError, match="empty: no pictures in it"):
        load_from(pictures, PICTURES | {"public": "empty"})
    draw(pictures / "private/sick/ann.png", 7)
    with pytest.raises(DataError, match="file name is its id, and 1 are there twice"):
        load_from(pictures, PICTURES)
    draw(pictures / "private/stage41/fay.png", 7)
    with pytest.raises(DataError, match=r"data\.classes \(well, sick\), found 1 others") as caught:
        load_from(pictures, PICTURES)
    assert "stage41" not in str(caught.value), "the name of a class is a private label"
