"""Laplace noise at the nodes of Gauss-Legendre panels.

In units of 1/gamma the distribution is e^z/2 left of 0 and 1 - e^{-z}/2 right of it, smooth but for z = 0. Panels
are broken at every count and one vote to each side of it, where the distributions of a histogram and its neighbours
have their corners. Between them:

- left of all corners the integrand is a pure exponential of rate k, whose integral is its last value over k;
- right of all corners it is a polynomial of degree k - 1 in v = e^{-x}, for which Gauss-Legendre is exact;
- in the middle it is entire and changes by a factor of at most about e^PANEL within a panel. The error of 12 nodes for
  e^{cx} on a panel of width w is (cw)^24 (12!)^4 / (25 (24!)^3), relative to its size: 1e-20 at cw = 3.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.polynomial.legendre import leggauss

from pate.arrays import FloatArray, IntArray
from pate.privacy.exact.samples import Samples

PANEL = 3.0
_NODES, _WEIGHTS = leggauss(12)


def _row_nodes(values: IntArray, classes: IntArray, gamma: float) -> tuple[FloatArray, FloatArray]:
    """(nodes in votes, log-weights in units of 1/gamma) for one histogram."""
    corners = np.unique((values[:, None] + np.array([-1, 0, 1])).ravel()).astype(np.float64)
    left, right = corners[:-1], corners[1:]
    # d log(integrand)/dx: gamma for the density and each class above, gamma e^{-gamma(x-n)} at most for a class below.
    # A class's count may be one off in a neighbour.
    depth = np.exp(-gamma * np.maximum(left[:, None] - values - 1, 0.0))
    rate = gamma * (1 + depth @ classes)
    panels = np.ceil((right - left) * rate / PANEL).astype(np.int64)
    width = np.repeat((right - left) / panels, panels)
    number = np.arange(panels.sum()) - np.repeat(np.cumsum(panels) - panels, panels)
    start = np.repeat(left, panels) + number * width
    middle = (start[:, None] + width[:, None] * (_NODES + 1) / 2).ravel()
    middle_weight = np.log((gamma * width[:, None] / 2 * _WEIGHTS).ravel())

    n_classes = int(classes.sum())
    points, weights = leggauss(max(12, n_classes // 2 + 1))
    v = (points + 1) / 2
    tail = corners[-1] - np.log(v) / gamma
    tail_weight = np.log(weights / 2 / v)  # dx = dv/v
    return (
        np.concatenate([corners[:1], middle, tail]),
        np.concatenate([[-math.log(n_classes)], middle_weight, tail_weight]),
    )


def sample(gamma: float, values: IntArray, classes: IntArray) -> Samples:
    """Noise density and distribution of every level at the nodes. values, classes: int64[row, level]."""
    rows = [_row_nodes(value, number, gamma) for value, number in zip(values, classes, strict=True)]
    n_nodes = max(node.size for node, _ in rows)
    # Shorter rows are filled with a repeated last node of no weight.
    x = np.stack([np.pad(node, (0, n_nodes - node.size), mode="edge") for node, _ in rows])
    log_weight = np.stack([np.pad(weight, (0, n_nodes - weight.size), constant_values=-math.inf) for _, weight in rows])
    votes = x[:, None, :] - values[:, :, None]
    z, losing, gaining = gamma * votes, gamma * (votes + 1), gamma * (votes - 1)
    log_cdf, log_losing, log_gaining = _log_cdf(z), _log_cdf(losing), _log_cdf(gaining)
    return Samples(
        log_weight,
        -np.abs(z) - math.log(2),
        log_cdf,
        np.exp(log_losing - log_cdf),
        np.exp(log_gaining - log_cdf),
        np.exp(np.abs(z) - np.abs(losing)),
        np.exp(np.abs(z) - np.abs(gaining)),
    )


def _log_cdf(z: FloatArray) -> FloatArray:
    result: FloatArray = np.where(z < 0, z - math.log(2), np.log1p(-0.5 * np.exp(-np.abs(z))))
    return result
