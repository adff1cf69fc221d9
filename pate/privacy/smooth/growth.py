"""Publishing a bound on a cost with plain Gaussian noise, on a scale on which it cannot move fast.

Let C_d be the most that a batch can cost within d changes (:meth:`pate.privacy.smooth.table.CostTable.costs_within`), psi a
public increasing function, and

    G = max over d of (psi(C_d) - d).

G moves by at most 1 between neighbours: what lies within d of one lies within d + 1 of the other, so C_d <= C'_{d+1} and
psi(C_d) - d <= psi(C'_{d+1}) - (d+1) + 1 <= G' + 1. And psi(C_0) <= G, so the cost is at most the inverse of psi at G. Release
G + sigma Z, the Gaussian mechanism with sensitivity 1: a / (2 sigma^2) at *every* order a, and a spread that is public.

Where psi^-1(d) grows as C_d does, G is psi(C_0) and nothing is lost; psi = log / beta gives the log of a beta-smooth upper
bound. The gain over noise in proportion to the smooth sensitivity is that nothing private scales the noise. Distances to a
property as a private statistic: Dwork and Lei 2009 (propose-test-release); inverse sensitivity: Asi and Duchi 2020
(arXiv:2005.10630).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from pate.arrays import FloatArray
from pate.errors import ParameterError
from pate.privacy.smooth.table import Reach

_LEAST_SLOPE = 1e-3
"""Of log cost per change: psi must increase, and a steep psi would take rounding errors for changes."""


class Growth(NamedTuple):
    """psi and its inverse: linear in log cost between knots, and beyond them with the slope of the first and last.

    changes: float64[knot] from 0, increasing. log_cost: float64[knot], increasing.
    """

    changes: FloatArray
    log_cost: FloatArray

    @classmethod
    def of(cls, reach: Reach) -> Growth:
        """The psi whose inverse grows as this batch's cost does; for public batches only.

        >>> growth = Growth.of(Reach(np.array([0.0, 10.0]), np.array([1.0, 2.0])))
        >>> float(growth.cost(growth.changes_to(1.5)).round(6))
        1.5
        """
        if reach.distance.size < 2 or not (reach.value > 0).all():
            raise ParameterError("A growth needs the costs of at least two distances, all above 0.")
        log_cost = np.maximum.accumulate(np.log(reach.value)) + _LEAST_SLOPE * reach.distance
        return cls(reach.distance, log_cost)

    def changes_to(self, cost: ArrayLike) -> FloatArray:
        """psi: how many changes lead to a cost above 0."""
        return _extended(np.log(np.asarray(cost, dtype=np.float64)), self.log_cost, self.changes)

    def cost(self, changes: ArrayLike) -> FloatArray:
        """The inverse of psi."""
        # Costs beyond e^50 mean nothing, and are capped by the data-independent one.
        log_cost = np.clip(_extended(np.asarray(changes, dtype=np.float64), self.changes, self.log_cost), -700.0, 50.0)
        result: FloatArray = np.exp(log_cost)
        return result

    def statistic(self, reach: Reach) -> float:
        """G of a batch. Private."""
        return float((self.changes_to(reach.value) - reach.distance).max())


def _extended(x: FloatArray, knots: FloatArray, values: FloatArray) -> FloatArray:
    """Linear interpolation that goes on beyond the knots."""
    below, above = ((values[i + 1] - values[i]) / (knots[i + 1] - knots[i]) for i in (0, -2))
    inside = np.interp(x, knots, values)
    result: FloatArray = inside + below * np.minimum(x - knots[0], 0.0) + above * np.maximum(x - knots[-1], 0.0)
    return result
