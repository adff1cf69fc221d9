"""Records as pictures."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray

from pate.errors import ParameterError
from pate.validation import whole


def checked_shape(shape: Sequence[int] | None, what: str) -> list[int] | None:
    """``shape`` as [height, width] (JSON), or None."""
    if shape is None:
        return None
    if len(shape) != 2:
        raise ParameterError(f"{what} must be [height, width] or None, got {shape!r}.")
    for side in shape:
        whole(side, what, 1)
    return [int(side) for side in shape]


def as_images(x: NDArray[Any], shape: Sequence[int] | None, what: str) -> NDArray[Any]:
    """x as [record, height, width]: from that, or with ``shape`` (or a square number of pixels) from [record, pixel]."""
    if x.ndim == 4 and 1 in (x.shape[1], x.shape[3]):  # one channel, first or last
        x = x.reshape(len(x), *(side for side in (x.shape[1:3] if x.shape[3] == 1 else x.shape[2:])))
    if x.ndim == 3 and (shape is None or list(x.shape[1:]) == list(shape)):
        return x
    if x.ndim == 2:
        side = math.isqrt(x.shape[1])
        found = shape or (side, side)
        if math.prod(found) == x.shape[1]:
            return x.reshape(len(x), *found)
    raise ParameterError(
        f"{what} needs pictures [record, height, width], or flat ones and a shape; got records of shape {x.shape[1:]} "
        f"and shape={shape}."
    )
