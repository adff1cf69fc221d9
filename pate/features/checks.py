"""Checks of a feature extractor: was it really fitted on public rows, and is it a function of one record alone?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pate.arrays import IntArray
from pate.digests import DIGEST_BYTES
from pate.errors import ParameterError
from pate.features.base import Digests, Features, Float32Array

Rows = NDArray[np.uint64]
"""Sorted distinct rows, each as 8 bytes of its digest: numpy sorts numbers fast, and chance makes no two of them equal."""

_OTHERS = 8
_LEAST_TELLING = 0.25  # of the distinct contents; where fewer tell anything, the few count less


@dataclass(frozen=True)
class Overlap:
    """How far the rows that an extractor was fitted on are private rows: both shares small as promised, one near 1 for a lie.

    of_private: the share of the private contents that it was fitted on: 1 if it saw all of them, among whatever else.
    of_fitted: the share of the fitted contents that are private: 1 if it saw nothing else, be it a tenth of the private rows.

    Counted are distinct contents, and of those only the telling ones. A content that comes more than once on the other side
    is common, and two honest tables share it by chance; so a share is: contents found once, of those found at most once (or
    of a quarter of all, if that is more). Measured on 18 random splits each, with 0.1% to 99% public rows: honest fits are at
    most 0.16 on KDD'99 and 0.34 on eight columns of Adult; fits on private rows 1.00 and at least 0.73 (0.52 where it was
    only 32 rows). Plain shares of distinct contents reach 0.50 and 0.79 for the honest ones. In a table in which nearly every
    row is common nothing can be told. It finds mistakes, not fraud: a row changed ever so little is another row.
    """

    of_private: float
    of_fitted: float

    @property
    def larger(self) -> float:
        """The measure: the larger of the two shares."""
        return max(self.of_private, self.of_fitted)


@dataclass(frozen=True, eq=False)
class Matches:
    """What comparing private rows with the distinct rows of a fit found. Adds up over parts of the private data.

    times: int64[fitted], how often each fitted row is a private one.
    others: uint64[at most 8 * fitted], sorted: distinct private rows that are no fitted ones. Only their number is needed, and
    beyond so many ``of_private`` is small (below 1/8) however many there are, so the first ones in order are kept.
    """

    times: IntArray
    others: Rows

    @classmethod
    def of(cls, private_digests: Digests, fitted: Rows) -> Matches:
        """Of some private rows, V16[record]."""
        own, own_times = distinct_rows(private_digests)
        _, place, mine = np.intersect1d(fitted, own, assume_unique=True, return_indices=True)
        times = np.zeros(len(fitted), dtype=np.int64)
        times[place] = own_times[mine]
        return cls(times, np.setdiff1d(own, fitted, assume_unique=True)[: _OTHERS * len(fitted)])

    def __add__(self, other: Matches) -> Matches:
        return Matches(self.times + other.times, np.union1d(self.others, other.others)[: _OTHERS * len(self.times)])

    def overlap(self, fitted_times: IntArray) -> Overlap:
        """fitted_times: int64[fitted], how often each row was fitted on."""
        found, others = self.times > 0, len(self.others)
        return Overlap(
            of_private=_telling_share(int((fitted_times[found] == 1).sum()), others, int(found.sum()) + others),
            of_fitted=_telling_share(int((self.times == 1).sum()), int((self.times == 0).sum()), len(self.times)),
        )


def distinct_rows(digests: Digests) -> tuple[Rows, IntArray]:
    """The distinct ones among V16[record] and how often each is there: uint64[row] and int64[row]."""
    first_halves = np.ascontiguousarray(digests).view(np.uint64).reshape(-1, DIGEST_BYTES // 8)[:, 0]
    rows, times = np.unique(first_halves, return_counts=True)
    return rows, times.astype(np.int64)


def share_of(private_digests: Digests, fitted_digests: Digests) -> Overlap:
    """How far the rows of a fit are private; both from :func:`pate.digests.row_digests` of the inputs, without labels."""
    fitted, times = distinct_rows(fitted_digests)
    return Matches.of(private_digests, fitted).overlap(times)


def _telling_share(once: int, never: int, distinct: int) -> float:
    """Of distinct contents, found once or never on the other side (the rest: more often), the share found once."""
    return once / max(once + never, _LEAST_TELLING * distinct) if once else 0.0


def check_position_independence(features: Features, x: ArrayLike, *, shifts: int = 8, seed: int = 0) -> None:
    """Raise unless each record of x gets the same features, bit for bit, alone, among the others, and at other places.

    Tries every record alone, ``shifts`` shuffles of all of them, and as many cuts at the front, which move every record
    to another place of its block and change the last block's filling. It can find a fault; only the construction that
    :class:`~pate.features.base.Features` describes can exclude one.
    """
    records = np.asarray(x)
    whole = features.transform(records)
    alone = np.concatenate([features.transform(records[[row]]) for row in range(len(records))])
    changed = _differs(whole, alone)
    random = np.random.default_rng(seed)
    for shift in range(1, shifts + 1):
        order = random.permutation(len(records))
        changed[order] |= _differs(whole[order], features.transform(records[order]))
        changed[shift:] |= _differs(whole[shift:], features.transform(records[shift:]))
    if changed.any():
        raise ParameterError(
            f"{features.title} gives {int(changed.sum())} of {len(records)} records other features at another place or beside "
            "other records, so one private record could change another's vote. Set block_rows = 1, or make its sums exact "
            "(pate.features.exact)."
        )


def _differs(one: Float32Array, other: Float32Array) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Whose bits differ, bool[record]; +0 and -0 do."""
    bits = (one.reshape(len(one), -1).view(np.uint32), other.reshape(len(other), -1).view(np.uint32))
    differs: np.ndarray[tuple[int], np.dtype[np.bool_]] = (bits[0] != bits[1]).any(axis=1)
    return differs
