"""Patches against a plain loop over places and centroids; the dictionary finds what is there."""

from __future__ import annotations

import numpy as np
import pytest
from feature_cases import pictures

from pate.errors import ParameterError
from pate.features import Patches
from pate.features.kmeans import kmeans, nearest
from pate.public import PublicData


def test_it_agrees_with_the_plain_loop() -> None:
    features = Patches(centroids=5, size=4, stride=3, pool=2, samples=500, rounds=3)
    images = pictures(20, seed=0)
    found = features.fit(PublicData(images)).transform(images[:2])
    pixels = 16
    whitening, brackets = features.map_[:pixels, :pixels], features.map_[:, pixels:] / 2.0**40
    centres = np.linalg.solve(whitening, brackets[:pixels] / -2.0).T
    for image, features_of_it in zip(images[:2].astype(np.float64), found, strict=True):
        regions = np.zeros((2, 2, 5))
        for row in range(4):
            for column in range(4):
                patch = image[3 * row : 3 * row + 4, 3 * column : 3 * column + 4].ravel()
                patch = (patch - patch.mean()) / np.sqrt(patch.var() + 0.01)
                distances = np.linalg.norm((patch - features.mean_) @ whitening - centres, axis=1)
                regions[row // 2, column // 2] += np.maximum(distances.mean() - distances, 0)
        np.testing.assert_allclose(features_of_it, regions.ravel() / 4, atol=1e-4)


def test_kmeans_finds_separate_groups_and_revives_lost_clusters() -> None:
    random = np.random.default_rng(0)
    middles = np.array([[0.0, 0.0], [10.0, 0.0], [0.0, 10.0]])
    points = np.repeat(middles, 50, axis=0) + random.normal(0, 0.1, (150, 2))
    for seed in range(10):  # some start with two centres in one group
        centres = kmeans(points, 3, 10, np.random.default_rng(seed))
        assert nearest(points, centres)[1].max() < 60
    lost = np.concatenate([np.zeros((50, 2)), [[5.0, 5.0]]])
    assert nearest(lost, kmeans(lost, 2, 3, np.random.default_rng(1)))[1].max() < 1e-12
    with pytest.raises(ParameterError, match="got 3 for 4"):
        kmeans(middles, 4, 1, random)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"size": 65}, "size must be at most 64"),
        ({"whitening_floor": 0}, "whitening_floor at least 1e-6"),
        ({"stride": 0}, "stride must be a whole number"),
    ],
)
def test_settings_outside_the_proof_are_refused(settings: dict[str, int], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        Patches(**settings)  # type: ignore[arg-type]


def test_pictures_that_do_not_fit_are_refused() -> None:
    small = {"centroids": 4, "samples": 300, "rounds": 1}
    with pytest.raises(ParameterError, match="do not fit in pictures"):
        Patches(**small).fit(PublicData(np.zeros((3, 5, 5))))  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="found 0 patches with contrast"):
        Patches(**small).fit(PublicData(np.ones((3, 8, 8))))  # type: ignore[arg-type]
    fitted = Patches(**small, pool=4).fit(PublicData(pictures(9, seed=0)))  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="cannot be pooled"):
        fitted.transform(np.zeros((1, 8, 8)))
    wide = Patches(**small, stride=1).fit(PublicData(pictures(9, seed=0)))  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="at most 65536 places"):
        wide.transform(np.zeros((1, 270, 270)))
