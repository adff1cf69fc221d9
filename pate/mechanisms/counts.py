"""Noisy counts and histograms: one count or several disjoint ones, published as whole numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from pate.arrays import IntArray
from pate.errors import ParameterError
from pate.mechanisms.above_threshold import Law, check_law, draw
from pate.mechanisms.whole_numbers import whole_numbers
from pate.noise import Noise
from pate.privacy.curve import DEFAULT_ORDERS, RdpCurve, check_orders
from pate.privacy.mechanisms import gaussian_rdp, laplace_epsilon, laplace_rdp
from pate.sampling import check_scale
from pate.validation import positive

Neighbours = Literal["replace", "add-remove"]


@dataclass(frozen=True)
class NoisyCounts:
    """Adds noise to counts of disjoint groups, where a record (or user, grouped) is in at most one of them.

    scale: of Laplace noise, or the standard deviation of Gaussian noise, in records. neighbours: with "add-remove" one count
    changes by one; with "replace" a record may leave one group and enter another, unless ``groups`` is 1: a single count, which
    changes by one either way.

    Noise is rounded to a lattice that holds all whole numbers, and the sum to the nearest of them: post-processing of the real
    mechanism, so it costs nothing. A published count may be negative; cutting it off is post-processing too.

    >>> from pate import SimulatedNoise
    >>> NoisyCounts(scale=2, neighbours="add-remove").release(np.array([120, 45, 0]), SimulatedNoise(0))
    array([122,  43,   1])
    """

    scale: float
    law: Law = "laplace"
    neighbours: Neighbours = "replace"

    def __post_init__(self) -> None:
        check_law(self.law, "NoisyCounts law")
        positive(self.scale, "NoisyCounts scale, of the noise in records,")
        check_scale(self.scale, "NoisyCounts scale")
        if self.neighbours not in ("replace", "add-remove"):
            raise ParameterError(f"NoisyCounts neighbours must be 'replace' or 'add-remove', got {self.neighbours!r}.")

    def release(self, counts: IntArray, noise: Noise) -> IntArray:
        """int64[group] from int64[group]."""
        given = whole_numbers(counts, "NoisyCounts takes whole numbers [group]")
        noisy: IntArray = np.floor(given + draw(noise, self.law, self.scale, given.size).values + 0.5).astype(np.int64)
        return noisy

    def moved(self, groups: int) -> int:
        """How many counts change, each by one."""
        return 2 if self.neighbours == "replace" and groups > 1 else 1

    def epsilon(self, groups: int) -> float:
        """Pure epsilon, for Laplace noise: Dwork, McSherry, Nissim, Smith 2006, Proposition 1."""
        if self.law != "laplace":
            raise ParameterError("Gaussian noise has no pure epsilon; see NoisyCounts.cost, or take law='laplace'.")
        return laplace_epsilon(self.moved(groups), self.scale)

    def cost(self, groups: int, orders: ArrayLike = DEFAULT_ORDERS) -> RdpCurve:
        """What all counts cost together. The noise on each is its own, so two that change cost twice what one does: exact.

        >>> counts = NoisyCounts(scale=10, neighbours="add-remove")
        >>> round((20 * counts.cost(groups=3)).epsilon(1e-6).epsilon, 2)
        1.84
        """
        grid = check_orders(orders)
        moved = self.moved(groups)
        if self.law == "gaussian":
            return RdpCurve(grid, gaussian_rdp(math.sqrt(moved), self.scale, grid))
        return moved * RdpCurve(grid, laplace_rdp(1, self.scale, grid))
