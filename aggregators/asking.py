"""The one way from votes to a release that is paid for: reserve durably, draw noise, settle."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pate.aggregators.base import Aggregator, curve_ahead, curve_bound
from pate.aggregators.interrupts import uninterrupted
from pate.errors import BudgetExceeded, LedgerError
from pate.ledger import Ledger
from pate.noise import Noise, OSNoise
from pate.release import Release
from pate.votes import Votes


class AlreadyAsked(LedgerError):
    """The ledger was charged under this key before."""


def ask(
    aggregator: Aggregator,
    votes: Votes,
    ledger: Ledger,
    noise: Noise | None = None,
    memo: Mapping[str, Any] | None = None,
    *,
    key: str | None = None,
    keep: Callable[[Release], None] | None = None,
) -> Release:
    """Answer a batch of queries and charge the ledger for it.

    The worst case is reserved on disk before any noise is drawn (``BudgetExceeded`` if it does not fit), so a crash at any
    point may lose an answer, never a charge. Ctrl-C is no crash: from the reservation on it waits for the settlement. The
    whole batch is asked or none of it. ``memo`` goes into the ledger with the mechanism; it must hold public facts only.

    key: makes a retry after a crash safe. What was charged under it is not charged again: a simulation draws the same noise
        again, from a fresh stream of the same seed; a release cannot, and raises :class:`AlreadyAsked`.
    keep: called with the answers before the reservation is settled, to store them.
    """
    source = OSNoise() if noise is None else noise
    aggregator.check_ready(votes.electorate, len(votes))
    facts = {
        **(memo or {}),  # first, so that it cannot overwrite what is recorded of the mechanism and its noise
        **aggregator.mechanism,
        "queries": len(votes),
        "n_teachers": votes.n_teachers,
        "n_classes": votes.n_classes,
        "participation": votes.participation,
        "mode": source.mode,
    }
    worst = curve_ahead(aggregator, votes.electorate, len(votes))
    with uninterrupted():
        with refusals_tell_of_open_ones(ledger):
            reservation = ledger.reserve(worst, facts, key)
        if reservation.repeated and source.mode == "release":
            raise AlreadyAsked(
                f"The queries under the key {key!r} were charged before, and whoever asked may have seen an answer: other "
                "noise for them would be unpaid. Use the stored answers, or ask under a new key, which is charged again."
            )
        release = aggregator.release(votes, source)
        if keep is not None:
            keep(release)
        if not reservation.settled:
            ledger.settle(reservation, curve_bound(aggregator, release), {"answered": int(release.answered.sum())})
    return release


@contextmanager
def refusals_tell_of_open_ones(ledger: Ledger) -> Iterator[None]:
    """A budget that refuses inside the block also says how much of it is held for answers that nobody has."""
    try:
        yield
    except BudgetExceeded as error:
        told = open_reservations(ledger)
        if not told:
            raise
        raise type(error)(f"{error} {told}") from None


def open_reservations(ledger: Ledger) -> str:
    """What is held by reservations that nothing settled, in a sentence; "" where there are none. Public facts only."""
    rows = ledger.entries()
    settled = {row.settles for row in rows}
    found = [row for row in rows if row.kind == "reserve" and row.sequence not in settled]
    if not found:
        return ""
    budget = ledger.budget
    held = sum(float(row.cost.values[budget.order_index]) for row in found if row.cost is not None)
    rows_told = ", ".join(f"row {row.sequence} of {row.at}" for row in found[:3]) + (", …" if len(found) > 3 else "")
    one = len(found) == 1
    return (
        f"{len(found)} reservation{'' if one else 's'} ({rows_told}), {held / budget.cap:.0%} of the budget, "
        f"{'was' if one else 'were'} never settled: the program that asked was killed, and the answers are lost, or it is "
        "still at work. Nobody knows who saw an answer, so the charge stays."
    )
