"""The name of private data in the ledger: from its units' ids alone, wherever the records lie.

The same formula in memory and in storage. It adds up over disjoint parts, so that workers which each see some units can
send one number each and no id leaves them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pate.digests import DIGEST_BYTES, identity_bytes

_PERSON = b"pate.units"  # a domain of its own: these are no content hashes and no places
_WORDS = DIGEST_BYTES // 4


def unit_digests(identities: Iterable[Any]) -> NDArray[np.void]:
    """A 16-byte digest of each unit's id, V16[unit], in the given order.

    Whoever can guess an id can confirm the guess: private, it stays inside the trust boundary.
    """
    found = [
        hashlib.blake2b(identity_bytes(identity), digest_size=DIGEST_BYTES, person=_PERSON).digest() for identity in identities
    ]
    return np.frombuffer(b"".join(found), dtype=f"V{DIGEST_BYTES}")


def distinct_digests(digests: NDArray[np.void]) -> NDArray[np.void]:
    """The sorted distinct digests, V16[unit]."""
    as_text = np.ascontiguousarray(digests).view(f"S{DIGEST_BYTES}")  # equal lengths: compared byte by byte, and sortable
    return np.unique(as_text).view(f"V{DIGEST_BYTES}")


@dataclass(frozen=True)
class UnitSum:
    """How many units, and the sum of their digests modulo 2**128. Sums of disjoint sets add up to that of their union.

    >>> UnitSum.of(["a", "b"]) + UnitSum.of(["c"]) == UnitSum.of(["c", "b", "a", "a"])
    True
    """

    count: int = 0
    total: int = 0

    @classmethod
    def of(cls, identities: Iterable[Any]) -> UnitSum:
        """Of a set of units; an id that comes twice counts once."""
        return cls.of_digests(unit_digests(identities))

    @classmethod
    def of_digests(cls, digests: NDArray[np.void]) -> UnitSum:
        """Of the set of units with these digests; one that comes twice counts once."""
        distinct = distinct_digests(digests)
        words = np.frombuffer(distinct.tobytes(), dtype=">u4").reshape(-1, _WORDS).sum(axis=0, dtype=np.uint64)
        total = 0
        for word in words.tolist():
            total = (total << 32) + word
        return cls(len(distinct), total % 2 ** (8 * DIGEST_BYTES))

    def __add__(self, other: UnitSum) -> UnitSum:
        return UnitSum(self.count + other.count, (self.total + other.total) % 2 ** (8 * DIGEST_BYTES))


def units_fingerprint(name: str, units: UnitSum) -> str:
    """``name-`` and 16 hex digits: the same for the same set of unit ids, whatever the salt, the split or the records.

    64 bits tell data sets apart by accident, not against an owner who looks for a collision: who keeps the data can also
    rename it, and a collision makes the ledger count too much, never too little.

    >>> units_fingerprint("wards", UnitSum.of(range(3))) == units_fingerprint("wards", UnitSum.of(["2", "1", "0"]))
    True
    """
    message = units.count.to_bytes(8, "big") + units.total.to_bytes(DIGEST_BYTES, "big") + name.encode()
    return f"{name}-{hashlib.sha256(message).hexdigest()[:16]}"
