"""DP-SGD itself: lots, noise, settings, resuming, and what it is charged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is not installed (extra 'train')")

import torch
from torch import nn

from pate.errors import BudgetExceeded, ExecutionError, ParameterError
from pate.experiments.baselines.dpsgd.lots import PoissonLots, noised
from pate.experiments.baselines.dpsgd.settings import MODEL_NAMES, Settings, make_settings
from pate.experiments.baselines.dpsgd.training import paying
from pate.experiments.baselines.dpsgd.training.models import MODELS, make_model
from pate.experiments.baselines.dpsgd.training.trainer import DPSGD
from pate.ledger import Budget, Ledger
from pate.noise import Noise, SimulatedNoise


def blobs(n: int = 600, seed: int = 0) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, n)
    return (rng.normal(size=(n, 5)) + 3 * np.eye(5)[y]).astype(np.float32), y


def learner(**changes: Any) -> DPSGD:
    base: dict[str, Any] = {"n_classes": 3, "delta": 1e-4, "lot_size": 100, "steps": 24, "noise_multiplier": 1.0}
    return DPSGD(**{"model": "logistic", **base, **changes})


class Words(Noise):
    """A source that counts its draws and repeats one word."""

    mode = "simulation"

    def __init__(self, word: int) -> None:
        self.word = word

    def words(self, size: int) -> Any:
        return np.full(size, self.word, dtype=np.uint64)


# Lots and noise -------------------------------------------------------------------------------------------------------------


def test_every_record_enters_a_lot_by_itself_with_the_stated_probability() -> None:
    """Sizes and pairs over 4,000 lots of 50 records: each check is off by chance once in 10,000."""
    lots, noise = PoissonLots(50, 0.3), SimulatedNoise(1)
    seen = np.zeros((4000, 50))
    for row in seen:
        row[lots.draw(noise)] = 1
    z = 4.6  # 50 records, so a two-sided 2e-6 each
    assert (np.abs(seen.mean(0) - 0.3) < z * np.sqrt(0.3 * 0.7 / 4000)).all()
    sizes = seen.sum(1)
    assert sizes.var() == pytest.approx(50 * 0.21, rel=0.1), "a shuffling loader has lots of one size"
    pairs = (seen[:, :-1] * seen[:, 1:]).mean(0)
    assert (np.abs(pairs - 0.09) < z * np.sqrt(0.09 * 0.91 / 4000)).all()


def test_the_edges_of_sampling() -> None:
    assert PoissonLots(5, 1.0).draw(Words(2**64 - 1)).tolist() == [0, 1, 2, 3, 4]
    assert PoissonLots(5, 0.5).draw(Words(2**63)).tolist() == []
    assert PoissonLots(5, 0.5).draw(Words(2**63 - 1)).tolist() == [0, 1, 2, 3, 4]


def test_a_user_enters_with_one_record() -> None:
    users = np.array(["b", "a", "b", "c", "a", "b"])
    lots, noise = PoissonLots(6, 1.0, users), SimulatedNoise(3)
    assert lots.n_units == 3
    drawn = np.array([lots.draw(noise) for _ in range(600)])
    assert all(sorted(users[row]) == ["a", "b", "c"] for row in drawn)
    assert np.bincount(drawn.ravel(), minlength=6) == pytest.approx([200, 300, 200, 600, 300, 200], abs=90)


def test_noise_has_the_stated_width_and_lies_on_the_lattice() -> None:
    """40,000 draws: mean and width within 5 standard errors, off by chance once in a million."""
    total = np.full(40_000, 0.3, dtype=np.float32)
    found = noised(total, 2.0, 0.5, SimulatedNoise(5))
    assert abs(found.mean() - 0.3) < 5 / 200
    assert found.std() == pytest.approx(1.0, rel=5 / np.sqrt(2 * 40_000))
    steps = found / (0.5 * 2.0**-20)
    assert np.array_equal(steps, np.rint(steps))


def test_the_sum_is_noised_once_for_the_whole_lot() -> None:
    quiet = noised(np.zeros(1000, dtype=np.float32), 1e-6, 1.0, SimulatedNoise(0))
    assert np.abs(quiet).max() < 1e-5


# Training -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", ["logistic", "mlp"])
@pytest.mark.parametrize("options", [{}, {"per_layer": True}, {"automatic": True}, {"optimiser": "adam", "learning_rate": 0.1}])
def test_it_learns(model: str, options: dict[str, Any]) -> None:
    x, y = blobs()
    found = learner(model=model, average=0.9, schedule="one-cycle", steps=60, **options).fit(x, y, noise=SimulatedNoise(0))
    assert found.score(*blobs(seed=1)) > 0.85, "chance is a third"
    assert found.cost_.training.steps == 60


def test_pictures_with_views_learn_and_the_views_count_as_one() -> None:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 200)
    x = rng.random((200, 16, 16)).astype(np.float32) * 0.3
    x[y == 1, 4:12, 4:12] += 0.7
    found = DPSGD("cnn", 2, delta=1e-3, lot_size=60, steps=25, noise_multiplier=0.7, views=3, augment="digits", width=4)
    found.fit(x, y, noise=SimulatedNoise(0))
    assert found.score(x, y) > 0.8
    assert max(row["median_norm"] for row in found.books_.diagnostics) < 100


def test_micro_batches_change_nothing_but_memory() -> None:
    x, y = blobs()
    whole = learner(micro_batch=5000).fit(x, y, noise=SimulatedNoise(0)).predict_proba(x)
    assert learner(micro_batch=7).fit(x, y, noise=SimulatedNoise(0)).predict_proba(x) == pytest.approx(whole, abs=1e-4)


def test_empty_lots_are_steps_too() -> None:
    x, y = blobs(40)
    found = learner(lot_size=1, steps=30, delta=1e-3).fit(x, y, noise=SimulatedNoise(0))
    assert found.cost_.training.steps == 30


def test_one_record_moves_the_sum_by_at_most_the_bound() -> None:
    """Two neighbours through the whole step, without noise to speak of and with every record in the lot."""
    x, y = blobs(30)
    x[0] *= 1e6
    sums = []
    for rows in (slice(None), slice(1, None)):
        found = learner(rate=1.0, lot_size=10, steps=1, noise_multiplier=1e-7, learning_rate=1.0, momentum=0.0, delta=1e-3)
        found.fit(x[rows], y[rows], noise=SimulatedNoise(0))
        sums.append(10 * np.concatenate([each.numpy().ravel() for each in found.module_.parameters()]))
    assert np.linalg.norm(sums[0] - sums[1]) <= 1.0 + 1e-4


def test_a_module_of_ones_own_is_copied_and_comes_back(tmp_path: Path) -> None:
    x, y = blobs()
    module = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 3))
    before = [each.clone() for each in module.parameters()]
    found = learner(model=module).fit(x, y, noise=SimulatedNoise(0))
    assert all(torch.equal(a, b) for a, b in zip(before, module.parameters(), strict=True))
    found.save(tmp_path / "model.zip")
    again = DPSGD.load(tmp_path / "model.zip", module)
    assert np.array_equal(again.predict_proba(x), found.predict_proba(x))
    with pytest.raises(ParameterError, match="give model="):
        DPSGD.load(tmp_path / "model.zip")


def test_every_model_name_makes_a_model() -> None:
    assert set(MODELS) == set(MODEL_NAMES)
    for name in MODELS:
        net = make_model(name, (1, 28, 28), 10, Settings(lot_size=1, activation="tempered-sigmoid"))
        assert net(torch.zeros(2, 1, 28, 28)).shape == (2, 10)
    assert sum(each.numel() for each in make_model("cnn", (1, 28, 28), 10, Settings(lot_size=1)).parameters()) == 26_010


def test_a_release_takes_noise_from_the_operating_system() -> None:
    x, y = blobs()
    first, second = (learner().fit(x, y) for _ in range(2))
    assert first.mode_ == "release"
    assert not np.array_equal(first.predict_proba(x), second.predict_proba(x))


# Paying and resuming --------------------------------------------------------------------------------------------------------


class Killed(Exception):
    pass


def die_after(monkeypatch: pytest.MonkeyPatch, pieces: int) -> None:
    """Stop in the middle of a piece: after it was paid for, before it is saved."""
    saved = paying.Checkpoints.save
    left = iter(range(pieces))

    def save(self: Any, *arguments: Any) -> None:
        if next(left, None) is None:
            raise Killed
        saved(self, *arguments)

    monkeypatch.setattr(paying.Checkpoints, "save", save)


@pytest.mark.parametrize("optimiser", ["sgd", "adam"])
def test_a_stopped_simulation_goes_on_to_the_same_weights_and_pays_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, optimiser: str
) -> None:
    x, y = blobs()
    plain = learner(optimiser=optimiser, average=0.5, checkpoints=6).fit(x, y, noise=SimulatedNoise(4))
    with Ledger.open(tmp_path / "ledger.db", "data", Budget(20.0, 1e-4), neighbours="add-remove") as ledger:
        with monkeypatch.context() as patch:
            die_after(patch, 2)
            with pytest.raises(Killed):
                learner(optimiser=optimiser, average=0.5, checkpoints=6).fit(
                    x, y, noise=SimulatedNoise(4), ledger=ledger, checkpoint=tmp_path / "state"
                )
        found = learner(optimiser=optimiser, average=0.5, checkpoints=6)
        found.fit(x, y, noise=SimulatedNoise(4), ledger=ledger, checkpoint=tmp_path / "state")
        charges = [entry for entry in ledger.entries() if entry.kind == "charge"]
    assert np.array_equal(found.predict_proba(x), plain.predict_proba(x))
    assert [entry.memo["first_step"] for entry in charges] == [1, 5, 9, 13, 17, 21]
    assert found.books_.lost == 0
    assert found.cost_ == plain.cost_


def test_a_stopped_release_pays_again_for_what_was_lost_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = blobs()
    with Ledger.open(tmp_path / "ledger.db", "data", Budget(20.0, 1e-4), neighbours="add-remove") as ledger:
        with monkeypatch.context() as patch:
            die_after(patch, 2)
            with pytest.raises(Killed):
                learner(checkpoints=6).fit(x, y, ledger=ledger, checkpoint=tmp_path / "state")
        found = learner(checkpoints=6).fit(x, y, ledger=ledger, checkpoint=tmp_path / "state")
        charges = [entry for entry in ledger.entries() if entry.kind == "charge"]
        spent = ledger.spent_curve()
    assert sum(entry.memo["steps"] for entry in charges) == 28
    assert found.books_.lost == 4
    assert found.cost_.training.steps == 28, "what is reported covers what was lost"
    assert spent.values == pytest.approx(found.cost_.training.curve().values, rel=1e-6)


def test_without_a_ledger_lost_steps_count_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = blobs()
    with monkeypatch.context() as patch:
        die_after(patch, 1)
        with pytest.raises(Killed):
            learner(checkpoints=6).fit(x, y, checkpoint=tmp_path / "state")
    assert learner(checkpoints=6).fit(x, y, checkpoint=tmp_path / "state").books_.charged == 28


def test_other_settings_do_not_go_on_from_there(tmp_path: Path) -> None:
    x, y = blobs()
    learner().fit(x, y, noise=SimulatedNoise(0), checkpoint=tmp_path)
    with pytest.raises(ParameterError, match="other settings"):
        learner(learning_rate=0.5).fit(x, y, noise=SimulatedNoise(0), checkpoint=tmp_path)


def test_the_budget_refuses_before_the_first_lot_and_ends_a_run_that_others_outspent(tmp_path: Path) -> None:
    x, y = blobs()
    with Ledger.open(tmp_path / "ledger.db", "data", Budget(1.0, 1e-4), neighbours="add-remove") as ledger:
        with pytest.raises(BudgetExceeded):
            learner(checkpoints=1).fit(x, y, ledger=ledger)
        assert ledger.spent().epsilon == 0
        planned = learner(noise_multiplier="auto").plan(600, ledger.budget, ledger.neighbours)
        ledger.charge(planned.curve(steps=6), {})
        found = learner(noise_multiplier="auto", checkpoints=6).fit(x, y, ledger=ledger)
    assert found.books_.ended_by_budget
    assert found.books_.done == 16, "whole pieces of four steps, of the 18 that are left"


def test_training_while_within_the_budget(tmp_path: Path) -> None:
    x, y = blobs()
    with Ledger.open(tmp_path / "ledger.db", "data", Budget(2.0, 1e-4)) as ledger:
        found = learner(steps="budget", noise_multiplier=3.0).fit(x, y, ledger=ledger)
        one_more = found.cost_.training.curve(ledger.neighbours, steps=1)
        with pytest.raises(BudgetExceeded):
            ledger.charge(one_more, {})
    assert found.cost_.training.steps > 1


# What is refused ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"noise_multiplier": 0.0}, "without noise no epsilon"),
        ({"lot_size": 601}, "rate would be above 1"),
        ({"delta": 0.01}, "below 1/600"),
        ({"delta": 0.0021, "rate": 0.2}, "below 1/500"),  # of 100 / 0.2, declared: the true number is not told
        ({"n_classes": None}, "must be declared"),
        ({"n_classes": 2}, "found a label outside"),
        ({"noise_multiplier": "auto"}, "Give epsilon"),
        ({"steps": None}, "steps or epochs"),
        ({"rate": 1.1}, "rate: input should be less than or equal to 1"),
        ({"lotsize": 3}, "did you mean 'lot_size'"),
        ({"views": 4}, "name an augmentation"),
        ({"clip": -1.0}, "clip"),
        ({"model": "logistik"}, "did you mean 'logistic'"),
        ({"model": "cnn"}, "is for pictures"),
        ({"model": nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.Linear(4, 3))}, "GroupNorm"),
    ],
)
def test_what_cannot_hold_is_told_before_training(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(ParameterError, match=told):
        learner(**changes).fit(*blobs(), noise=SimulatedNoise(0))


class Centred(nn.Module):
    """Subtracts the mean of the lot: no layer says so."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(5, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x - x.mean(dim=0))


def test_a_model_that_mixes_examples_is_found_out() -> None:
    with pytest.raises(ParameterError, match="mix"):
        learner(model=Centred()).fit(*blobs(), noise=SimulatedNoise(0))


def test_a_loader_is_refused() -> None:
    data = torch.utils.data.TensorDataset(torch.zeros(4, 5), torch.zeros(4))
    for loader in (torch.utils.data.DataLoader(data, shuffle=True), iter([1, 2])):
        with pytest.raises(ParameterError, match="Poisson"):
            learner().fit(loader, np.zeros(4, dtype=int))


def test_weights_that_explode_are_an_error_and_gradients_a_private_word() -> None:
    x, y = blobs()
    with pytest.raises(ExecutionError, match="learning rate"):
        learner(learning_rate=1e30, momentum=0.9, model="mlp", weight_decay=1e30).fit(x, y, noise=SimulatedNoise(0))
    found = learner(steps=1).fit(x * 1e4, y, noise=SimulatedNoise(0))
    assert any("explodes" in note for note in found.private_notes)


def test_settings_say_all_that_is_wrong_at_once() -> None:
    with pytest.raises(ParameterError) as caught:
        make_settings({"lot_size": 0, "scheduel": "linear", "momentum": 2.0})
    assert all(word in str(caught.value) for word in ("lot_size", "schedule", "momentum"))
    assert Settings(lot_size=5, steps=1).problems() == []
