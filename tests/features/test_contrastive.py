"""Contrastive features: learning helps, repeats itself, and transforming is torch's network to rounding."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from feature_cases import fitted, pictures

from pate.errors import MissingExtra, ParameterError
from pate.features import Contrastive, Features
from pate.public import PublicData

torch = pytest.importorskip("torch", reason="the extra 'train' is not installed")

TINY: dict[str, Any] = {"features": 8, "epochs": 1, "batch": 16, "channels": (4, 6, 8)}


def test_a_seed_repeats_and_another_differs_and_torchs_own_state_is_left_alone() -> None:
    public, x = PublicData(pictures(32, seed=1)), pictures(5, seed=2)
    state = torch.random.get_rng_state()
    first = Contrastive(**TINY, seed=3).fit(public).transform(x)
    assert (torch.random.get_rng_state() == state).all()
    torch.manual_seed(99)
    assert Contrastive(**TINY, seed=3).fit(public).transform(x).tobytes() == first.tobytes()
    assert (Contrastive(**TINY, seed=4).fit(public).transform(x) != first).any()
    np.testing.assert_allclose(np.linalg.norm(first, axis=1), 1, atol=1e-6)


@pytest.mark.parametrize("size", [(14, 14), (17, 22)])
def test_the_numpy_network_is_torchs(size: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    from pate.features import simclr

    kept: list[Any] = []
    build = simclr._network
    monkeypatch.setattr(simclr, "_network", lambda *args: kept.append(build(*args)) or kept[-1])
    images = np.random.default_rng(0).uniform(size=(20, *size)).astype(np.float32)
    features = Contrastive(**TINY).fit(PublicData(images)).transform(images)
    with torch.no_grad():
        network = kept[0].eval()
        expected = torch.nn.functional.normalize(network(torch.from_numpy(images)[:, None]), dim=1).numpy()
    np.testing.assert_allclose(features, expected, atol=2e-5)


def test_network_is_the_trained_one_also_from_a_file(tmp_path: Path) -> None:
    features, images = fitted("contrastive"), pictures(9, seed=2)
    assert isinstance(features, Contrastive)
    features.save(tmp_path / "it")
    state = torch.random.get_rng_state()
    for each in (features, Features.load(tmp_path / "it")):
        assert isinstance(each, Contrastive)
        with torch.no_grad():
            network = each.network()
            outputs = torch.nn.functional.normalize(network(torch.from_numpy(images)[:, None]), dim=1).numpy()
            np.testing.assert_allclose(outputs, features.transform(images), atol=1e-5)
            for parameter in network.parameters():
                parameter.zero_()
    assert (torch.random.get_rng_state() == state).all()
    assert features.network()[0].weight.abs().max() > 0, "fine-tuning one copy must not change the next"


def test_a_file_without_the_network_still_transforms(tmp_path: Path) -> None:
    features, images = fitted("contrastive"), pictures(3, seed=2)
    old = Contrastive(**TINY)
    old.restore(
        {key: value for key, value in features.state().items() if key.startswith(("kernel", "bias", "fitted"))}, "blobs"
    )
    assert old.transform(images).tobytes() == features.transform(images).tobytes()
    with pytest.raises(ParameterError, match=r"older version.*Fit and save it again"):
        old.network()
    with pytest.raises(ParameterError, match="not fitted"):
        Contrastive(**TINY).network()


def test_training_brings_two_views_of_a_picture_together() -> None:
    """Of 64 pictures, how often is a picture's second view nearest to its first? Chance is 1/64; the seeds are fixed."""
    from pate.features.distortions import distorted

    images = pictures(64, seed=1)
    torch.manual_seed(0)
    views = [distorted(torch.from_numpy(images)[:, None], 0.7)[:, 0].numpy() for _ in range(2)]

    def found(epochs: int, rate: float) -> float:
        features = Contrastive(32, epochs, batch=32, channels=(8, 8, 16), rate=rate).fit(PublicData(images))
        one, other = (features.transform(view) for view in views)
        return float(((one @ other.T).argmax(axis=1) == np.arange(64)).mean())

    assert found(25, 5e-3) > found(1, 1e-9) + 0.1


def test_progress_is_told() -> None:
    told: list[tuple[str, int, int]] = []
    Contrastive(**{**TINY, "epochs": 2}).fit(PublicData(pictures(20, seed=1)), lambda *step: told.append(step))
    assert told == [("contrastive", 1, 2), ("contrastive", 2, 2)]


def test_transforming_works_without_torch_and_fitting_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    features = fitted("contrastive")
    monkeypatch.setitem(sys.modules, "torch", None)
    assert features.transform(pictures(2, seed=0)).shape == (2, 8)
    with pytest.raises(MissingExtra, match="train"):
        Contrastive(**TINY).fit(PublicData(pictures(20, seed=1)))
    with pytest.raises(MissingExtra, match="train"):
        features.network()


def test_what_it_cannot_take_is_refused() -> None:
    with pytest.raises(ParameterError, match=r"pixels in 0\.\.1"):
        Contrastive(**TINY).fit(PublicData(pictures(20, seed=1) * 255))
    with pytest.raises(ParameterError, match="at least 12 x 12"):
        Contrastive(**TINY).fit(PublicData(np.zeros((20, 8, 8))))
    with pytest.raises(ParameterError, match="three whole numbers"):
        Contrastive(channels=(1, 2))
    with pytest.raises(ParameterError, match="another shape"):
        fitted("contrastive").transform(np.zeros((1, 28, 28)))
