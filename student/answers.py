"""What a student is given: which public records were asked, and what was answered. Never a vote."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike

from pate.arrays import FloatArray, IntArray
from pate.errors import StudentError
from pate.release import ABSTAIN, Electorate, Release


@dataclass(frozen=True, eq=False)
class Answers:
    """Releases and the rows of the public records that each of them was asked about, checked against each other.

    n_public: how many public records there are.
    releases: one for each round of questions; usually one.
    asked: for each release, int64[query], the rows of the public records asked, abstentions included.
    """

    n_public: int
    releases: tuple[Release, ...]
    asked: tuple[IntArray, ...]

    @classmethod
    def of(
        cls, n_public: int, release: Release | Sequence[Release], queries: ArrayLike | Sequence[ArrayLike] | None
    ) -> Answers:
        """Check and join. ``queries`` may be None where the release answers every public record, in their order."""
        releases = (release,) if isinstance(release, Release) else tuple(release)
        if not releases or not all(isinstance(each, Release) for each in releases):
            raise StudentError(
                f"A student learns from a Release, or a list of them, one for each round; got {type(release).__name__}. "
                "Labels of your own become one with Release(labels, Electorate(n_teachers, n_classes), mechanism)."
            )
        classes = {each.electorate.n_classes for each in releases}
        if len(classes) > 1:
            raise StudentError(f"All releases must have the same number of classes, got {sorted(classes)}.")
        given: list[Any]
        if queries is None:
            given = [None] * len(releases)
        else:
            given = [queries] if isinstance(release, Release) else list(cast("Sequence[ArrayLike]", queries))
        if len(given) != len(releases):
            raise StudentError(f"There must be one array of queries for each release, got {len(given)} for {len(releases)}.")
        asked = tuple(_checked(rows, each, n_public) for rows, each in zip(given, releases, strict=True))
        answers = cls(n_public, releases, asked)
        if not len(answers.labels):
            total = sum(map(len, releases))
            raise StudentError(
                f"There is nothing to learn from: all {total} queries were declined. Ask about more queries, or lower the "
                "mechanism's threshold; what was asked so far stays charged."
                if total
                else "There is nothing to learn from: the release answers no query."
            )
        return answers

    @property
    def n_classes(self) -> int:
        return self.releases[0].electorate.n_classes

    @property
    def rows(self) -> IntArray:
        """int64[answer]: the public records with a label. One that was asked in two rounds is there twice."""
        return np.concatenate([rows[each.lessons != ABSTAIN] for each, rows in self])

    @property
    def labels(self) -> IntArray:
        """int64[answer]: the noisy label of each of ``rows``, or the student's own where the teachers did not contradict it."""
        return np.concatenate([each.lessons[each.lessons != ABSTAIN] for each, _ in self])

    @property
    def histogram(self) -> FloatArray | None:
        """float64[answer, class]: noisy counts beside the labels, where every release publishes them; else None."""
        found = [each.histogram[each.lessons != ABSTAIN] for each, _ in self if each.histogram is not None]
        return np.concatenate(found) if len(found) == len(self.releases) else None

    @property
    def class_counts(self) -> IntArray:
        """int64[class]: how many answers name each class."""
        return np.bincount(self.labels, minlength=self.n_classes).astype(np.int64)

    def only(self, chosen: IntArray) -> Answers:
        """The answers at these places of ``labels``, as labels without the mechanism's abstentions and rounds."""
        first = self.releases[0]
        histogram = None if self.histogram is None else self.histogram[chosen]
        electorate = Electorate(first.electorate.n_teachers, self.n_classes, first.electorate.participation)
        release = Release(self.labels[chosen], electorate, first.mechanism, first.mode, histogram)
        return Answers(self.n_public, (release,), (self.rows[chosen],))

    def __iter__(self) -> Iterator[tuple[Release, IntArray]]:
        return iter(zip(self.releases, self.asked, strict=True))

    def __len__(self) -> int:
        return len(self.labels)


def _checked(queries: ArrayLike | None, release: Release, n_public: int) -> IntArray:
    if queries is None:
        if len(release) != n_public:
            raise StudentError(
                f"The release answers {len(release)} queries and there are {n_public} public records: say which records were "
                "asked, with queries=…, their rows in x_public in the order of the release."
            )
        return np.arange(n_public, dtype=np.int64)
    rows = np.asarray(queries)
    if rows.ndim != 1 or (rows.size and rows.dtype.kind not in "iu"):
        raise StudentError(f"queries must be row numbers, int[query], got {rows.dtype} of shape {rows.shape}.")
    if len(rows) != len(release):
        raise StudentError(f"queries and release must be of one length, got {len(rows)} rows for {len(release)} answers.")
    if rows.size and (rows.min() < 0 or rows.max() >= n_public):
        wrong = rows.min() if rows.min() < 0 else rows.max()
        raise StudentError(
            f"queries must be rows 0..{n_public - 1} of x_public; found {wrong}, a query that is not among the public records. "
            "Are these the records that the queries were chosen from?"
        )
    return rows.astype(np.int64)
