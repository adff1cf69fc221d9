"""Scattering against the plain definition, and what it does not notice."""

from __future__ import annotations

import numpy as np
import pytest
from feature_cases import pictures
from scipy.signal import convolve2d

from pate.errors import ParameterError
from pate.features import Scattering
from pate.features.scattering import _bank, channels


def test_channels_and_places() -> None:
    assert Scattering().transform(np.zeros((2, 28, 28), dtype=np.float32)).shape == (2, 81 * 49)
    assert Scattering(angles=2, groups=3).transform(np.zeros((1, 9, 13), dtype=np.float32)).shape == (1, 9 * 3 * 4)


def test_a_first_order_channel_is_the_modulus_of_a_filtered_picture() -> None:
    """The finest wave of angle 0 against a convolution in space, at the places where nothing wraps around."""
    picture = pictures(1, seed=3)[0][:12, :12]
    bank = _bank(12, 12, 4)
    wave = np.fft.ifft2(bank.fine[0])
    kernel = np.roll(wave, (6, 6), axis=(0, 1))[:13, :13]
    padded = np.pad(picture, 4, mode="reflect").astype(np.float64)
    plain = np.abs(convolve2d(padded, kernel, mode="valid"))
    fast = np.abs(np.fft.ifft2(np.fft.fft2(padded) * bank.fine[0]))
    assert fast[6 : 6 + plain.shape[0], 6 : 6 + plain.shape[1]] == pytest.approx(plain, abs=2e-2)


def test_waves_do_not_see_flat_grey_and_hardly_see_a_shift() -> None:
    flat = Scattering(groups=0).transform(np.full((1, 16, 16), 0.7, dtype=np.float32)).reshape(81, -1)
    assert flat[0] == pytest.approx(0.7, abs=1e-5)
    assert np.abs(flat[1:]).max() < 1e-4
    picture = np.zeros((2, 28, 28), dtype=np.float32)
    picture[0, 10:16, 10:16] = picture[1, 10:16, 11:17] = 1.0
    moved = Scattering(groups=0).transform(picture)
    assert np.linalg.norm(moved[0] - moved[1]) < 0.5 * np.linalg.norm(picture[0] - picture[1]) / np.linalg.norm(
        picture[0]
    ) * np.linalg.norm(moved[0])


def test_groups_are_standardised_within_a_picture() -> None:
    textured = 10 * np.random.default_rng(0).random((3, 16, 16), dtype=np.float32)
    found = Scattering(angles=4, groups=5).transform(textured).reshape(3, 5, -1)
    assert found.mean(axis=2) == pytest.approx(0.0, abs=1e-4)
    assert found.std(axis=2) == pytest.approx(1.0, abs=2e-2)


def test_what_does_not_fit_is_told() -> None:
    assert channels(3) == 16
    with pytest.raises(ParameterError, match="must divide"):
        Scattering(angles=3, groups=5)
    with pytest.raises(ParameterError, match="8 x 8"):
        Scattering().transform(np.zeros((1, 6, 6), dtype=np.float32))
