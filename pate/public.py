"""Public data: what anybody may look at, and what features and queries are made of."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pate.errors import ParameterError


class PublicData:
    """Inputs that are public: no privacy is spent by looking at them. Saying so is the caller's promise.

    x: [record, ...], numbers without NaN or infinity. There are no labels here: those are what PATE is for.

    >>> PublicData([[0.0, 1.0], [1.0, 0.0]], name="brochure")
    PublicData('brochure', 2 records of shape (2,))
    """

    __slots__ = ("name", "x")

    def __init__(self, x: ArrayLike, name: str = "public") -> None:
        self.name = name
        self.x: NDArray[Any] = numeric_records(x, f"PublicData {name!r}")

    def __len__(self) -> int:
        return len(self.x)

    def __repr__(self) -> str:
        return f"PublicData({self.name!r}, {len(self)} records of shape {self.x.shape[1:]})"


def numeric_records(x: ArrayLike, subject: str) -> NDArray[Any]:
    """``x`` as an array [record, ...] of finite numbers; or an error about ``subject``."""
    array = np.asarray(x)
    if array.ndim < 2 or array.dtype.kind not in "biuf":
        raise ParameterError(f"{subject}: x must be a numeric array [record, ...], got {array.dtype} of shape {array.shape}.")
    if not len(array):
        raise ParameterError(f"{subject}: x must hold at least one record, got none.")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise ParameterError(f"{subject}: x must be finite; found NaN or infinity. Impute by a declared constant first.")
    return array
