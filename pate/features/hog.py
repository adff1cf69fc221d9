"""Histograms of oriented gradients: a good description of small pictures that needs no fitting at all."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from pate.errors import ParameterError
from pate.features.base import Features, Float32Array
from pate.features.images import as_images, checked_shape
from pate.validation import positive, whole


class HOG(Features):
    """Histograms of oriented gradients (Dalal and Triggs 2005) of pictures [height, width] or flat ones with a ``shape``.

    cell: pixels along a cell's side; orientations: directions over the full turn (``signed``) or the half; block: cells
    along the side of the blocks that are normalised together (they overlap by all but one cell); clip: the largest value
    after the first normalisation, then normalised again; floor: what is added to a block's length, in units of the pixels,
    so that noise in empty places is not blown up: pixels are expected in 0..1 (put ``Scale(0, 255)`` before).

    A gradient counts for a direction by the 8th power of the cosine between them, and for the four nearest cells
    bilinearly. No angle is computed, only sums, products, quotients and roots in a fixed order: the same bits everywhere.
    """

    name: ClassVar[str] = "hog"
    block_rows: ClassVar[int] = 64

    def __init__(
        self,
        cell: int = 4,
        orientations: int = 8,
        block: int = 2,
        *,
        signed: bool = True,
        clip: float = 0.2,
        floor: float = 0.1,
        shape: Sequence[int] | None = None,
    ) -> None:
        whole(cell, "HOG cell", 2)
        whole(orientations, "HOG orientations", 2)
        whole(block, "HOG block", 1)
        positive(clip, "HOG clip")
        positive(floor, "HOG floor")
        self.cell = cell
        self.orientations = orientations
        self.block = block
        self.signed = signed
        self.clip = clip
        self.floor = floor
        self.shape = checked_shape(shape, "HOG shape")

    def _transform_block(self, x: Float32Array) -> NDArray[Any]:
        images = as_images(x, self.shape, "HOG")
        cells = [
            pooled(energy, self.cell)
            for energy in oriented_gradients(images.astype(np.float64), self.orientations, self.signed)
        ]
        height, width = cells[0].shape[1] - self.block + 1, cells[0].shape[2] - self.block + 1
        if min(height, width) < 1:
            raise ParameterError(
                f"HOG: pictures of {images.shape[1:]} give {cells[0].shape[1:]} cells of {self.cell} pixels, "
                f"fewer than a block of {self.block}. Use a smaller cell or block."
            )
        corners = [(down, right) for down in range(self.block) for right in range(self.block)]
        parts = [each[:, down : down + height, right : right + width] for each in cells for down, right in corners]
        parts = normalised(parts, self.floor)
        parts = normalised([np.minimum(part, self.clip) for part in parts], 1e-6)
        return np.stack(parts, axis=-1).reshape(len(x), -1)


def oriented_gradients(images: NDArray[Any], orientations: int, signed: bool) -> list[NDArray[Any]]:
    """For each direction the gradient's length times cos^8 of the angle between, float64[record, height, width] each."""
    padded = np.pad(images, ((0, 0), (1, 1), (1, 1)), mode="edge")
    down = padded[:, 2:, 1:-1] - padded[:, :-2, 1:-1]
    right = padded[:, 1:-1, 2:] - padded[:, 1:-1, :-2]
    length = np.sqrt(down * down + right * right)
    safe = np.where(length > 0, length, 1.0)
    down, right = down / safe, right / safe
    energies = []
    for index in range(orientations):
        angle = index * (2 if signed else 1) * math.pi / orientations
        cosine = right * round(math.cos(angle), 9) + down * round(math.sin(angle), 9)  # libraries differ in the last digit
        if signed:
            cosine = np.maximum(cosine, 0.0)
        for _ in range(3):
            cosine = cosine * cosine
        energies.append(length * cosine)
    return energies


def pooled(energy: NDArray[Any], cell: int) -> NDArray[Any]:
    """Sums over cells, each pixel shared bilinearly by the nearest ones: [record, cell row, cell column].

    One tent filter along each axis: cell i is centred at (i + 1/2) * cell and reaches one cell to both sides.
    """
    for axis in (1, 2):
        count = energy.shape[axis] // cell or 1
        space = [(0, 0)] * 3
        space[axis] = (cell, 2 * cell)
        padded = np.moveaxis(np.pad(energy, space), axis, 0)
        total = np.zeros((count, *padded.shape[1:]))
        for offset in range(-cell, 2 * cell):  # of a pixel from its cell's first
            weight = 1 - abs(offset + 0.5 - cell / 2) / cell
            if weight > 0:
                total += weight * padded[offset + cell : offset + cell + count * cell : cell]
        energy = np.moveaxis(total, 0, axis)
    return energy


def normalised(parts: list[NDArray[Any]], floor: float) -> list[NDArray[Any]]:
    """Each part divided by the common length, sqrt(sum of squares + floor^2), added up in the order of the list."""
    total = np.full_like(parts[0], floor * floor)
    for part in parts:
        total += part * part
    length = np.sqrt(total)
    return [part / length for part in parts]
