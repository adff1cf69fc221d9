"""Torch teachers: any module, label skew, repeatability, the CNN against a plain loop, vmap against the loop."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fast_path_cases import FastPath, Plain, check_fast_path
from numpy.typing import NDArray

from pate.errors import ParameterError, ReferenceNotFound, TeacherError
from pate.execution.threads import one_thread
from pate.experiments.bench.plain_cnn import predict_plain_cnn, train_plain_cnn
from pate.teachers.family import Part
from pate.teachers.independence import check_bit_independence, model_digest
from pate.teachers.neural import CNNTeachers, TorchTeachers
from pate.teachers.neural.augment import affine, shift
from pate.teachers.neural.nets import small_cnn
from pate.teachers.neural.parts import cross_entropy, make_optimiser, one_cycle
from pate.teachers.neural.training import Batches, as_inputs, own_randomness, train
from pate.teachers.registry import describe, from_description

torch = pytest.importorskip("torch")
CPU = torch.device("cpu")
CENTRES = np.random.default_rng(5).normal(size=(3, 6))


def table(teacher: int, labels: list[int] | NDArray[Any], scale: float = 1.0) -> Part:
    """Records of 6 numbers around the centres of 3 classes."""
    y = np.asarray(labels, dtype=np.int64)
    x = scale * (CENTRES[y] + 0.3 * np.random.default_rng(teacher).normal(size=(len(y), 6)))
    x.flags.writeable = False
    return Part(teacher, x, y, seed=100 + teacher)


def pictures(teacher: int, n: int, size: int = 12, channels: int | None = None) -> Part:
    """Pictures whose class says in which third their bright stripe lies, uint8."""
    rng = np.random.default_rng(teacher)
    y = np.arange(n) % 3
    shape = (n, size, size) if channels is None else (n, channels, size, size)
    x = rng.integers(0, 60, shape, dtype=np.uint8)
    for row, label in enumerate(y):
        start = label * size // 3
        x[row, ..., start : start + size // 3] += 150
    return Part(teacher, x, y.astype(np.int64), seed=100 + teacher)


def linear(**changes: Any) -> TorchTeachers:
    return TorchTeachers("neural_modules:linear", **{"epochs": 15, "batch": 8, **changes})


def right(family: TorchTeachers, part: Part, test: Part) -> float:
    return float((family.predict(family.fit(part, 3), test.x, 3) == test.y).mean())


TEST = table(99, np.arange(90) % 3)


@pytest.mark.parametrize(
    "family",
    [
        linear(),
        linear(parameters={"bias": False}, optimiser="adam", optimiser_settings={"lr": 0.05}, schedule="cosine"),
        linear(loss="neural_modules:squared", schedule="neural_modules:halving", augment="neural_modules:jitter"),
        linear(loss="torch.nn:MultiMarginLoss", schedule="one_cycle"),
        linear(optimiser="neural_modules:PlainDescent", optimiser_settings={"step_size": 0.1}),
        linear(optimiser="adamw", optimiser_settings={"lr": 0.05}, strategy="vmap", stack=3),
        TorchTeachers("neural_modules:with_batch_norm", {"width": 5}, epochs=15, batch=8),
        TorchTeachers("neural_modules:with_dropout", epochs=30, batch=8),
        TorchTeachers("neural_modules:LongTailed", epochs=15, batch=8),
    ],
    ids=lambda family: f"{family.module}-{family.loss}-{family.optimiser}-{family.strategy}",
)
class TestAnyModule:
    def test_it_learns(self, family: TorchTeachers) -> None:
        assert right(family, table(0, np.arange(41) % 3), TEST) > 0.9  # guessing gives a third

    @pytest.mark.parametrize("labels", [[2], [2, 0], [1] * 9, [0, 1] * 8 + [0]], ids=["one", "two", "one class", "no class 2"])
    def test_a_skewed_part_trains_and_votes(self, family: TorchTeachers, labels: list[int]) -> None:
        part = table(1, labels)
        votes = family.predict(family.fit(part, 3), TEST.x, 3)
        assert votes.shape == (90,)
        assert set(votes) <= {0, 1, 2}
        if len(set(labels)) == 1 and "batch_norm" not in family.module and family.loss == "cross_entropy":
            assert (family.predict(family.fit(part, 3), part.x, 3) == labels[0]).all()

    def test_the_same_bits_again_and_the_global_state_untouched(self, family: TorchTeachers) -> None:
        part = table(2, np.arange(17) % 3)
        first = model_digest(family.fit(part, 3))
        torch.manual_seed(7)
        before = torch.get_rng_state()
        assert model_digest(pickle.loads(pickle.dumps(family)).fit(part, 3)) == first
        assert torch.equal(torch.get_rng_state(), before)
        assert model_digest(family.fit(replace(part, seed=1), 3)) != first

    def test_a_file_and_a_description(self, family: TorchTeachers, tmp_path: Path) -> None:
        model = family.fit(table(3, np.arange(17) % 3), 3)
        path = tmp_path / f"teacher{family.suffix}"
        family.save(model, path)
        twin = from_description(describe(family))
        assert model_digest(twin.load(path)) == model_digest(model)
        assert (twin.predict(twin.load(path), TEST.x, 3) == family.predict(model, TEST.x, 3)).all()


def test_a_fresh_process_gives_the_same_bits() -> None:
    code = (
        "from test_neural import pictures, CNNTeachers, model_digest\n"
        "print(model_digest(CNNTeachers(4, epochs=3).fit(pictures(0, 40), 3)))"
    )
    path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path})
    assert run.returncode == 0, run.stderr
    assert run.stdout.strip() == model_digest(CNNTeachers(4, epochs=3).fit(pictures(0, 40), 3))


@pytest.mark.parametrize("n", [1, 2, 3, 8, 9, 17, 33])
@pytest.mark.parametrize("batch", [1, 2, 8])
def test_every_record_is_seen_once_an_epoch_and_no_mini_batch_is_single(n: int, batch: int) -> None:
    x = torch.arange(n)[:, None].float()
    seen = [rows for rows, _ in Batches(x, torch.zeros(n, dtype=torch.int64), 1, epochs=2, batch=batch, augment=None)]
    assert len(seen) == 2 * -(-n // batch)
    assert all(2 <= len(rows) <= max(2, batch) for rows in seen)
    for epoch in (seen[: len(seen) // 2], seen[len(seen) // 2 :]):
        assert sorted({int(row) for rows in epoch for row in rows}) == list(range(n))


def test_values_are_not_scaled_and_images_get_a_channel() -> None:
    x = np.arange(2 * 9, dtype=np.uint8).reshape(2, 9)
    assert as_inputs(x, None, CPU).tolist() == x.tolist()
    assert as_inputs(x.reshape(2, 3, 3), None, CPU).shape == as_inputs(x, [1, 3, 3], CPU).shape == (2, 1, 3, 3)
    with pytest.raises(ParameterError, match=r"reshape=\[2, 3\] does not suit records of shape \(9,\)"):
        as_inputs(x, [2, 3], CPU)


@pytest.mark.parametrize("strategy", ["loop", "vmap"])
def test_a_teacher_that_diverges_has_failed(strategy: str) -> None:
    with pytest.raises(TeacherError, match=r"Teacher 4: .*NaN or infinite.*learning rate"):
        linear(loss="neural_modules:squared", optimiser_settings={"lr": 1e9}, strategy=strategy, stack=2).fit(
            table(4, [0, 1, 2]), 3
        )


def test_wrong_settings_are_refused_with_a_way_out() -> None:
    part = table(0, [0, 1, 2])
    for make, error, message in [
        (lambda: linear(strategy="batched"), ParameterError, "strategy must be one of loop, vmap, auto"),
        (lambda: linear(device="gpu"), ParameterError, "device must be"),
        (lambda: linear(channels_last="yes"), ParameterError, "channels_last must be"),
        (lambda: linear(epochs=0), ParameterError, "epochs must be a whole number"),
        (lambda: linear(optimiser_settings={"lr": CPU}), ParameterError, "JSON"),
        (lambda: linear(optimiser="sdg").fit(part, 3), ReferenceNotFound, "did you mean 'sgd'"),
        (lambda: linear(loss="crossentropy").fit(part, 3), ReferenceNotFound, "did you mean 'cross_entropy'"),
        (lambda: linear(optimiser_settings={"rate": 1}).fit(part, 3), ParameterError, "optimiser_settings do not suit"),
        (lambda: linear(parameters={"bais": False}).fit(part, 3), ParameterError, "'bais'.*It takes n_classes"),
        (lambda: linear(augment="affine").fit(part, 3), ParameterError, "needs images"),
        (lambda: TorchTeachers("neural_modules:no_module").fit(part, 3), ParameterError, "must give a torch.nn.Module"),
        (lambda: TorchTeachers("neural_modules:absent").fit(part, 3), ReferenceNotFound, "absent"),
        (
            lambda: TorchTeachers("neural_modules:LongTailed").predict(
                TorchTeachers("neural_modules:LongTailed").fit(part, 3), part.x, 4
            ),
            TeacherError,
            "scores .record, 4 classes.",
        ),
        (lambda: linear().predict(linear().fit(part, 3), part.x[:, :4], 3), TeacherError, "does not fit the module"),
        (lambda: CNNTeachers().fit(part, 3), ParameterError, r"at least 4x4 pixels.*\(6,\).*reshape="),
        (lambda: CNNTeachers().fit(pictures(0, 3, size=3), 3), ParameterError, r"at least 4x4 pixels"),
    ]:
        with pytest.raises(error, match=message):
            make()


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_a_gpu_that_is_not_there() -> None:
    with pytest.raises(TeacherError, match="finds none here"):
        linear(device="cuda").fit(table(0, [0, 1]), 3)
    automatic = linear(device="auto", strategy="auto")
    assert automatic.batch_size == 1
    assert model_digest(automatic.fit(table(0, [0, 1]), 3)) == model_digest(linear().fit(table(0, [0, 1]), 3))


class TestCNN:
    @pytest.mark.parametrize(("size", "channels"), [(8, None), (13, 3), (28, 1)])
    @pytest.mark.parametrize("strategy", ["loop", "vmap"])
    def test_it_learns_from_pictures_of_any_size(self, size: int, channels: int | None, strategy: str) -> None:
        family = CNNTeachers(4, epochs=10, strategy=strategy, stack=2, augment=None if size == 8 else "shift")
        part, test = pictures(0, 48, size, channels), pictures(1, 30, size, channels)
        assert right(family, part, test) > 0.9

    def test_flat_images_with_reshape_are_the_same_images(self) -> None:
        part = pictures(0, 30)
        flat = replace(part, x=part.x.reshape(30, -1))
        one, two = CNNTeachers(4, epochs=2), CNNTeachers(4, epochs=2, reshape=[1, 12, 12])
        assert model_digest(one.fit(part, 3)) == model_digest(two.fit(flat, 3))

    def test_how_queries_are_cut_does_not_show(self, monkeypatch: pytest.MonkeyPatch) -> None:
        part, queries = pictures(0, 30), pictures(1, 90).x
        family = CNNTeachers(4, epochs=3)
        model = family.fit(part, 3)
        whole = family.predict(model, queries, 3)
        monkeypatch.setattr("pate.teachers.neural.family.PREDICT_ROWS", 40)
        assert (family.predict(model, queries, 3) == whole).all()
        assert family.predict(model, queries[:0], 3).shape == (0,)


class TestAugmentation:
    def test_a_shift_moves_pictures_and_nothing_else(self) -> None:
        x = torch.zeros(200, 2, 20, 20)
        x[:, :, 9:11, 9:11] = torch.arange(1.0, 201)[:, None, None, None]
        moved = shift(x, torch.Generator().manual_seed(0))
        assert torch.equal(moved.sum(dim=(1, 2, 3)), x.sum(dim=(1, 2, 3)))
        assert torch.equal(moved[:, 0], moved[:, 1])
        rows = moved[:, 0].sum(dim=2).argmax(dim=1)
        assert set(rows.tolist()) == {7, 8, 9, 10, 11}

    def test_an_affine_change_is_small_and_differs_for_each_picture(self) -> None:
        x = torch.zeros(100, 1, 28, 28)
        x[:, :, 8:20, 8:20] = 1.0
        moved = affine(x, torch.Generator().manual_seed(0))
        assert len({model_digest(each) for each in moved}) == 100
        weights = moved[:, 0] / moved.sum(dim=(1, 2, 3))[:, None, None]
        for axis in (1, 2):
            centre = (weights.sum(dim=axis) * torch.arange(28)).sum(dim=1)
            assert (centre - 13.5).abs().max() < 4.5  # a tenth of 28, and scale and shear on top
            assert (centre - 13.5).abs().max() > 1
        assert (moved.sum(dim=(1, 2, 3)) / 144).clamp(0.6, 1.6).ne(0.6).all()


def plain_cnn(part: Part, width: int, epochs: int) -> tuple[Any, list[float]]:
    """The module and its losses after the plain loop, from the first weights and with the shuffles of a CNN teacher."""
    with own_randomness(part.seed, CPU):
        module = small_cnn(3, (1, 28, 28), width=width)
        x, y = as_inputs(part.x, None, CPU), torch.tensor(part.y)
        return module, train_plain_cnn(module, x, y, epochs=epochs, augment=False, seed=part.seed)


def arrays(model: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    return {name: value.numpy() for name, value in model.items()}


class TestAgainstThePlainLoop:
    """One core, the same first weights, the same shuffles, no augmentation: only the layout and the kernels differ."""

    def test_the_channels_last_loop_ends_where_the_plain_one_does(self) -> None:
        queries = pictures(9, 60, size=28).x

        def plain(part: Part) -> Plain:
            module, _ = plain_cnn(part, 8, 1)
            return Plain(arrays(module.state_dict()), predict_plain_cnn(module, as_inputs(queries, None, CPU)).numpy())

        parts = [pictures(teacher, size, size=28) for teacher, size in enumerate((96, 32))]
        family = CNNTeachers(8, epochs=1, augment=None)
        # AdamW makes steps of about the learning rate whatever the gradient, so rounding shows where a gradient is near 0.
        check_fast_path(FastPath("cnn", family, parts, 3, queries, plain, arrays, tolerance=2e-3, agreement=0.97))

    def test_the_losses_follow_the_plain_ones(self) -> None:
        part = pictures(3, 64, size=28)
        _, steps = plain_cnn(part, 8, 6)
        with own_randomness(part.seed, CPU):
            module = small_cnn(3, (1, 28, 28), width=8).to(memory_format=torch.channels_last)
            batches = Batches(as_inputs(part.x, None, CPU), torch.tensor(part.y), part.seed, 6, 32, None)
            optimiser = make_optimiser("adamw", {"lr": 6e-3}, list(module.parameters()), fused=True)
            losses = train(module, batches, cross_entropy, optimiser, one_cycle, channels_last=True, teacher=3)
        expected = np.mean(np.reshape(steps, (6, 2)), axis=1)
        np.testing.assert_allclose(losses[:2], expected[:2], rtol=1e-4)
        np.testing.assert_allclose(losses, expected, rtol=0.05)
        assert losses[-1] < losses[0] / 3

    def test_channels_last_changes_rounding_only(self) -> None:
        part, settings = pictures(5, 32), {"optimiser": "sgd", "optimiser_settings": {"lr": 0.01}, "epochs": 3}
        fits = [
            TorchTeachers("pate.teachers.neural.nets:small_cnn", {"width": 4}, channels_last=layout, **settings).fit(part, 3)
            for layout in (True, False)
        ]
        for name, value in fits[0].items():
            torch.testing.assert_close(value, fits[1][name], rtol=1e-4, atol=1e-5)


class TestStack:
    @pytest.mark.parametrize(
        ("optimiser", "settings"),
        [
            ("sgd", {"lr": 0.05}),
            ("sgd", {"lr": 0.05, "momentum": 0.5, "nesterov": True, "weight_decay": 0.1}),
            ("adam", {"lr": 0.01, "weight_decay": 0.1}),
            ("adamw", {"lr": 0.01, "weight_decay": 0.1, "betas": [0.8, 0.99], "eps": 1e-3}),
        ],
    )
    def test_vmap_follows_the_loop(self, optimiser: str, settings: dict[str, Any]) -> None:
        """Equal to rounding for parts of unequal sizes, hence short mini-batches and unequal numbers of steps."""
        given = {"optimiser": optimiser, "optimiser_settings": settings, "schedule": "one_cycle", "epochs": 5}
        parts = [table(teacher, np.arange(size) % 3) for teacher, size in enumerate((19, 1, 8, 33))]
        stacked = linear(strategy="vmap", stack=3, **given).fit_batch(parts, 3)
        for part, model in zip(parts, stacked, strict=True):
            for name, value in linear(**given).fit(part, 3).items():
                torch.testing.assert_close(model[name], value, rtol=1e-4, atol=1e-5)

    def test_vmap_cnn_follows_the_loop(self) -> None:
        queries = pictures(9, 60).x
        loop, stacked = (
            CNNTeachers(4, epochs=2, batch=8, learning_rate=1e-3, strategy=strategy, stack=3) for strategy in ("loop", "vmap")
        )

        def one_by_one(part: Part) -> Plain:
            model = loop.fit(part, 3)
            return Plain(arrays(model), loop.predict(model, queries, 3))

        parts = [pictures(teacher, size) for teacher, size in enumerate((21, 8, 13, 1))]
        check_fast_path(FastPath("vmap", stacked, parts, 3, queries, one_by_one, arrays, tolerance=2e-3, agreement=0.97))

    @pytest.mark.parametrize(
        ("family", "parts"),
        [
            (
                CNNTeachers(4, epochs=2, batch=8, strategy="vmap", stack=3),
                [pictures(t, n) for t, n in enumerate((12, 5, 21, 9))],
            ),
            (linear(strategy="vmap", stack=4, epochs=3), [table(t, np.arange(n) % 3) for t, n in enumerate((9, 1, 30, 16, 3))]),
            (linear(epochs=3), [table(t, np.arange(n) % 3) for t, n in enumerate((9, 1, 30))]),
        ],
        ids=["cnn vmap", "linear vmap", "linear loop"],
    )
    def test_no_bit_depends_on_the_other_teachers(self, family: TorchTeachers, parts: list[Part]) -> None:
        with one_thread():
            check_bit_independence(family, parts, 3)

    def test_a_neighbour_that_diverges_changes_no_bit(self) -> None:
        """Its numbers become NaN beside ours; fit_batch reports it, and the others come out of a stack of their own."""
        family = linear(strategy="vmap", stack=2, loss="neural_modules:squared")
        good, bad = table(0, np.arange(20) % 3), table(1, np.arange(20) % 3, scale=1e18)
        with pytest.raises(TeacherError, match="Teacher 1"):
            family.fit_batch([good, bad], 3)
        assert np.isfinite(family.fit(good, 3)["1.weight"].numpy()).all()

    def test_what_cannot_be_stacked_says_why(self) -> None:
        part = table(0, [0, 1, 2])
        for module, message in [
            ("with_batch_norm", "BatchNorm1d.*GroupNorm.*strategy='loop'"),
            ("with_dropout", "Dropout.*strategy='loop'"),
        ]:
            with pytest.raises(ParameterError, match=message):
                TorchTeachers(f"neural_modules:{module}", strategy="vmap", stack=2).fit(part, 3)
        with pytest.raises(TeacherError, match=r"cannot be stacked.*strategy='loop'"):
            TorchTeachers("neural_modules:DrawsInForward", strategy="vmap", stack=2).fit(part, 3)
        with pytest.raises(ParameterError, match="one value a record"):
            linear(loss="neural_modules:mean_squared", strategy="vmap", stack=2).fit(part, 3)
        with pytest.raises(ParameterError, match="knows the optimisers sgd, adam, adamw"):
            linear(optimiser="neural_modules:PlainDescent", strategy="vmap", stack=2).fit(part, 3)
        with pytest.raises(ParameterError, match="dampening too"):
            linear(optimiser_settings={"dampening": 0.1}, strategy="vmap", stack=2).fit(part, 3)


class Leaky(TorchTeachers):
    """Breaks the rule: a batch shares its first teacher's seed, or pads to the longest part, or votes by the majority."""

    fault = "seed"

    def fit_batch(self, parts: Any, n_classes: int) -> Any:
        if self.fault == "seed":
            return [self.fit(replace(part, seed=parts[0].seed), n_classes) for part in parts]
        if self.fault == "rounding":
            longest = max(len(part.x) for part in parts)
            return [{n: v * (1 + 1e-7 * (longest > 40)) for n, v in self.fit(p, n_classes).items()} for p in parts]
        return super().fit_batch(parts, n_classes)

    def predict_batch(self, models: Any, x: Any, n_classes: int) -> Any:
        votes = super().predict_batch(models, x, n_classes)
        return np.sort(votes, axis=0) if self.fault == "votes" else votes


def test_a_digest_tells_models_apart_by_every_bit_and_by_nothing_else() -> None:
    padded = np.zeros(3, dtype=np.dtype([("a", np.int8), ("b", np.float64)], align=True))
    dirty = padded.copy()
    dirty.view(np.uint8)[1] = 7  # between the fields
    same = [
        ({"a": 1, "b": [2.0]}, {"b": [2.0], "a": 1}),
        (np.arange(6).reshape(2, 3), np.asfortranarray(np.arange(6).reshape(2, 3))),
        (torch.ones(2), torch.ones(4)[::2]),
        ({"x", "y", "z"}, {"z", "y", "x"}),
        (deque([1, 2]), deque([1, 2], maxlen=None)),
        (padded, dirty),
    ]
    other = [
        (0.0, -0.0),
        (np.float32(1), np.float64(1)),
        ([1, [2]], [[1], 2]),
        (["ab", "c"], ["a", "bc"]),
        (torch.ones(2), torch.nextafter(torch.ones(2), torch.zeros(2))),
        (deque([1, 2]), deque([2, 1])),
        (linear(epochs=2), linear(epochs=3)),
        (np.array([1, "a"], dtype=object), np.array([1, "b"], dtype=object)),
    ]
    assert all(model_digest(one) == model_digest(two) for one, two in same)
    assert not any(model_digest(one) == model_digest(two) for one, two in other)
    cycle: list[Any] = [1]
    cycle.append(cycle)
    assert model_digest(cycle) != model_digest([1])


@pytest.mark.parametrize(
    ("fault", "message"), [("seed", "trained together"), ("rounding", "trebled"), ("votes", "a vote of teacher")]
)
def test_the_check_finds_a_family_that_breaks_the_rule(monkeypatch: pytest.MonkeyPatch, fault: str, message: str) -> None:
    monkeypatch.setattr(Leaky, "fault", fault)
    parts = [table(teacher, np.arange(size) % 3) for teacher, size in enumerate((15, 16, 20))]
    with pytest.raises(TeacherError, match=message):
        check_bit_independence(Leaky("neural_modules:linear", epochs=2), parts, 3, TEST.x)


def test_the_check_needs_two_parts() -> None:
    with pytest.raises(ParameterError, match="at least 2 parts"):
        check_bit_independence(linear(), [table(0, [0, 1])], 3)


@pytest.mark.slow
def test_a_default_cnn_teacher_on_240_mnist_images() -> None:
    root = os.environ.get("PATE_DATA", "")
    if not (Path(root) / "MNIST" / "raw").is_dir():
        pytest.skip("no MNIST: point PATE_DATA at a folder with MNIST/raw")
    datasets = pytest.importorskip("torchvision.datasets")
    learn, test = (datasets.MNIST(root, train=train, download=False) for train in (True, False))
    family, scores = CNNTeachers(), []
    for teacher in range(3):
        mine = slice(teacher * 240, (teacher + 1) * 240)
        part = Part(teacher, learn.data[mine].numpy(), learn.targets[mine].numpy(), seed=teacher)
        votes = family.predict(family.fit(part, 10), test.data[:2000].numpy(), 10)
        scores.append((votes == test.targets[:2000].numpy()).mean())
    assert np.mean(scores) > 0.93  # the first 2,000 test images are the harder ones
