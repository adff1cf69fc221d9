"""Fitting, saving and naming of extractors: public data only, and the same numbers wherever they are used."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from feature_cases import BUILT_IN, fitted, pictures, unfitted
from numpy.typing import NDArray

from pate.digests import row_digests
from pate.errors import ParameterError, ReferenceNotFound
from pate.features import PCA, Chain, Concat, Features, Identity, Scale, Standardise, features_named
from pate.public import PublicData


class Doubled(Features):
    """A stranger's extractor."""

    def _transform_block(self, x: NDArray[np.float32]) -> NDArray[np.float32]:
        return 2 * x


class Forgetful(Features):
    """It loses a record."""

    block_rows: ClassVar[int] = 4

    def _transform_block(self, x: NDArray[np.float32]) -> NDArray[np.float32]:
        return x[1:]


DOUBLED = f"{Doubled.__module__}:Doubled"


@pytest.mark.parametrize("name", BUILT_IN)
def test_saved_pickled_and_named_again_it_gives_the_same_bits(name: str, tmp_path: Path) -> None:
    features = fitted(name)
    x = pictures(9, seed=2)
    expected = features.transform(x)
    assert expected.dtype == np.float32
    assert len(expected) == 9
    features.save(tmp_path / "features.npz")
    for other in (Features.load(tmp_path / "features.npz"), pickle.loads(pickle.dumps(features))):
        assert other.transform(x).tobytes() == expected.tobytes()
        assert other.fitted_on == features.fitted_on
        assert (other.fitted_digests == features.fitted_digests).all()
        assert other.settings() == features.settings()
    again = features_named(features.title, json.loads(json.dumps(features.settings())))
    assert again.fit(PublicData(pictures(64, seed=1), "blobs")).transform(x).tobytes() == expected.tobytes()
    assert [each.name for each in tmp_path.iterdir()] == ["features.npz"]


@pytest.mark.parametrize("name", BUILT_IN)
def test_records_of_any_number_type_and_flat_ones_give_the_same_features(name: str) -> None:
    features = fitted(name)
    x = (pictures(5, seed=3) > 0.5).astype(np.uint8)
    expected = features.transform(x).reshape(5, -1)
    assert (features.transform(x.astype(np.float64)).reshape(5, -1) == expected).all()
    if name != "standardise":  # which has a number for each pixel, in the shape of the pictures
        assert (features.transform(x.reshape(5, -1)).reshape(5, -1) == expected).all()
    assert features.transform(x[:0]).shape == (0, *features.transform(x).shape[1:])


@pytest.mark.parametrize("name", ["standardise", "pca", "patches", "contrastive", "chain", "concat"])
def test_what_needs_fitting_says_so_and_remembers_what_it_saw(name: str) -> None:
    features = unfitted(name)
    assert features.fitted_on is None
    assert len(features.fitted_digests) == 0
    with pytest.raises(ParameterError, match="is not fitted"):
        features.transform(pictures(2, seed=0))
    public = PublicData(pictures(64, seed=1), "blobs")
    assert features.fit(public) is features
    assert features.fitted_on == "blobs"
    assert {row.tobytes() for row in features.fitted_digests} == {row.tobytes() for row in row_digests(public.x)}


@pytest.mark.parametrize("name", ["identity", "scale", "hog"])
def test_what_needs_no_fitting_is_left_alone_by_it(name: str) -> None:
    features = fitted(name)
    assert features.fitted_on is None
    assert len(features.fitted_digests) == 0
    assert (features.transform(pictures(3, seed=4)) == unfitted(name).transform(pictures(3, seed=4))).all()


def test_a_fit_that_fails_leaves_it_unfitted() -> None:
    features = fitted("pca")
    with pytest.raises(ParameterError, match="components must be at most 4"):
        features.fit(PublicData(pictures(5, seed=1)))
    with pytest.raises(ParameterError, match="not fitted"):
        features.transform(pictures(2, seed=0))


def test_a_chain_is_fitted_as_a_whole_and_a_concatenation_takes_fitted_parts() -> None:
    part = fitted("pca")
    with pytest.raises(ParameterError, match="chain is not fitted"):
        Chain(Identity(), part).transform(pictures(2, seed=0))
    both = Concat(part, PCA(5).fit(PublicData(pictures(30, seed=9), "others")))
    assert both.transform(pictures(2, seed=0)).shape == (2, 25)
    assert both.fitted_on == "blobs + others"
    assert len(both.fitted_digests) == 94


def test_pca_agrees_with_a_plain_singular_value_decomposition() -> None:
    x = pictures(64, seed=1).reshape(64, -1).astype(np.float64)
    left, lengths, right = np.linalg.svd(x - x.mean(axis=0), full_matrices=False)
    deviations = lengths[:20] / np.sqrt(63)
    for whiten in (0.0, 0.5, 1.0):
        features = PCA(20, whiten=whiten).fit(PublicData(x)).transform(x)
        expected = left[:, :20] * lengths[:20] / deviations**whiten
        expected *= np.sign(right[np.arange(20), np.abs(right[:20]).argmax(axis=1)])
        np.testing.assert_allclose(features, expected, atol=2e-5 * np.abs(expected).max())


def test_pca_of_fewer_records_than_features_and_its_refusals() -> None:
    x = pictures(64, seed=1)
    assert PCA(63).fit(PublicData(x)).transform(x).shape == (64, 63)
    flat = np.zeros((50, 6))
    flat[:, 0] = np.arange(50)
    with pytest.raises(ParameterError, match="only 1 directions of variance"):
        PCA(2).fit(PublicData(flat))
    with pytest.raises(ParameterError, match="fitted on records of 196 numbers, got 4"):
        fitted("pca").transform(np.zeros((1, 4)))


def test_standardise_fitted_and_declared() -> None:
    x = np.random.default_rng(0).normal(5, 3, (40, 4))
    x[:, 3] = 2.0
    features = Standardise().fit(PublicData(x)).transform(x)
    np.testing.assert_allclose(features.mean(axis=0), 0, atol=1e-5)
    np.testing.assert_allclose(features.std(axis=0), [1, 1, 1, 0], atol=1e-5)
    declared = Standardise(mean=np.arange(4), scale=2.0)
    assert not declared.needs_fit
    np.testing.assert_allclose(declared.transform(x), (x - np.arange(4)) / 2, atol=1e-6)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Scale(1, 1), "high must be above low"),
        (lambda: Scale([0, 0], np.nan), "must be a finite number"),
        (lambda: Standardise(mean=1), "got one of them"),
        (lambda: Standardise(0, [1, 0]), "scale must be above 0"),
        (lambda: PCA(0), "components must be a whole number"),
        (lambda: PCA(3, whiten=2), "whiten must lie in 0..1"),
        (lambda: Chain(), "at least one extractor"),
        (lambda: Concat(Identity(), weights=[1, 2]), "one weight for each of 1"),
        (lambda: Concat(Identity(), weights=[-1]), "greater than 0"),
        (lambda: Scale([0, 0], [1, 1]).transform(np.zeros((1, 3))), r"has shape \(2,\), the records have \(3,\)"),
        (lambda: Identity().transform([1.0]), r"numeric array \[record, ...\]"),
        (lambda: Identity().transform([["a"]]), r"numeric array \[record, ...\]"),
        (lambda: Identity().transform([[np.nan]]), "must be finite"),
        (lambda: Identity().transform([[1e300]]), "number too large"),
        (lambda: Forgetful().transform(np.zeros((2, 2))), "must return"),
        (lambda: features_named("chain", {"parts": "hog"}), "parts must be a list"),
        (lambda: features_named("concat", {"parts": [{"name": "hog"}], "wieghts": [1]}), "unknown parameter"),
        (lambda: features_named("pca", {"component": 3}), "did you mean 'components'"),
    ],
)
def test_wrong_settings_and_records_are_named(make: Any, message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        make()


def test_names() -> None:
    with pytest.raises(ReferenceNotFound, match="did you mean 'hog'"):
        features_named("hogg")
    made = features_named("chain", {"parts": [{"name": "scale", "settings": {"low": 0, "high": 2}}, {"name": DOUBLED}]})
    assert made.transform([[1.0]]).tolist() == [[1.0]]


def test_a_strangers_class_is_loaded_only_when_allowed(tmp_path: Path) -> None:
    Chain(Doubled(), PCA(2)).fit(PublicData(pictures(8, seed=0))).save(tmp_path / "f")
    with pytest.raises(ParameterError, match="whose import runs code"):
        Features.load(tmp_path / "f")
    assert Features.load(tmp_path / "f", allow=[DOUBLED]).transform(pictures(3, seed=0)).shape == (3, 2)


def test_files_that_are_something_else(tmp_path: Path) -> None:
    np.savez(tmp_path / "other.npz", x=np.zeros(3))
    with pytest.raises(ParameterError, match="holds no feature extractor"):
        Features.load(tmp_path / "other.npz")
    header = {"format": 1, "name": "identity", "settings": {}, "fitted_on": None}
    np.savez(tmp_path / "odd.npz", header=np.frombuffer(json.dumps(header).encode(), np.uint8), transform=np.zeros(3))
    with pytest.raises(ParameterError, match="trailing underscore"):
        Features.load(tmp_path / "odd.npz")
    np.savez(tmp_path / "new.npz", header=np.frombuffer(json.dumps({**header, "format": 9}).encode(), np.uint8))
    with pytest.raises(ParameterError, match="has format 9"):
        Features.load(tmp_path / "new.npz")
