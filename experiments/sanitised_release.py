"""A sanitised epsilon out of a ledger: paid for before it is drawn, and drawn once for each state of the ledger.

The key of the charge is made of the ledger's state (the hash of the last row that is no such release) and of the question. So
the same question in the same state finds the row that is there, and nothing is drawn again: its value is told again for nothing
where the caller names the answers that it is about, and only there. The ledger holds nothing of the votes, not even a hash, and
the figure of other votes may be below their cost.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from pate.errors import LedgerError
from pate.experiments.sanitising import Sanitised, Sanitiser
from pate.ledger import Ledger
from pate.ledger.chain import canonical
from pate.ledger.records import Entry
from pate.noise import Noise
from pate.votes import Votes

_PREFIX = "sanitised epsilon "


class SanitisedBefore(LedgerError):
    """The release was charged before; its value is lost, or may be about other votes. Another one must be paid for anew."""


def release_sanitised(
    sanitiser: Sanitiser, votes: Votes, ledger: Ledger, noise: Noise, *, state: str | None = None, again: bool = False
) -> Sanitised:
    """The epsilon of ``votes``, sanitised: charged to the ledger, then drawn; or the recorded one, where ``state`` names it.

    ``BudgetExceeded`` if the release does not fit, before noise is drawn. A crash at any point may lose the value, never the
    charge; then this raises :class:`SanitisedBefore`. A simulation draws the same noise again.

    state: hash of the ledger row that settled the answers which ``votes`` gave. Unless given, the release stands behind the
        last row, which may be about any votes; the same question there raises :class:`SanitisedBefore`.
    again: draw and charge another one, whatever was drawn before. Both stay true; their costs add up.
    """
    sanitiser.check(votes)
    rows = ledger.entries()
    prefix = _key(sanitiser, noise, state or _state(rows))
    tries = [row for row in rows if row.key is not None and row.key.startswith(prefix)]
    known = _recorded(rows, tries)
    lost = bool(tries) and known is None
    if known is not None and not again:
        if state is None:
            raise SanitisedBefore(
                f"A sanitised epsilon of {sanitiser.queries} queries was drawn in this state of the ledger, "
                f"{known.epsilon:.4g}, and the ledger does not know for which votes. `pate ledger show` tells it again for "
                "nothing. For other votes, or another draw, --again (again=True) charges and draws anew."
            )
        return known
    if lost and noise.mode == "release" and not again:
        raise SanitisedBefore(
            "The sanitised epsilon of this state of the ledger was charged before, and its value was lost before it was "
            "recorded: to draw it again would be unpaid. --again (again=True) charges and draws another one."
        )
    resumed = lost and not again
    key = tries[-1].key if resumed else f"{prefix}try {len(tries) + 1}"
    paid = ledger.reserve(sanitiser.curve, sanitiser.facts, key)
    if paid.repeated and not resumed:
        raise SanitisedBefore(
            "Somebody else is drawing this sanitised epsilon: wait, and ask again (`pate ledger show` tells what they record)."
        )
    found = sanitiser.draw(votes, noise)
    ledger.settle(paid, sanitiser.curve, {"sanitised": found.to_json()})
    return found


def recorded(ledger: Ledger) -> list[Sanitised]:
    """Every sanitised epsilon that the ledger holds, oldest first. Public."""
    return [found for row in ledger.entries() if (found := _value(row)) is not None]


def charges(rows: Sequence[Entry], state: str) -> list[Entry]:
    """The rows of the releases about a state, and those that hold their values."""
    own = {row.sequence for row in rows if row.key is not None and row.key.startswith(f"{_PREFIX}{state[:32]} ")}
    return [row for row in rows if row.sequence in own or row.settles in own]


def _key(sanitiser: Sanitiser, noise: Noise, state: str) -> str:
    facts = {name: value for name, value in sanitiser.facts.items() if name != "settings"}  # which follow from the others
    question = hashlib.sha256(canonical({**facts, "mode": noise.mode}).encode()).hexdigest()
    return f"{_PREFIX}{state[:32]} {question[:16]} "


def _state(rows: Sequence[Entry]) -> str:
    own = {row.sequence for row in rows if row.key is not None and row.key.startswith(_PREFIX)}
    return [row.hash for row in rows if row.sequence not in own and row.settles not in own][-1]


def _recorded(rows: Sequence[Entry], tries: Sequence[Entry]) -> Sanitised | None:
    """The newest value drawn for one of these charges."""
    charged = {row.sequence for row in tries}
    found = [_value(row) for row in rows if row.settles in charged]
    return next((value for value in reversed(found) if value is not None), None)


def _value(row: Entry) -> Sanitised | None:
    facts = row.memo.get("sanitised")
    return None if facts is None else Sanitised.of(facts)
