"""Arrays that begin at a 64-byte boundary: the width of the widest vector unit, and of a cache line."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pate.arrays import FloatArray
from pate.errors import TeacherError

Float32 = NDArray[np.float32]

LANES = 16
"""Numbers of 32 bits in 64 bytes."""


def whole_vectors(count: int) -> int:
    """The smallest multiple of 16 that is not below ``count``."""
    return -(-count // LANES) * LANES


def zeros(*shape: int) -> Float32:
    """float32 zeros that begin at a 64-byte boundary."""
    count = math.prod(shape)
    raw = np.zeros(count + LANES, dtype=np.float32)
    skip = -_address(raw) % (4 * LANES) // 4
    return raw[skip : skip + count].reshape(shape)


def double_zeros(rows: int, columns: int) -> FloatArray:
    """float64[row, column] zeros that begin at a 64-byte boundary."""
    return zeros(rows, 2 * columns).view(np.float64)


def aligned(array: NDArray[Any]) -> Float32:
    """``array`` as float32 in C order from a 64-byte boundary; itself if it is so already."""
    if array.dtype == np.float32 and array.flags.c_contiguous and _address(array) % (4 * LANES) == 0:
        return array
    copy = zeros(*array.shape)
    np.copyto(copy, array, casting="unsafe")
    return copy


def flat_records(x: NDArray[Any], subject: str) -> NDArray[Any]:
    """[record, feature] from [record, ...]; checks that there are numbers in it."""
    if x.ndim < 2 or x.dtype.kind not in "biuf" or not math.prod(x.shape[1:]):
        raise TeacherError(f"{subject} must be a numeric array [record, ...], got {x.dtype} of shape {x.shape}.")
    return x.reshape(len(x), math.prod(x.shape[1:]))


def _address(array: NDArray[Any]) -> int:
    address: int = array.__array_interface__["data"][0]
    return address
