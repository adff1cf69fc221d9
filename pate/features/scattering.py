"""Wavelet scattering: what a small convolutional net would learn at its bottom, without learning."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import fft

from pate.errors import ParameterError
from pate.features.base import Features, Float32Array
from pate.features.images import as_images, checked_shape
from pate.validation import whole

_EDGE = 4  # pixels of reflection around a picture, so that waves do not wrap around
_POOL = 4  # pixels along the side of a place of the result
_WIDTH, _FREQUENCY = 0.8, 0.75 * math.pi  # of the finest wave
_FLOOR = 1e-5


class Scattering(Features):
    """Scattering of order 2 at 2 scales (Bruna and Mallat 2013) of pictures [height, width].

    angles: directions of the Morlet waves. groups: channels are standardised in so many groups within each picture (as
    GroupNorm does; Tramer and Boneh 2021, arXiv:2011.11660); 0: not. The 1 + 2 angles + angles^2 channels, 81 with 8
    angles, come at a sixteenth of the places: 3,969 numbers for 28 x 28 pixels.

    Fixed formulae, nothing is fitted: free of privacy cost whatever it stands before. A picture is transformed alone.
    """

    name: ClassVar[str] = "scattering"

    def __init__(self, angles: int = 8, groups: int = 27, *, shape: Sequence[int] | None = None) -> None:
        whole(angles, "Scattering angles", 1)
        whole(groups, "Scattering groups", 0)
        if groups and channels(angles) % groups:
            raise ParameterError(
                f"Scattering groups must divide its {channels(angles)} channels (1 + 2 angles + angles^2), got {groups}."
            )
        self.angles = angles
        self.groups = groups
        self.shape = checked_shape(shape, "Scattering shape")

    def _transform_block(self, x: Float32Array) -> NDArray[Any]:
        picture = as_images(x, self.shape, "Scattering")[0]
        if min(picture.shape) < 2 * _EDGE:
            raise ParameterError(
                f"Scattering takes pictures of at least {2 * _EDGE} x {2 * _EDGE} pixels, got {picture.shape[0]} x "
                f"{picture.shape[1]}. Pad them with a declared constant first."
            )
        height, width = (-(-side // _POOL) * _POOL for side in picture.shape)
        bank = _bank(height, width, self.angles)
        more = ((_EDGE, _EDGE + height - picture.shape[0]), (_EDGE, _EDGE + width - picture.shape[1]))
        padded = np.pad(picture, more, mode="reflect")
        spectrum = fft.fft2(padded)
        fine = np.abs(fft.ifft2(spectrum * bank.fine))
        coarse = np.abs(fft.ifft2(_halved(spectrum * bank.coarse)))
        second = np.abs(fft.ifft2(_halved(fft.fft2(fine)[:, None] * bank.coarse)))
        parts = [bank.pooled(padded[None]), bank.pooled(fine), bank.pooled_half(coarse)]
        parts.append(bank.pooled_half(second.reshape(-1, *second.shape[2:])))
        found = np.concatenate(parts)
        if self.groups:
            grouped = found.reshape(self.groups, -1)
            spread = np.sqrt(grouped.var(axis=1, keepdims=True) + _FLOOR)
            found = (grouped - grouped.mean(axis=1, keepdims=True)) / spread
        return found.reshape(1, -1)


def channels(angles: int) -> int:
    """How many channels come out.

    >>> channels(8)
    81
    """
    return 1 + 2 * angles + angles * angles


class _Bank(NamedTuple):
    """The Fourier transforms of the waves, real [angle, row, column]; and the low pass at the places of the result."""

    fine: Float32Array
    coarse: Float32Array
    low: tuple[Float32Array, Float32Array]
    low_half: tuple[Float32Array, Float32Array]

    def pooled(self, maps: NDArray[Any]) -> NDArray[Any]:
        down, right = self.low
        found: NDArray[Any] = down @ maps @ right.T
        return found

    def pooled_half(self, maps: NDArray[Any]) -> NDArray[Any]:
        down, right = self.low_half
        found: NDArray[Any] = down @ maps @ right.T
        return found


@lru_cache(maxsize=8)
def _bank(height: int, width: int, angles: int) -> _Bank:
    sides = height + 2 * _EDGE, width + 2 * _EDGE
    fine, coarse = (
        np.stack([_morlet(sides, _WIDTH * scale, turn * math.pi / angles, _FREQUENCY / scale) for turn in range(angles)])
        for scale in (1, 2)
    )
    low = [_low_pass(side, _POOL, 2 * _WIDTH, _EDGE, (side - 2 * _EDGE) // _POOL) for side in sides]
    half = [_low_pass(side // 2, _POOL // 2, _WIDTH, _EDGE // 2, (side - 2 * _EDGE) // _POOL) for side in sides]
    return _Bank(fine, coarse, (low[0], low[1]), (half[0], half[1]))


def _morlet(sides: tuple[int, int], width: float, angle: float, frequency: float) -> Float32Array:
    """The spectrum of a wave under a Gaussian, less what would answer to flat grey; real, as the wave is symmetric."""
    wave, envelope = (_gabor(sides, width, angle, each) for each in (frequency, 0.0))
    spectrum = np.fft.fft2(wave - wave.sum() / envelope.sum() * envelope).real
    return spectrum.astype(np.float32)


def _gabor(sides: tuple[int, int], width: float, angle: float, frequency: float) -> NDArray[np.complex128]:
    """A wave under a Gaussian that is twice as wide across as along, periodic in ``sides``, its origin at the corner."""
    slant = 0.5
    total = np.zeros(sides, dtype=np.complex128)
    for down in (-1, 0, 1):
        for right in (-1, 0, 1):
            rows = np.arange(down * sides[0], (down + 1) * sides[0], dtype=np.float64)[:, None]
            columns = np.arange(right * sides[1], (right + 1) * sides[1], dtype=np.float64)[None, :]
            along = math.cos(angle) * columns + math.sin(angle) * rows
            across = math.cos(angle) * rows - math.sin(angle) * columns
            total += np.exp(-(along**2 + (slant * across) ** 2) / (2 * width**2) + 1j * frequency * along)
    return total / (2 * math.pi * width**2 / slant)


def _low_pass(side: int, step: int, width: float, first: int, count: int) -> Float32Array:
    """[place, pixel]: the weights of a Gaussian mean around every ``step``-th pixel, periodic."""
    distance = np.arange(side)[None, :] - (first + step * np.arange(count) + (step - 1) / 2)[:, None]
    distance = (distance + side / 2) % side - side / 2
    weights = np.exp(-(distance**2) / (2 * width**2))
    found: Float32Array = (weights / weights.sum(axis=1, keepdims=True)).astype(np.float32)
    return found


def _halved(spectrum: NDArray[Any]) -> NDArray[Any]:
    """The spectrum of every second pixel."""
    height, width = spectrum.shape[-2] // 2, spectrum.shape[-1] // 2
    folded: NDArray[Any] = spectrum.reshape(*spectrum.shape[:-2], 2, height, 2, width).mean(axis=(-4, -2))
    return folded
