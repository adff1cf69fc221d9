"""Label spreading (Zhou et al. 2004) that weighs each answer by its territory and doubts answers that stand alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import sparse

from pate.arrays import FloatArray, IntArray
from pate.errors import StudentError
from pate.validation import positive

ROUNDS = 60
_DOUBTS = 10  # rounds of doubting; it has settled long before
_LEAST = 1e-12


@dataclass(frozen=True)
class Doubt:
    """How far to doubt answers that the others contradict.

    wrong: the chance that an answer is wrong; 0 believes every answer.
    sharpness: the power to which the others' word is taken.
    majority: the share of it that must name one class before an answer is doubted.
    """

    wrong: float = 0.1
    sharpness: float = 1.0
    majority: float = 0.5

    def __post_init__(self) -> None:
        if not 0 <= self.wrong < 0.5:
            raise StudentError(
                f"wrong, the chance that an answer is wrong, must be at least 0 and below 0.5, got {self.wrong!r}."
            )
        positive(self.sharpness, "sharpness")
        if not 0 <= self.majority < 1:
            raise StudentError(
                f"majority, a share of the other answers, must be at least 0 and below 1, got {self.majority!r}."
            )


def reach_of(graph: sparse.csr_array, rows: IntArray, alpha: float) -> FloatArray:
    """How strongly each answer reaches each record, float64[record, answer]: F <- alpha S F + Y, from each answer alone."""
    start = np.zeros((graph.shape[0], len(rows)))
    start[rows, np.arange(len(rows))] = 1.0
    reach = start.copy()
    for _ in range(ROUNDS):
        reach = alpha * (graph @ reach) + start
    return reach


def territories(reach: FloatArray) -> FloatArray:
    """The share of all records that each answer reaches more strongly than the others do, float64[answer].

    An answer's spread is scaled to its territory, so that a class is as large as the records around its answers, neither as
    large as every other class nor as often as it was asked about. No balance of classes is assumed.
    """
    owner = reach.argmax(axis=1)
    return np.bincount(owner, minlength=reach.shape[1]) / len(reach)


def class_scores(reach: FloatArray, beliefs: FloatArray) -> FloatArray:
    """Scores float64[record, class] whose rows sum to 1, from what is believed of each answer, float64[answer, class].

    A record that no answer reaches gets the mean of all.
    """
    mass = np.maximum(reach.sum(axis=0), _LEAST)
    scores = (reach * (territories(reach) / mass)) @ beliefs
    total = scores.sum(axis=1, keepdims=True)
    mean = scores.sum(axis=0) / max(float(scores.sum()), _LEAST)
    result: FloatArray = np.where(total > _LEAST * total.max(initial=0.0), scores / np.maximum(total, 1e-300), mean)
    return result


def beliefs_about(reach: FloatArray, rows: IntArray, labels: IntArray, n_classes: int, doubt: Doubt) -> FloatArray:
    """What to believe of each answer after hearing the others, float64[answer, class].

    An answer is wrong with a certain chance, any other class being as likely (in place of the mechanism's noise and the
    teachers' own errors together). The others, spread to its record, say which class it should be; the two are
    multiplied, and all is repeated with the new beliefs.

    An answer is doubted only where much of what is heard names one class: right answers for unusual records are contradicted by
    several classes, wrong ones by one. An answer alone in its class is believed, for nothing could speak for it.
    """
    named = np.eye(n_classes)[labels]
    if doubt.wrong == 0:
        return named
    alone = named.sum(axis=0)[labels] == 1
    said = np.where(named > 0, 1 - doubt.wrong, doubt.wrong / (n_classes - 1))
    heard = reach[rows] * (territories(reach) / np.maximum(reach.sum(axis=0), _LEAST))
    heard[rows[:, None] == rows[None, :]] = 0.0  # an answer does not speak for itself, nor one for another to the same question
    beliefs = named
    for _ in range(_DOUBTS):
        others = heard @ beliefs
        total = others.sum(axis=1, keepdims=True)
        others = np.where(total > 0, others / np.maximum(total, 1e-300), 1 / n_classes)
        doubtful = (others.max(axis=1) > doubt.majority) & ~alone
        posterior = others**doubt.sharpness * said
        posterior /= posterior.sum(axis=1, keepdims=True)
        beliefs = np.where(doubtful[:, None], posterior, named)
    return beliefs
