"""Modules, losses, optimisers and augmentations that the tests of torch teachers name by reference."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


def linear(n_classes: int, input_shape: tuple[int, ...], bias: bool = True) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(int(torch.Size(input_shape).numel()), n_classes, bias=bias))


def with_batch_norm(n_classes: int, width: int = 8) -> nn.Module:
    return nn.Sequential(nn.Linear(6, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Linear(width, n_classes))


def with_dropout(n_classes: int) -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.5), nn.Linear(8, n_classes))


class DrawsInForward(nn.Module):
    def __init__(self, n_classes: int) -> None:
        super().__init__()
        self.last = nn.Linear(6, n_classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(x + torch.rand_like(x))


class LongTailed(nn.Module):
    """Takes no n_classes: three classes, whatever is asked."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(x)


def no_module() -> dict[str, int]:
    return {}


def squared(scores: Tensor, y: Tensor) -> Tensor:
    """One value a record."""
    return (scores - (y[:, None] == torch.arange(scores.shape[1])).float()).square().sum(dim=1)


def mean_squared(scores: Tensor, y: Tensor) -> Tensor:
    """One value for all records."""
    return squared(scores, y).mean()


def jitter(x: Tensor, generator: torch.Generator) -> Tensor:
    return x + 0.01 * torch.randn(x.shape, generator=generator)


def halving(done: float) -> float:
    return 1.0 if done < 0.5 else 0.5


class PlainDescent(torch.optim.SGD):
    def __init__(self, params: Any, step_size: float) -> None:
        super().__init__(params, lr=step_size)
