"""What may be published: noisy labels and how they were made. Never a vote.

This module is apart from :mod:`pate.votes` so that students can import it without being able to reach a vote.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from pate.arrays import BoolArray, FloatArray, IntArray
from pate.errors import ParameterError
from pate.validation import whole

ABSTAIN = -1
"""The label of a query that was asked but not answered."""

SIMULATION_STAMP = "simulation, not private"

Mode = Literal["release", "simulation"]


@dataclass(frozen=True)
class Electorate:
    """The public facts about a vote: how many may vote, on how many classes, how often each.

    ``participation`` is None when every teacher votes once on every query. Otherwise no teacher votes on more than that
    many queries of the batch, and the cost of the whole batch follows from it, not from the number of queries.
    """

    n_teachers: int
    n_classes: int
    participation: int | None = None

    def __post_init__(self) -> None:
        whole(self.n_teachers, "n_teachers", 1)
        whole(self.n_classes, "n_classes", 2)
        if self.participation is not None:
            whole(self.participation, "participation (None when every teacher votes on every query)", 1)


@dataclass(frozen=True, eq=False)
class Release:
    """Noisy answers to a batch of queries, safe to publish at the cost its mechanism states.

    labels: int64[query], ``ABSTAIN`` where the mechanism declined to answer.
    histogram: float64[query, class] where the mechanism publishes noisy counts too, else None.
    reinforced: int64[query] where the mechanism was told what the student predicts, else None: the student's own class where
        the teachers did not contradict it and the student was sure, ``ABSTAIN`` elsewhere. Labels and public facts decide it.
    mechanism: name and parameters of the aggregator, public.
    """

    labels: IntArray
    electorate: Electorate
    mechanism: Mapping[str, Any]
    mode: Mode = "release"
    histogram: FloatArray | None = field(default=None, repr=False)
    reinforced: IntArray | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.mode not in get_args(Mode):
            # Else a misspelt "simulation" would be stamped as private.
            raise ParameterError(f"Release.mode must be one of {', '.join(get_args(Mode))}, got {self.mode!r}.")
        labels = _checked_labels(self.labels, "labels", self.electorate.n_classes)
        object.__setattr__(self, "labels", labels)
        if self.reinforced is not None:
            reinforced = _checked_labels(self.reinforced, "reinforced", self.electorate.n_classes)
            if reinforced.shape != labels.shape or ((reinforced != ABSTAIN) & (labels != ABSTAIN)).any():
                raise ParameterError(
                    "Release.reinforced must have an entry for each query, ABSTAIN where the teachers answered: a class is "
                    "either theirs or the student's own."
                )
            object.__setattr__(self, "reinforced", reinforced)
        object.__setattr__(self, "mechanism", MappingProxyType(dict(self.mechanism)))
        if self.histogram is not None:
            histogram = np.array(self.histogram, dtype=np.float64)
            if histogram.shape != (labels.size, self.electorate.n_classes):
                raise ParameterError(
                    f"Release.histogram must have shape {(labels.size, self.electorate.n_classes)}, got {histogram.shape}."
                )
            if not np.isfinite(histogram).all():
                raise ParameterError("Release.histogram must be finite; found NaN or infinity.")
            histogram.setflags(write=False)
            object.__setattr__(self, "histogram", histogram)

    @property
    def answered(self) -> BoolArray:
        """bool[query]: True where a label was released."""
        answered: BoolArray = self.labels != ABSTAIN
        return answered

    @property
    def lessons(self) -> IntArray:
        """int64[query]: what a student learns: the teachers' answer, else the reinforced class, else ``ABSTAIN``."""
        if self.reinforced is None:
            return self.labels
        return np.where(self.answered, self.labels, self.reinforced)

    @property
    def stamp(self) -> str:
        """What every artefact made from this release must say about its noise."""
        return SIMULATION_STAMP if self.mode == "simulation" else "noise from the operating system"

    def __len__(self) -> int:
        return int(self.labels.size)

    def __repr__(self) -> str:
        made = ", ".join(f"{key}={value}" for key, value in self.mechanism.items())
        return f"Release({len(self)} asked, {int(self.answered.sum())} answered; {made}; {self.stamp})"

    def __getstate__(self) -> dict[str, Any]:
        # A mappingproxy cannot be pickled; the plain dict is frozen again on the way back.
        return {**self.__dict__, "mechanism": dict(self.mechanism)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        for key, value in state.items():
            object.__setattr__(self, key, value)
        self.__post_init__()


def _checked_labels(given: ArrayLike, name: str, n_classes: int) -> IntArray:
    found = np.asarray(given)
    if found.ndim != 1:
        raise ParameterError(f"Release.{name} must have one axis [query], got shape {found.shape}.")
    if found.size and found.dtype.kind not in "iu":
        raise ParameterError(f"Release.{name} must have an integer dtype, got {found.dtype}.")
    labels = found.astype(np.int64)
    if labels.size and (labels.min() < ABSTAIN or labels.max() >= n_classes):
        raise ParameterError(
            f"Release.{name} must be a class 0..{n_classes - 1} or ABSTAIN ({ABSTAIN}), got values from {labels.min()} to "
            f"{labels.max()}."
        )
    labels.setflags(write=False)
    return labels
