"""Per-sample gradients of any model: by torch.func, or by one backward pass a row. Right, and slow."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap

Loss = Callable[[Tensor, Tensor], Tensor]
"""(outputs, targets) -> one loss a row."""
PerSample = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""(x, y) -> gradients: float32[row, size], losses: float32[row]."""


def by_vmap(model: nn.Module, loss: Loss, names: list[str], parameters: list[nn.Parameter]) -> PerSample:
    """All rows of a batch at once (torch.func.vmap)."""
    buffers = dict(model.named_buffers())

    def row_loss(values: tuple[Tensor, ...], x: Tensor, y: Tensor) -> Tensor:
        state = {**buffers, **dict(zip(names, values, strict=True))}
        return loss(functional_call(model, state, (x.unsqueeze(0),)), y.unsqueeze(0)).sum()

    every_row = vmap(grad_and_value(row_loss), in_dims=(None, 0, 0), randomness="different")

    def per_sample(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        gradients, losses = every_row(tuple(each.detach() for each in parameters), x, y)
        return torch.cat([each.reshape(len(x), -1) for each in gradients], dim=1), losses.detach()

    return per_sample


def by_loop(model: nn.Module, loss: Loss, parameters: list[nn.Parameter]) -> PerSample:
    """One row after the other, by plain autograd."""

    def per_sample(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        gradients = parameters[0].new_zeros(len(x), sum(each.numel() for each in parameters))
        losses = parameters[0].new_zeros(len(x))
        for row in range(len(x)):
            with torch.enable_grad():
                value = loss(model(x[row : row + 1]), y[row : row + 1]).sum()
                losses[row] = value.detach()
                if not value.requires_grad:
                    continue
                found = torch.autograd.grad(value, parameters, allow_unused=True)
            parts = [
                torch.zeros_like(parameter) if part is None else part.to_dense()
                for part, parameter in zip(found, parameters, strict=True)
            ]
            gradients[row] = torch.cat([part.reshape(-1) for part in parts])
        return gradients, losses

    return per_sample
