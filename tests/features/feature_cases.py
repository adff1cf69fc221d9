"""Small fitted extractors and pictures that several tests share."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pate.features import (
    HOG,
    PCA,
    Chain,
    Concat,
    Contrastive,
    Features,
    Identity,
    Masked,
    Patches,
    Scale,
    Scattering,
    Standardise,
    Unit,
)
from pate.public import PublicData

SIDE = 14

BUILT_IN = ("identity", "scale", "standardise", "pca", "hog", "patches", "contrastive", "masked", "chain", "concat")
BUILT_IN += ("unit", "scattering")


def pictures(count: int, seed: int) -> NDArray[np.float32]:
    """Smooth blobs with some noise, in 0..1: float32[count, SIDE, SIDE]."""
    random = np.random.default_rng(seed)
    grid = np.arange(SIDE)
    centre, width = random.uniform(3, SIDE - 3, (2, count, 1)), random.uniform(1, 4, (count, 1, 1))
    rows, columns = (grid - centre[0])[:, :, None], (grid - centre[1])[:, None, :]
    images = np.exp(-(rows**2 + columns**2) / (2 * width**2)) + random.uniform(0, 0.2, (count, SIDE, SIDE))
    return np.clip(images, 0, 1).astype(np.float32)


def unfitted(name: str) -> Features:
    patches: dict[str, Any] = {"centroids": 12, "size": 4, "stride": 2, "samples": 800, "rounds": 3}
    made: dict[str, Features] = {
        "identity": Identity(),
        "scale": Scale(0.1, 0.9),
        "standardise": Standardise(),
        "pca": PCA(20, whiten=0.5),
        "hog": HOG(),
        "unit": Unit(),
        "scattering": Scattering(angles=4, groups=5),
        "patches": Patches(**patches),
        "contrastive": Contrastive(features=8, epochs=1, batch=16, channels=(4, 6, 8)),
        "masked": Masked(features=8, epochs=1, width=12, batch=16),
        "chain": Chain(Scale(0, 1), HOG(), PCA(10, whiten=1)),
        "concat": Concat(Chain(HOG(), PCA(10)), Patches(**patches), Identity(), weights=[1, 0.7, 0.1]),
    }
    return made[name]


def fitted(name: str) -> Features:
    return unfitted(name).fit(PublicData(pictures(64, seed=1), "blobs"))
