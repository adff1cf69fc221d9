"""The rows of one data set: a hash chain, and what it adds up to. Pure: no database here."""

from __future__ import annotations

import hashlib
import json
import operator
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, cast, get_args

from pate.errors import BudgetExceeded, LedgerError, ParameterError
from pate.ledger.budget import Budget
from pate.ledger.names import public_name
from pate.ledger.units import (
    SLACK_BITS,
    SLACK_UNIT_NAME,
    UNIT_NAME,
    Cost,
    decode_cost,
    encode,
    float_down,
    float_up,
)
from pate.privacy.curve import DEFAULT_ORDERS

FORMAT = "pate-ledger-1"
FORMAT_WITH_SLACK = "pate-ledger-2"
"""Where part of delta is set aside as slack: older versions, which would overlook that, must not read it."""
GENESIS = "0" * 64
"""What the first row of a chain has in place of a previous hash."""

Kind = Literal["open", "reserve", "settle", "charge"]
KINDS: tuple[str, ...] = get_args(Kind)
Neighbours = Literal["replace", "add-remove"]
MAX_MEMO_BYTES = 16_384
MARGIN_BITS = 30
"""A realised cost within 2**-30 of the worst case counts as equal to it: far more than the rounding of a sum of floats."""


@dataclass(frozen=True)
class Row:
    """One row as it lies in the database: ``payload`` is canonical JSON text, ``hash`` covers all that comes before."""

    fingerprint: str
    sequence: int
    kind: str
    payload: str
    hash: str


@dataclass(frozen=True)
class Header:
    """What the first row fixes for ever."""

    budget: Budget
    unit: str
    neighbours: Neighbours

    def payload(self) -> dict[str, Any]:
        slack = {"slack": self.budget.slack, "slack_unit": SLACK_UNIT_NAME} if self.budget.slack else {}
        return {
            "format": FORMAT_WITH_SLACK if slack else FORMAT,
            "epsilon": self.budget.epsilon,
            "delta": self.budget.delta,
            "order": self.budget.order,
            "orders": DEFAULT_ORDERS.tolist(),
            "unit": self.unit,
            "neighbours": self.neighbours,
            "cost_unit": UNIT_NAME,
            **slack,
        }

    @classmethod
    def of(cls, payload: Mapping[str, Any]) -> Header:
        """Read the payload of an "open" row; refuses another format or another grid of orders."""
        written = (payload.get("format"), payload.get("cost_unit"))
        slack = payload.get("slack", 0.0)
        known = (FORMAT_WITH_SLACK if slack else FORMAT, UNIT_NAME)
        if written != known or (slack and payload.get("slack_unit") != SLACK_UNIT_NAME):
            raise LedgerError(
                f"it was written in format {written[0]!r} with costs in {written[1]!r}; this version reads {known[0]!r} with "
                f"{UNIT_NAME!r}. Use the version of pate that wrote it."
            )
        if payload["orders"] != DEFAULT_ORDERS.tolist():
            raise LedgerError("it stands on another grid of Rényi orders. Use the version of pate that wrote it.")
        budget = Budget(payload["epsilon"], payload["delta"], payload["order"], slack)
        return cls(budget, payload["unit"], payload["neighbours"])

    def check_same(self, budget: Budget | None, unit: str | None, neighbours: Neighbours | None) -> None:
        """Raise LedgerError where a later opening asks for something else; None asks for nothing."""
        for what, given, recorded in (
            ("budget", budget, self.budget),
            ("unit", unit, self.unit),
            ("neighbours", neighbours, self.neighbours),
        ):
            if given is not None and given != recorded:
                raise LedgerError(
                    f"it was opened with {what} {_plainly(recorded)}, which is fixed for ever, and now {_plainly(given)} was "
                    f"asked for. Give the recorded {what}, or leave it out where that is allowed, to go on."
                )


def _plainly(fixed: Budget | str) -> str:
    """As a user writes it."""
    if isinstance(fixed, str):
        return repr(fixed)
    slack = f", slack {fixed.slack}" if fixed.slack else ""
    return f"epsilon {fixed.epsilon}, delta {fixed.delta}{slack} at order {fixed.order}"


def canonical(value: object) -> str:
    """JSON text that is the same for equal values: sorted keys, no spaces, ASCII, no NaN."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False, default=_plain)


def _plain(value: object) -> object:
    """Accept NumPy scalars and read-only mappings, as mechanisms state their parameters in them."""
    if isinstance(value, Mapping):
        return dict(value)
    item = getattr(value, "item", None)
    if callable(item) and getattr(value, "ndim", None) == 0:
        return cast(object, item())
    raise TypeError(f"{type(value).__name__} is not JSON")


def check_memo(memo: Mapping[str, Any]) -> dict[str, Any]:
    """The memo as plain JSON values, after checking that it is JSON and small: public facts, not data."""
    try:
        text = canonical(dict(memo))
    except (TypeError, ValueError) as error:
        raise ParameterError(f"A ledger memo must be a mapping of JSON values, and this one is not: {error}.") from None
    if len(text) > MAX_MEMO_BYTES:
        raise ParameterError(
            f"A ledger memo must be at most {MAX_MEMO_BYTES} bytes, got {len(text)}; it is for public facts, "
            "such as the mechanism, the number of queries and a digest of the release."
        )
    return cast(dict[str, Any], json.loads(text))


def seal(fingerprint: str, sequence: int, kind: Kind, payload: Mapping[str, Any], previous: str) -> Row:
    """The row that follows the row with the hash ``previous``."""
    text = canonical(payload)
    return Row(fingerprint, sequence, kind, text, row_hash(fingerprint, sequence, kind, text, previous))


def row_hash(fingerprint: str, sequence: int, kind: str, payload: str, previous: str) -> str:
    """SHA-256 over the previous hash and the whole content of the row."""
    content = canonical([previous, fingerprint, sequence, kind, payload])
    return hashlib.sha256(content.encode()).hexdigest()


def content_digest(kind: Kind, cost: Cost, memo: Mapping[str, Any]) -> str:
    """What must be equal for two requests with the same idempotency key to be the same request."""
    slack = [cost.slack] if cost.slack else []
    return hashlib.sha256(canonical([kind, encode(cost.rdp), memo, *slack]).encode()).hexdigest()


class Keyed(NamedTuple):
    """The row that an idempotency key belongs to, and the digest of its request."""

    sequence: int
    hash: str
    digest: str


@dataclass
class Chain:
    """What the rows read so far add up to. Grows by :meth:`extend`, which refuses whatever does not follow."""

    fingerprint: str
    sequence: int = 0
    head: str = GENESIS
    header: Header | None = None
    totals: list[int] = field(default_factory=lambda: [0] * DEFAULT_ORDERS.size)
    slack: int = 0
    pending: dict[int, Cost] = field(default_factory=dict)
    keys: dict[str, Keyed] = field(default_factory=dict)

    def opened(self) -> Header:
        """The header; a chain without rows has none."""
        if self.header is None:
            raise LedgerError(f"data set {self.fingerprint!r} has no ledger yet; open it with a budget.")
        return self.header

    @property
    def spent(self) -> int:
        """Units spent at the filter's order, with open reservations at their worst case."""
        return self.totals[self.opened().budget.order_index]

    @property
    def total(self) -> Cost:
        """All that is charged, open reservations at their worst case."""
        return Cost(tuple(self.totals), self.slack)

    def check_budget(self, cost: Cost) -> None:
        """Raise BudgetExceeded if ``cost`` more is above the filter's cap. Looks at one order only: see :class:`Budget`."""
        budget = self.opened().budget
        self._check_slack(budget, cost.slack)
        left, wanted = budget.cap_units - self.spent, cost.rdp[budget.order_index]
        if wanted > left:
            raise BudgetExceeded(
                f"{self._subject(budget)} does not "
                f"cover this request: at Rényi order {budget.order:g} it costs {float_up(wanted):.6g}, and of {budget.cap:.6g} "
                f"{float_down(left):.6g} is left. Ask fewer queries, or add more noise."
            )

    def _subject(self, budget: Budget) -> str:
        name = public_name(self.fingerprint)
        return f"The budget of data set {name!r} (epsilon {budget.epsilon:g}, delta {budget.delta:g})"

    def _check_slack(self, budget: Budget, wanted: int) -> None:
        left = budget.slack_units - self.slack
        if wanted <= left:
            return
        needs = (
            f"{self._subject(budget)} does not cover "
            f"this request: its cost holds only except with probability {float_up(wanted, SLACK_BITS):.6g}"
        )
        if not budget.slack:
            raise BudgetExceeded(
                f"{needs}, and nothing of delta is set aside for that. That is fixed for ever when a ledger begins: "
                "Budget(epsilon, delta, slack=...), or --slack. Here, use an aggregator whose cost always holds, such as gnmax."
            )
        raise BudgetExceeded(
            f"{needs}, and of the {budget.slack:g} set aside for that {float_down(max(left, 0), SLACK_BITS):.6g} is left. Ask "
            "fewer queries, or set a smaller delta for each."
        )

    def extend(self, row: Row) -> None:
        """Take the next row, or raise LedgerError and stay as before."""
        place = f"row {self.sequence + 1} of data set {self.fingerprint!r}"
        if row.sequence != self.sequence + 1:
            raise LedgerError(f"{place} is missing: the next row found is number {row.sequence}.")
        if row_hash(self.fingerprint, row.sequence, row.kind, row.payload, self.head) != row.hash:
            raise LedgerError(f"{place} was changed: its hash does not follow from the row before it and its own content.")
        try:
            self._apply(row, json.loads(row.payload))
        except (KeyError, TypeError, ValueError) as error:
            # The hash holds, so this is not damage: another program wrote a row that this one cannot read.
            raise LedgerError(f"{place} has a valid hash but cannot be read ({type(error).__name__}: {error}).") from None
        except LedgerError as error:
            raise LedgerError(f"{place} cannot be taken: {error}") from None
        self.sequence, self.head = row.sequence, row.hash

    def _apply(self, row: Row, payload: Mapping[str, Any]) -> None:
        if (row.kind == "open") != (row.sequence == 1):
            raise LedgerError(f"the first row, and only it, opens a ledger; found kind {row.kind!r}.")
        if row.kind == "open":
            self.header = Header.of(payload)
            return
        if row.kind not in KINDS:
            raise LedgerError(f"kind must be one of {', '.join(KINDS)}, found {row.kind!r}.")
        cost = decode_cost(payload, DEFAULT_ORDERS.size)
        if row.kind == "settle":
            self._settle(int(payload["reservation"]), cost)
            return
        try:
            self.check_budget(cost)
        except BudgetExceeded:
            raise LedgerError("it spends more than the budget, which this program never writes.") from None
        key = payload["key"]
        if key is not None:
            if key in self.keys:
                raise LedgerError("its idempotency key was used before.")
            self.keys[key] = Keyed(row.sequence, row.hash, content_digest(cast(Kind, row.kind), cost, payload["memo"]))
        if row.kind == "reserve":
            self.pending[row.sequence] = cost
        self.totals = [total + more for total, more in zip(self.totals, cost.rdp, strict=True)]
        self.slack += cost.slack

    def settled_cost(self, reservation: int, realised: Cost) -> Cost:
        """What an open reservation is lowered to: ``realised``, which must be nowhere above the reserved worst case.

        Sums of floats taken in another order differ in their last digits. Within that, it is the worst case that is charged.
        """
        worst = self._worst(reservation)
        margin = [(most >> MARGIN_BITS) + 1 for most in worst.rdp]
        rows = list(zip(realised.rdp, worst.rdp, margin, strict=True))
        above = [order for order, (real, most, some) in zip(DEFAULT_ORDERS, rows, strict=True) if real > most + some]
        if realised.slack > worst.slack + (worst.slack >> MARGIN_BITS) + 1:
            raise LedgerError(
                f"the realised slack exceeds the reserved one of row {reservation}. Reserve the true worst case; this "
                "reservation stays charged in full."
            )
        if above:
            raise LedgerError(
                f"the realised cost exceeds the reserved worst case of row {reservation} at {len(above)} orders, the first "
                f"is {above[0]:g}. Reserve the true worst case; this reservation stays charged in full."
            )
        settled = tuple(real if real < most - some else most for real, most, some in rows)
        return Cost(settled, min(realised.slack, worst.slack))

    def _worst(self, reservation: int) -> Cost:
        worst = self.pending.get(reservation)
        if worst is None:
            raise LedgerError(f"row {reservation} is no open reservation: it was settled before, or never reserved.")
        return worst

    def _settle(self, reservation: int, realised: Cost) -> None:
        worst = self._worst(reservation)
        if realised.slack > worst.slack or any(map(operator.gt, realised.rdp, worst.rdp)):
            raise LedgerError(f"it settles row {reservation} above its worst case, which this program never writes.")
        del self.pending[reservation]
        self.totals = [total - most + real for total, most, real in zip(self.totals, worst.rdp, realised.rdp, strict=True)]
        self.slack += realised.slack - worst.slack
