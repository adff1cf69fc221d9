"""What a noisy maximum is, as a value: the noise on each count, and the threshold test before it, if any."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import log_ndtr

from pate.arrays import FloatArray, IntArray
from pate.errors import ParameterError, VotesError
from pate.validation import positive


class ThresholdTest(NamedTuple):
    """A query is answered iff max(counts) + N(0, sigma²) >= threshold, with noise of its own."""

    threshold: float
    sigma: float


@dataclass(frozen=True)
class NoisyMax:
    """The class with the largest noisy count, released alone.

    noise: "gaussian", N(0, scale²) on each count (scale is sigma of GNMax), or "laplace", Laplace of width 1/scale on
    each count (scale is gamma of LNMax).
    confident: None, or the test that decides whether the query is answered at all.
    """

    noise: Literal["gaussian", "laplace"]
    scale: float
    confident: ThresholdTest | None = None

    def __post_init__(self) -> None:
        if self.noise not in ("gaussian", "laplace"):
            raise ParameterError(f"noise must be 'gaussian' or 'laplace', got {self.noise!r}.")
        name = "sigma" if self.noise == "gaussian" else "gamma"
        positive(self.scale, name)
        if self.confident is not None:
            positive(self.confident.sigma, "The threshold test's sigma")
            if not math.isfinite(self.confident.threshold):
                raise ParameterError(f"threshold must be a finite number of votes, got {self.confident.threshold}.")


def check_counts(counts: ArrayLike) -> IntArray:
    """int64[query, class] after checking: whole, not negative, at least two classes."""
    table = np.asarray(counts)
    if table.ndim != 2 or table.shape[1] < 2:
        raise VotesError(f"counts must have the axes [query, class] with at least 2 classes, got shape {table.shape}.")
    if table.dtype.kind not in "iu":
        raise VotesError(f"counts must have an integer dtype, got {table.dtype}. Cast on purpose if they are whole numbers.")
    table = table.astype(np.int64, copy=False)
    if table.size and table.min() < 0:
        raise VotesError("counts must not be negative; found at least one negative count.")
    return table


def threshold_log_probs(test: ThresholdTest, largest: IntArray | FloatArray) -> tuple[FloatArray, FloatArray]:
    """log-probabilities of (an answer, an abstention), given the largest count."""
    score = (np.asarray(largest, dtype=np.float64) - test.threshold) / test.sigma
    return log_ndtr(score), log_ndtr(-score)


def behind_test(test: ThresholdTest, counts: IntArray, log_probs: FloatArray) -> FloatArray:
    """float64[query, class + 1]: outcomes of a mechanism asked only where the test succeeds; the last is abstention."""
    answer, abstain = threshold_log_probs(test, counts.max(axis=1))
    return np.column_stack([log_probs + answer[:, None], abstain])
