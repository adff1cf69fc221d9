"""FixMatch: it learns from public records, assumes no class shares unless told, and resists wrong labels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from pate.errors import ParameterError, StudentError
from pate.release import Electorate, Release
from pate.student.base import Student
from pate.student.neural.fixmatch import (
    FixMatch,
    aligned,
    class_shares,
    sharpened,
)
from pate.student.neural.losses import generalised_cross_entropy
from pate.student.neural.supervised import Supervised

Array = NDArray[Any]
MOONS: dict[str, Any] = {
    "net": "mlp",
    "width": 32,
    "steps": 300,
    "batch": 32,
    "public_batch": 128,
    "augment": f"{__name__}:jittered",
}


def jittered(records: torch.Tensor, strength: float) -> torch.Tensor:
    return records + 0.3 * strength * torch.randn(records.shape)


def moons(counts: tuple[int, int], seed: int = 1) -> tuple[Array, Array]:
    """x: float64[record, 2], two half circles that hold each other; y: int64[record]."""
    rng = np.random.default_rng(seed)
    angle = rng.uniform(0, np.pi, sum(counts))
    y = np.repeat([0, 1], counts)
    x = np.where(
        y[:, None] == 0, np.stack([np.cos(angle), np.sin(angle)], 1), np.stack([1 - np.cos(angle), 0.5 - np.sin(angle)], 1)
    )
    return x + rng.normal(0, 0.08, x.shape), y


def asked(y: Array, each: int, seed: int = 1) -> Array:
    """Rows of ``each`` random records of every class."""
    rng = np.random.default_rng(seed)
    return np.concatenate([rng.choice(np.flatnonzero(y == label), each, replace=False) for label in np.unique(y)])


def release(labels: Array) -> Release:
    return Release(labels, Electorate(100, int(labels.max()) + 1), {"name": "test"}, "simulation")


def fitted(student: Student, x: Array, y: Array, rows: Array) -> Student:
    return student.fit(x, release(y[rows]), rows, show="none")


def digits() -> tuple[Array, Array]:
    """8 x 8 pictures between 0 and 1, and their classes."""
    found = pytest.importorskip("sklearn.datasets").load_digits()
    return found.images / 16, found.target


PICTURES: dict[str, Any] = {"width": 12, "steps": 200, "batch": 32, "public_batch": 64, "strength": 0.6}
TABLE: dict[str, Any] = {"net": "mlp", "width": 64, "augment": "table", "steps": 200, "public_batch": 128}


@pytest.mark.parametrize(("same", "margin"), [({**PICTURES, "seed": 1}, 0.01), (TABLE, 0.03)], ids=["pictures", "table"])
def test_beats_supervised_with_the_same_net_on_digits(same: dict[str, Any], margin: float) -> None:
    """By 7 points each; the arithmetic of another processor makes a point or two of difference."""
    x, y = digits()
    if same is TABLE:
        x = x.reshape(len(x), 64)
    rows = asked(y[:1200], 3)
    baseline, found = (
        fitted(kind(**same), x[:1200], y[:1200], rows).score(x[1200:], y[1200:]) for kind in (Supervised, FixMatch)
    )
    assert found >= baseline + margin


@pytest.fixture(scope="module")
def rare() -> tuple[Array, Array, Array, Student]:
    """x, y with 90% and 10% of the records in the classes, the rows asked, and a student that assumes no shares."""
    x, y = moons((540, 60))
    rows = asked(y, 5)
    return x, y, rows, fitted(FixMatch(**MOONS), x, y, rows)


def test_finds_a_rare_class_when_nothing_is_assumed_about_shares(rare: tuple[Array, Array, Array, Student]) -> None:
    x, y, _, student = rare
    assert student.settings()["alignment"] == "none"
    found = student.predict(x)
    assert (found[y == 1] == 1).mean() >= 0.75
    assert (found[y == 0] == 0).mean() >= 0.9


def test_alignment_moves_the_predicted_shares_towards_the_assumed_ones(rare: tuple[Array, Array, Array, Student]) -> None:
    x, y, rows, free = rare
    equal, known = (fitted(FixMatch(**MOONS, alignment=each), x, y, rows) for each in ("uniform", [0.9, 0.1]))
    share = [float((each.predict(x) == 1).mean()) for each in (known, free, equal)]
    # The truth is 0.1. "uniform" is a wrong assumption here, and its harm is what the default avoids.
    assert abs(share[0] - 0.1) < 0.09
    assert share[0] < share[1] < share[2] - 0.05


def test_aligned_scales_by_wanted_over_found() -> None:
    beliefs = torch.tensor([[0.6, 0.4], [0.9, 0.1]])
    out = aligned(beliefs, found=torch.tensor([0.75, 0.25]), wanted=torch.tensor([0.5, 0.5]))
    # By hand: (0.6 / 1.5, 0.4 * 2) = (0.4, 0.8) and (0.9 / 1.5, 0.1 * 2) = (0.6, 0.2), normalised.
    assert torch.allclose(out, torch.tensor([[1 / 3, 2 / 3], [0.75, 0.25]]))


def test_alignment_by_labels_is_the_smoothed_marginal_of_the_queries() -> None:
    counts = np.array([7, 0, 1])
    assert class_shares("none", counts) is None
    for alignment, expected in (
        ("uniform", [1 / 3] * 3),
        ("labels", [8 / 11, 1 / 11, 2 / 11]),
        ([0.2, 0.3, 0.5], [0.2, 0.3, 0.5]),
    ):
        shares = class_shares(alignment, counts)
        assert shares is not None
        assert torch.allclose(shares, torch.tensor(expected))


@pytest.mark.parametrize(
    ("alignment", "message"),
    [
        ("unifrom", "did you mean 'uniform'"),
        ([0.5, 0.6], "with the sum 1"),
        ([1.5, -0.5], "each above 0"),
        ([1.0], "each above 0"),
        ([float("nan"), 0.5], "each above 0"),
        ([0.5, "half"], "a list of class shares"),
        (0.5, "a list of class shares"),
    ],
)
def test_bad_alignments_are_refused(alignment: Any, message: str) -> None:
    with pytest.raises(StudentError, match=message):
        FixMatch(alignment=alignment)


def test_a_list_of_shares_must_fit_the_classes() -> None:
    x, y = moons((20, 20))
    with pytest.raises(StudentError, match="a share for each of 2 classes, got 3"):
        fitted(FixMatch(**MOONS, alignment=[0.2, 0.3, 0.5]), x, y, asked(y, 2))


@pytest.mark.parametrize(
    "wrong",
    [
        {"threshold": 1.5},
        {"threshold": float("nan")},
        {"robust": -0.1},
        {"weak": -1.0},
        {"weight": float("inf")},
        {"temperature": -1.0},
        {"guide": "other"},
        {"precision": "float16"},
        {"steps": 0},
    ],
)
def test_bad_parameters_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises((StudentError, ParameterError), match=next(iter(wrong))):
        FixMatch(**wrong)


def test_sharpened_goes_from_shares_to_the_best_class() -> None:
    beliefs = torch.tensor([[0.2, 0.8]])
    assert torch.allclose(sharpened(beliefs, 1.0), beliefs)
    assert torch.allclose(sharpened(beliefs, 0.5), torch.tensor([[1 / 17, 16 / 17]]))  # 0.04 and 0.64, normalised
    assert torch.equal(sharpened(beliefs, 0.0), torch.tensor([[0.0, 1.0]]))


def test_generalised_cross_entropy_goes_from_cross_entropy_to_absolute_error() -> None:
    scores = torch.tensor([[2.0, 0.0, -1.0], [0.0, 0.5, 3.0]])
    labels = torch.tensor([0, 1])
    p = scores.softmax(dim=1)[[0, 1], labels]
    assert torch.allclose(generalised_cross_entropy(scores, labels, 0.0).mean(), -p.log().mean())
    assert torch.allclose(generalised_cross_entropy(scores, labels, 1e-4).mean(), -p.log().mean(), rtol=1e-3)
    assert torch.allclose(generalised_cross_entropy(scores, labels, 0.7).mean(), ((1 - p**0.7) / 0.7).mean())
    assert torch.allclose(generalised_cross_entropy(scores, labels, 1.0).mean(), (1 - p).mean())


@pytest.mark.parametrize("other", [{"guide": "live"}, {"temperature": 0.5}, {"precision": "bfloat16"}], ids=str)
def test_every_option_learns_the_moons(other: dict[str, Any]) -> None:
    x, y = moons((300, 300))
    assert fitted(FixMatch(**{**MOONS, "steps": 150}, **other), x, y, asked(y, 8)).score(x, y) >= 0.93


def test_the_robust_loss_resists_wrong_labels() -> None:
    x, y = digits()
    x = x.reshape(len(x), 64)
    rows = asked(y[:1200], 10)
    labels = y[rows].copy()
    labels[::5] = (labels[::5] + 3) % 10  # 20 of 100
    students = [FixMatch(**TABLE, robust=q).fit(x[:1200], release(labels), rows, show="none") for q in (0.0, 0.7)]
    plain, robust = (each.score(x[1200:], y[1200:]) for each in students)
    assert robust >= plain + 0.03


def test_the_same_seed_gives_the_same_student_bit_by_bit() -> None:
    x, y = moons((60, 60))
    rows = asked(y, 3)
    short: dict[str, Any] = {**MOONS, "steps": 10}
    before = torch.get_rng_state()
    first, again, other = (fitted(FixMatch(**short, seed=seed), x, y, rows).predict_proba(x) for seed in (1, 1, 2))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
    assert torch.equal(torch.get_rng_state(), before)


def test_saved_and_loaded_it_predicts_the_same(tmp_path: Path) -> None:
    x, y = digits()
    student = fitted(
        FixMatch(width=4, steps=5, alignment=(0.1,) * 10, precision="bfloat16"), x[:200], y[:200], asked(y[:200], 2)
    )
    student.save(tmp_path / "student.zip")
    loaded = Student.load(tmp_path / "student.zip")
    assert isinstance(loaded, FixMatch)
    assert loaded.alignment == [0.1] * 10  # what was assumed is in the file
    assert np.array_equal(loaded.predict_proba(x[200:260]), student.predict_proba(x[200:260]))
    assert {"labelled", "consistency", "sure"} <= set(loaded.record["history"][-1])
