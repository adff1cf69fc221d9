"""Models for the tests of clipping, and the two truths they are compared with: a loop of autograd, and Opacus."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable
from typing import NamedTuple

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402
from torch.nn import functional  # noqa: E402

from pate.experiments.baselines.dpsgd.clipping import ClippedGradients, Clipping  # noqa: E402

CLASSES = 4


def cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    return functional.cross_entropy(outputs, targets, reduction="none")


def positions_then_classes(layer: nn.Module, size: int) -> nn.Sequential:
    """A layer, what bends its output, and a head: its gradient is then no constant."""
    return nn.Sequential(layer, nn.Tanh(), nn.Flatten(), nn.Linear(size, CLASSES))


class Case(NamedTuple):
    model: Callable[[], nn.Module]
    shape: tuple[int, ...]  # of one row
    vocabulary: int = 0  # rows are indices below it
    opacus: bool = True  # whether its hooks know the layer, and are right


def _conv(shape: tuple[int, ...], opacus: bool = True, **options: object) -> Case:
    kind = nn.Conv2d if len(shape) == 3 else nn.Conv1d
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # as for the tests: an even kernel with 'same' padding is slow
        size = kind(shape[0], 6, **options)(torch.zeros(1, *shape)).numel()  # type: ignore[arg-type]
    return Case(lambda: positions_then_classes(kind(shape[0], 6, **options), size), shape, 0, opacus)  # type: ignore[arg-type]


CASES = {
    "linear": Case(lambda: positions_then_classes(nn.Linear(5, 7), 7), (5,)),
    "linear without bias": Case(lambda: positions_then_classes(nn.Linear(5, 7, bias=False), 7), (5,)),
    "linear, few positions": Case(lambda: positions_then_classes(nn.Linear(5, 7), 14), (2, 5)),
    "linear, many positions": Case(lambda: positions_then_classes(nn.Linear(3, 4), 120), (5, 6, 3)),
    "linear, positions, no bias": Case(lambda: positions_then_classes(nn.Linear(3, 4, bias=False), 40), (10, 3)),
    "conv2d": _conv((2, 7, 6), kernel_size=3),
    "conv2d, all options": _conv((4, 9, 8), kernel_size=(3, 2), stride=(2, 1), padding=(2, 1), dilation=(1, 2), groups=2),
    "conv2d without bias": _conv((2, 7, 6), kernel_size=3, bias=False, stride=2),
    "conv2d, 1 x 1": _conv((3, 5, 5), kernel_size=1),
    "conv2d, depthwise": _conv((3, 6, 6), kernel_size=3, groups=3),
    "conv2d, same": _conv((2, 6, 6), kernel_size=(4, 3), padding="same", opacus=False),
    "conv2d, valid": _conv((2, 6, 6), kernel_size=3, padding="valid", opacus=False),
    "conv2d, reflect": _conv((2, 6, 6), kernel_size=3, padding=(2, 1), padding_mode="reflect", opacus=False),
    "conv2d, circular": _conv((2, 6, 6), kernel_size=3, padding="same", padding_mode="circular", opacus=False),
    "conv2d, replicate": _conv((2, 6, 6), kernel_size=3, padding=1, padding_mode="replicate", opacus=False),
    "conv1d": _conv((2, 11), kernel_size=3),
    "conv1d, all options": _conv((4, 12), kernel_size=3, stride=2, padding=2, dilation=2, groups=2),
    "conv1d, same": _conv((2, 9), kernel_size=4, padding="same", opacus=False),
    "group norm": Case(lambda: positions_then_classes(nn.GroupNorm(2, 6), 54), (6, 3, 3)),
    "group norm, one position": Case(lambda: positions_then_classes(nn.GroupNorm(3, 6), 6), (6,)),
    "group norm, one dimension": Case(lambda: positions_then_classes(nn.GroupNorm(6, 6), 30), (6, 5)),
    "group norm, fixed": Case(lambda: positions_then_classes(nn.GroupNorm(2, 6, affine=False), 54), (6, 3, 3)),
    "layer norm": Case(lambda: positions_then_classes(nn.LayerNorm(5), 5), (5,)),
    "layer norm, positions": Case(lambda: positions_then_classes(nn.LayerNorm(5), 30), (6, 5)),
    "layer norm, two dimensions": Case(lambda: positions_then_classes(nn.LayerNorm((3, 5)), 30), (2, 3, 5), opacus=False),
    "layer norm without bias": Case(lambda: positions_then_classes(nn.LayerNorm(5, bias=False), 30), (6, 5), opacus=False),
    "layer norm, fixed": Case(lambda: positions_then_classes(nn.LayerNorm(5, elementwise_affine=False), 5), (5,)),
    "embedding": Case(lambda: positions_then_classes(nn.Embedding(4, 3), 15), (5,), 4),
    "embedding, one index": Case(lambda: positions_then_classes(nn.Embedding(9, 3), 3), (), 9),
    # Opacus 1.6 gives the padding a gradient, which autograd does not.
    "embedding, padding": Case(lambda: positions_then_classes(nn.Embedding(4, 3, padding_idx=2), 18), (2, 3), 4, opacus=False),
    "embedding, sparse": Case(lambda: positions_then_classes(nn.Embedding(4, 3, sparse=True), 15), (5,), 4, opacus=False),
}


def batch(case: Case, rows: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(seed)
    y = torch.randint(CLASSES, (rows,), generator=draw)
    if case.vocabulary:
        return torch.randint(case.vocabulary, (rows, *case.shape), generator=draw), y
    return torch.randn(rows, *case.shape, generator=draw), y


def rows_by_loop(model: nn.Module, x: Tensor, y: Tensor) -> list[list[Tensor]]:
    """The gradient of each row by itself, one tensor a trained parameter."""
    trained = [each for each in model.parameters() if each.requires_grad]
    found = []
    for row in range(len(x)):
        loss = cross_entropy(model(x[row : row + 1]), y[row : row + 1]).sum()
        gradients = torch.autograd.grad(loss, trained, allow_unused=True)
        pairs = zip(gradients, trained, strict=True)
        found.append([torch.zeros_like(each) if part is None else part.to_dense() for part, each in pairs])
    return found


def rows_by_opacus(model: nn.Module, x: Tensor, y: Tensor) -> list[list[Tensor]]:
    opacus = pytest.importorskip("opacus")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wrapped = opacus.GradSampleModule(copy.deepcopy(model), loss_reduction="sum")
        cross_entropy(wrapped(x), y).sum().backward()
    trained = [each for each in wrapped.parameters() if each.requires_grad]
    return [[each.grad_sample[row] for each in trained] for row in range(len(x))]


def clipped(rows: list[list[Tensor]], groups: list[list[int]], clipping: Clipping, views: int) -> tuple[Tensor, Tensor]:
    """The sum and the norms, in float64 and one example after the other. ``groups``: the parameters clipped together."""
    total = [torch.zeros_like(each, dtype=torch.float64) for each in rows[0]]
    norms = []
    for start in range(0, len(rows), views):
        mean = [sum(each.double() for each in parts) / views for parts in zip(*rows[start : start + views], strict=True)]
        lengths = [math.sqrt(sum(float(mean[i].square().sum()) for i in group)) for group in groups]
        for group, length in zip(groups, lengths, strict=True):
            bound = clipping.bound / math.sqrt(len(groups))
            factor = bound / (length + clipping.stability) if clipping.automatic else min(1.0, bound / max(length, 1e-30))
            for i in group:
                total[i] += factor * mean[i]
        norms.append(lengths)
    return torch.cat([each.reshape(-1) for each in total]), torch.tensor(norms, dtype=torch.float64)


def groups_of(model: nn.Module, per_layer: bool) -> list[list[int]]:
    names = [name for name, each in model.named_parameters() if each.requires_grad]
    if not per_layer:
        return [list(range(len(names)))]
    layers: dict[str, list[int]] = {}
    for i, name in enumerate(names):
        layers.setdefault(name.rpartition(".")[0], []).append(i)
    return list(layers.values())


def check(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    clipping: Clipping | None = None,
    views: int = 1,
    opacus: bool = True,
    fast: bool = True,
) -> list[str]:
    """The engine against both truths, 1e-5 relative; the notes of the engine."""
    rule = clipping or Clipping()
    with ClippedGradients(model, cross_entropy, rule) as engine:
        found = engine.clipped_sum(x, y, views)
        assert (engine.notes == []) == fast, engine.notes
    assert not any(each._forward_hooks for each in model.modules())
    assert all(each.grad is None for each in model.parameters())
    groups = groups_of(model, rule.per_layer)
    truths = {"loop": rows_by_loop(model, x, y)} | ({"opacus": rows_by_opacus(model, x, y)} if opacus else {})
    for name, rows in truths.items():
        total, norms = clipped(rows, groups, rule, views)
        assert found.total.dtype == found.norms.dtype == torch.float32
        assert (found.total - total).norm() <= 1e-5 * total.norm(), name
        assert torch.allclose(found.norms.double(), norms, rtol=1e-5, atol=1e-7), name
    with torch.no_grad():
        losses = cross_entropy(model(x), y).view(-1, views).mean(dim=1)
    assert torch.allclose(found.losses, losses, atol=1e-6)
    assert found.bad == 0
    return engine.notes
