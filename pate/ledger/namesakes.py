"""Data sets of one name: the same people in the main, with one more or one fewer, and a budget for each."""

from __future__ import annotations

import warnings

from sqlalchemy import Connection

from pate.errors import LedgerError
from pate.ledger.chain import Chain
from pate.ledger.names import namesakes, public_name
from pate.ledger.records import curve_of
from pate.ledger.store import Store
from pate.privacy.curve import GridEdgeWarning


class SecondBudgetWarning(UserWarning):
    """A budget begins on data of a name that has spent from another one."""


def warn_of_namesakes(store: Store, fingerprint: str) -> None:
    """Say what other data of the same name spent in this database; nothing where there are none.

    Data-independent figures and no fingerprint: a service or a job on Ray says it into a log.
    """
    with store.transaction() as connection:
        others = namesakes(fingerprint, store.fingerprints(connection))
        told = [text for each in others if (text := _told(each, store, connection))]
    if told:
        warnings.warn(
            f"Data set {public_name(fingerprint)!r} has other records (or users) than before, and so a budget of its own, "
            f"beside {', '.join(told)} (`pate ledger show`). Who is in both is protected by no single budget: what is spent "
            "adds up.",
            SecondBudgetWarning,
            stacklevel=3,
        )


def _told(fingerprint: str, store: Store, connection: Connection) -> str:
    """What was spent under this one; "" where nothing was. One that is damaged is no trouble of another data set's."""
    try:
        chain = store.extend(Chain(fingerprint), store.rows(connection, fingerprint))
        budget = chain.opened().budget
    except LedgerError:
        return "one whose rows cannot be read"
    if not any(chain.totals):
        return ""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GridEdgeWarning)
        epsilon = curve_of(chain.total).epsilon(budget.delta).epsilon
    return f"one with epsilon {epsilon:.4g} spent of {budget.epsilon:g}"
