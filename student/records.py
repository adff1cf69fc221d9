"""Public records as floats: the one place where pixels are scaled, and where a student's features are made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pate.errors import StudentError
from pate.features import Features, features_named

Float32Array = NDArray[np.float32]
FeaturesSpec = str | Mapping[str, Any]
"""A name of :func:`pate.features.features_named`, or {"name": …, "settings": …}."""


def float_records(x: NDArray[Any], shape: Sequence[int] | None = None) -> Float32Array:
    """float32[record, ...], in ``shape`` if one is given. Pictures of bytes are divided by 255, as their type declares."""
    if shape is not None:
        if int(np.prod(shape)) != int(np.prod(x.shape[1:])):
            raise StudentError(
                f"shape={list(shape)} has {int(np.prod(shape))} numbers, a record of shape {x.shape[1:]} has "
                f"{int(np.prod(x.shape[1:]))}."
            )
        x = x.reshape(len(x), *shape)
    values = x.astype(np.float32)
    return values / np.float32(255) if x.dtype == np.uint8 and x.ndim > 2 else values


def make_features(spec: FeaturesSpec) -> Features:
    """The extractor that ``spec`` names, not yet fitted."""
    if isinstance(spec, str):
        return features_named(spec)
    unknown = set(spec) - {"name", "settings"}
    if "name" not in spec or unknown:
        raise StudentError(f"features must be a name or {{'name': …, 'settings': …}}, got {dict(spec)!r}.")
    return features_named(spec["name"], spec.get("settings"))
