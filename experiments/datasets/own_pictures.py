"""Directories of pictures: one sub-directory for each class where there are labels."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pate.arrays import IntArray
from pate.errors import DataError
from pate.extras import require
from pate.features.base import Float32Array

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".pgm", ".ppm")


def picture_files(folder: Path, classes: Sequence[str] | None) -> tuple[list[Path], IntArray]:
    """The pictures below ``folder`` in the order of their names, and the class of each, int64[picture].

    classes: names of the sub-directories; None: there are no labels, pictures lie anywhere below, and no class is given.
    """
    if classes is None:
        found = [path for path in sorted(folder.rglob("*")) if path.suffix.lower() in SUFFIXES]
        if not found:
            raise DataError(f"{folder}: no pictures in it. They end in {', '.join(SUFFIXES)}.")
        return found, np.zeros(0, dtype=np.int64)
    names = [path.name for path in folder.iterdir() if path.is_dir() and not path.name.startswith(".")]
    strange = len(set(names) - set(classes))
    if strange:  # by number: a name would be a private label
        raise DataError(
            f"{folder}: each sub-directory must be named as a class of data.classes ({', '.join(classes)}), found {strange} "
            "others. Rename them, or declare them."
        )
    files, labels = [], []
    for number, name in enumerate(classes):
        own = [path for path in sorted((folder / name).rglob("*")) if path.suffix.lower() in SUFFIXES]
        files += own
        labels += [number] * len(own)
    if not files:
        raise DataError(f"{folder}: no pictures in it. It needs a sub-directory for each class: {', '.join(classes)}.")
    return files, np.array(labels, dtype=np.int64)


def read_pictures(files: Sequence[Path], size: tuple[int, int] | None, colour: bool, scale: bool) -> Float32Array:
    """float32[picture, height, width], in colour [picture, 3, height, width]; pixels 0..255, as declared, in 0..1.

    size: (height, width); None, for public pictures only: that of the first.
    scale: whether pictures of another size are scaled to it, or an error.
    """
    image: Any = require("PIL.Image", "train")
    found: list[NDArray[np.uint8]] = []
    for path in files:
        try:
            with image.open(path) as opened:
                deep = opened.mode.startswith(("I", "F"))
                picture = opened.convert("RGB" if colour else "L")
        except Exception as error:  # Pillow raises by where the damage is
            raise DataError(f"{path}: not a picture that can be read ({type(error).__name__}). Mend or remove it.") from error
        if deep:  # Pillow would cut them off at 255
            raise DataError(f"{path}: pixels must be whole numbers 0..255, found more than 8 bits each. Convert it first.")
        own = (picture.size[1], picture.size[0])
        size = size or own
        if own != size and not scale:
            raise DataError(
                f"{path}: {own[0]} x {own[1]} pixels, the public ones have {size[0]} x {size[1]}. Declare data.size to "
                "scale all."
            )
        found.append(np.asarray(picture if own == size else picture.resize((size[1], size[0])), dtype=np.uint8))
    pixels = np.stack(found)
    return (pixels.transpose(0, 3, 1, 2) if colour else pixels).astype(np.float32) / np.float32(255)
