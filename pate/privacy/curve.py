"""Rényi-DP curves: what a mechanism costs at a grid of orders, and what that means as (epsilon, delta).

A curve is a value. It adds only to a curve on the same orders, and every epsilon names the order it came from. A curve
with a slack holds except with that probability: approximate RDP.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from pate.arrays import FloatArray
from pate.errors import ParameterError

Conversion = Literal["improved", "classic"]


def _order_grid() -> FloatArray:
    steps = (
        np.array([1.05, 1.1, 1.15, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7, 1.8, 1.9]),
        np.arange(2, 8, 0.25),
        np.arange(8, 16, 0.5),
        np.arange(16, 40, 1),
        np.arange(40, 64, 2),
        np.arange(64, 128, 4),
        np.arange(128, 256, 16),
        np.arange(256, 512, 32),
        np.arange(512, 1025, 128),
    )
    grid = np.concatenate(steps).astype(np.float64)
    grid.setflags(write=False)
    return grid


DEFAULT_ORDERS: FloatArray = _order_grid()
"""float64[order]: fine where PATE's optimum lies, up to 1024. Fixed: ledgers and tables stand on it."""


class GridEdgeWarning(UserWarning):
    """The best order is the first or last of the grid: a wider grid would give a smaller epsilon."""


class Epsilon(NamedTuple):
    """An epsilon and the Rényi order at which it was found."""

    epsilon: float
    order: float


def check_orders(orders: ArrayLike) -> FloatArray:
    """Return the orders as float64[order] after checking that each is finite and above 1, and that they increase."""
    grid = np.array(orders, dtype=np.float64)
    if grid.ndim != 1 or grid.size == 0:
        raise ParameterError(f"orders must be a non-empty list of numbers, got shape {grid.shape}.")
    if not np.isfinite(grid).all() or (grid <= 1).any():
        raise ParameterError(f"Rényi orders must be finite and greater than 1, got values from {grid.min()} to {grid.max()}.")
    if (np.diff(grid) <= 0).any():
        raise ParameterError("orders must increase strictly; sort them and drop duplicates.")
    return grid


def check_delta(delta: float) -> float:
    """Return delta after checking that it lies strictly between 0 and 1."""
    if not 0 < delta < 1:
        raise ParameterError(f"delta must lie strictly between 0 and 1, got {delta}; usual is below 1/(number of records).")
    return float(delta)


def check_slack(slack: float) -> float:
    """Return a slack after checking that it is a probability."""
    if not 0 <= slack <= 1:
        raise ParameterError(f"slack, the probability with which a cost may fail to hold, must lie in [0, 1], got {slack}.")
    return float(slack)


def probability_up(exact: Fraction) -> float:
    """The smallest float that is not below a fraction, at most 1: a probability of 1 allows for everything."""
    nearest = float(min(exact, Fraction(1)))
    return nearest if Fraction(nearest) >= min(exact, Fraction(1)) else math.nextafter(nearest, 1.0)


def delta_beside(delta: float, slack: float) -> float:
    """What a slack leaves of delta, rounded down: not positive where it leaves nothing."""
    left = delta - slack
    return left if Fraction(left) <= Fraction(delta) - Fraction(slack) else math.nextafter(left, -1.0)


def epsilons_at_orders(orders: FloatArray, rdp: FloatArray, delta: float, conversion: Conversion = "improved") -> FloatArray:
    """epsilon implied at every order, same shape as ``rdp`` (last axis: order).

    classic: rdp + log(1/delta)/(a-1), Mironov 2017 (arXiv:1702.07476), Proposition 3.
    improved: rdp + log1p(-1/a) - log(a*delta)/(a-1), Canonne, Kamath, Steinke 2020 (arXiv:2004.00010), Proposition 12
    in v4; the same as Balle et al. 2020 (arXiv:1905.09982), Theorem 21; and 0 where delta covers the total variation
    distance, at most sqrt(1 - e^-rdp) (Bretagnolle & Huber 1979; the KL divergence is at most rdp). Never above classic.
    """
    if conversion == "classic":
        offset = -np.log(delta) / (orders - 1)
    elif conversion == "improved":
        offset = np.log1p(-1 / orders) - (np.log(delta) + np.log(orders)) / (orders - 1)
        offset = np.where(np.sqrt(-np.expm1(-rdp)) < delta, -np.inf, offset)
    else:
        raise ParameterError(f"conversion must be 'improved' or 'classic', got {conversion!r}.")
    # A negative value only says that the claim (0, delta) holds.
    result: FloatArray = np.maximum(rdp + offset, 0.0)
    return result


def deltas_at_orders(orders: FloatArray, rdp: FloatArray, epsilon: float, conversion: Conversion = "improved") -> FloatArray:
    """delta implied at every order by an epsilon: the inverse of :func:`epsilons_at_orders`, at most 1."""
    log_delta = (orders - 1) * (rdp - epsilon)
    result: FloatArray
    if conversion == "classic":
        result = np.exp(np.minimum(log_delta, 0.0))
    elif conversion == "improved":
        log_delta = log_delta + (orders - 1) * np.log1p(-1 / orders) - np.log(orders)
        result = np.minimum(np.exp(np.minimum(log_delta, 0.0)), np.sqrt(-np.expm1(-rdp)))
    else:
        raise ParameterError(f"conversion must be 'improved' or 'classic', got {conversion!r}.")
    return result


@dataclass(frozen=True, eq=False)
class RdpCurve:
    """Rényi-DP of a mechanism: ``values[i]`` bounds the divergence of order ``orders[i]``.

    slack: approximate RDP. For neighbouring data with output laws P and Q there are laws with P = (1-slack) P' + slack P'',
    Q = (1-slack) Q' + slack Q'', and the values bound the divergence of P' and Q', in both directions: Bun & Steinke 2016
    (arXiv:1605.02065), Definition 8.1, order by order. Slacks add up with the values (there, Lemma 8.2), and delta pays for
    them: P(S) <= slack + (1-slack) P'(S) <= slack + delta' + e^epsilon Q(S).

    >>> curve = 100 * RdpCurve.of(lambda orders: orders / (2 * 40.0**2))
    >>> round(curve.epsilon(1e-5).epsilon, 3)
    1.013
    """

    orders: FloatArray
    values: FloatArray
    slack: float = 0.0

    def __post_init__(self) -> None:
        orders = check_orders(self.orders)
        values = np.array(self.values, dtype=np.float64)
        if values.shape != orders.shape:
            raise ParameterError(f"An RdpCurve needs one value per order: got {values.shape} values for {orders.shape} orders.")
        if np.isnan(values).any() or (values < 0).any():
            raise ParameterError("RDP values must not be negative (infinity is allowed); found a negative value or NaN.")
        for array in (orders, values):
            array.setflags(write=False)
        object.__setattr__(self, "orders", orders)
        object.__setattr__(self, "values", values)
        object.__setattr__(self, "slack", check_slack(self.slack))

    @classmethod
    def of(cls, cost: object, orders: ArrayLike = DEFAULT_ORDERS) -> RdpCurve:
        """The curve of a function of the orders, or of an array already taken at ``orders``."""
        grid = check_orders(orders)
        return cls(grid, np.asarray(cost(grid) if callable(cost) else cost, dtype=np.float64))

    @classmethod
    def of_approximate(cls, epsilon: float, delta: float, orders: ArrayLike = DEFAULT_ORDERS) -> RdpCurve:
        """The curve of any (epsilon, delta)-DP mechanism: that of a pure epsilon-DP one, with slack delta.

        Kairouz, Oh, Viswanath 2015 (arXiv:1311.0776), Theorem 3.1: such a pair of laws comes, by post-processing, from
        randomised response with epsilon that is given away with probability delta.

        >>> RdpCurve.of_approximate(0.5, 1e-6)
        RdpCurve(124 orders from 1.05 to 1024, slack 1e-06)
        """
        from pate.privacy.mechanisms import pure_dp_rdp  # it stands on this module

        grid = check_orders(orders)
        return cls(grid, pure_dp_rdp(epsilon, grid), delta)

    @classmethod
    def zero(cls, orders: ArrayLike = DEFAULT_ORDERS) -> RdpCurve:
        """The cost of having done nothing."""
        grid = check_orders(orders)
        return cls(grid, np.zeros_like(grid))

    def __add__(self, other: RdpCurve) -> RdpCurve:
        """Composition: Mironov 2017, Proposition 1. Only on equal orders."""
        if not isinstance(other, RdpCurve):
            return NotImplemented
        if not np.array_equal(self.orders, other.orders):
            raise ParameterError("Two RDP curves add only on equal orders; compute both on the same grid.")
        slack = probability_up(Fraction(self.slack) + Fraction(other.slack))
        return RdpCurve(self.orders, self.values + other.values, slack)

    def __mul__(self, times: float) -> RdpCurve:
        """The same mechanism ``times`` times (a whole number, not negative)."""
        if not (times >= 0 and math.isfinite(times) and times == int(times)):
            raise ParameterError(f"A mechanism can be repeated a whole number of times, got {times}.")
        # 0 * inf is a mechanism that was never run, so it costs nothing.
        slack = probability_up(Fraction(self.slack) * int(times))
        return RdpCurve(self.orders, self.values * times if times else np.zeros_like(self.values), slack)

    __rmul__ = __mul__

    def epsilon(self, delta: float, conversion: Conversion = "improved") -> Epsilon:
        """The smallest epsilon over the grid, and its order. Warns when that order is an edge of the grid.

        Infinite where the slack alone takes all of delta.
        """
        left = delta_beside(check_delta(delta), self.slack)
        if left <= 0:
            return Epsilon(math.inf, float(self.orders[0]))
        implied = epsilons_at_orders(self.orders, self.values, left, conversion)
        best = int(np.argmin(implied))
        if implied[best] > 0 and best in (0, self.orders.size - 1) and self.orders.size > 1 and np.isfinite(implied[best]):
            side = "smallest" if best == 0 else "largest"
            warnings.warn(
                f"The best Rényi order, {self.orders[best]:g}, is the {side} of the grid: epsilon {implied[best]:.4g} holds, "
                "but a wider grid of orders would give a smaller one.",
                GridEdgeWarning,
                stacklevel=2,
            )
        return Epsilon(float(implied[best]), float(self.orders[best]))

    def delta(self, epsilon: float, conversion: Conversion = "improved") -> float:
        """The smallest delta over the grid for a given epsilon, the slack included."""
        if not (epsilon >= 0 and math.isfinite(epsilon)):
            raise ParameterError(f"epsilon must be finite and not negative, got {epsilon}.")
        delta = float(deltas_at_orders(self.orders, self.values, epsilon, conversion).min())
        return probability_up(Fraction(delta) + Fraction(self.slack)) if self.slack else delta

    def __reduce__(self) -> tuple[Any, ...]:
        # Through the constructor, since a pickled array comes back writable.
        return RdpCurve, (self.orders, self.values, self.slack)

    def __repr__(self) -> str:
        slack = f", slack {self.slack:g}" if self.slack else ""
        return f"RdpCurve({self.orders.size} orders from {self.orders[0]:g} to {self.orders[-1]:g}{slack})"
