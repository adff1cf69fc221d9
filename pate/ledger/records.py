"""What a ledger hands out: reservations, entries and figures. Public facts only."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from pate.ledger.chain import Row
from pate.ledger.units import SLACK_BITS, Cost, decode_cost, float_up
from pate.privacy.curve import DEFAULT_ORDERS, RdpCurve


@dataclass(frozen=True)
class Reservation:
    """A cost that is charged, durably. Only now may noise be drawn, and only if not :attr:`repeated`.

    worst: the cost that stays charged unless :meth:`Ledger.settle` lowers it.
    repeated: the row was there before, found by its idempotency key. Whoever made it may have released an answer, so a
        second draw of noise would be unpaid: send the stored answer, or reserve under a new key.
    settled: nothing is left to settle.
    """

    fingerprint: str
    sequence: int
    hash: str
    worst: RdpCurve
    key: str | None = None
    repeated: bool = False
    settled: bool = False


class Remaining(NamedTuple):
    """What is left of a budget: RDP at the filter's order, and as a fraction of the cap; and of the slack set aside."""

    order: float
    rdp: float
    fraction: float
    slack: float = 0.0


@dataclass(frozen=True)
class Entry:
    """One row, read back. ``cost`` is None for "open"; ``settles`` is the reservation that a "settle" row lowers."""

    sequence: int
    kind: str
    at: str
    memo: Mapping[str, Any]
    hash: str
    cost: RdpCurve | None = None
    key: str | None = None
    settles: int | None = None


@dataclass(frozen=True)
class Verification:
    """A chain that was read anew from its first row and found sound."""

    fingerprint: str
    rows: int
    head: str
    spent: float
    cap: float
    order: float
    pending: int


def curve_of(cost: Cost) -> RdpCurve:
    """The curve of a cost in units, on ``DEFAULT_ORDERS``, each rounded up to a float."""
    return RdpCurve(
        DEFAULT_ORDERS, np.array([float_up(value) for value in cost.rdp]), min(1.0, float_up(cost.slack, SLACK_BITS))
    )


def entry_of(row: Row) -> Entry:
    """A row that was verified, read back."""
    payload = json.loads(row.payload)
    return Entry(
        row.sequence,
        row.kind,
        at=payload["at"],
        memo=payload.get("memo", {}),
        hash=row.hash,
        cost=curve_of(decode_cost(payload, DEFAULT_ORDERS.size)) if "cost" in payload else None,
        key=payload.get("key"),
        settles=payload.get("reservation"),
    )
