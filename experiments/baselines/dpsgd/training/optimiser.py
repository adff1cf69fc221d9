"""The update with the noised gradient. All weights lie in one flat vector, and so does every state: one line each to save."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from pate.experiments.baselines.dpsgd.settings import Settings

_BETAS, _TINY = (0.9, 0.999), 1e-8


class FlatOptimiser:
    """SGD with momentum, or Adam; and the average of the weights. Post-processing of noised gradients: free of privacy cost."""

    def __init__(self, parameters: Sequence[nn.Parameter], settings: Settings, steps: int) -> None:
        self._settings = settings
        self._steps = steps
        self.weights = torch.cat([each.detach().reshape(-1) for each in parameters])
        place = 0
        for each in parameters:  # from now on the model's weights are views of the flat vector
            each.data = self.weights[place : place + each.numel()].view_as(each)
            place += each.numel()
        self.step = 0
        self.momentum = torch.zeros_like(self.weights)
        self.squares = torch.zeros_like(self.weights) if settings.optimiser == "adam" else None
        self.average = self.weights.clone() if settings.average else None

    @torch.no_grad()
    def update(self, gradient: Tensor) -> None:
        """One step down ``gradient``, float32[size]."""
        chosen = self._settings
        rate = chosen.learning_rate * schedule(chosen.schedule, (self.step + 0.5) / self._steps)
        self.step += 1
        if chosen.weight_decay:
            self.weights.mul_(1 - rate * chosen.weight_decay)
        if self.squares is None:
            self.momentum.mul_(chosen.momentum).add_(gradient)
            self.weights.add_(self.momentum, alpha=-rate)
        else:
            first, second = chosen.momentum, _BETAS[1]
            self.momentum.lerp_(gradient, 1 - first)
            self.squares.lerp_(gradient * gradient, 1 - second)
            size = (self.squares / (1 - second**self.step)).sqrt_().add_(_TINY)
            self.weights.addcdiv_(self.momentum, size, value=-rate / (1 - first**self.step))
        if self.average is not None:
            # Young averages forget fast, so that the first weights do not stay in them.
            decay = min(chosen.average, (self.step + 1) / (self.step + 10))
            self.average.lerp_(self.weights, 1 - decay)

    @property
    def result(self) -> Tensor:
        """The weights to publish."""
        return self.weights if self.average is None else self.average

    def state(self) -> dict[str, Tensor]:
        states = {"weights": self.weights, "momentum": self.momentum, "squares": self.squares, "average": self.average}
        return {name: each for name, each in states.items() if each is not None}

    @torch.no_grad()
    def restore(self, state: dict[str, Tensor], step: int) -> None:
        for name, mine in self.state().items():
            mine.copy_(state[name])
        self.step = step


def schedule(name: str, share: float) -> float:
    """The factor of the learning rate after ``share`` of the steps.

    >>> [round(schedule("cosine", share), 2) for share in (0.0, 0.5, 1.0)]
    [1.0, 0.5, 0.0]
    """
    if name == "linear":
        return 1 - share
    if name == "cosine":
        return 0.5 * (1 + math.cos(math.pi * share))
    if name == "one-cycle":
        return share / 0.1 if share < 0.1 else 0.5 * (1 + math.cos(math.pi * (share - 0.1) / 0.9))
    return 1.0
