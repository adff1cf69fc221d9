"""Checks of parameters that many constructors share."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from numbers import Integral, Real

from pate.errors import ParameterError


def positive(value: object, what: str) -> None:
    """Raise unless ``value`` is a finite number above 0."""
    if not isinstance(value, Real) or isinstance(value, bool) or not math.isfinite(value) or value <= 0:
        raise ParameterError(f"{what} must be a finite number greater than 0, got {value!r}.")


def whole(value: object, what: str, least: int) -> None:
    """Raise unless ``value`` is a whole number of at least ``least``."""
    if not isinstance(value, Integral) or isinstance(value, bool) or int(value) < least:
        raise ParameterError(f"{what} must be a whole number of at least {least}, got {value!r}.")


def json_values(settings: Mapping[str, object], subject: str) -> None:
    """Raise unless ``settings`` are JSON values."""
    try:
        json.dumps(settings)
    except TypeError as error:
        raise ParameterError(
            f"{subject}: settings must be JSON values, so that a recipe can hold them: {error}. Name your own parts as "
            "'package.module:attribute'."
        ) from None
