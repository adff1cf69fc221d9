"""The last rows of a ledger for the owner's page, each with what was spent after it. Nothing of it depends on votes."""

from __future__ import annotations

import math
import threading
import warnings
from collections import deque
from typing import Any

import numpy as np

from pate.ledger import Entry, Ledger
from pate.privacy.curve import GridEdgeWarning, RdpCurve


class History:
    """Reads each row once, however often it is asked: a ledger may be long, and a page asks every few seconds.

    most: rows that are kept. epsilon: of a row alone; spent: of all rows up to it, a sum of floats for a picture: the figure
    beside it is the ledger's own, exact one.
    """

    def __init__(self, ledger: Ledger, most: int) -> None:
        self._ledger = ledger
        self._recent: deque[dict[str, Any]] = deque(maxlen=most)
        self._reserved: dict[int, RdpCurve] = {}
        self._total = RdpCurve.zero()
        self._lock = threading.Lock()
        self.count = 0
        """Rows that were read."""

    def recent(self) -> list[dict[str, Any]]:
        """The last rows, oldest first."""
        with self._lock:
            for entry in self._ledger.entries(after=self.count):
                self._add(entry)
            return list(self._recent)

    def _add(self, entry: Entry) -> None:
        cost, delta = entry.cost, self._ledger.budget.delta
        if cost is not None:
            before = None if entry.settles is None else self._reserved.pop(entry.settles, None)
            values = self._total.values + cost.values - (0.0 if before is None else before.values)
            slack = self._total.slack + cost.slack - (0.0 if before is None else before.slack)
            self._total = RdpCurve(cost.orders, np.maximum(values, 0.0), max(slack, 0.0))
            if entry.kind == "reserve":
                self._reserved[entry.sequence] = cost
        self.count = entry.sequence
        self._recent.append(
            {
                "sequence": entry.sequence,
                "kind": entry.kind,
                "at": entry.at,
                "queries": entry.memo.get("queries"),
                "answered": entry.memo.get("answered"),
                "epsilon": None if cost is None else _epsilon(cost, delta),
                "spent": _epsilon(self._total, delta),
            }
        )


def _epsilon(cost: RdpCurve, delta: float) -> float | None:
    """None where it is infinite, which JSON cannot say."""
    if not cost.values.any() and not cost.slack:
        return 0.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GridEdgeWarning)  # the ledger's grid is fixed: nobody can act on it
        found = cost.epsilon(delta).epsilon
    return found if math.isfinite(found) else None
