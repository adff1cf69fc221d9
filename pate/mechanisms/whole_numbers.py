"""What the elementary mechanisms take: whole numbers, as int64, and small enough that noise falls on them without rounding."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from pate.arrays import IntArray
from pate.errors import ParameterError

MOST_BITS = 32
"""With the 20 bits after the point of the finest noise (pate.sampling) these are 52, of the 53 that a float holds."""


def whole_numbers(values: ArrayLike, rule: str, most_bits: int = MOST_BITS) -> IntArray:
    """int64[n], checked. In a narrower type noise would make them run over, and so take neighbours far apart.

    >>> whole_numbers(np.array([3, 200], dtype=np.uint8), "A count takes whole numbers").dtype
    dtype('int64')
    """
    given = np.asarray(values)
    if given.ndim != 1 or (given.size and given.dtype.kind not in "iu"):
        raise ParameterError(f"{rule}, got {given.dtype} of shape {given.shape}.")
    if given.size and max(-int(given.min()), int(given.max())) > 1 << most_bits:
        raise ParameterError(f"{rule}, of at most 2**{most_bits} in size, got a larger one.")  # which one is private
    return given.astype(np.int64)
