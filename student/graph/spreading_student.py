"""Label spreading as a student of its own: no network to train, done in seconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from pate.arrays import FloatArray
from pate.errors import StudentError
from pate.features import Features
from pate.features.cache import fit_cached
from pate.public import PublicData
from pate.student.answers import Answers
from pate.student.base import Student
from pate.student.diary import Diary
from pate.student.graph.neighbours import graph_of, nearest, similarity, unit_length
from pate.student.graph.spreading import Doubt, beliefs_about, class_scores, reach_of
from pate.student.records import FeaturesSpec, Float32Array, float_records, make_features
from pate.validation import json_values, whole

_FEATURES, _ARRAYS = "features.npz", "graph.npz"


@dataclass(eq=False, repr=False, kw_only=True)
class Spreading(Student):
    """Spreads the answers over a graph of public records; a new record takes after the public ones nearest to it.

    features: what records are compared by: a name ("identity", "hog", "contrastive" …) or {"name": …, "settings": …}; fitted on
        the public records, and kept in the cache of :func:`pate.features.cache.fit_cached`.
    unit: compare directions (features divided by their length) instead of distances.
    neighbours: how many others each record is tied to.
    alpha: how far labels spread, above 0 and below 1.
    wrong: the chance that an answer is wrong, by noise or by the teachers' own errors: answers that the others contradict are
        doubted accordingly. 0 believes every answer.
    sharpness, majority: how much the others' word counts in that, and how large a share of it must name one class. The defaults
        are careful; 2.0 and 0.4 mend more answers where neighbours nearly always share a class, and spoil right ones elsewhere.
    shape: of one record, for flat pictures.
    """

    name: ClassVar[str] = "spreading"

    features: FeaturesSpec = "identity"
    unit: bool = True
    neighbours: int = 10
    alpha: float = 0.99
    wrong: float = 0.1
    sharpness: float = 1.0
    majority: float = 0.5
    shape: Sequence[int] | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        whole(self.neighbours, "spreading neighbours", 1)
        check_alpha(self.alpha)
        self._doubt()
        self.shape = None if self.shape is None else list(self.shape)
        json_values(self.settings(), self.title)

    def _doubt(self) -> Doubt:
        return Doubt(self.wrong, self.sharpness, self.majority)

    def _fit(self, x: NDArray[Any], answers: Answers, diary: Diary) -> None:
        records = float_records(x, self.shape)
        with diary.fitting() as told:
            self._features = fit_cached(make_features(self.features), PublicData(records), progress=told)
        with diary.stage("spreading", 2) as step:
            self._points = self._compared(records)
            step()
            self._scores = spread_answers(self._points, answers, self.neighbours, self.alpha, self._doubt())
            step()

    def _compared(self, records: Float32Array) -> Float32Array:
        features = self._features.transform(records)
        return unit_length(features) if self.unit else features.reshape(len(features), -1)

    def _probabilities(self, x: NDArray[Any]) -> FloatArray:
        points = self._compared(float_records(x, self.shape))
        k = min(self.neighbours, len(self._points))
        places, squared = nearest(points, self._points, k, own=False)
        reach = np.sqrt(squared[:, -1:])
        weights = similarity(squared, reach, reach)
        scores: FloatArray = np.einsum("ij,ijk->ik", weights, self._scores[places])
        return scores

    def _save(self, folder: Path) -> None:
        self._features.save(folder / _FEATURES)
        np.savez(folder / _ARRAYS, points=self._points, scores=self._scores)

    def _load(self, folder: Path) -> None:
        self._features = Features.load(folder / _FEATURES)
        with np.load(folder / _ARRAYS, allow_pickle=False) as arrays:
            self._points, self._scores = arrays["points"], arrays["scores"]


def spread_answers(points: Float32Array, answers: Answers, neighbours: int, alpha: float, doubt: Doubt) -> FloatArray:
    """How likely each class is for each public record, float64[record, class], by the graph of ``points``."""
    reach = reach_of(graph_of(points, neighbours), answers.rows, alpha)
    return class_scores(reach, beliefs_about(reach, answers.rows, answers.labels, answers.n_classes, doubt))


def check_alpha(alpha: float) -> None:
    if not 0 < alpha < 1:
        raise StudentError(f"alpha must be above 0 and below 1, got {alpha!r}.")
