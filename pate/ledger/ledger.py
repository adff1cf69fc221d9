"""The durable record of what was spent on a data set, and the budget that refuses."""

from __future__ import annotations

import os
import secrets
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, TypeVar

from sqlalchemy import Connection

from pate.errors import BudgetExceeded, LedgerError, ParameterError
from pate.ledger import faultpoints
from pate.ledger.budget import Budget, cost_of
from pate.ledger.chain import Chain, Header, Kind, Neighbours, Row, check_memo, content_digest, seal
from pate.ledger.namesakes import warn_of_namesakes
from pate.ledger.records import Entry, Remaining, Reservation, Verification, curve_of, entry_of
from pate.ledger.store import Store, connect
from pate.ledger.units import SLACK_BITS, encode_cost, float_down, float_up
from pate.privacy.curve import Conversion, Epsilon, GridEdgeWarning, RdpCurve

T = TypeVar("T")
Draft = tuple[Kind, dict[str, Any]]


class Ledger:
    """Append-only, hash-chained record of every cost on one data set, with one budget for all of them.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> query = RdpCurve.of(lambda orders: orders / 40.0**2)
    >>> with Ledger.open(f"{folder.name}/ledger.db", "my-data", Budget(1.0, 1e-5)) as ledger:
    ...     paid = ledger.reserve(10 * query, {"mechanism": "gnmax", "queries": 10})
    ...     # draw noise and release here
    ...     ledger.settle(paid, 7 * query, {"answered": 7})
    ...     round(ledger.remaining().fraction, 3)
    0.857
    >>> folder.cleanup()
    """

    def __init__(self, place: str, store: Store, chain: Chain) -> None:
        """Use :meth:`open`."""
        self._place = place
        self._store = store
        self._chain = chain

    @classmethod
    def open(
        cls,
        place: str | os.PathLike[str],
        fingerprint: str,
        budget: Budget | None = None,
        unit: str | None = None,
        *,
        neighbours: Neighbours | None = None,
        neighbours_if_new: Neighbours = "replace",
    ) -> Ledger:
        """Open the ledger of a data set, verified from its first row; with a budget, begin it where there is none.

        place: a path (SQLite) or a SQLAlchemy URL ("postgresql+psycopg://host/name").
        fingerprint: names the private data; every run on the same data must give the same one.
        budget, unit, neighbours: fixed by the first opening (unit "record" and neighbours ``neighbours_if_new`` unless
            given). Later ones may leave them out; if given, they must be the same.
        """
        if not 0 < len(fingerprint) <= 512 or not fingerprint.isprintable():
            raise ParameterError(f"A data-set fingerprint must be 1 to 512 printable characters, got {fingerprint!r}.")
        name = os.fspath(place)
        store = connect(name, create=budget is not None)
        if "://" not in name:
            name = os.path.realpath(name)
        ledger = cls(name, store, Chain(fingerprint))
        try:
            ledger._read(lambda _: None)
            if ledger._chain.header is None and budget is None:
                raise LedgerError(
                    f"Ledger {store.where}: nothing is recorded for data set {fingerprint!r}. Check the fingerprint "
                    "(`pate ledger show` lists those it has). A data set begins with a budget: `pate ask` or `pate serve` with "
                    "--budget-epsilon, Ledger.open(…, Budget(…)) in Python."
                )
            if ledger._chain.header is None and budget is not None:
                ledger._begin(Header(budget, unit or "record", neighbours or neighbours_if_new))
            ledger._in_context(lambda: ledger._chain.opened().check_same(budget, unit, neighbours))
            if budget is not None and ledger._chain.sequence == 1:  # until something is spent: whoever opens it is about to
                warn_of_namesakes(store, fingerprint)
        except BaseException:
            store.disconnect()
            raise
        return ledger

    @staticmethod
    def datasets(place: str | os.PathLike[str]) -> list[str]:
        """The fingerprints that a database holds."""
        store = connect(place, create=False)
        try:
            with store.transaction() as connection:
                return store.fingerprints(connection)
        finally:
            store.disconnect()

    @property
    def fingerprint(self) -> str:
        return self._chain.fingerprint

    @property
    def budget(self) -> Budget:
        return self._chain.opened().budget

    @property
    def unit(self) -> str:
        """The unit of privacy: what one neighbour differs in."""
        return self._chain.opened().unit

    @property
    def neighbours(self) -> Neighbours:
        """How two neighbouring data sets differ: one unit replaced, or one added or removed."""
        return self._chain.opened().neighbours

    def afford(self, worst: RdpCurve, *, look: bool = True) -> None:
        """Raise BudgetExceeded if ``worst`` does not fit. A look ahead only: another process may spend in between.

        look: whether to read first what other processes did. Without it only a refusal is looked into: for a single writer.
        """
        cost = cost_of(worst)
        if not look:
            with suppress(BudgetExceeded), self._store.lock:
                self._chain.check_budget(cost)
                return
        self._read(lambda _: self._chain.check_budget(cost))

    def reserve(self, worst: RdpCurve, memo: Mapping[str, Any], key: str | None = None) -> Reservation:
        """Charge the worst case, durably, before noise is drawn; raise BudgetExceeded and charge nothing if it does not fit.

        The check and the row are one serialised transaction. memo: public facts only. key: makes a retry safe; see
        :attr:`Reservation.repeated`.
        """
        return self._spend("reserve", worst, memo, key)

    def charge(self, cost: RdpCurve, memo: Mapping[str, Any], key: str | None = None) -> Reservation:
        """Charge a cost that is known in advance: :meth:`reserve` and :meth:`settle` in one row."""
        return self._spend("charge", cost, memo, key)

    def settle(
        self,
        reservation: Reservation,
        realised: RdpCurve,
        memo: Mapping[str, Any],
        also: Callable[[Connection], None] | None = None,
        *,
        confirm: bool = True,
    ) -> None:
        """Lower a reservation to what was realised, once. ``realised`` must be a function of public outcomes alone.

        also: what else to write to the same database in the same transaction, such as the answers themselves.
        confirm: False leaves the head file to the next row or to :meth:`confirm`. The commit is as durable; only a database
            that was put back to before it would go unnoticed, and there the reservation is still charged in full.
        """
        cost = cost_of(realised)
        facts = check_memo(memo)

        def decide(connection: Connection) -> Draft:
            row = self._store.row(connection, self.fingerprint, reservation.sequence)
            if reservation.fingerprint != self.fingerprint or row is None or row.hash != reservation.hash:
                raise LedgerError(f"Ledger {self._store.where}: the reservation was made in another ledger; settle it there.")
            settled = self._in_context(lambda: self._chain.settled_cost(reservation.sequence, cost))
            return "settle", {"reservation": reservation.sequence, **encode_cost(settled), "memo": facts}

        self._append(decide, also, confirm)

    def confirm(self) -> None:
        """Claim every row so far in the head file, where :meth:`settle` left that for later."""
        with self._store.lock:
            self._store.confirm(self.fingerprint)

    def write_beside(self, write: Callable[[Connection], T]) -> T:
        """Write to tables of one's own in the ledger's database, as its only writer, in a transaction without a row here."""
        with self._store.lock, self._store.transaction(self.fingerprint) as connection:
            return write(connection)

    def spent_curve(self) -> RdpCurve:
        """Everything charged so far, open reservations at their worst case, rounded up."""
        return self._read(lambda _: curve_of(self._chain.total))

    def spent(self, delta: float | None = None, conversion: Conversion = "improved") -> Epsilon:
        """The epsilon of everything charged so far (at the budget's delta unless given).

        A valid claim when all costs were fixed in advance. Where costs were chosen, or settled, in view of earlier
        answers, the claim is the budget itself, not this figure, which is then random.
        """
        curve = self.spent_curve()
        if not curve.values.any() and not curve.slack:
            return Epsilon(0.0, self.budget.order)
        with warnings.catch_warnings():
            # The ledger's grid is fixed: nobody can act on the advice to widen it.
            warnings.simplefilter("ignore", GridEdgeWarning)
            return curve.epsilon(self.budget.delta if delta is None else delta, conversion)

    def remaining(self) -> Remaining:
        """What may still be spent, rounded down."""

        def left(_: Connection) -> Remaining:
            rest = self.budget.cap_units - self._chain.spent
            slack = float_down(self.budget.slack_units - self._chain.slack, SLACK_BITS)
            return Remaining(self.budget.order, float_down(rest), rest / self.budget.cap_units, slack)

        return self._read(left)

    def affordable(self, curve: RdpCurve) -> int:
        """How many more mechanisms of this cost fit: :meth:`Budget.queries_affordable` of what is left."""
        budget = self.budget
        return self._read(
            lambda _: budget.affordable(curve, budget.cap_units - self._chain.spent, budget.slack_units - self._chain.slack)
        )

    def entries(self, after: int = 0) -> list[Entry]:
        """Every row in order, the "open" row first; or those whose sequence number is above ``after``."""
        return [entry_of(row) for row in self.rows(after)]

    def rows(self, after: int = 0) -> list[Row]:
        """Every row as it is stored, for whoever wants to check the chain with other means."""
        return self._read(lambda connection: list(self._store.rows(connection, self.fingerprint, after)))

    def verify(self) -> Verification:
        """Check the database and read the whole chain anew: hashes, costs, sums, budget. Raises LedgerError if unsound."""
        self._store.inspect()

        def read_anew(connection: Connection) -> Verification:
            chain = self._store.extend(Chain(self.fingerprint), self._store.rows(connection, self.fingerprint))
            if (chain.head, chain.total) != (self._chain.head, self._chain.total):
                raise self._store.broken("the rows changed while the ledger was open")
            budget, spent = self.budget, float_up(chain.spent)
            return Verification(
                self.fingerprint, chain.sequence, chain.head, spent, budget.cap, budget.order, len(chain.pending)
            )

        return self._read(read_anew)

    def close(self) -> None:
        """Close the connection to the database."""
        with self._store.lock:
            self._store.disconnect()

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return Ledger.open, (self._place, self.fingerprint)

    def __repr__(self) -> str:
        return f"Ledger({self._store.where!r}, {self.fingerprint!r}, {self.budget!r})"

    def _begin(self, header: Header) -> None:
        # Another process may have begun the same ledger a moment ago.
        # The secret makes the hash of this row, and of all after it, safe to show: see :mod:`pate.ledger.names`.
        payload = {**header.payload(), "secret": secrets.token_hex(16)}
        self._append(lambda _: ("open", payload) if self._chain.header is None else None)

    def _spend(self, kind: Kind, curve: RdpCurve, memo: Mapping[str, Any], key: str | None) -> Reservation:
        cost = cost_of(curve)
        facts = check_memo(memo)
        if key is not None and not 0 < len(key) <= 512:
            raise ParameterError(f"An idempotency key must be 1 to 512 characters, got {key!r}.")

        def decide(_: Connection) -> Draft | None:
            known = None if key is None else self._chain.keys.get(key)
            if known is None:
                self._chain.check_budget(cost)
                return kind, {**encode_cost(cost), "memo": facts, "key": key}
            if known.digest != content_digest(kind, cost, facts):
                raise LedgerError(
                    f"Ledger {self._store.where}: the idempotency key {key!r} belongs to another request (row "
                    f"{known.sequence}, with another cost, memo or kind). Use a new key for a new request."
                )
            return None

        with self._store.lock:
            written = self._append(decide)
            row = written or self._chain.keys[key or ""]
            settled = row.sequence not in self._chain.pending
            return Reservation(self.fingerprint, row.sequence, row.hash, curve, key, repeated=written is None, settled=settled)

    def _append(
        self,
        decide: Callable[[Connection], Draft | None],
        also: Callable[[Connection], None] | None = None,
        confirm: bool = True,
    ) -> Row | None:
        """Write the row that ``decide`` drafts, or none, as the only writer; return it once its loss would be noticed."""
        row = None
        with self._store.lock:
            with self._store.transaction(self.fingerprint) as connection:
                self._catch_up(connection)
                draft = decide(connection)
                faultpoints.reached("budget checked")
                if draft is not None:
                    kind, payload = draft
                    now = datetime.now(UTC).isoformat(timespec="seconds")
                    row = seal(self.fingerprint, self._chain.sequence + 1, kind, {**payload, "at": now}, self._chain.head)
                    self._store.append(connection, row)
                    if also is not None:
                        also(connection)
                    faultpoints.reached("row inserted")
            faultpoints.reached("row committed")
            if row is not None:
                self._store.extend(self._chain, [row])
            # Also when nothing was written: a repeated request may follow a crash that came before the confirmation.
            if confirm:
                self._store.confirm(self.fingerprint)
        return row

    def _read(self, look: Callable[[Connection], T]) -> T:
        with self._store.transaction() as connection:
            self._catch_up(connection)
            return look(connection)

    def _catch_up(self, connection: Connection) -> None:
        """Take what other processes appended since the last look."""
        if self._chain.sequence:
            last = self._store.row(connection, self.fingerprint, self._chain.sequence)
            if last is None or last.hash != self._chain.head:
                raise self._store.broken(f"row {self._chain.sequence} of data set {self.fingerprint!r} was there and is gone")
        self._store.extend(self._chain, self._store.rows(connection, self.fingerprint, self._chain.sequence))

    def _in_context(self, ask: Callable[[], T]) -> T:
        """Ask the chain something, and put the ledger's place before its complaint."""
        try:
            return ask()
        except LedgerError as error:
            raise LedgerError(f"Ledger {self._store.where}, data set {self.fingerprint!r}: {error}") from None
