"""Smooth sensitivity of the threshold step as published: Papernot et al. 2018 (arXiv:1802.08908), appendix B.

The figure is Theorem 6 with q the rarer bit's probability, a table over the largest count; one direction only. The exact
cost of both directions is :func:`pate.privacy.smooth.costs.threshold_table`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from pate.arrays import FloatArray
from pate.privacy.published.inputs import check_counts
from pate.privacy.published.threshold import threshold_log_answered, threshold_rdp
from pate.validation import whole


def threshold_local_sensitivity(
    counts: ArrayLike, n_teachers: int, threshold: float, sigma1: float, order: float
) -> FloatArray:
    """float64[query, distance], distances 0 to n_teachers - 1: local sensitivity within a distance. counts: [query, class].

    As published, at distance d the counts exactly d away are looked at; with a discount this is the same maximum.
    """
    whole(n_teachers, "n_teachers", 1)
    largest = np.round(check_counts(counts).max(axis=1)).astype(np.int64)
    every = np.arange(n_teachers + 1)
    figure = threshold_rdp(threshold_log_answered(np.stack([every, 0 * every], axis=1), threshold, sigma1), sigma1, [order])
    change = np.abs(np.diff(figure[:, 0]))
    local = np.maximum(np.append(change, 0.0), np.append(0.0, change))
    distance = np.arange(n_teachers)
    found = np.zeros((largest.size, n_teachers))
    for place in (largest[:, None] + distance, largest[:, None] - distance):
        inside = (place >= 0) & (place <= n_teachers)
        found = np.maximum(found, np.where(inside, local[np.clip(place, 0, n_teachers)], 0.0))
    # The published loop ends at the further end of the counts, and leaves 0 beyond.
    found[distance >= np.maximum(largest, n_teachers - largest)[:, None]] = 0.0
    return found
