"""A privacy budget as a Rényi filter: one order and one cap, both fixed before anything is asked."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pate.arrays import FloatArray
from pate.errors import ParameterError
from pate.ledger.units import INFINITE, SLACK_BITS, Cost, Units, curve_units, float_down, float_up, units_down, units_up
from pate.privacy.curve import DEFAULT_ORDERS, RdpCurve, check_delta, delta_beside


def rdp_caps(epsilon: float, delta: float, orders: FloatArray = DEFAULT_ORDERS) -> FloatArray:
    """float64[order]: the largest RDP at each order that still implies (epsilon, delta); not positive where none does.

    Inverts the improved conversion epsilon = rdp + log1p(-1/a) - log(a*delta)/(a-1): Canonne, Kamath, Steinke 2020
    (arXiv:2004.00010), Proposition 12 in v4. Rounding errors are taken off, so that a cap is never too large.
    """
    shrink = np.log1p(-1 / orders)
    log_term = (math.log(delta) + np.log(orders)) / (orders - 1)
    size = epsilon + np.abs(shrink) + (abs(math.log(delta)) + np.log(orders)) / (orders - 1)
    caps: FloatArray = (epsilon - shrink + log_term) - 8 * np.finfo(np.float64).eps * size
    return caps


SLACK_TOLERANCE = 2.0**-30
"""A thousand costs of 1e-8 must fit into a slack of 1e-5 though neither is exact in binary: the cap on slack is this much
larger, relatively, and the rest of delta that much smaller."""


@dataclass(frozen=True, init=False, repr=False)
class Budget:
    """(epsilon, delta), enforced as an RDP filter at one order.

    When later costs may depend on earlier answers (which of them were answered, say), the sum of costs is still a bound
    if it is held below a cap at an order, both fixed in advance: Feldman and Zrnic 2021 (arXiv:2008.11193), Theorem 4.3;
    Lécuyer 2021 (arXiv:2103.01379). The best of many orders, picked afterwards, has no such proof. So there is one.

    Unless given, the order is the one of ``DEFAULT_ORDERS`` with the largest cap(order)/order: it buys the most from
    mechanisms whose cost grows linearly with the order, as Gaussian noise does. It depends on epsilon and delta alone.

    slack: the share of delta set aside, for ever, for mechanisms whose cost holds only except with some probability
    (:class:`RdpCurve`, slack). Their slacks add up below it, the RDP cap is that of delta - slack, and the whole is
    (epsilon, delta)-DP: Whitehouse, Ramdas, Rogers, Wu 2023 (arXiv:2203.05481), the filter for approximate zCDP, whose proof
    holds at a single order. Without it such mechanisms are refused.

    >>> Budget(epsilon=1.0, delta=1e-5)
    Budget(epsilon=1.0, delta=1e-05, order=18.0)
    >>> Budget(epsilon=1.0, delta=1e-5, slack=2e-6).queries_affordable(RdpCurve.of_approximate(0.02, 1e-7))
    20
    """

    epsilon: float
    delta: float
    order: float
    slack: float = 0.0

    def __init__(self, epsilon: float, delta: float, order: float | None = None, slack: float = 0.0) -> None:
        if not (epsilon > 0 and math.isfinite(epsilon)):
            raise ParameterError(f"A budget's epsilon must be a finite number above 0, got {epsilon}.")
        check_delta(delta)
        if not 0 <= slack < delta or delta_beside(delta, float_up(_slack_cap(slack), SLACK_BITS)) <= 0:
            raise ParameterError(f"A budget's slack is a share of its delta, so it must lie in [0, {delta:g}), got {slack}.")
        object.__setattr__(self, "slack", float(slack))
        object.__setattr__(self, "delta", float(delta))
        caps = rdp_caps(epsilon, self.rdp_delta)
        if order is None:
            index = int(np.argmax(caps / DEFAULT_ORDERS))
        else:
            index = int(np.argmin(np.abs(DEFAULT_ORDERS - order)))
            if DEFAULT_ORDERS[index] != order:
                nearest = DEFAULT_ORDERS[index]
                raise ParameterError(
                    f"A budget's order must be one of DEFAULT_ORDERS, got {order}; the nearest is {nearest:g}."
                )
        if units_down(float(caps[index])) <= 0:
            where, other = ("any order up to 1024", "") if order is None else (f"order {order:g}", ", or another order")
            raise ParameterError(
                f"A budget of epsilon={epsilon:g} at delta={self.rdp_delta:g} leaves nothing to spend at {where}: "
                f"the conversion alone costs more. Take a larger epsilon or delta{other}."
            )
        object.__setattr__(self, "epsilon", float(epsilon))
        object.__setattr__(self, "order", float(DEFAULT_ORDERS[index]))

    @cached_property
    def order_index(self) -> int:
        """Where the filter's order stands in ``DEFAULT_ORDERS``."""
        return int(np.searchsorted(DEFAULT_ORDERS, self.order))

    @cached_property
    def cap_units(self) -> int:
        """The cap in units of 2**-40, rounded down."""
        return units_down(float(rdp_caps(self.epsilon, self.rdp_delta)[self.order_index]))

    @cached_property
    def slack_units(self) -> int:
        """The cap on the sum of slacks, in units of 2**-80."""
        return _slack_cap(self.slack)

    @cached_property
    def rdp_delta(self) -> float:
        """What the cap on slack leaves of delta: the RDP filter stands on it."""
        return delta_beside(self.delta, float_up(_slack_cap(self.slack), SLACK_BITS))

    @property
    def cap(self) -> float:
        """The RDP that may be spent in all at :attr:`order`."""
        return float_down(self.cap_units)

    def queries_affordable(self, curve: RdpCurve) -> int:
        """How many mechanisms of this cost the whole budget buys.

        >>> Budget(1.0, 1e-5).queries_affordable(RdpCurve.of(lambda orders: orders / 40.0**2))
        48
        """
        return self.affordable(curve, self.cap_units, self.slack_units)

    def affordable(self, curve: RdpCurve, rdp_units: int, slack_units: int) -> int:
        """How many mechanisms of this cost so much of the budget buys, in units."""
        cost = cost_of(curve)
        rdp = cost.rdp[self.order_index]
        if rdp == 0 and cost.slack == 0:
            raise ParameterError(f"A cost of 0 at order {self.order:g} can be paid for ever; state the cost of a query.")
        by_rdp = None if rdp == 0 else 0 if rdp >= INFINITE else rdp_units // rdp
        by_slack = None if cost.slack == 0 else slack_units // cost.slack
        return min(number for number in (by_rdp, by_slack) if number is not None)

    def __repr__(self) -> str:
        slack = f", slack={self.slack!r}" if self.slack else ""
        return f"Budget(epsilon={self.epsilon!r}, delta={self.delta!r}, order={self.order!r}{slack})"


def _slack_cap(slack: float) -> int:
    return units_down(slack * (1 + SLACK_TOLERANCE), SLACK_BITS)


def cost_units(curve: RdpCurve) -> Units:
    """int[order]: a curve in units, rounded up, after checking that it stands on ``DEFAULT_ORDERS``."""
    if not np.array_equal(curve.orders, DEFAULT_ORDERS):
        raise ParameterError(
            f"A budget or ledger takes cost curves on DEFAULT_ORDERS ({DEFAULT_ORDERS.size} orders), got {curve!r}; "
            "compute the cost with orders=DEFAULT_ORDERS."
        )
    return curve_units(curve.values)


def cost_of(curve: RdpCurve) -> Cost:
    """A curve as a row charges it: values and slack in units, rounded up."""
    return Cost(cost_units(curve), units_up(curve.slack, SLACK_BITS))
