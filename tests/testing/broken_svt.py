"""The sparse vector technique as it was really published, with its mistakes: Lyu, Su, Li 2017 (arXiv:1603.01699), section 3.

Each says that it is ``epsilon``-DP for queries of sensitivity 1 with epsilon = 1, split in halves unless said otherwise. Each
comes with neighbouring answers and an outcome that give it away.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import laplace

from pate.noise import Noise

EPSILON = 1.0

Told = bool | tuple[float, float]
"""Below, above, or above with a published value in this interval."""


@dataclass(frozen=True)
class Published:
    """One version. A scale of None: no noise there. tops None: it never halts."""

    name: str
    threshold_scale: float | None
    query_scale: float | None
    tops: int | None
    tells_value: bool = False
    threshold: int = 0

    def __call__(self, values: Sequence[int], noise: Noise) -> tuple[float | bool, ...]:
        """What is published of ``values``: False for below, True or the noisy value for above, to where it halts."""
        z = 0.0 if self.threshold_scale is None else float(noise.laplace(self.threshold_scale, (1,)).values[0])
        told: list[float | bool] = []
        drawn = np.zeros(len(values)) if self.query_scale is None else noise.laplace(self.query_scale, (len(values),)).values
        for value, more in zip(values, drawn.tolist(), strict=True):
            noisy = value + more
            above = noisy >= self.threshold + z
            told.append(noisy if above and self.tells_value else above)
            if self.tops is not None and sum(each is not False for each in told) == self.tops:
                break
        return tuple(told)

    def probability(self, values: Sequence[int], told: Sequence[Told]) -> float:
        """Of an outcome, exactly but for the rounding of a midpoint rule whose cells end at every whole number."""
        if self.threshold_scale is None:
            z, weight = np.zeros(1), np.ones(1)
        else:
            cells = 400
            z = (np.arange(-60 * cells, 60 * cells) + 0.5) / cells
            weight = laplace.pdf(z, scale=self.threshold_scale) / cells
        cut = self.threshold + z
        factor = np.ones_like(z)
        for value, each in zip(values, told, strict=True):
            if isinstance(each, tuple):
                low, high = each
                factor *= np.maximum(self._below(np.full_like(z, high), value) - self._below(np.maximum(low, cut), value), 0.0)
            else:
                factor *= self._above(cut, value) if each else self._below(cut, value)
        return float(factor @ weight)

    def _below(self, cut: np.ndarray, value: int) -> np.ndarray:
        if self.query_scale is None:
            return (value < cut).astype(float)
        return np.asarray(laplace.cdf(cut - value, scale=self.query_scale))

    def _above(self, cut: np.ndarray, value: int) -> np.ndarray:
        if self.query_scale is None:
            return (value >= cut).astype(float)
        return np.asarray(laplace.sf(cut - value, scale=self.query_scale))


@dataclass(frozen=True)
class Exposed:
    """A version with two neighbouring lists of answers and the outcome that is likelier on the first."""

    version: Published
    one: tuple[int, ...]
    two: tuple[int, ...]
    told: tuple[Told, ...]


def _halves(n: int, first: int, second: int) -> tuple[int, ...]:
    return (first,) * n + (second,) * n


RIGHT = Published("algorithm 1", 2.0, 4.0, tops=1)
"""Noise of scale 2 on the threshold, once, and 2 * tops / (epsilon/2) on the queries; halts."""

RIGHT_WITH_THREE = Published("algorithm 1, three tops", 2.0, 12.0, tops=3)

BROKEN = (
    # Roth 2011: publishes the very noisy value that was compared, which says that the threshold lies below it.
    Exposed(Published("algorithm 3", 2.0, 2.0, 1, True), (0,) * 8 + (1,), (1,) * 8 + (0,), (*(False,) * 8, (-0.5, 0.5))),
    # Lee & Clifton 2014: an eighth for the threshold, the rest for the queries, but not for as many as may lie above.
    Exposed(Published("algorithm 4", 4.0, 4 / 3, 4), (0,) * 20 + (1,) * 4, (1,) * 20 + (0,) * 4, (False,) * 20 + (True,) * 4),
    # Stoddard et al. 2014: no noise on the queries, and it never halts.
    Exposed(Published("algorithm 5", 2.0, None, None), (0, 1), (1, 0), (False, True)),
    # Chen et al. 2015: noise on both, but it never halts.
    Exposed(Published("algorithm 6", 2.0, 2.0, None), (0,) * 12, _halves(6, 1, -1), (False,) * 6 + (True,) * 6),
    # The threshold as it is: every query below leaks, and there may be any number of them.
    Exposed(Published("no noise on the threshold", None, 4.0, 1, threshold=8), (0,) * 60, (1,) * 60, (False,) * 60),
    # The noise of one top for three.
    Exposed(
        Published("noise not scaled by tops", 2.0, 4.0, 3),
        (0,) * 40 + (1,) * 3,
        (1,) * 40 + (0,) * 3,
        (False,) * 40 + (True,) * 3,
    ),
)
