"""Closed forms behind the data-independent bounds for Laplace noise (docs/data-independent-bound.md, section 9.2).

Two counts, at u and v plus standard Laplace noise each, meet the largest of the other noisy counts, the rest. All functions
take points float64[point, 2] of (u, v) and return float64[point, outcome], the logs of the chances of the outcomes, as
sums in which nothing cancels: every bracket below is at least 1/6.
"""

from __future__ import annotations

import numpy as np

from pate.arrays import FloatArray


def exponential_rest(points: FloatArray) -> FloatArray:
    """log t: a wins, b wins, the rest wins, when the rest is an Exp(1) variable."""
    u, v = points[:, 0], points[:, 1]
    return np.stack([_wins_against_exponential(u, v), _wins_against_exponential(v, u), _exponential_wins(u, v)], axis=1)


def known_rest(points: FloatArray) -> FloatArray:
    """log w: a wins, b wins, the rest wins, when the rest is 0."""
    u, v = points[:, 0], points[:, 1]
    return np.stack([_wins_against_known(u, v), _wins_against_known(v, u), _log_below(-u) + _log_below(-v)], axis=1)


def some_rest(points: FloatArray, weights: tuple[float, float, float]) -> FloatArray:
    """With these chances there is no rest, a known one, or an exponential one, and which is seen too: up to 8 outcomes."""
    kinds = (two_classes, known_rest, exponential_rest)
    return np.concatenate([kind(points) + np.log(w) for kind, w in zip(kinds, weights, strict=True) if w > 0], axis=1)


def two_classes(points: FloatArray) -> FloatArray:
    """a wins, b wins, when there is no rest."""
    gap = points[:, 0] - points[:, 1]
    behind = np.log((2 + np.abs(gap)) / 4) - np.abs(gap)
    ahead = np.log1p(-np.exp(behind))
    return np.stack([np.where(gap > 0, ahead, behind), np.where(gap > 0, behind, ahead)], axis=1)


def only_a(points: FloatArray) -> FloatArray:
    """a wins, the rest wins, when b is absent and the rest is an Exp(1) variable."""
    return _against_exponential(points[:, 0])


def only_b(points: FloatArray) -> FloatArray:
    """b wins, the rest wins, when a is absent and the rest is an Exp(1) variable."""
    return _against_exponential(points[:, 1])


def _against_exponential(u: FloatArray) -> FloatArray:
    high, low = np.maximum(u, 0.0), np.minimum(u, 0.0)
    lost = np.exp(-high) * (3 + 2 * high) / 4
    wins = np.where(u > 0, np.log1p(-lost), low - np.log(4))
    loses = np.where(u > 0, np.log((3 + 2 * high) / 4) - high, np.log1p(-np.exp(low) / 4))
    return np.stack([wins, loses], axis=1)


def _wins_against_exponential(u: FloatArray, v: FloatArray) -> FloatArray:
    high_u, high_v = np.maximum(u, 0.0), np.maximum(v, 0.0)
    exp_v, far = np.exp(np.minimum(v, 0.0)), np.exp(-high_u)
    gap, near = np.abs(high_u - high_v), np.exp(-np.minimum(high_u, high_v))
    tail = np.exp(-gap)
    behind = np.log((12 + 6 * gap - 12 * near + 2 * near * tail + 3 * near**2) / 24) - gap  # 0 < u <= v
    ahead = np.log1p(-tail * (12 + 6 * gap + near * (6 + 12 * gap + 4 * tail) - 3 * near**2) / 24)  # 0 < v <= u
    alone = np.log1p(-far * (18 + 12 * high_u + exp_v * (6 * high_u - 3 + 4 * far)) / 24)  # v <= 0 < u
    exp_high_v = np.exp(-high_v)
    low = np.where(v > 0, np.log((3 + 6 * high_v + 2 * exp_high_v) / 24) - high_v, np.log((6 - exp_v) / 24))  # u <= 0
    result: FloatArray = np.where(u <= 0, np.minimum(u, 0.0) + low, np.where(v <= 0, alone, np.where(u > v, ahead, behind)))
    return result


def _exponential_wins(u: FloatArray, v: FloatArray) -> FloatArray:
    low, high = np.minimum(u, v), np.maximum(u, v)
    over = np.maximum(high, 0.0)
    exp_low, exp_high = np.exp(np.minimum(low, 0.0)), np.exp(np.minimum(high, 0.0))
    gap, near = over - np.maximum(low, 0.0), np.exp(-np.maximum(low, 0.0))
    both = np.log((9 + 6 * gap + np.exp(-gap) - 3 * near) / 12) - over  # 0 < u, v
    one = np.log((9 + 6 * over - exp_low * (3 - np.exp(-over))) / 12) - over  # one of them <= 0
    none = np.log1p(-(3 * (exp_low + exp_high) - exp_low * exp_high) / 12)
    result: FloatArray = np.where(high <= 0, none, np.where(low <= 0, one, both))
    return result


def _wins_against_known(u: FloatArray, v: FloatArray) -> FloatArray:
    high_u, high_v = np.maximum(u, 0.0), np.maximum(v, 0.0)
    exp_v = np.exp(np.minimum(v, 0.0))
    gap, both = np.abs(high_u - high_v), np.exp(-2 * np.minimum(high_u, high_v))
    behind = np.log((4 + 2 * gap - both) / 8) - gap  # 0 < u <= v
    ahead = np.log1p(-np.exp(-gap) * (4 + 2 * gap + both) / 8)  # 0 < v <= u
    alone = np.log1p(-np.exp(-high_u) * (4 + (1 + 2 * high_u) * exp_v) / 8)  # v <= 0 < u
    low = np.where(v > 0, np.log((3 + 2 * high_v) / 8) - high_v, np.log((4 - exp_v) / 8))  # u <= 0
    result: FloatArray = np.where(u <= 0, np.minimum(u, 0.0) + low, np.where(v <= 0, alone, np.where(u > v, ahead, behind)))
    return result


def _log_below(z: FloatArray) -> FloatArray:
    """log of the Laplace distribution function."""
    result: FloatArray = np.where(z < 0, np.minimum(z, 0.0) - np.log(2), np.log1p(-np.exp(-np.abs(z)) / 2))
    return result
