"""A graph of public records: each tied to those most like it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from pate.arrays import FloatArray, IntArray

_BLOCK = 1024


def unit_length(features: NDArray[Any]) -> NDArray[np.float32]:
    """Rows of length 1, float32[record, feature]; what is not flat is flattened. A row of zeros stays one."""
    flat = np.asarray(features, dtype=np.float32).reshape(len(features), -1)
    lengths = np.linalg.norm(flat, axis=1, keepdims=True)
    result: NDArray[np.float32] = (flat / np.where(lengths > 0, lengths, 1)).astype(np.float32)
    return result


def nearest(points: NDArray[np.float32], among: NDArray[np.float32], k: int, *, own: bool) -> tuple[IntArray, FloatArray]:
    """The ``k`` nearest of ``among`` to each point, int64[point, k], nearest first, and the squared distances.

    own: the points are ``among`` themselves, and none is its own neighbour.
    """
    places = np.empty((len(points), k), dtype=np.int64)
    distances = np.empty((len(points), k))
    half = 0.5 * np.einsum("ij,ij->i", among, among)
    for start in range(0, len(points), _BLOCK):
        block = points[start : start + _BLOCK]
        farness = half - block @ among.T  # half the squared distance, less half the point's own square
        if own:
            farness[np.arange(len(block)), start + np.arange(len(block))] = np.inf
        best = np.argpartition(farness, k - 1, axis=1)[:, :k]
        order = np.argsort(np.take_along_axis(farness, best, axis=1), axis=1, kind="stable")
        best = np.take_along_axis(best, order, axis=1)
        places[start : start + _BLOCK] = best
        squares = np.einsum("ij,ij->i", block, block)[:, None]
        squared = squares + 2 * np.take_along_axis(farness, best, axis=1)
        distances[start : start + _BLOCK] = np.maximum(squared, 0.0)
    return places, distances


def similarity(squared: FloatArray, here: FloatArray, there: FloatArray) -> FloatArray:
    """Self-tuned Gaussian weights (Zelnik-Manor and Perona 2004): distances in units of how far the k-th neighbours are."""
    scale = np.maximum(here * there, 1e-12)
    weights: FloatArray = np.exp(-squared / scale)
    return weights


def graph_of(points: NDArray[np.float32], k: int) -> sparse.csr_array:
    """D^-1/2 W D^-1/2 of the symmetric k-nearest-neighbour graph, sparse [record, record]."""
    n = len(points)
    k = min(k, n - 1)
    places, squared = nearest(points, points, k, own=True)
    reach = np.sqrt(squared[:, -1])
    weights = similarity(squared, reach[:, None], reach[places])
    rows = np.repeat(np.arange(n), k)
    directed = sparse.csr_array((weights.ravel(), (rows, places.ravel())), shape=(n, n))
    tied = directed.maximum(directed.T)
    scale = sparse.diags_array(1 / np.sqrt(np.maximum(tied.sum(axis=1), 1e-300)))
    return sparse.csr_array(scale @ tied @ scale)
