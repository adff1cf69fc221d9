"""Neighbouring histograms, and the divergence between what they release: shared by the tests of both noises' bounds."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from hypothesis import strategies as st
from scipy.special import logsumexp

from pate.arrays import FloatArray, IntArray

SLACK = 1e-13
"""An oracle in floats has an absolute error of about 1e-15/(a-1)."""


class Case(NamedTuple):
    counts: IntArray
    moved: IntArray  # one vote went from one class to another
    removed: IntArray  # the same vote vanished
    scale: float  # of the noise, in votes


@st.composite
def cases(draw: st.DrawFn, scales: st.SearchStrategy[float]) -> Case:
    """2 to 20 classes, up to 1000 votes a class, leaders often within a few scales of each other, where the cost is high."""
    scale = draw(scales)
    top = draw(st.integers(2, 1000))
    gaps = np.array(draw(st.lists(st.floats(0, 6), min_size=1, max_size=19)))
    counts = np.append(top, np.clip(np.round(top - gaps * scale), 0, top)).astype(np.int64)
    giver = draw(st.sampled_from(np.flatnonzero(counts).tolist()))
    taker = draw(st.sampled_from([j for j in range(counts.size) if j != giver]))
    removed = counts.copy()
    removed[giver] -= 1
    moved = removed.copy()
    moved[taker] += 1
    return Case(counts, moved, removed, scale)


def divergence(log_p: FloatArray, log_q: FloatArray, orders: FloatArray) -> FloatArray:
    """float64[order], the larger of both directions."""
    p, q = log_p - logsumexp(log_p), log_q - logsumexp(log_q)
    log_moments = [logsumexp(np.outer(orders, x) - np.outer(orders - 1, y), axis=1) for x, y in ((p, q), (q, p))]
    larger: FloatArray = np.max(log_moments, axis=0) / (orders - 1)
    return larger
