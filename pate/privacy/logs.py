"""The log-space helpers that NumPy and SciPy lack. Everything else is ``np.logaddexp`` and ``scipy.special``."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from pate.arrays import FloatArray

# 1/2!, 1/3!, …: at |x| < 1/2 the first term left out is below 1e-19 of the sum.
_INVERSE_FACTORIALS = np.array([1 / math.factorial(n) for n in range(2, 18)])


def log1mexp(x: ArrayLike) -> FloatArray:
    """log(1 - e^x) for x <= 0, to full relative accuracy; -inf at 0.

    Mächler 2012, "Accurately computing log(1 - exp(-|a|))": two forms that meet at -log 2.
    """
    values = np.asarray(x, dtype=np.float64)
    with np.errstate(divide="ignore"):
        near = np.log(-np.expm1(values))
        far = np.log1p(-np.exp(values))
    result: FloatArray = np.where(values > -math.log(2), near, far)
    return result


def expm1_minus(x: ArrayLike) -> FloatArray:
    """e^x - 1 - x, to full relative accuracy near 0, where the plain difference cancels to second order."""
    values = np.asarray(x, dtype=np.float64)
    small = np.abs(values) < 0.5
    held = np.where(small, values, 0.0)
    series = held * held * np.polynomial.polynomial.polyval(held, _INVERSE_FACTORIALS)
    result: FloatArray = np.where(small, series, np.expm1(values) - values)
    return result
