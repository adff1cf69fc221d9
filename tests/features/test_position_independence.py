"""A record's features are a function of the record alone, bit for bit."""

from __future__ import annotations

from fractions import Fraction
from typing import ClassVar

import numpy as np
import pytest
from feature_cases import BUILT_IN, fitted, pictures
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.typing import NDArray

from pate.errors import ParameterError
from pate.features import Features, check_position_independence
from pate.features.exact import columns_on_grid, exact_product, factor_bits, round_to_grid, unit_rows


@pytest.mark.parametrize("name", BUILT_IN)
def test_built_in_extractors_pass_the_check(name: str) -> None:
    x = pictures(70, seed=7)  # more than one block of each
    x[3] = x[40]
    check_position_independence(fitted(name), x, shifts=2)


@pytest.mark.parametrize("name", BUILT_IN)
def test_places_of_a_block_beside_other_records(name: str) -> None:
    features = fitted(name)
    record, others = pictures(1, seed=8)[0], pictures(128, seed=9)
    alone = features.transform(record[None])[0].tobytes()
    for place in (0, 1, 2, 3, 6, 7, 31, 62, 63, 64, 101, 127):  # first, last and between, in blocks of 4 to 256
        crowd = others * np.float32(1e-3 if place % 2 else 1e3)
        crowd[place] = record
        assert features.transform(crowd)[place].tobytes() == alone


class Crowded(Features):
    """A defect: a record's features depend on the record before it."""

    block_rows: ClassVar[int] = 4

    def _transform_block(self, x: NDArray[np.float32]) -> NDArray[np.float32]:
        return x + np.float32(1e-6) * np.roll(x, 1, axis=0)


class Placed(Features):
    """A defect: one in a million, at the last place of a block only."""

    block_rows: ClassVar[int] = 8

    def _transform_block(self, x: NDArray[np.float32]) -> NDArray[np.float32]:
        x[-1] *= np.float32(1 + 1e-6)
        return x


@pytest.mark.parametrize("broken", [Crowded(), Placed()])
def test_the_check_finds_defects(broken: Features) -> None:
    with pytest.raises(ParameterError, match="of 40 records other features at another place"):
        check_position_independence(broken, 1 + pictures(40, seed=7))


class Rounding(Features):
    """A stranger's extractor on BLAS in single precision: alone in its block by default."""

    weights = np.random.default_rng(0).normal(size=(196, 50)).astype(np.float32)

    def _transform_block(self, x: NDArray[np.float32]) -> NDArray[np.float32]:
        assert x.ctypes.data % 64 == 0
        return x.reshape(len(x), -1) @ self.weights


def test_a_strangers_extractor_sees_one_record_at_a_time() -> None:
    check_position_independence(Rounding(), pictures(40, seed=7), shifts=2)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 40), st.integers(0, 2**32 - 1), st.integers(-60, 60))
def test_products_are_exact(terms: int, seed: int, exponent: int) -> None:
    random = np.random.default_rng(seed)
    x = random.standard_cauchy((2, 3, terms)) * 2.0**exponent
    weights = columns_on_grid(random.standard_cauchy((terms, 2)))
    product = exact_product(x, weights)
    rounded = round_to_grid(x, factor_bits(terms), axis=(1, 2))
    for place in np.ndindex(2, 3, 2):
        row, column = rounded[place[:2]], weights[:, place[2]]
        assert Fraction(product[place]) == sum(Fraction(a) * Fraction(b) for a, b in zip(row, column, strict=True))


@settings(max_examples=60, deadline=None)
@given(arrays.arrays(np.float32, (3, 5), elements=st.floats(-(2.0**100), 2.0**100, width=32)), st.integers(2, 26))
def test_rounding_is_near_repeatable_and_by_record(x: NDArray[np.float32], bits: int) -> None:
    rounded = round_to_grid(x, bits, axis=1)
    assert (np.abs(rounded - x) <= np.abs(x).max(axis=1, keepdims=True) * 2.0 ** (-bits)).all()
    assert (round_to_grid(x[1:2], bits, axis=1) == rounded[1]).all()
    again = round_to_grid(rounded, bits, axis=1)
    np.testing.assert_allclose(again, rounded, atol=float(np.abs(x).max()) * 2.0 ** (1 - bits))


def test_an_exact_zero_has_one_sign_and_zeros_have_no_direction() -> None:
    product = exact_product(np.array([[-1e-30, 1.0]]), columns_on_grid(np.array([[1.0], [0.0]])))
    assert not np.signbit(product).any()
    assert (unit_rows(np.zeros((2, 4))) == 0).all()
    assert unit_rows(np.array([[3.0, 4.0]])).tolist() == [[0.6, 0.8]]
