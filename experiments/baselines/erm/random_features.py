"""Random Fourier features: a Gaussian kernel as an inner product of rows of length 1 (Rahimi and Recht 2007, NeurIPS)."""

from __future__ import annotations

import math
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from pate.arrays import FloatArray
from pate.errors import ParameterError
from pate.extras import require
from pate.validation import positive, whole

base: Any = require("sklearn.base", "train")
validation: Any = require("sklearn.utils.validation", "train")


class RandomFeatures(base.TransformerMixin, base.BaseEstimator):  # type: ignore[misc]
    """z(x) with z(x) . z(y) near exp(-gamma |x - y|^2); |z(x)| = 1 for every x, so ``data_norm=1`` is the bound.

    n_features: how many numbers, an even one: a cosine and a sine of each random projection. More are nearer the kernel, and
    more columns for noise. seed: of the projections, which are public: they are drawn without a look at data.

    Chaudhuri, Monteleoni, Sarwate 2011 (arXiv:0912.0071), section 5: a linear model on them is private with a kernel, where the
    kernel machine itself would publish its support vectors.

    >>> x = np.random.default_rng(0).normal(size=(2, 3))
    >>> z = RandomFeatures(2000, gamma=0.2).fit_transform(x)
    >>> bool(abs(z[0] @ z[1] - np.exp(-0.2 * ((x[0] - x[1]) ** 2).sum())) < 0.1)
    True
    """

    def __init__(self, n_features: int = 200, gamma: float = 1.0, seed: int = 0) -> None:
        self.n_features = n_features
        self.gamma = gamma
        self.seed = seed

    def fit(self, X: Any, y: Any = None) -> Self:
        """Draw the projections; of X only the number of columns is looked at."""
        whole(self.n_features, "n_features", 2)
        if self.n_features % 2:
            raise ParameterError(f"n_features must be even, a cosine and a sine each, got {self.n_features}.")
        positive(self.gamma, "gamma")
        width = validation.validate_data(self, X).shape[1]
        rng = np.random.default_rng(self.seed)
        self.directions_ = math.sqrt(2 * self.gamma) * rng.normal(size=(width, self.n_features // 2))
        return self

    def transform(self, X: Any) -> FloatArray:
        """float64[record, feature], each of length 1."""
        validation.check_is_fitted(self)
        x: NDArray[Any] = validation.validate_data(self, X, reset=False)
        angles = np.asarray(x, dtype=np.float64) @ self.directions_
        found: FloatArray = np.concatenate([np.cos(angles), np.sin(angles)], axis=1) * math.sqrt(2 / self.n_features)
        return found

    @property
    def _n_features_out(self) -> int:
        return self.n_features
