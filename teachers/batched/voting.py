"""Votes of many teachers on many queries: through the queries in blocks, and within a block through the teachers.

A block stays in the cache while all teachers look at it. Its size follows from public numbers, and each teacher's products have
the same shapes whoever else votes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pate.arrays import IntArray
from pate.errors import TeacherError
from pate.teachers.batched.aligned import LANES, Float32, aligned, flat_records, whole_vectors, zeros

_SMALL_PRODUCT = 10**6
"""Multiplications up to which BLAS libraries multiply matrices in place, without a packed copy of both."""

Scores = Callable[[Mapping[str, Float32], Float32, Float32], None]
"""Writes a model's scores, without the intercept, of a block of queries [query, feature] to out: float32[class, query]."""


def linear_votes(models: Sequence[Mapping[str, Float32]], x: NDArray[Any]) -> IntArray:
    """int64[teacher, query] of models with ``weights`` [class, feature] and ``bias`` [class]."""
    n_classes, n_features = models[0]["weights"].shape
    block = max(LANES, min(512, _SMALL_PRODUCT // (n_classes * n_features) // LANES * LANES))
    return votes_in_blocks(models, x, n_features, block, _linear_scores)


def votes_in_blocks(
    models: Sequence[Mapping[str, Float32]], x: NDArray[Any], n_features: int, block: int, scores: Scores
) -> IntArray:
    """int64[teacher, query]: the class with the largest score, the lowest of equal ones. Each model has a ``bias`` [class]."""
    flat = flat_records(x, "Queries")
    if flat.shape[1] != n_features:
        raise TeacherError(f"Queries must have the {n_features} features that the teachers learned from, got {flat.shape[1]}.")
    ready = [{name: aligned(array) for name, array in model.items()} for model in models]
    bias = np.stack([model["bias"] for model in ready])[:, :, None]
    n_classes = bias.shape[1]
    space = zeros(len(models), whole_vectors(n_classes * block))
    votes = np.empty((len(models), len(flat)), dtype=np.int64)
    for start in range(0, len(flat), block):
        queries = aligned(flat[start : start + block])
        table = space[:, : n_classes * len(queries)].reshape(len(models), n_classes, len(queries))
        for place, model in enumerate(ready):
            scores(model, queries, table[place])
        np.add(table, bias, out=table)
        votes[:, start : start + block] = table.argmax(axis=1)
    return votes


def _linear_scores(model: Mapping[str, Float32], queries: Float32, out: Float32) -> None:
    np.dot(model["weights"], queries.T, out=out)
