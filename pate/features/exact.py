"""Sums without rounding: a record's features then cannot depend on the records beside it.

A matrix product adds k products in an order that the library chooses by the height of the matrix, and, measured, also by
the row's place in it. Rounding makes another order another result. So both factors are rounded first, each record by
itself, to few enough bits that every product and every partial sum is a whole multiple of one power of two and at most
2**53 of them: float64 holds all of these exactly, and every order, block, thread count and processor gives the same bits.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pate.arrays import FloatArray

MANTISSA_BITS = 53
"""Whole numbers up to 2**53 are exact in float64."""


def factor_bits(terms: int) -> int:
    """Bits for each of two factors so that a sum of ``terms`` products is exact. 21 for 784 terms.

    >>> factor_bits(784)
    21
    """
    return (MANTISSA_BITS - math.ceil(math.log2(max(terms, 1)))) // 2


def round_to_grid(x: NDArray[Any], bits: int, axis: int | tuple[int, ...]) -> FloatArray:
    """``x`` rounded to multiples of 2**(e - bits), where 2**e is above the largest |value| along ``axis``; float64, as ``x``.

    The largest of a few numbers does not depend on their order, so each group along ``axis`` is rounded by itself alone.
    """
    exponent = np.frexp(np.abs(x).max(axis=axis, keepdims=True))[1]
    up = np.ldexp(1.0, bits - exponent)
    rounded: FloatArray = np.rint(np.asarray(x, dtype=np.float64) * up)
    rounded /= up  # a power of two: exact
    return rounded


def columns_on_grid(weights: NDArray[Any]) -> FloatArray:
    """``weights`` [term, output] rounded for :func:`exact_product`, each column by itself. Done once, when fitting."""
    return round_to_grid(weights, factor_bits(len(weights)), axis=0)


def exact_product(x: NDArray[Any], weights: FloatArray) -> FloatArray:
    """``x @ weights``, float64[..., output], for x [record, ..., term] and weights from :func:`columns_on_grid`.

    x is rounded to a grid of its own for each record (2**-21 of the record's largest |value| at 784 terms, about as fine as
    float32); the product of the rounded factors is exact. x is finite and of float32's range, so nothing under- or overflows.
    """
    rounded = round_to_grid(x, factor_bits(x.shape[-1]), axis=tuple(range(1, x.ndim)))
    product: FloatArray = rounded.reshape(-1, x.shape[-1]) @ weights
    product += 0.0  # of an exact zero the order of summing decides the sign: -0.0 becomes 0.0
    return product.reshape(*x.shape[:-1], weights.shape[1])


def unit_rows(x: NDArray[Any]) -> FloatArray:
    """Each row of x [record, feature] divided by its length; a row of zeros stays. float64[record, feature]."""
    rounded = round_to_grid(x, factor_bits(x.shape[1]), axis=1)
    length = np.sqrt((rounded * rounded).sum(axis=1, keepdims=True))
    unit: FloatArray = rounded / np.where(length > 0, length, 1.0)
    return unit
