"""HOG against what it should say of simple pictures, and against a plain loop."""

from __future__ import annotations

import math

import numpy as np
import pytest
from feature_cases import pictures
from numpy.typing import NDArray

from pate.errors import ParameterError
from pate.features import HOG


def naive(image: NDArray[np.float64], cell: int, orientations: int, block: int, signed: bool) -> NDArray[np.float64]:
    """One picture, pixel by pixel."""
    height, width = image.shape
    rows, columns = height // cell, width // cell
    cells = np.zeros((rows, columns, orientations))
    for row in range(height):
        for column in range(width):
            down = image[min(row + 1, height - 1), column] - image[max(row - 1, 0), column]
            right = image[row, min(column + 1, width - 1)] - image[row, max(column - 1, 0)]
            length = math.hypot(down, right)
            for index in range(orientations):
                cosine = math.cos(math.atan2(down, right) - index * (2 if signed else 1) * math.pi / orientations)
                share = max(cosine, 0.0) ** 8 if signed else cosine**8
                for i in range(rows):
                    for j in range(columns):
                        away = (abs(row + 0.5 - (i + 0.5) * cell) / cell, abs(column + 0.5 - (j + 0.5) * cell) / cell)
                        cells[i, j, index] += length * share * max(0.0, 1 - away[0]) * max(0.0, 1 - away[1])
    out = []
    for i in range(rows - block + 1):
        for j in range(columns - block + 1):
            part = cells[i : i + block, j : j + block].transpose(2, 0, 1).ravel()
            part = np.minimum(part / math.sqrt((part**2).sum() + 0.01), 0.2)
            out.append(part / math.sqrt((part**2).sum() + 1e-12))
    return np.concatenate(out)


@pytest.mark.parametrize(
    ("cell", "orientations", "block", "signed"), [(4, 8, 2, True), (5, 9, 1, False), (3, 4, 3, True), (2, 6, 2, False)]
)
def test_it_agrees_with_the_plain_loop(cell: int, orientations: int, block: int, signed: bool) -> None:
    images = pictures(2, seed=0)
    features = HOG(cell, orientations, block, signed=signed).transform(images)
    for image, found in zip(images, features, strict=True):
        np.testing.assert_allclose(found, naive(image.astype(np.float64), cell, orientations, block, signed), atol=1e-6)


def test_an_edge_has_its_direction() -> None:
    right = np.zeros((1, 12, 12))
    right[:, :, 6:] = 1  # brighter to the right: direction 0 of 4
    for image, direction in ((right, 0), (right.transpose(0, 2, 1), 1), (1 - right, 2)):
        histogram = HOG(cell=4, orientations=4, block=1, clip=1.0).transform(image).reshape(3, 3, 4)
        assert histogram[1, 1].argmax() == direction
        assert histogram[1, 1].max() > 0.99


def test_brightness_does_not_count_and_an_empty_picture_is_empty() -> None:
    image = pictures(3, seed=1)
    np.testing.assert_allclose(HOG().transform(image), HOG().transform(image * 0.5 + 0.25), atol=0.05)
    assert (HOG().transform(np.full((2, 12, 12), 0.7)) == 0).all()


def test_flat_pictures_need_a_shape_unless_they_are_square() -> None:
    wide = np.random.default_rng(0).uniform(size=(2, 8, 18))
    assert (HOG(shape=(8, 18)).transform(wide.reshape(2, -1)) == HOG().transform(wide)).all()
    assert (HOG().transform(wide[:, None]) == HOG().transform(wide)).all()
    assert (HOG().transform(wide[..., None]) == HOG().transform(wide)).all()
    for x, shape in ((wide, (18, 8)), (np.zeros((2, 10)), None), (np.zeros((1, 8, 8, 3)), None)):
        with pytest.raises(ParameterError, match="needs pictures"):
            HOG(shape=shape).transform(x)
    with pytest.raises(ParameterError, match="fewer than a block of 2"):
        HOG().transform(np.zeros((1, 6, 6)))
    with pytest.raises(ParameterError, match="HOG shape must be"):
        HOG(shape=(1, 2, 3))
