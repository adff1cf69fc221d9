"""Interactive aggregation: the teachers correct a student (PATE 2018, Algorithm 2).

The student's predictions are public: it learned from earlier releases and public records alone. So they may decide, before
anything is asked, what the votes are compared with.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from pate.aggregators.base import Aggregator
from pate.aggregators.noisy_max import GNMax
from pate.arrays import FloatArray, IntArray
from pate.errors import ParameterError
from pate.noise import Noise
from pate.privacy.exact import ThresholdTest, behind_test, gaussian_max_log_probs
from pate.privacy.independent import confident_bound, noisy_max_bound
from pate.privacy.outcomes import rdp_from_outcomes
from pate.release import ABSTAIN, Electorate, Release
from pate.sampling import check_scale
from pate.validation import positive
from pate.votes import Votes

_SUM_TOLERANCE = 1e-3
"""How far a row of scores may be from a whole distribution: float32 shares of many classes are."""


@dataclass(frozen=True, repr=False, eq=False)
class InteractiveGNMax(Aggregator):
    """Interactive-GNMax: Papernot et al. 2018 (arXiv:1802.08908), Algorithm 2.

    With p(x) what the student predicts and m_j = floor(K p_j(x)), its predictions as whole votes of the K teachers:

    - max_j (n_j - m_j) + N(0, sigma1^2) >= threshold, the teachers contradict the student: argmax_j (n_j + N(0, sigma2^2)) is
      the answer;
    - else, where max_j p_j > confidence: the student is right as far as anybody can tell, and its own class is reinforced
      (``Release.reinforced``);
    - else the query is dropped.

    Which of the last two it is follows from the scores, so a query has k + 1 outcomes that depend on votes: k answers and "not
    contradicted". Both kinds are charged, jointly, as for Confident-GNMax: the test's statistic max_j (n_j - m_j) moves by at
    most one with a moved vote, since every n_j - m_j does, and lies in 0..K (docs/rounds.md has the proof). Whole votes, since
    then the test is decided exactly as the continuous mechanism decides it.

    scores: float[query, class], one row for each query of the batch, or float[class], the same for every query; set by
    :meth:`against`. The data-independent cost is the worst over all scores; without them nothing is released.

    >>> from pate import SimulatedNoise, Votes
    >>> mechanism = InteractiveGNMax(threshold=60, sigma1=5, sigma2=5, confidence=0.8).against([[0.9, 0.1], [0.9, 0.1]])
    >>> release = mechanism.release(Votes([[10, 90], [95, 5]], n_teachers=100), SimulatedNoise(1))
    >>> release.labels, release.reinforced  # the teachers say 1 where the student says 0; then they agree with it
    (array([ 1, -1]), array([-1,  0]))
    """

    threshold: float
    sigma1: float
    sigma2: float
    confidence: float
    scores: ArrayLike | None = None
    name: ClassVar[str] = "interactive-gnmax"

    def __post_init__(self) -> None:
        for sigma, what in ((self.sigma1, "sigma1, of the noise on the test"), (self.sigma2, "sigma2, of the noise on votes")):
            positive(sigma, f"InteractiveGNMax {what},")
            check_scale(sigma, f"InteractiveGNMax {what},")
        positive(self.threshold, "InteractiveGNMax threshold, in votes,")
        if self.threshold != int(self.threshold):
            # The noise lattice holds every whole vote, so the test is decided exactly as the continuous one.
            raise ParameterError(f"InteractiveGNMax threshold must be a whole number of votes, got {self.threshold!r}.")
        positive(self.confidence, "InteractiveGNMax confidence")
        if self.confidence >= 1:
            raise ParameterError(f"InteractiveGNMax confidence must be below 1, a share, got {self.confidence!r}.")
        if self.scores is not None:
            object.__setattr__(self, "scores", _distributions(self.scores))

    def check_ready(self, electorate: Electorate, n_queries: int) -> None:
        self._foreseen(n_queries, electorate)

    def before_student(self) -> GNMax:
        """The first round, before there is a student to compare with, answers every query with ``sigma2``."""
        return GNMax(self.sigma2)

    def against(self, scores: ArrayLike) -> InteractiveGNMax:
        """The mechanism for the batch on which the student predicts ``scores``, float[query, class] or float[class]."""
        return InteractiveGNMax(self.threshold, self.sigma1, self.sigma2, self.confidence, scores)

    def part(self, start: int, stop: int) -> InteractiveGNMax:
        found = self._scores
        return self if found is None or found.ndim == 1 else self.against(found[start:stop])

    def relabelled(self, order: IntArray) -> InteractiveGNMax:
        return self if self._scores is None else self.against(self._scores[..., order])

    @property
    def n_classes(self) -> int | None:  # type: ignore[override]
        return None if self._scores is None else int(self._scores.shape[-1])

    @property
    def test(self) -> ThresholdTest:
        """The noisy test that decides whether the teachers contradict the student."""
        return ThresholdTest(self.threshold, self.sigma1)

    def release(self, votes: Votes, noise: Noise) -> Release:
        foreseen = self._foreseen(len(votes), votes.electorate)
        contradicted = noise.gaussian(self.sigma1, (len(votes),)).at_least(
            (votes.counts - foreseen).max(axis=1), self.threshold
        )
        # The second noise is drawn for every query, so that time does not tell which were close to the threshold.
        answers = noise.gaussian(self.sigma2, votes.counts.shape).argmax(votes.counts)
        sure, predicted = self._student(len(votes), votes.n_classes)
        return Release(
            np.where(contradicted, answers, ABSTAIN),
            votes.electorate,
            self.mechanism,
            noise.mode,
            reinforced=np.where(~contradicted & sure, predicted, ABSTAIN),
        )

    def rdp_ahead(self, electorate: Electorate, orders: FloatArray) -> FloatArray:
        self._check_whole_votes(electorate)
        answer = noisy_max_bound(self.sigma2, orders)
        # The worst over all scores, so that the cost of a later round does not hang on what earlier ones answered. partial: the
        # statistic may be as small as 0, where a largest count is at least an even split.
        k, everybody = electorate.n_classes, electorate.n_teachers
        return confident_bound(self.threshold, self.sigma1, answer, everybody, k, orders, partial=True)

    def outcome_log_probs(self, counts: IntArray) -> FloatArray | None:
        """float64[query, class + 1]: the classes, then "not contradicted". None without scores."""
        if self._scores is None:
            return None
        votes = np.asarray(counts, dtype=np.int64)
        n_teachers = int(votes[0].sum()) if len(votes) else 1
        foreseen = self._foreseen(len(votes), Electorate(n_teachers, votes.shape[1]))
        return self._log_probs(votes, foreseen)

    def exact_rdp(self, counts: IntArray, orders: FloatArray, test: ThresholdTest | None = None) -> FloatArray | None:
        """As of every aggregator; each query against its own prediction."""
        if test is not None:
            raise ParameterError("InteractiveGNMax has a test of its own; it cannot stand behind another.")
        if self._scores is None:
            return None
        votes = np.asarray(counts, dtype=np.int64)
        k = votes.shape[1]
        n_teachers = int(votes[0].sum()) if len(votes) else 1
        rows = np.column_stack([votes, self._foreseen(len(votes), Electorate(n_teachers, k))])
        return rdp_from_outcomes(lambda each: self._log_probs(each[:, :k], each[:, k:]), rows, orders, public=k)

    @property
    def mechanism(self) -> dict[str, Any]:
        facts = {name: value for name, value in self.parameters.items() if name != "scores"}
        return {"aggregator": self.name, **facts, "scores": self._digest()}

    def __repr__(self) -> str:
        scores = "" if self._scores is None else f", scores of shape {self._scores.shape}"
        return (
            f"InteractiveGNMax(threshold={self.threshold!r}, sigma1={self.sigma1!r}, sigma2={self.sigma2!r}, "
            f"confidence={self.confidence!r}{scores})"
        )

    @property
    def _scores(self) -> FloatArray | None:
        return None if self.scores is None else np.asarray(self.scores)

    def _digest(self) -> str | None:
        """Of the student's predictions: which they were is part of what was asked."""
        if self._scores is None:
            return None
        return hashlib.sha256(f"{self._scores.shape}".encode() + self._scores.tobytes()).hexdigest()

    def _log_probs(self, votes: IntArray, foreseen: IntArray) -> FloatArray:
        return behind_test(self.test, votes - foreseen, gaussian_max_log_probs(votes, self.sigma2))

    def _student(self, n_queries: int, n_classes: int) -> tuple[Any, IntArray]:
        """(bool[query], whether the student is sure; int64[query], what it predicts)."""
        scores = np.broadcast_to(np.asarray(self._scores), (n_queries, n_classes))
        return scores.max(axis=1) > self.confidence, scores.argmax(axis=1)

    def _foreseen(self, n_queries: int, electorate: Electorate) -> IntArray:
        """int64[query, class]: the student's predictions as whole votes, rounded down."""
        self._check_whole_votes(electorate)
        scores = self._scores
        if scores is None:
            raise ParameterError(
                "InteractiveGNMax compares the teachers with a student: give what it predicts for the queries of this batch, "
                "mechanism.against(student.predict_proba(queries)). The first round, before there is a student, is asked with "
                "mechanism.before_student(). On the command line: --scores FILE, of `pate student predict --proba`; "
                "the first round is -a gnmax at sigma2."
            )
        if scores.shape[-1] != electorate.n_classes or (scores.ndim == 2 and len(scores) != n_queries):
            raise ParameterError(
                f"InteractiveGNMax: the scores must be of these queries, got shape {scores.shape} for {n_queries} queries and "
                f"{electorate.n_classes} classes."
            )
        whole = np.floor(scores * electorate.n_teachers).astype(np.int64)
        return np.broadcast_to(whole, (n_queries, electorate.n_classes))

    def _check_whole_votes(self, electorate: Electorate) -> None:
        if electorate.participation is not None:
            raise ParameterError(
                "InteractiveGNMax compares shares of all teachers, so every teacher must vote on every query; with partial "
                "votes how many vote on a query is not public. Use gnmax or noisy-histogram."
            )


def _distributions(scores: ArrayLike) -> FloatArray:
    """float64[..., class], read-only: each row a distribution, its sum exact up to one rounding."""
    table = np.array(scores, dtype=np.float64)
    if table.ndim not in (1, 2) or table.shape[-1] < 2:
        raise ParameterError(
            f"InteractiveGNMax scores must have the axes [query, class] or [class] with at least 2 classes, got shape "
            f"{table.shape}."
        )
    if not np.isfinite(table).all() or (table < 0).any():
        raise ParameterError("InteractiveGNMax scores must be probabilities; found a negative one, NaN or infinity.")
    # An exact sum does not depend on the order of the classes.
    sums = np.array([math.fsum(row) for row in table.reshape(-1, table.shape[-1])]).reshape((*table.shape[:-1], 1))
    if (np.abs(sums - 1) > _SUM_TOLERANCE).any():
        raise ParameterError(f"InteractiveGNMax scores of a query must sum to 1, got {sums[np.abs(sums - 1).argmax()]}.")
    table /= sums
    table.setflags(write=False)
    return table
