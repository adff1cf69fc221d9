"""Extractors that work on each number by itself: as it is, to a declared range, or to mean 0 and scale 1."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pate.arrays import FloatArray
from pate.errors import ParameterError
from pate.features.base import Features, Float32Array, Progress
from pate.public import PublicData

Declared = float | list[Any]
"""A number for all features, or nested lists in the shape of a record: JSON."""


class Identity(Features):
    """The record as it is, as float32.

    >>> Identity().transform([[1, 2]])
    array([[1., 2.]], dtype=float32)
    """

    name: ClassVar[str] = "identity"
    block_rows: ClassVar[int] = 256

    def _transform_block(self, x: Float32Array) -> Float32Array:
        return x


class Scale(Features):
    """The declared range low..high to 0..1; what lies outside is clipped. Numbers, or one for each feature.

    The range is declared, not looked up: the least and greatest private value are a release without noise.

    >>> Scale(0, 255).transform([[0, 51, 300]])
    array([[0. , 0.2, 1. ]], dtype=float32)
    """

    name: ClassVar[str] = "scale"
    block_rows: ClassVar[int] = 256

    def __init__(self, low: ArrayLike, high: ArrayLike) -> None:
        self.low = _declared(low, "Scale low")
        self.high = _declared(high, "Scale high")
        if not (np.asarray(self.high) > np.asarray(self.low)).all():
            raise ParameterError("Scale high must be above low for every feature; found one that is not.")

    def _transform_block(self, x: Float32Array) -> NDArray[Any]:
        low, high = _fits(self.low, x, "Scale low"), _fits(self.high, x, "Scale high")
        return np.clip((x - low) / (high - low), 0.0, 1.0) + 0.0  # which zero the larger of 0.0 and -0.0 is, is not specified


class Unit(Features):
    """The record divided by its own length; zeros stay zeros. Records of any shape are flattened.

    constant: not 0: one more column of this number, in which a linear model can keep its bias, as small as one likes. What goes
    into a linear model bounds its gradient: at equal lengths clipping treats all records alike.

    >>> Unit().transform([[3.0, 4.0]])
    array([[0.6, 0.8]], dtype=float32)
    """

    name: ClassVar[str] = "unit"

    def __init__(self, constant: float = 0.0) -> None:
        if not np.isfinite(constant):
            raise ParameterError(f"Unit constant must be a finite number, got {constant!r}.")
        self.constant = constant

    def _transform_block(self, x: Float32Array) -> NDArray[Any]:
        flat = x.reshape(len(x), -1).astype(np.float64)
        length = np.sqrt((flat * flat).sum(axis=1, keepdims=True))
        scaled = flat / np.where(length > 0, length, 1.0)
        return np.concatenate([scaled, np.full((len(x), 1), self.constant)], axis=1) if self.constant else scaled


class Standardise(Features):
    """(x - mean) / scale for each feature: of declared numbers, or fitted on public data (mean and standard deviation).

    A feature that is constant in the public data keeps scale 1.

    >>> Standardise(mean=10, scale=2).transform([[14.0]])
    array([[2.]], dtype=float32)
    """

    name: ClassVar[str] = "standardise"
    block_rows: ClassVar[int] = 256
    mean_: FloatArray
    scale_: FloatArray

    def __init__(self, mean: ArrayLike | None = None, scale: ArrayLike | None = None) -> None:
        if (mean is None) != (scale is None):
            raise ParameterError("Standardise takes both mean and scale (declared), or neither (fitted); got one of them.")
        self.mean = None if mean is None else _declared(mean, "Standardise mean")
        self.scale = None if scale is None else _declared(scale, "Standardise scale")
        if self.scale is not None and not (np.asarray(self.scale) > 0).all():
            raise ParameterError("Standardise scale must be above 0 for every feature; found one that is not.")

    @property
    def needs_fit(self) -> bool:
        return self.mean is None

    def _fit(self, public: PublicData, progress: Progress | None) -> None:
        x = public.x.astype(np.float64)
        deviation = x.std(axis=0)
        self.mean_, self.scale_ = x.mean(axis=0), np.where(deviation > 0, deviation, 1.0)

    def _transform_block(self, x: Float32Array) -> NDArray[Any]:
        mean, scale = (self.mean_, self.scale_) if self.mean is None else (self.mean, self.scale)
        return (x - _fits(mean, x, "Standardise mean")) / _fits(scale, x, "Standardise scale")


def _declared(value: ArrayLike, what: str) -> Declared:
    """``value`` as JSON: a float or nested lists of floats."""
    array = np.asarray(value)
    if array.dtype.kind not in "biuf" or not np.isfinite(array).all():
        raise ParameterError(f"{what} must be a finite number, or one for each feature; got {value!r}.")
    plain: Declared = array.astype(np.float64).tolist()
    return plain


def _fits(value: Any, x: Float32Array, what: str) -> FloatArray:
    """``value`` as float64, if it is one number or has the shape of a record: broadcasting must not guess."""
    array = np.asarray(value, dtype=np.float64)
    if array.ndim and array.shape != x.shape[1:]:
        raise ParameterError(f"{what} has shape {array.shape}, the records have {x.shape[1:]}; they must be equal.")
    return array
