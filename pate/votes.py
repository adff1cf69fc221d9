"""The private side of a query: how many teachers voted for each class.

A ``Votes`` object never prints a count. What an outsider may know of it is its :class:`~pate.release.Electorate`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from pate.arrays import IntArray
from pate.errors import VotesError
from pate.release import ABSTAIN, Electorate
from pate.validation import whole


class Votes:
    """Vote counts of a batch of queries, checked against the rule the privacy proof needs.

    counts: int64[query, class]. Without ``participation`` every row sums to ``n_teachers``. With ``participation=m`` no
    teacher votes on more than m queries of the batch: use :meth:`from_predictions` or :meth:`from_ballots`, which count
    each teacher's votes; given bare counts only the totals can be checked.

    >>> Votes([[3, 1, 0], [0, 4, 0]], n_teachers=4)
    Votes(2 queries, 3 classes, 4 teachers)
    """

    __slots__ = ("_counts", "_electorate")

    def __init__(self, counts: ArrayLike, n_teachers: int, participation: int | None = None) -> None:
        table = _integers(counts, "counts", axes="[query, class]", ndim=2)
        if table.shape[1] < 2:
            raise VotesError(f"Votes need at least 2 classes, got {table.shape[1]} column(s).")
        self._electorate = Electorate(n_teachers, int(table.shape[1]), participation)
        _check_rows(table, n_teachers, participation)
        table.setflags(write=False)
        self._counts = table

    @classmethod
    def from_predictions(cls, predictions: ArrayLike, n_classes: int, participation: int | None = None) -> Votes:
        """Count the predictions of each teacher on each query, int[teacher, query].

        With ``participation`` a teacher may decline a query (``ABSTAIN``), and votes on at most that many.
        """
        table = _integers(predictions, "predictions", axes="[teacher, query]", ndim=2)
        n_teachers, n_queries = table.shape
        if n_teachers < 1:
            raise VotesError("predictions must have at least one teacher (row), got none.")
        lowest = 0 if participation is None else ABSTAIN
        _check_labels(table, n_classes, lowest)
        voters, queries = np.nonzero(table != ABSTAIN)
        if participation is not None:
            _check_participation(voters, n_teachers, participation)
        return cls(_tally(queries, table[voters, queries], n_queries, n_classes), n_teachers, participation)

    @classmethod
    def from_ballots(
        cls,
        voters: ArrayLike,
        queries: ArrayLike,
        labels: ArrayLike,
        *,
        n_teachers: int,
        n_queries: int,
        n_classes: int,
        participation: int,
    ) -> Votes:
        """Count sparse ballots: ``voters[i]`` votes ``labels[i]`` on ``queries[i]``, each an int[ballot].

        A voter casts at most one ballot a query and at most ``participation`` ballots in all; both are checked.
        """
        whole(n_teachers, "n_teachers", 1)
        whole(n_queries, "n_queries", 0)
        who, what, label = (
            _integers(values, name, axes="[ballot]", ndim=1)
            for values, name in ((voters, "voters"), (queries, "queries"), (labels, "labels"))
        )
        if not who.size == what.size == label.size:
            raise VotesError(f"voters, queries and labels must be equally long, got {who.size}, {what.size}, {label.size}.")
        _check_labels(label, n_classes, 0)
        for values, name, end in ((who, "voters", n_teachers), (what, "queries", n_queries)):
            if values.size and (values.min() < 0 or values.max() >= end):
                raise VotesError(f"{name} must lie in 0..{end - 1}; found one outside.")
        if np.unique(who * n_queries + what).size != who.size:
            raise VotesError("A voter may cast one ballot a query; found a second one. Drop the duplicates before counting.")
        _check_participation(who, n_teachers, participation)
        return cls(_tally(what, label, n_queries, n_classes), n_teachers, participation)

    @property
    def counts(self) -> IntArray:
        """int64[query, class], read-only. Private."""
        return self._counts

    @property
    def electorate(self) -> Electorate:
        """The public facts about this vote."""
        return self._electorate

    @property
    def n_teachers(self) -> int:
        return self._electorate.n_teachers

    @property
    def n_classes(self) -> int:
        return self._electorate.n_classes

    @property
    def participation(self) -> int | None:
        return self._electorate.participation

    def rows(self, start: int, stop: int) -> Votes:
        """The queries ``start`` to ``stop`` - 1 of this batch."""
        return Votes(self._counts[start:stop], self.n_teachers, self.participation)

    def __len__(self) -> int:
        return int(self._counts.shape[0])

    def __repr__(self) -> str:
        limit = "" if self.participation is None else f", at most {self.participation} votes each"
        return f"Votes({len(self)} queries, {self.n_classes} classes, {self.n_teachers} teachers{limit})"

    def __reduce__(self) -> tuple[Any, ...]:
        return Votes, (np.array(self._counts), self.n_teachers, self.participation)


def _integers(values: ArrayLike, name: str, *, axes: str, ndim: int) -> IntArray:
    try:
        array = np.asarray(values)
    except ValueError:  # rows of unequal length
        raise VotesError(f"{name} must have the axes {axes}; the rows given are not equally long.") from None
    if array.ndim != ndim:
        raise VotesError(f"{name} must have the axes {axes}, got an array of shape {array.shape}.")
    if array.dtype.kind == "f":
        if not np.isfinite(array).all():
            raise VotesError(f"{name} must be whole; found NaN or infinity. A failed teacher votes a fixed default class.")
        raise VotesError(f"{name} must have an integer dtype, got {array.dtype}. Votes are counts: cast on purpose.")
    if array.dtype.kind not in "iu":
        raise VotesError(f"{name} must have an integer dtype, got {array.dtype}.")
    if array.dtype.kind == "u" and array.size and int(array.max()) > np.iinfo(np.int64).max:
        raise VotesError(f"{name} must fit in 64 signed bits; found a larger value.")
    return np.array(array, dtype=np.int64, order="C")


def _check_rows(counts: IntArray, n_teachers: int, participation: int | None) -> None:
    if counts.size and counts.min() < 0:
        raise VotesError("counts must not be negative; found at least one negative count.")
    # A count above the number of teachers is wrong by itself, and could make a sum wrap around in 64 bits.
    excessive = (counts > n_teachers).any(axis=1)
    sums = counts.sum(axis=1)
    if participation is None:
        wrong = np.flatnonzero(excessive | (sums != n_teachers))
        if wrong.size:
            raise VotesError(
                f"Every row of counts must sum to n_teachers={n_teachers}; {wrong.size} of {len(sums)} rows do not, the "
                f"first is row {wrong[0]}. A teacher that fails votes a fixed default class; for teachers that skip "
                "queries by design declare participation=."
            )
        return
    if (excessive | (sums > n_teachers)).any():
        raise VotesError(f"A query has more votes than there are teachers ({n_teachers}): a teacher votes once a query.")
    if int(sums.sum()) > n_teachers * participation:
        raise VotesError(
            f"{n_teachers} teachers with at most {participation} votes each cast at most {n_teachers * participation} "
            "votes in all; found more. The declared participation does not hold."
        )


def _check_labels(labels: IntArray, n_classes: int, lowest: int) -> None:
    if n_classes < 2:
        raise VotesError(f"n_classes must be at least 2, got {n_classes}.")
    if labels.size and (labels.min() < lowest or labels.max() >= n_classes):
        allowed = f"0..{n_classes - 1}" + ("" if lowest == 0 else f" or ABSTAIN ({ABSTAIN})")
        raise VotesError(f"Predicted labels must lie in {allowed}; found one outside.")


def _check_participation(voters: IntArray, n_teachers: int, participation: int) -> None:
    cast = np.bincount(voters, minlength=n_teachers)
    if cast.size and cast.max() > participation:
        raise VotesError(
            f"No teacher may vote on more than participation={participation} queries of the batch; "
            f"{int((cast > participation).sum())} do. Drop their extra votes by a rule that looks at their own data only."
        )


def _tally(queries: IntArray, labels: IntArray, n_queries: int, n_classes: int) -> IntArray:
    flat = np.bincount(queries * n_classes + labels, minlength=n_queries * n_classes)
    return flat.reshape(n_queries, n_classes).astype(np.int64)
