"""The one way from votes to a release that is paid for: reserve durably, draw noise, settle."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pate.aggregators.base import Aggregator, curve_ahead, curve_bound
from pate.errors import LedgerError
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
    point may lose an answer, never a charge. The whole batch is asked or none of it. ``memo`` goes into the ledger with
    the mechanism; it must hold public facts only.

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
    reservation = ledger.reserve(curve_ahead(aggregator, votes.electorate, len(votes)), facts, key)
    if reservation.repeated and source.mode == "release":
        raise AlreadyAsked(
            f"The queries under the key {key!r} were charged before, and whoever asked may have seen an answer: other noise "
            "for them would be unpaid. Use the stored answers, or ask under a new key, which is charged again."
        )
    release = aggregator.release(votes, source)
    if keep is not None:
        keep(release)
    if not reservation.settled:
        ledger.settle(reservation, curve_bound(aggregator, release), {"answered": int(release.answered.sum())})
    return release
