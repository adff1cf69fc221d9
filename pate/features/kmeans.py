"""Lloyd's k-means, small and repeatable: for public data."""

from __future__ import annotations

import numpy as np

from pate.arrays import FloatArray, IntArray
from pate.errors import ParameterError

_BLOCK = 4096


def kmeans(points: FloatArray, clusters: int, rounds: int, random: np.random.Generator) -> FloatArray:
    """Centres float64[cluster, feature] of points [point, feature], from randomly chosen points.

    A cluster that lost all its points starts again at the point that is farthest from its centre.
    """
    if len(points) < clusters:
        raise ParameterError(f"k-means needs at least as many points as clusters, got {len(points)} for {clusters}.")
    centres = points[random.choice(len(points), clusters, replace=False)]
    for _ in range(rounds):
        owner, distance = nearest(points, centres)
        sizes = np.bincount(owner, minlength=clusters)
        sums = np.stack([np.bincount(owner, weights=column, minlength=clusters) for column in points.T], axis=1)
        empty = np.flatnonzero(sizes == 0)
        centres = sums / np.maximum(sizes, 1)[:, None]
        centres[empty] = points[np.argsort(-distance, kind="stable")[: len(empty)]]
    return centres


def nearest(points: FloatArray, centres: FloatArray) -> tuple[IntArray, FloatArray]:
    """The nearest centre of each point, int64[point], and the squared distance to it, float64[point]."""
    owner = np.empty(len(points), dtype=np.int64)
    distance = np.empty(len(points))
    half = 0.5 * (centres * centres).sum(axis=1)
    for start in range(0, len(points), _BLOCK):
        block = points[start : start + _BLOCK]
        score = half - block @ centres.T  # half the squared distance, less half the point's own square
        best = score.argmin(axis=1)
        owner[start : start + _BLOCK] = best
        distance[start : start + _BLOCK] = (block * block).sum(axis=1) + 2 * score[np.arange(len(block)), best]
    return owner, distance
