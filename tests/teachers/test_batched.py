"""Batched teachers: the plain loop's results, each teacher's bits its own, and skewed or broken parts."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fast_path_cases import CASES, FastPath, check_fast_path, made_up_parts
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.linear_model import Ridge

from pate.errors import ParameterError, TeacherError
from pate.execution.threads import one_thread
from pate.teachers.batched import LogisticTeachers, MLPTeachers, RidgeTeachers
from pate.teachers.batched.aligned import aligned, zeros
from pate.teachers.batched.descent import Descent, Fading
from pate.teachers.batched.models import ArrayModel, ArrayTeachers
from pate.teachers.batched.softmax import Softmax
from pate.teachers.family import Part
from pate.testing import check_family

FAMILIES: list[ArrayTeachers] = [LogisticTeachers(epochs=3), MLPTeachers(hidden=9, epochs=3), RidgeTeachers()]
each_family = pytest.mark.parametrize("family", FAMILIES, ids=lambda family: type(family).__name__)


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    with one_thread():
        yield


def same_bits(one: ArrayModel, other: ArrayModel) -> bool:
    return one.keys() == other.keys() and all(one[name].tobytes() == other[name].tobytes() for name in one)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_fast_paths_end_where_the_plain_loop_ends(case: FastPath) -> None:
    check_fast_path(case)


def test_the_harness_sees_a_wrong_learning_rate() -> None:
    case = CASES[0]
    with pytest.raises(AssertionError, match="is off by"):
        check_fast_path(replace(case, family=LogisticTeachers(learning_rate=5.01)))


@each_family
def test_families_keep_the_contract(family: ArrayTeachers) -> None:
    check_family(family)
    check_family(family, n_classes=3, shape=(5, 8))


part_sizes = st.lists(st.integers(1, 70), min_size=2, max_size=6)


@given(
    sizes=part_sizes,
    n_features=st.integers(1, 60),
    n_classes=st.integers(2, 11),
    batch=st.integers(1, 40),
    order=st.randoms(use_true_random=False),
    loud=st.booleans(),
)
@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
def test_no_bit_depends_on_who_shares_the_batch(
    sizes: list[int], n_features: int, n_classes: int, batch: int, order: Any, loud: bool
) -> None:
    parts = made_up_parts(sizes, (n_features,), n_classes, seed=len(sizes))
    mixed = list(parts)
    order.shuffle(mixed)
    if loud:  # the others' numbers are a thousand times larger
        mixed = [each if each is parts[0] else replace(each, x=1000 * each.x) for each in mixed]
    families = [
        LogisticTeachers(epochs=2, batch=batch),
        MLPTeachers(hidden=7, epochs=2, batch=batch),
        RidgeTeachers(),
    ]
    place = next(place for place, each in enumerate(mixed) if each.teacher == 0)
    queries = made_up_parts([37], (n_features,), n_classes)[0].x
    for family in families:
        alone = family.fit(parts[0], n_classes)
        together = family.fit_batch(mixed, n_classes)
        assert same_bits(alone, together[place])
        votes = family.predict_batch(together, queries, n_classes)
        assert votes.dtype == np.int64
        assert np.array_equal(votes[place], family.predict(alone, queries, n_classes))


@each_family
def test_no_bit_depends_on_who_shares_the_batch_at_full_size(family: ArrayTeachers) -> None:
    """Where libraries take other ways through a product than for small ones; both kinds of first layer."""
    parts = made_up_parts((240, 233, 1, 900, 251, 16), (784,), 10)
    queries = made_up_parts([700], (784,), 10)[0].x
    together = family.fit_batch(parts, 10)
    votes = family.predict_batch(together, queries, 10)
    for part, model, vote in zip(parts, together, votes, strict=True):
        assert same_bits(family.fit(part, 10), model)
        assert np.array_equal(family.predict(model, queries, 10), vote)


@each_family
def test_no_bit_depends_on_where_records_lie_in_memory(family: ArrayTeachers) -> None:
    part = made_up_parts([45], (51,), 4)[0]
    expected = family.fit(part, 4)
    queries = made_up_parts([40], (51,), 4)[0].x
    votes = family.predict(expected, queries, 4)
    for skip in range(1, 18):
        raw = np.zeros(part.x.size + skip, dtype=np.float32)
        moved = raw[skip:].reshape(part.x.shape)
        moved[...] = part.x
        assert same_bits(family.fit(replace(part, x=moved), 4), expected)
    for same in (np.asfortranarray(part.x), part.x.astype(np.float64), np.repeat(part.x, 2, axis=0)[::2]):
        assert same_bits(family.fit(replace(part, x=same), 4), expected)
    assert np.array_equal(family.predict(expected, np.asfortranarray(queries), 4), votes)


def test_softmax_rows_do_not_depend_on_their_place() -> None:
    rng = np.random.default_rng(0)
    for n_classes in (2, 3, 10, 33):
        rows = 16 * 7
        scores = aligned(rng.normal(scale=20, size=(rows, n_classes)))
        targets = aligned(np.eye(n_classes)[rng.integers(0, n_classes, rows)])
        weights = aligned(rng.random(rows))
        together = scores.copy()
        Softmax(rows, n_classes).residual(together, targets, weights, 0.7)
        for start in range(0, rows, 16):
            alone = scores[start : start + 16].copy()
            Softmax(16, n_classes).residual(alone, targets[start : start + 16], weights[start : start + 16], 0.7)
            assert alone.tobytes() == together[start : start + 16].tobytes()
        shares = np.exp(0.7 * scores.astype(np.float64))
        expected = weights[:, None] * (shares / shares.sum(axis=1, keepdims=True) - targets)
        np.testing.assert_allclose(together, expected, atol=2e-6)


@pytest.mark.parametrize(("momentum", "decay"), [(0.9, 1e-4), (0.9, 0.00263 / 2), (0.5, 0.04), (0.0, 0.3), (0.9, 0.0)])
def test_decay_costs_no_pass_and_changes_nothing(momentum: float, decay: float) -> None:
    """Against v <- m v + g + d w; w <- w - r v, over enough steps for the scale to be renewed."""
    rng = np.random.default_rng(1)
    fading = Fading(Descent(1, 2.0, momentum, 1, decay))
    weights = velocity = stored = stored_velocity = np.zeros(3)
    for _ in range(400):
        gradient = rng.normal(size=3)
        velocity = momentum * velocity + gradient + decay * weights
        weights = weights - 2.0 * velocity
        stored_velocity = fading.momentum * stored_velocity + fading.rate * gradient
        stored = stored - stored_velocity
        factor = fading.step()
        stored, stored_velocity = stored * factor, stored_velocity * factor
        np.testing.assert_allclose(stored * fading.scales[-1], weights, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize(("n_records", "n_features"), [(30, 50), (50, 30), (40, 40)])
def test_ridge_is_scikit_learns(n_records: int, n_features: int) -> None:
    part = made_up_parts([n_records], (n_features,), 4)[0]
    model = RidgeTeachers(penalty=0.3).fit(part, 4)
    centred = part.x.astype(np.float64) - part.x.mean(axis=0, dtype=np.float64)
    alpha = 0.3 * (centred**2).sum() / n_records
    expected = Ridge(alpha=alpha, solver="cholesky").fit(part.x.astype(np.float64), np.eye(4)[part.y])
    np.testing.assert_allclose(model["weights"], expected.coef_, atol=1e-6)
    np.testing.assert_allclose(model["bias"], expected.intercept_, atol=1e-6)


@each_family
def test_a_class_that_was_never_seen_gets_no_vote(family: ArrayTeachers) -> None:
    part = made_up_parts([40], (30,), 5)[0]
    queries = 1000 * np.random.default_rng(0).normal(size=(500, 30))
    assert set(family.predict(family.fit(part, 5), queries, 5)) == {0, 1, 2, 3, 4}
    lacking = replace(part, y=np.where(part.y == 2, 3, part.y))
    votes = family.predict(family.fit(lacking, 5), queries, 5)
    assert set(votes) == {0, 1, 3, 4}
    only = Part(7, part.x[:1], np.array([4]), seed=1)
    assert set(family.predict(family.fit(only, 5), queries, 5)) == {4}


@each_family
def test_equal_records_train(family: ArrayTeachers) -> None:
    part = Part(0, np.zeros((6, 4), dtype=np.uint8), np.array([1, 1, 1, 1, 2, 0]), seed=3)
    assert set(family.predict(family.fit(part, 3), np.zeros((2, 4)), 3)) == {1}


@each_family
def test_pictures_of_bytes_are_read_as_numbers(family: ArrayTeachers) -> None:
    rng = np.random.default_rng(0)
    y = np.arange(30) % 3
    pictures = rng.integers(0, 256, size=(30, 4, 5), dtype=np.uint8)
    as_bytes, as_floats = (Part(0, x, y, seed=5) for x in (pictures, pictures.reshape(30, 20).astype(np.float64)))
    model = family.fit(as_bytes, 3)
    assert same_bits(model, family.fit(as_floats, 3))
    assert np.array_equal(family.predict(model, pictures, 3), family.predict(model, as_floats.x, 3))


@each_family
def test_a_teacher_that_diverges_fails_alone(family: ArrayTeachers) -> None:
    parts = made_up_parts([20, 25, 30], (12,), 3)
    parts[1].x[3, 4] = np.nan
    with pytest.raises(TeacherError, match=r"Teacher 1: .*very large values"):
        family.fit_batch(parts, 3)
    with pytest.raises(TeacherError, match="Teacher 1: "):
        family.fit(parts[1], 3)
    expected = family.fit_batch([parts[0], parts[2]], 3)
    assert same_bits(family.fit(parts[0], 3), expected[0])
    huge = parts[1].x.astype(np.float64)
    huge[3, 4] = 1e300  # infinite in 32 bits
    with pytest.raises(TeacherError, match="Teacher 1: "):
        family.fit(replace(parts[1], x=huge), 3)


@each_family
def test_parts_and_queries_that_do_not_fit_are_refused(family: ArrayTeachers) -> None:
    part = made_up_parts([9], (4,), 3)[0]
    for wrong, message in (
        (replace(part, x=part.x[:0], y=part.y[:0]), "at least one record"),
        (replace(part, y=part.y[:5]), "one label for each"),
        (replace(part, y=part.y + 1), "labels must lie in 0..2"),
        (replace(part, x=part.x.astype(str)), "numeric array"),
        (replace(part, x=part.x[:, 0]), "numeric array"),
    ):
        with pytest.raises(TeacherError, match=message):
            family.fit(wrong, 3)
    with pytest.raises(TeacherError, match=r"must have the 4 features .* got 3"):
        family.predict(family.fit(part, 3), part.x[:, :3], 3)


@each_family
def test_models_survive_a_file(family: ArrayTeachers, tmp_path: Path) -> None:
    for n_features in (6, 11):  # fewer and more than records
        model = family.fit(made_up_parts([8], (n_features,), 3)[0], 4)
        path = tmp_path / f"one{family.suffix}"
        family.save(model, path)
        assert same_bits(family.load(path), model)
        assert all(array.dtype == np.float32 for array in model.values())


@pytest.mark.parametrize(
    ("family", "wrong"),
    [
        (LogisticTeachers, {"epochs": 0}),
        (LogisticTeachers, {"batch": 0}),
        (LogisticTeachers, {"learning_rate": 0.0}),
        (LogisticTeachers, {"momentum": 1.0}),
        (LogisticTeachers, {"weight_decay": -1e-9}),
        (LogisticTeachers, {"weight_decay": 0.01}),
        (MLPTeachers, {"hidden": 0}),
        (RidgeTeachers, {"penalty": 0.0}),
    ],
)
def test_parameters_are_checked(family: Any, wrong: dict[str, Any]) -> None:
    (name,) = wrong
    with pytest.raises(ParameterError, match=name):
        family(**wrong)


def test_buffers_begin_at_a_vector() -> None:
    for count in range(1, 40):
        assert zeros(count, 3).ctypes.data % 64 == 0
        assert aligned(np.arange(count)).ctypes.data % 64 == 0


def test_importing_them_does_not_import_torch() -> None:
    code = "import sys, pate.teachers.batched; sys.exit(bool({'torch', 'sklearn', 'safetensors'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def _mnist(name: str, header: int) -> NDArray[np.uint8]:
    path = Path(os.environ.get("PATE_DATA", "")) / "MNIST" / "raw" / name
    if "PATE_DATA" not in os.environ or not path.exists():
        pytest.skip("needs MNIST: set PATE_DATA to a folder in torchvision's layout")
    return np.fromfile(path, dtype=np.uint8)[header:]


@pytest.mark.parametrize(
    ("family", "each", "plurality"),
    [(LogisticTeachers(), 0.77, 0.84), (MLPTeachers(), 0.77, 0.85), (RidgeTeachers(), 0.69, 0.82)],
)
def test_defaults_do_well_on_digits(family: ArrayTeachers, each: float, plurality: float) -> None:
    """40 teachers of 240 training pictures; scored on 3,000 others. Nothing here is random: same data, same seeds."""
    pictures = _mnist("train-images-idx3-ubyte", 16).reshape(60_000, 784)
    labels = _mnist("train-labels-idx1-ubyte", 8).astype(np.int64)
    x = pictures[: 40 * 240].reshape(40, 240, 784) / np.float32(255)
    y = labels[: 40 * 240].reshape(40, 240)
    models = family.fit_batch([Part(teacher, x[teacher], y[teacher], seed=teacher) for teacher in range(40)], 10)
    votes = family.predict_batch(models, pictures[50_000:53_000] / np.float32(255), 10)
    right = labels[50_000:53_000]
    assert (votes == right).mean() > each
    counts = (votes[:, :, None] == np.arange(10)).sum(axis=0)
    assert (counts.argmax(axis=1) == right).mean() > plurality
