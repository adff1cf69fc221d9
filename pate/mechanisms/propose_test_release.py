"""Propose-test-release: noise for the sensitivity that the data have, after a private test that they have it.

Dwork & Lei 2009 (STOC), in the form of Vadhan 2017, "The Complexity of Differential Privacy", section 3.2: propose a bound on
the local sensitivity, test privately that the data are far from any that exceed it, and only then release with noise for it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from pate.arrays import IntArray
from pate.errors import ParameterError
from pate.mechanisms.above_threshold import Law, check_law, draw
from pate.mechanisms.counts import Neighbours
from pate.mechanisms.stability import StabilityTest, plurality_distance
from pate.mechanisms.whole_numbers import whole_numbers
from pate.noise import Noise
from pate.privacy.curve import DEFAULT_ORDERS, RdpCurve, check_orders
from pate.privacy.mechanisms import gaussian_rdp, laplace_rdp
from pate.sampling import check_scale
from pate.validation import positive, whole


@dataclass(frozen=True)
class ProposeTestRelease:
    """A whole number with noise for a local sensitivity of at most ``bound``, or nothing.

    test: of the distance, the number of records that must change before the local sensitivity exceeds ``bound``.
    scale: of the noise on the value, Laplace, or the standard deviation where ``law`` is "gaussian".

    The cost is that of the test and of the value together, with the test's slack. Of two neighbours either one has a distance
    of at least 1, so that its local sensitivity, and hence their difference, is at most ``bound``: test and value compose.
    Or both have distance 0, and both pass with at most the slack.

    >>> from pate import SimulatedNoise
    >>> ptr = ProposeTestRelease(bound=2, test=StabilityTest(scale=3, delta=1e-6), scale=20)
    >>> ptr.release(1000, distance=50, noise=SimulatedNoise(0)), ptr.release(1000, distance=0, noise=SimulatedNoise(0))
    (980, None)
    """

    bound: int
    test: StabilityTest
    scale: float
    law: Law = "gaussian"

    def __post_init__(self) -> None:
        check_law(self.law, "ProposeTestRelease law")
        whole(self.bound, "ProposeTestRelease bound, the proposed local sensitivity,", 1)
        positive(self.scale, "ProposeTestRelease scale, of the noise on the value,")
        check_scale(self.scale, "ProposeTestRelease scale")

    def release(self, value: int, distance: int, noise: Noise) -> int | None:
        """The noisy value, rounded to a whole number, or None where the test fails. Noise is drawn either way."""
        given = int(whole_numbers([value], "ProposeTestRelease releases a whole number")[0])
        passed = bool(self.test.passes(np.array([distance]), noise)[0])
        noisy = math.floor(given + float(draw(noise, self.law, self.scale, 1).values[0]) + 0.5)
        return noisy if passed else None

    def cost(self, orders: ArrayLike = DEFAULT_ORDERS) -> RdpCurve:
        """What one release costs, with or without a value."""
        grid = check_orders(orders)
        rdp = gaussian_rdp if self.law == "gaussian" else laplace_rdp
        return self.test.cost(grid) + RdpCurve(grid, rdp(self.bound, self.scale, grid))


def private_mode(counts: IntArray, test: StabilityTest, noise: Noise, neighbours: Neighbours = "replace") -> int | None:
    """The most frequent value of a data set, exact, or None: the lectures' example. counts: int64[value], over a known domain.

    Its local sensitivity is 0 but where a change of one record can alter the mode: nothing is left to add noise for, and
    propose-test-release is the stability test alone. Costs ``test.cost()``.

    >>> from pate import SimulatedNoise
    >>> test = StabilityTest(scale=3, delta=1e-6)
    >>> [private_mode(np.array(counts), test, SimulatedNoise(0)) for counts in ([900, 80, 20], [41, 40, 9])]
    [0, None]
    """
    given = whole_numbers(counts, "private_mode takes whole numbers, the counts of at least two values")
    if given.size < 2:
        raise ParameterError(f"private_mode takes the counts of at least two values, got {given.size}.")
    stable = bool(test.passes(plurality_distance(given[None, :], neighbours), noise)[0])
    # Alone at the top, or the chance of a tie that passes is the test's slack; then nothing is said.
    alone = int((given == given.max()).sum()) == 1
    return int(given.argmax()) if stable and alone else None


def median_distance(values: ArrayLike, bound: float, low: float, high: float) -> int:
    """How many records must be replaced before the median's local sensitivity exceeds ``bound``.

    values: float[record], an odd number, known to lie in [low, high]. Nissim, Raskhodnikova, Smith 2007 (STOC), Proposition
    3.4: with k changed records the largest local sensitivity is max over t in 0..k+1 of x_(m+t) - x_(m+t-k-1), where values
    beyond the ends are low and high.

    >>> median_distance([4, 5, 5, 6, 6, 7, 9], bound=2, low=0, high=100)
    2
    """
    given = np.sort(np.asarray(values, dtype=np.float64))
    if given.ndim != 1 or given.size % 2 == 0:
        raise ParameterError(f"median_distance takes an odd number of values, got shape {given.shape}.")
    if not (low <= given[0] and given[-1] <= high):
        raise ParameterError(f"median_distance: every value must lie in [{low:g}, {high:g}], declared in advance; clip first.")
    n, middle = given.size, given.size // 2
    padded = np.concatenate([np.full(n + 1, low), given, np.full(n + 1, high)])
    for changed in range(n):
        upper = padded[n + 1 + middle + np.arange(changed + 2)]
        lower = padded[n + 1 + middle + np.arange(changed + 2) - changed - 1]
        if (upper - lower).max() > bound:
            return changed
    return n
