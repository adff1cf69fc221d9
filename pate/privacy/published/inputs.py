"""Checks that the published bounds share."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from pate.arrays import FloatArray
from pate.errors import ParameterError


def check_counts(counts: ArrayLike) -> FloatArray:
    """Return vote counts as float64[query, class] after checking shape and sign. The message never shows a count."""
    table = np.asarray(counts, dtype=np.float64)
    if table.ndim != 2 or table.shape[1] < 2:
        raise ParameterError(f"counts must have the axes [query, class] with at least 2 classes, got shape {table.shape}.")
    if not np.isfinite(table).all() or (table < 0).any():
        raise ParameterError("counts must be finite and not negative; found a value that is not. Pass whole vote counts.")
    return table


def check_log_probabilities(name: str, values: ArrayLike) -> FloatArray:
    """Return log-probabilities as float64[query] after checking that none is NaN or above 0."""
    logs = np.asarray(values, dtype=np.float64)
    if logs.ndim != 1:
        raise ParameterError(f"{name} must have the axis [query], got shape {logs.shape}.")
    if np.isnan(logs).any() or (logs > 0).any():
        raise ParameterError(f"{name} must be natural logs of probabilities, at most 0; found NaN or a positive value.")
    return logs


def gaps_to_winner(counts: FloatArray) -> FloatArray:
    """float64[query, class]: how far each class is behind the winner; the winner itself, once, is at infinity."""
    winner = counts.argmax(axis=1)
    gaps: FloatArray = counts.max(axis=1, keepdims=True) - counts
    gaps[np.arange(len(counts)), winner] = np.inf
    return gaps
