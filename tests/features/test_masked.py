"""Masked features: learning helps, repeats itself, and transforming is torch's network to rounding."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from pate.errors import MissingExtra, ParameterError
from pate.features import Masked
from pate.public import PublicData

torch = pytest.importorskip("torch", reason="the extra 'train' is not installed")

TINY: dict[str, Any] = {"features": 8, "epochs": 1, "width": 12, "batch": 16}


def table(count: int, seed: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Sixteen columns that share a hidden class, and sixteen louder ones that say nothing: float64[count, 32]."""
    random = np.random.default_rng(seed)
    y = random.integers(0, 2, count)
    told = 0.8 * (2 * y - 1)[:, None] + random.normal(0, 1, (count, 16))
    return np.concatenate([told, random.normal(0, 3, (count, 16))], axis=1), y


def test_a_seed_repeats_and_another_differs_and_torchs_own_state_is_left_alone() -> None:
    public, (x, _) = PublicData(table(40, seed=1)[0]), table(5, seed=2)
    state = torch.random.get_rng_state()
    first = Masked(**TINY, seed=3).fit(public).transform(x)
    assert (torch.random.get_rng_state() == state).all()
    torch.manual_seed(99)
    assert Masked(**TINY, seed=3).fit(public).transform(x).tobytes() == first.tobytes()
    assert (Masked(**TINY, seed=4).fit(public).transform(x) != first).any()


def test_the_numpy_network_is_torchs(monkeypatch: pytest.MonkeyPatch) -> None:
    from pate.features import reconstruction

    kept: list[Any] = []
    build = torch.nn.Sequential
    monkeypatch.setattr(reconstruction.nn, "Sequential", lambda *parts: kept.append(build(*parts)) or kept[-1])
    x, _ = table(40, seed=1)
    features = Masked(**TINY).fit(PublicData(x)).transform(x)
    standard = (x - x.mean(axis=0)) / np.sqrt(x.var(axis=0).mean())
    with torch.no_grad():
        expected = kept[0][:4](torch.from_numpy(standard.astype(np.float32))).numpy()
    assert features.shape == (40, 8)
    np.testing.assert_allclose(features, expected, atol=1e-5)


def test_training_finds_what_columns_share() -> None:
    """How often has the nearest of 20 labelled records the right class? Chance is 1/2; the seeds are fixed."""
    public, _ = table(800, seed=1)
    (labelled, y), (asked, truth) = table(20, seed=2), table(400, seed=3)

    def right(one: NDArray[Any], other: NDArray[Any]) -> float:
        nearest = np.square(one[:, None] - other[None]).sum(axis=2).argmin(axis=1)
        return float((y[nearest] == truth).mean())

    def learnt(**settings: Any) -> float:
        features = Masked(features=8, width=32, batch=64, **settings).fit(PublicData(public))
        return right(features.transform(asked), features.transform(labelled))

    trained = learnt(epochs=20, rate=5e-3)
    assert trained > right(asked, labelled) + 0.05
    assert trained > learnt(epochs=1, rate=1e-9) + 0.05
    assert trained > 0.85


def test_about_the_asked_share_of_columns_is_taken_from_others() -> None:
    """Of 20,000 numbers; a false alarm, more than 5 standard deviations off, has probability below 1e-6."""
    from pate.features.distortions import columns_swapped

    records = torch.arange(20_000.0).reshape(1000, 20)
    torch.manual_seed(0)
    variant = columns_swapped(records, 0.3)
    assert (variant % 20 == records % 20).all(), "a column's values stay in the column"
    assert abs((variant != records).double().mean().item() - 0.3 * 0.999) < 5 * np.sqrt(0.3 * 0.7 / 20_000)


def test_a_wild_record_stays_finite_and_progress_is_told() -> None:
    told: list[tuple[str, int, int]] = []
    features = Masked(**{**TINY, "epochs": 2}, mask_weight=0)
    features.fit(PublicData(1e-30 * table(20, seed=1)[0]), lambda *step: told.append(step))
    assert told == [("masked", 1, 2), ("masked", 2, 2)]
    assert np.isfinite(features.transform(np.full((1, 32), 3e38))).all()


def test_transforming_works_without_torch_and_fitting_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    x, _ = table(20, seed=1)
    features = Masked(**TINY).fit(PublicData(x))
    monkeypatch.setitem(sys.modules, "torch", None)
    assert features.transform(x).shape == (20, 8)
    with pytest.raises(MissingExtra, match="train"):
        Masked(**TINY).fit(PublicData(x))


def test_what_it_cannot_take_is_refused() -> None:
    with pytest.raises(ParameterError, match="2 columns and 2 different records"):
        Masked(**TINY).fit(PublicData(np.ones((20, 3))))
    with pytest.raises(ParameterError, match="2 columns and 2 different records"):
        Masked(**TINY).fit(PublicData([[1.0], [2.0]]))
    with pytest.raises(ParameterError, match=r"share must lie between 0 and 1, got 1\.0"):
        Masked(share=1.0)
    with pytest.raises(ParameterError, match="mask_weight"):
        Masked(mask_weight=-1)
    with pytest.raises(ParameterError, match="fitted on records of 32 numbers, got 3"):
        Masked(**TINY).fit(PublicData(table(20, seed=1)[0])).transform(np.zeros((1, 3)))
