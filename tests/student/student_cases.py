"""Small seeded problems for students, and releases made of labels."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pate.arrays import FloatArray, IntArray
from pate.release import Electorate, Release


def released(labels: Any, n_classes: int, n_teachers: int = 100, **mechanism: Any) -> Release:
    """A release of these labels, as GNMax with little noise would make it unless said otherwise."""
    made = mechanism or {"name": "gnmax", "sigma": 10.0}
    return Release(np.asarray(labels, dtype=np.int64), Electorate(n_teachers, n_classes), made, "simulation")


def rings(n: int, seed: int = 0) -> tuple[FloatArray, IntArray]:
    """Two rings, one inside the other, [n, 2]: near neighbours share a class, and no straight line parts them."""
    random = np.random.default_rng(seed)
    y = random.integers(0, 2, n)
    angle = random.uniform(0, 2 * np.pi, n)
    radius = 1 + 1.5 * y + random.normal(0, 0.12, n)
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1), y


def digits() -> tuple[NDArray[np.float32], IntArray]:
    """scikit-learn's 1,797 digits, float32[record, 8, 8] in 0..1."""
    from sklearn.datasets import load_digits

    found = load_digits()
    return (found.images / 16.0).astype(np.float32), found.target.astype(np.int64)
