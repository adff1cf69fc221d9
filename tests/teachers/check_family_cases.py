"""Families to run the conformance check on, and estimators as somebody might write them without scikit-learn's base class."""

from __future__ import annotations

import re
from collections import deque
from typing import Any

import numpy as np

Case = tuple[str, dict[str, Any], tuple[int, ...]]

CASES: list[Case] = [
    ("logistic", {}, (12,)),
    ("ridge", {}, (12,)),
    ("mlp", {}, (12,)),
    ("cnn", {"width": 4, "epochs": 2}, (1, 8, 8)),
    ("torch", {"module": "pate.teachers.neural.nets:small_cnn", "parameters": {"width": 4}, "epochs": 2}, (8, 8)),
    ("sklearn-logistic", {}, (12,)),
    ("forest", {"n_estimators": 5}, (3, 4)),
    ("boosting", {"max_iter": 5}, (12,)),
    ("knn", {}, (12,)),
    ("sklearn.svm:SVC", {"C": 2, "probability": False}, (12,)),
    ("sklearn", {"estimator": "sklearn.tree.DecisionTreeClassifier", "storage": "joblib"}, (12,)),
    (
        "sklearn",
        {
            "estimator": {
                "pipeline": [
                    ["sklearn.preprocessing.StandardScaler", {}],
                    ["sklearn.linear_model.SGDClassifier", {"max_iter": 20}],
                ]
            }
        },
        (12,),
    ),
    ("check_family_cases:NearestMean", {"power": 1.5}, (12,)),
]
"""A name, settings, and the shape of a record."""


class NearestMean:
    """The class with the nearest mean. No scikit-learn anywhere."""

    def __init__(self, power: float = 2.0) -> None:
        self.power = power

    def fit(self, x: Any, y: Any) -> None:
        self.means = np.stack([x[y == label].mean(axis=0) for label in np.unique(y)])

    def predict(self, x: Any) -> Any:
        return (np.abs(x[:, None] - self.means) ** self.power).sum(axis=-1).argmin(axis=1)


class NeverFitted:
    def fit(self, x: Any, y: Any) -> None:
        raise AssertionError("this part needs no estimator")

    def predict(self, x: Any) -> Any:
        raise AssertionError("this part needs no estimator")


class Column(NearestMean):
    """Votes as a column of floats, as some libraries give them."""

    def predict(self, x: Any) -> Any:
        return super().predict(x)[:, None].astype(float)


class Fractions(NearestMean):
    """Votes that are no classes."""

    def predict(self, x: Any) -> Any:
        return super().predict(x) + 0.5


class KeepsWhatItGets(NearestMean):
    """Takes any parameter, and says nothing of it in its signature."""

    def __init__(self, **parameters: Any) -> None:
        super().__init__()
        self.parameters = parameters


class Seeded(NearestMean):
    def __init__(self, random_state: int | None = None, n_jobs: int | None = None) -> None:
        super().__init__()
        self.random_state = random_state
        self.n_jobs = n_jobs


class HoldsAQueue(NearestMean):
    def fit(self, x: Any, y: Any) -> None:
        super().fit(x, y)
        self.extra: Any = deque([1])


class HoldsAPattern(HoldsAQueue):
    def fit(self, x: Any, y: Any) -> None:
        super().fit(x, y)
        self.extra = re.compile("a")


class HoldsAGenerator(HoldsAQueue):
    def fit(self, x: Any, y: Any) -> None:
        super().fit(x, y)
        self.extra = iter(letter for letter in "a")
