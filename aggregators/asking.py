"""The one way from votes to a release that is paid for: reserve durably, draw noise, settle."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pate.aggregators.base import Aggregator, curve_ahead, curve_bound
from pate.ledger import Ledger
from pate.noise import Noise, OSNoise
from pate.release import Release
from pate.votes import Votes


def ask(
    aggregator: Aggregator, votes: Votes, ledger: Ledger, noise: Noise | None = None, memo: Mapping[str, Any] | None = None
) -> Release:
    """Answer a batch of queries and charge the ledger for it.

    The worst case is reserved on disk before any noise is drawn (``BudgetExceeded`` if it does not fit), so a crash at any
    point may lose an answer, never a charge. The whole batch is asked or none of it. ``memo`` goes into the ledger with
    the mechanism; it must hold public facts only.
    """
    source = OSNoise() if noise is None else noise
    facts = {
        **(memo or {}),  # first, so that it cannot overwrite what is recorded of the mechanism and its noise
        **aggregator.mechanism,
        "queries": len(votes),
        "n_teachers": votes.n_teachers,
        "n_classes": votes.n_classes,
        "participation": votes.participation,
        "mode": source.mode,
    }
    reservation = ledger.reserve(curve_ahead(aggregator, votes.electorate, len(votes)), facts)
    release = aggregator.release(votes, source)
    ledger.settle(reservation, curve_bound(aggregator, release), {"answered": int(release.answered.sum())})
    return release
