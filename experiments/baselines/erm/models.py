"""A private linear model for a run: made from settings, kept in a file that may be published."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from pate.arrays import FloatArray
from pate.errors import DataError
from pate.experiments.array_files import write_text
from pate.experiments.baselines.erm.estimators import PrivateHuberSVM, PrivateLinearClassifier, PrivateLogisticRegression
from pate.experiments.baselines.erm.random_features import RandomFeatures
from pate.experiments.baselines.erm.rows import Bound
from pate.experiments.baselines.erm.settings import ErmSettings
from pate.experiments.baselines.erm.tuning import PrivateTuning

_FORMAT = "pate-erm"
_CLASSES = (0, 1)


def estimator_of(model: str, settings: ErmSettings, delta: float) -> PrivateLinearClassifier | PrivateTuning:
    """The estimator that a recipe describes."""
    strengths = settings.regularisation
    keys: dict[str, Any] = {
        "method": settings.method,
        "epsilon": None if settings.epsilon == "budget" else settings.epsilon,
        "delta": delta,
        "data_norm": settings.data_norm,
        "fit_intercept": settings.intercept,
        "records": settings.records,
        "classes": _CLASSES,
        "weight_norm": settings.weight_norm,
    }
    if not isinstance(strengths, list):
        keys["regularisation"] = strengths
    one = PrivateLogisticRegression(**keys) if model == "logistic" else PrivateHuberSVM(**keys, width=settings.width)
    return PrivateTuning(one, strengths) if isinstance(strengths, list) else one


def kernel_of(settings: ErmSettings) -> RandomFeatures | None:
    """Random features, where there are any; their projections are public and the same in every run."""
    return RandomFeatures(settings.random_features, settings.gamma) if settings.random_features else None


@dataclass(frozen=True, eq=False)
class LinearModel:
    """weights: float64[column] of rows as ``bound`` makes them. facts: what it cost and of what; public."""

    weights: FloatArray
    settings: ErmSettings
    facts: dict[str, Any]

    def predict_proba(self, x: NDArray[Any]) -> FloatArray:
        """float64[record, 2] of the records [record, ...] that it learned from, or the features."""
        flat = np.asarray(x, dtype=np.float64).reshape(len(x), -1)
        kernel = kernel_of(self.settings)
        if kernel is not None:
            flat = kernel.fit(flat).transform(flat)
        ones = expit(Bound(self.settings.data_norm, self.settings.intercept).rows(flat) @ self.weights)
        return np.stack([1 - ones, ones], axis=1)

    def save(self, path: Path) -> None:
        """JSON: nothing in it is private."""
        settings = self.settings.model_dump(mode="json", exclude_unset=True)
        text = {"format": _FORMAT, "settings": settings, "facts": self.facts, "weights": self.weights.tolist()}
        write_text(path, json.dumps(text, indent=1) + "\n")

    @classmethod
    def load(cls, path: Path) -> LinearModel:
        try:
            found = json.loads(path.read_text("utf-8"))
            if found["format"] != _FORMAT:
                raise ValueError(found["format"])
            return cls(np.array(found["weights"], dtype=np.float64), ErmSettings(**found["settings"]), found["facts"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DataError(f"{path}: it holds no private linear model ({error}). Run `pate erm` again.") from error
