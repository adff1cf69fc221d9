"""One training loop for all neural students: steps, schedule, average of weights, progress."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from pate.errors import StudentError
from pate.student.diary import Diary

Loss = Callable[[float], Tensor | tuple[Tensor, dict[str, float]]]
"""(share of the steps done) -> the loss of the next step, and numbers to report beside it if there are any."""

REPORTS = 50  # progress lines and history rows a stage


class Average:
    """An exponential moving average of a module's weights; its buffers are copied as they are.

    At step t the decay is min(decay, (t + 1) / (t + 10)), so that the first weights are forgotten soon.
    """

    def __init__(self, module: nn.Module, decay: float) -> None:
        self.module = copy.deepcopy(module).requires_grad_(False)
        self.module.eval()
        self._decay = decay
        self._steps = 0

    @torch.no_grad()
    def update(self, module: nn.Module) -> None:
        decay = min(self._decay, (self._steps + 1) / (self._steps + 10))
        self._steps += 1
        torch._foreach_lerp_(list(self.module.parameters()), [each.detach() for each in module.parameters()], 1 - decay)
        for mine, its in zip(self.module.buffers(), module.buffers(), strict=True):
            mine.copy_(its)


def one_cycle(share: float) -> float:
    """The factor of the learning rate: up over the first tenth, then down like a cosine to 0."""
    return share / 0.1 if share < 0.1 else 0.5 * (1 + math.cos(math.pi * (share - 0.1) / 0.9))


def adamw(module: nn.Module, rate: float, weight_decay: float) -> torch.optim.AdamW:
    """AdamW that decays matrices and kernels only, not biases and norms."""
    matrices = [each for each in module.parameters() if each.ndim > 1]
    others = [each for each in module.parameters() if each.ndim <= 1]
    groups = [{"params": matrices, "weight_decay": weight_decay}, {"params": others, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=rate, fused=True)


def descend(
    module: nn.Module,
    optimiser: torch.optim.Optimizer,
    loss_of_step: Loss,
    steps: int,
    diary: Diary,
    *,
    stage: str = "training",
    average: Average | None = None,
) -> None:
    """Take ``steps`` steps down the loss, the learning rate by :func:`one_cycle`; tell the diary the mean loss as it goes."""
    rates = [group["lr"] for group in optimiser.param_groups]
    every = max(1, steps // REPORTS)
    total = 0.0
    others: dict[str, float] = {}
    module.train()
    with diary.stage(stage, math.ceil(steps / every)) as report:
        for step in range(steps):
            for group, rate in zip(optimiser.param_groups, rates, strict=True):
                group["lr"] = rate * one_cycle((step + 0.5) / steps)
            found = loss_of_step(step / steps)
            loss, others = (found, {}) if isinstance(found, Tensor) else found
            optimiser.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            if average is not None:
                average.update(module)
            total += float(loss.detach())
            if (step + 1) % every == 0 or step + 1 == steps:
                count = every if (step + 1) % every == 0 else steps % every
                if not math.isfinite(total):
                    raise StudentError(
                        f"The loss became NaN or infinite in step {step + 1} of {steps}. Lower the learning rate, or scale the "
                        "inputs by a declared constant."
                    )
                report(loss=total / count, **others)
                total = 0.0
    module.eval()
