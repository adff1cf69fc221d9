from __future__ import annotations

import mpmath
import numpy as np
import pytest

from pate.privacy.logs import expm1_minus, log1mexp


@pytest.mark.parametrize("x", [-1e-300, -1e-12, -0.3, -0.69, -0.7, -5.0, -36.0, -700.0])
def test_log1mexp_at_fifty_digits(x: float) -> None:
    with mpmath.workdps(400):
        assert float(log1mexp(x)) == pytest.approx(float(mpmath.log(-mpmath.expm1(x))), rel=1e-15)


def test_log1mexp_at_the_ends() -> None:
    np.testing.assert_array_equal(log1mexp([0.0, -np.inf]), [-np.inf, 0.0])


@pytest.mark.parametrize("x", [-800.0, -3.0, -0.5, -0.499, -1e-9, 1e-160, 1e-5, 0.499, 0.5, 3.0, 700.0])
def test_expm1_minus_at_fifty_digits(x: float) -> None:
    with mpmath.workdps(400):
        exact = mpmath.exp(mpmath.mpf(x)) - 1 - mpmath.mpf(x)
        assert float(expm1_minus(x)) == pytest.approx(float(exact), rel=1e-14, abs=1e-320)
