"""What a mini-batch's scores are wrong by: the gradient of the cross-entropy."""

from __future__ import annotations

import numpy as np

from pate.teachers.batched.aligned import Float32, zeros


class Softmax:
    """Buffers for ``n_rows`` rows of ``n_classes`` scores. Works with a column for each row: reductions are then elementwise.

    With a single column numpy would sum pairwise instead of in order; columns come in whole vectors, so there never is one.
    """

    def __init__(self, n_rows: int, n_classes: int) -> None:
        self._columns = zeros(n_classes * n_rows)
        self._row = zeros(n_rows)
        self._n_classes = n_classes

    def residual(self, scores: Float32, targets: Float32, weights: Float32, scale: float) -> None:
        """scores <- weights (softmax(scale scores) - targets). scores, targets: float32[row, class]; weights: float32[row]."""
        n_rows = len(scores)
        columns = self._columns[: self._n_classes * n_rows].reshape(self._n_classes, n_rows)
        row = self._row[:n_rows]
        np.multiply(scores.T, scale, out=columns)
        np.maximum.reduce(columns, axis=0, out=row)
        np.subtract(columns, row, out=columns)
        np.exp(columns, out=columns)
        np.add.reduce(columns, axis=0, out=row)
        np.divide(columns, row, out=columns)
        np.subtract(columns.T, targets, out=scores)
        np.multiply(scores, weights[:, None], out=scores)
