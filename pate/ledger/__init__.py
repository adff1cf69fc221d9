"""The durable privacy ledger: what was spent on a data set, and the budget that refuses. See docs/ledger.md."""

from typing import TYPE_CHECKING, Any

from pate.ledger.budget import Budget
from pate.ledger.records import Entry, Remaining, Reservation, Verification

if TYPE_CHECKING:
    from pate.ledger.ledger import Ledger

__all__ = ["Budget", "Entry", "Ledger", "Remaining", "Reservation", "Verification"]


def __getattr__(name: str) -> Any:
    # SQLAlchemy takes a third of a second to import, and budgets are planned without any database.
    if name == "Ledger":
        from pate.ledger.ledger import Ledger

        return Ledger
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
