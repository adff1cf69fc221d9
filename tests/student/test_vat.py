"""VAT: the perturbation is what the paper says, and it learns more from public records than from labels alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from student_cases import digits, released
from torch import Tensor, nn

from pate.arrays import FloatArray, IntArray
from pate.errors import ParameterError, StudentError
from pate.release import Release
from pate.student.base import Student
from pate.student.neural.nets import make_net
from pate.student.neural.supervised import Supervised
from pate.student.neural.vat import VAT, Ball, divergence, still_statistics, worst_direction

SMALL = {"width": 64, "steps": 150, "batch": 32, "augment": "none"}


def digit_table() -> tuple[FloatArray, IntArray, IntArray, Release]:
    """1,797 digits as a table of 64 columns, some constant, in different units; the first three of each class have labels."""
    pictures, y = digits()
    x = pictures.reshape(len(y), -1) * np.linspace(1, 1000, 64)
    queries = np.concatenate([np.flatnonzero(y == each)[:3] for each in range(10)])
    return x, y, queries, released(y[queries], 10)


def trained_net() -> tuple[nn.Module, Tensor]:
    x, y, _, _ = digit_table()
    net, records, labels = make_net("mlp", (64,), 10, 32), torch.tensor(x[:300], dtype=torch.float32), torch.tensor(y[:300])
    optimiser = torch.optim.Adam(net.parameters(), lr=1e-2)
    for _ in range(30):
        optimiser.zero_grad()
        nn.functional.cross_entropy(net(records), labels).backward()
        optimiser.step()
    return net, records


@pytest.fixture(autouse=True)
def _same_random_numbers():
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        yield


def test_beats_supervised_by_ten_points_with_three_labels_a_class():
    x, y, queries, release = digit_table()
    alone = Supervised(**SMALL).fit(x, release, queries, show="none").score(x, y)
    assert VAT(**SMALL).fit(x, release, queries, show="none").score(x, y) >= alone + 0.10


def test_same_seed_same_student_and_another_seed_another(tmp_path: Path):
    x, _, queries, release = digit_table()
    few = SMALL | {"steps": 20}
    first = VAT(**few).fit(x, release, queries, show="none")
    again = VAT(**few).fit(x, release, queries, show="none")
    other = VAT(**few | {"seed": 1}).fit(x, release, queries, show="none")
    assert np.array_equal(first.predict_proba(x), again.predict_proba(x))
    assert not np.array_equal(first.predict_proba(x), other.predict_proba(x))
    first.save(tmp_path / "student.zip")
    assert np.array_equal(Student.load(tmp_path / "student.zip").predict_proba(x), first.predict_proba(x))
    assert {"loss", "labelled", "smoothness", "entropy"} <= set(first.record["history"][-1])


@pytest.mark.parametrize("shape", [(300, 5), (40, 1, 8, 8)])
def test_moves_have_norm_epsilon(shape: tuple[int, ...]):
    public = torch.randn(shape) * 3
    net = make_net("auto", shape[1:], 3, 8).train()
    ball = Ball.around(public, 0.25)
    moves = worst_direction(net, public, net(public).detach(), ball, 0.1, 2)
    assert torch.allclose((moves / ball.unit).flatten(1).norm(dim=1), torch.tensor(ball.epsilon))
    # A quarter of the root mean square distance from the mean: in standard deviations for tables, as it is for pictures.
    scaled = public / public.std(dim=0, correction=0) if public.ndim == 2 else public
    spread = (scaled - scaled.mean(dim=0)).square().flatten(1).sum(dim=1).mean().sqrt()
    assert ball.epsilon == pytest.approx(0.25 * float(spread), rel=1e-5)


def test_constant_columns_are_not_moved():
    public = torch.cat([torch.randn(50, 2), torch.full((50, 1), 7.0)], dim=1)
    net = make_net("mlp", (3,), 2, 8).train()
    moves = worst_direction(net, public, net(public).detach(), Ball.around(public, 0.5), 0.1, 1)
    assert bool((moves[:, 2] == 0).all())
    assert bool((moves[:, :2] != 0).any())


def test_worst_direction_changes_predictions_four_times_as_much_as_a_random_one():
    net, records = trained_net()
    ball = Ball.around(records, 0.1)
    with still_statistics(net):
        scores = net(records).detach()
        worst = divergence(scores, net(records + worst_direction(net, records, scores, ball, 0.1, 1)))
        by_chance = [divergence(scores, net(records + ball.surface(torch.randn_like(records)))) for _ in range(10)]
    assert float(worst.detach()) > 4 * max(float(each.detach()) for each in by_chance)


@pytest.mark.parametrize("power_steps", [1, 5])
def test_worst_direction_of_a_linear_net_is_the_difference_of_its_weights(power_steps: int):
    net, records = nn.Linear(3, 2).double(), torch.randn(40, 3, dtype=torch.float64) * torch.tensor([1.0, 10.0, 0.1])
    ball = Ball.around(records, 0.1)
    moves = worst_direction(net, records, net(records).detach(), ball, 0.1, power_steps)
    steepest = ball.surface(((net.weight[1] - net.weight[0]) * ball.unit).detach().expand(40, 3))
    # Either end of the line: the divergence is nearly even about the record.
    alike = nn.functional.cosine_similarity(moves / ball.unit, steepest / ball.unit).abs()
    assert float(alike.min()) > 1 - 1e-6


def test_adversarial_passes_leave_the_running_statistics_alone():
    net, records = trained_net()
    before = {name: value.clone() for name, value in net.named_buffers()}
    with still_statistics(net):
        worst_direction(net, records, net(records).detach(), Ball.around(records, 0.2), 0.1, 2)
    assert all(torch.equal(value, before[name]) for name, value in net.named_buffers())
    net(records)
    assert not all(torch.equal(value, before[name]) for name, value in net.named_buffers())


@pytest.mark.parametrize(
    "wrong",
    [
        {"radius": 0.0},
        {"xi": -1.0},
        {"power_steps": 0},
        {"weight": -1.0},
        {"entropy": float("nan")},
        {"robust": 1.5},
        {"ramp": -0.1},
    ],
)
def test_wrong_parameters_are_named(wrong: dict[str, float]):
    with pytest.raises((StudentError, ParameterError), match=next(iter(wrong))):
        VAT(**wrong)
