"""Exact integers for Rényi costs: multiples of 2**-40, rounded so that what is spent is never under-counted.

Slacks, which are shares of a delta and may be very small, are multiples of 2**-80.

Costs round up, budgets round down, and sums are exact Python integers, so ten charges of 0.1 are never less than 1.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from pate.arrays import FloatArray
from pate.errors import LedgerError

UNIT_BITS = 40
UNIT_NAME = f"2^-{UNIT_BITS}"

SLACK_BITS = 80
SLACK_UNIT_NAME = f"2^-{SLACK_BITS}"

INFINITE = 1 << 1100
"""Stands for an infinite cost. Every finite float is below 2**1064 units, so no sum of fewer than 2**36 finite costs
reaches it, a sum that holds it stays above it, and taking it off again is exact."""

Units = tuple[int, ...]
"""int[order]: one cost per Rényi order, in multiples of 2**-40."""


class Cost(NamedTuple):
    """What one row costs: at every order, and the slack with which that holds, in multiples of 2**-80."""

    rdp: Units
    slack: int = 0


def units_up(value: float, bits: int = UNIT_BITS) -> int:
    """The smallest whole number of units of 2**-bits not below ``value`` (not negative; infinity becomes INFINITE)."""
    if value == math.inf:
        return INFINITE
    numerator, denominator = float(value).as_integer_ratio()
    return -((-numerator << bits) // denominator)


def units_down(value: float, bits: int = UNIT_BITS) -> int:
    """The largest whole number of units that is not above a finite ``value``."""
    numerator, denominator = float(value).as_integer_ratio()
    return (numerator << bits) // denominator


def float_up(units: int, bits: int = UNIT_BITS) -> float:
    """The smallest float that is not below ``units`` units."""
    if units >= INFINITE:
        return math.inf
    # True division of Python integers is correctly rounded, so the neighbour above is at most one step away.
    nearest = units / (1 << bits)
    return nearest if units_down(nearest, bits) >= units else math.nextafter(nearest, math.inf)


def float_down(units: int, bits: int = UNIT_BITS) -> float:
    """The largest float that is not above a finite number of ``units``."""
    nearest = units / (1 << bits)
    return nearest if units_up(nearest, bits) <= units else math.nextafter(nearest, -math.inf)


def curve_units(values: FloatArray) -> Units:
    """int[order] from float64[order], each rounded up."""
    # Multiplying by a power of two rounds nothing, but may run over.
    with np.errstate(over="ignore"):
        whole = np.ceil(np.ldexp(values, UNIT_BITS)).tolist()
    return tuple(int(up) if up < math.inf else units_up(value) for up, value in zip(whole, values.tolist(), strict=True))


def encode(units: Iterable[int]) -> list[int | str]:
    """Units as they stand in JSON: integers, and "inf"."""
    return ["inf" if value >= INFINITE else value for value in units]


def decode(values: Sequence[object], n_orders: int) -> Units:
    """Units from JSON, after checking that there is one whole number, not negative, per order."""
    if len(values) != n_orders:
        raise LedgerError(f"A recorded cost must have {n_orders} values, one per order, found {len(values)}.")
    return tuple(_decode_one(value) for value in values)


def encode_cost(cost: Cost) -> dict[str, Any]:
    """A cost as it stands in a row. A slack is written only where there is one, so that rows without are as ever."""
    return {"cost": encode(cost.rdp), **({"slack": cost.slack} if cost.slack else {})}


def decode_cost(payload: Mapping[str, Any], n_orders: int) -> Cost:
    """The cost of a row, checked."""
    return Cost(decode(payload["cost"], n_orders), _decode_one(payload.get("slack", 0)))


def _decode_one(value: object) -> int:
    if value == "inf":
        return INFINITE
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < INFINITE:
        return value
    raise LedgerError(f'A recorded cost must be a whole number of units, not negative, or "inf"; found {value!r}.')
