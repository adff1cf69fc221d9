"""The conformance check lets a right family pass and catches every broken one, by the check meant for it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray

from pate.arrays import IntArray
from pate.errors import ParameterError, PateError
from pate.teachers.family import Part, TeacherFamily
from pate.testing import FamilyCheckFailed, check_family

Means = NDArray[Any]
"""float64[class, feature]; infinite where the class is missing."""


class NearestMean(TeacherFamily[Means]):
    """Nothing wrong: votes for the class with the nearest mean, each mean moved a little by the seed."""

    suffix: ClassVar[str] = ".npy"

    def __init__(self, jitter: float = 0.01) -> None:
        self.jitter = jitter

    def fit(self, part: Part, n_classes: int) -> Means:
        x = part.x.reshape(len(part.x), -1).astype(np.float64)
        means = np.full((n_classes, x.shape[1]), np.inf)
        for label in np.unique(part.y):
            means[label] = x[part.y == label].mean(axis=0)
        noise: Means = means + self.jitter * np.random.default_rng(part.seed).normal(size=means.shape)
        return noise

    def predict(self, model: Means, x: NDArray[Any], n_classes: int) -> IntArray:
        votes: IntArray = ((x.reshape(len(x), 1, -1) - model) ** 2).sum(axis=-1).argmin(axis=1)
        return votes

    def save(self, model: Means, path: Path) -> None:
        np.save(path, model)

    def load(self, path: Path) -> Means:
        loaded: Means = np.load(path)
        return loaded


class PadsToTheLongest(NearestMean):
    """Pads with zeros, and takes the mean over the padding too."""

    def fit_batch(self, parts: Sequence[Part], n_classes: int) -> list[Means]:
        longest = max(len(part.y) for part in parts)
        return [self.fit(part, n_classes) * len(part.y) / longest for part in parts]


class CentresOnTheBatch(NearestMean):
    def fit_batch(self, parts: Sequence[Part], n_classes: int) -> list[Means]:
        centre = np.concatenate([part.x for part in parts]).mean()
        return [self.fit(Part(part.teacher, part.x - centre, part.y, part.seed), n_classes) for part in parts]


class LeaksARounding(NearestMean):
    """Adds something of the others and takes it away again: equal in mathematics, not in floating point."""

    def fit_batch(self, parts: Sequence[Part], n_classes: int) -> list[Means]:
        others = sum(float(np.abs(part.x).sum()) for part in parts)
        return [self.fit(part, n_classes) + others - others for part in parts]


class SeedFromThePlace(NearestMean):
    def fit_batch(self, parts: Sequence[Part], n_classes: int) -> list[Means]:
        return [self.fit(Part(part.teacher, part.x, part.y, seed), n_classes) for seed, part in enumerate(parts)]


class DropsSmallParts(NearestMean):
    def fit_batch(self, parts: Sequence[Part], n_classes: int) -> list[Means]:
        return [self.fit(part, n_classes) for part in parts if len(part.y) > 20]


class IgnoresTheSeed(NearestMean):
    def fit(self, part: Part, n_classes: int) -> Means:
        seed = int(np.random.default_rng().integers(2**31))
        return super().fit(Part(part.teacher, part.x, part.y, seed), n_classes)


class FeelsTheAddress(NearestMean):
    """As a kernel that peels records up to an aligned one, and adds those in another order."""

    def fit(self, part: Part, n_classes: int) -> Means:
        peeled = part.x.ctypes.data % 64 // 4
        return super().fit(part, n_classes) + peeled * 1e-15


class ScalesInPlace(NearestMean):
    def fit(self, part: Part, n_classes: int) -> Means:
        if part.x.flags.writeable:
            part.x[:] = part.x / np.abs(part.x).max()
        return super().fit(part, n_classes)


class SortsLabels(NearestMean):
    def fit(self, part: Part, n_classes: int) -> Means:
        if part.y.flags.writeable:
            part.y.sort()
        return super().fit(part, n_classes)


class ScalesQueries(NearestMean):
    def predict(self, model: Means, x: NDArray[Any], n_classes: int) -> IntArray:
        if x.flags.writeable:
            x *= 0.5
        return super().predict(model, x, n_classes)


class NeedsTwoClasses(NearestMean):
    def fit(self, part: Part, n_classes: int) -> Means:
        if len(np.unique(part.y)) < 2:
            raise ValueError("needs samples of at least 2 classes")
        return super().fit(part, n_classes)


class NumbersTheClassesItSaw(NearestMean):
    """Votes -1 where it does not know."""

    def predict(self, model: Means, x: NDArray[Any], n_classes: int) -> IntArray:
        return super().predict(model, x, n_classes) - 1


class VotesTwice(NearestMean):
    def predict(self, model: Means, x: NDArray[Any], n_classes: int) -> IntArray:
        return np.repeat(super().predict(model, x, n_classes), 2)


class RemembersTheLast(NearestMean):
    """Keeps the fitted model in self, as an estimator does, but a family has many."""

    def fit(self, part: Part, n_classes: int) -> Means:
        self._last = super().fit(part, n_classes)
        return self._last

    def predict(self, model: Means, x: NDArray[Any], n_classes: int) -> IntArray:
        return super().predict(self._last, x, n_classes)

    def settings(self) -> dict[str, Any]:
        return {"jitter": self.jitter}


class AsksTheMajority(NearestMean):
    """The votes of a batch are the batch's plurality."""

    def predict_batch(self, models: Sequence[Means], x: NDArray[Any], n_classes: int) -> IntArray:
        votes = super().predict_batch(models, x, n_classes)
        return np.broadcast_to(np.sort(votes, axis=0)[len(models) // 2], votes.shape)


class TransposesTheBatch(NearestMean):
    def predict_batch(self, models: Sequence[Means], x: NDArray[Any], n_classes: int) -> IntArray:
        return super().predict_batch(models, x, n_classes).T


class SavesRounded(NearestMean):
    def save(self, model: Means, path: Path) -> None:
        np.save(path, np.round(model))


class SavesElsewhere(NearestMean):
    """numpy appends its own suffix."""

    suffix: ClassVar[str] = ".model"


class ForgetsASetting(NearestMean):
    def settings(self) -> dict[str, Any]:
        return {}


class SettingsAreNoJson(NearestMean):
    def __init__(self, jitter: Any = None) -> None:
        super().__init__(np.float32(0.01) if jitter is None else jitter)


class PicklesWithoutSettings(NearestMean):
    def __reduce__(self) -> tuple[type[NearestMean], tuple[float]]:
        return NearestMean, (1.0,)


def test_a_right_family_passes() -> None:
    report = check_family(NearestMean())
    assert report.passed
    assert len(report.checks) == 10
    assert check_family(NearestMean(0.5), n_classes=2, shape=(2, 2, 3), seed=4).passed


@pytest.mark.parametrize(
    ("family", "meant"),
    [
        (PadsToTheLongest(), {"independence: other teachers", "contract: label skew"}),
        (CentresOnTheBatch(), {"independence: other teachers", "contract: label skew"}),
        (LeaksARounding(), {"independence: other teachers", "contract: label skew"}),
        (SeedFromThePlace(), {"independence: other teachers", "contract: label skew"}),
        (DropsSmallParts(), {"independence: other teachers", "independence: predict_batch"}),
        (IgnoresTheSeed(), {"independence: equal seeds", "independence: other teachers"}),
        (FeelsTheAddress(), {"independence: address"}),
        (ScalesInPlace(), {"contract: inputs untouched"}),
        (SortsLabels(), {"contract: inputs untouched"}),
        (ScalesQueries(), {"contract: inputs untouched"}),
        (NeedsTwoClasses(), {"contract: label skew", "contract: save and load"}),
        (NumbersTheClassesItSaw(), {"contract: votes"}),
        (VotesTwice(), {"contract: votes"}),
        (RemembersTheLast(), {"contract: inputs untouched"}),
        (AsksTheMajority(), {"independence: predict_batch", "independence: other teachers"}),
        (TransposesTheBatch(), {"independence: predict_batch", "independence: other teachers"}),
        (SavesRounded(), {"contract: save and load"}),
        (SavesElsewhere(), {"contract: save and load"}),
        (ForgetsASetting(0.5), {"contract: description"}),
        (SettingsAreNoJson(), {"contract: description"}),
        (PicklesWithoutSettings(), {"contract: pickle"}),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, TeacherFamily) else "",
)
def test_a_broken_family_is_caught(family: TeacherFamily[Any], meant: set[str]) -> None:
    report = check_family(family, raise_on_failure=False)
    failed = {check.name for check in report.failures}
    assert meant <= failed, str(report)
    if not isinstance(
        family, IgnoresTheSeed | NumbersTheClassesItSaw | VotesTwice | RemembersTheLast | DropsSmallParts | FeelsTheAddress
    ):
        assert failed == meant, str(report)  # what is right in it must not be blamed


def test_a_rounding_is_seen_where_the_votes_agree() -> None:
    failures = {check.name: check.detail for check in check_family(LeaksARounding(), raise_on_failure=False).failures}
    assert "the models' numbers differ" in failures["contract: label skew"]
    assert "the model of teacher 0 changed" in failures["independence: other teachers"]


def test_a_class_that_no_other_process_finds_is_told() -> None:
    class Inside(NearestMean):
        pass

    failed = {check.name: check.detail for check in check_family(Inside(), raise_on_failure=False).failures}
    assert set(failed) == {"contract: description", "contract: pickle"}
    assert "top level of a module" in failed["contract: description"]


def test_the_report() -> None:
    with pytest.raises(
        FamilyCheckFailed, match=r"(?s)SavesRounded\(jitter=0.01\) fails 1 of 10 checks:.*✗ contract: save and load"
    ) as e:
        check_family(SavesRounded())
    assert isinstance(e.value, PateError)
    assert isinstance(e.value, AssertionError)
    report = check_family(SavesRounded(), raise_on_failure=False)
    assert str(report).count("✗") == 1
    assert str(report).count("✓") == 9
    written = json.loads(json.dumps(report.to_json()))
    assert not written["passed"]
    assert len(written["checks"]) == 10


def test_what_is_no_family_is_refused() -> None:
    with pytest.raises(ParameterError, match="needs a TeacherFamily"):
        check_family(object())  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="n_classes"):
        check_family(NearestMean(), n_classes=1)
