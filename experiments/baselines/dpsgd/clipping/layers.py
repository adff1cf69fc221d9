"""Norms and clipped sums of per-example gradients, from a layer's input and the gradient at its output.

A batch has n examples of ``views`` rows each, one after the other; an example's gradient is the sum over its rows and over
the positions inside a row, which the gradient at the output is already divided for. So views are more positions.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor, nn

_BLOCK = 1 << 18  # floats of per-example gradients made at a time: they stay in the cache
_HIDDEN = 1e-19  # more than the norm of a million numbers whose squares are zero
_RUN = 1024  # squares summed in one go: float32 then keeps six digits


def lengths(each: Tensor) -> Tensor:
    """float32[n, 1]: the norm of each row of ``each``: float32[n, ...], in runs so that rounding does not add up."""
    flat = each if each.dim() == 2 else each.flatten(1)
    size = flat.shape[1]
    if size <= _RUN:
        return _norm(flat, keep=True)
    cut = size // _RUN * _RUN
    found = _norm(_norm(flat[:, :cut].reshape(len(flat), -1, _RUN)), keep=True)
    return found if cut == size else torch.hypot(found, _norm(flat[:, cut:], keep=True))


def _norm(each: Tensor, keep: bool = False) -> Tensor:
    found: Tensor = torch.linalg.vector_norm(each, dim=-1, keepdim=keep)
    return found


class LayerCall(ABC):
    """One call of one layer: made by the forward pass, told the gradient at its output, asked for norms and then for sums."""

    gradient: Tensor  # of the loss, at the output; set after the backward pass

    def __init__(self, module: Any, trained: frozenset[str], inputs: Tensor, output: Tensor) -> None:
        self.inputs = inputs
        self.version = inputs._version
        self.weight_wanted, self.bias_wanted = "weight" in trained, "bias" in trained

    @abstractmethod
    def norms(self, n: int) -> Tensor:
        """float32[n, 1]. Keeps what the sum needs."""

    @abstractmethod
    def sum_into(self, factors: Tensor, weight: Tensor | None, bias: Tensor | None) -> None:
        """Write the sum over examples of factor * gradient, for ``factors``: float32[n, 1]; None where none is trained."""

    def leave_out(self, bad: Tensor) -> None:
        """Forget the examples of ``bad``: bool[n]. A factor of 0 is not enough: 0 * inf is no number."""
        for name, value in vars(self).items():
            if isinstance(value, Tensor) and value.is_floating_point():
                setattr(self, name, without(value, bad))


def without(each: Tensor, bad: Tensor) -> Tensor:
    """``each``, of one or more rows an example, with zeros in the rows of the examples in ``bad``: bool[n]."""
    return each.reshape(len(bad), -1).masked_fill(bad[:, None], 0.0).view(each.shape)


class LinearCall(LayerCall):
    """dW = sum over positions of g aᵀ, db = sum of g."""

    def norms(self, n: int) -> Tensor:
        gradient = self.gradient
        wide, narrow = gradient.shape[-1], self.inputs.shape[-1]
        if gradient.dim() == 2 and gradient.shape[0] == n:
            length = lengths(gradient)
            if not self.weight_wanted:
                return length
            # Above what squares too small for float32 can hide, lest a large factor of the other makes it matter.
            product = length.add_(_HIDDEN) * lengths(self.inputs).add_(_HIDDEN)
            return torch.hypot(product, length) if self.bias_wanted else product
        positions = gradient.numel() // (n * wide)
        self.gradient, self.inputs = gradient.reshape(n, positions, wide), self.inputs.reshape(n, positions, narrow)
        shift = lengths(self.gradient.sum(dim=1)) if self.bias_wanted else gradient.new_zeros(n, 1)
        if not self.weight_wanted:
            return shift
        way = _by_positions if 2 * positions**2 < wide * narrow else _by_products
        return torch.hypot(way(self.gradient, self.inputs), shift)

    def sum_into(self, factors: Tensor, weight: Tensor | None, bias: Tensor | None) -> None:
        gradient, inputs = self.gradient, self.inputs
        if gradient.dim() == 2:
            scaled = gradient * factors
        else:
            scaled, inputs = (gradient * factors.unsqueeze(2)).flatten(0, 1), inputs.flatten(0, 1)
        if weight is not None:
            torch.mm(scaled.t(), inputs, out=weight)
        if bias is not None:
            torch.sum(scaled, dim=0, out=bias)


def _by_products(gradient: Tensor, inputs: Tensor) -> Tensor:
    """float32[n, 1]: norms of gᵀa, made for a few examples at a time."""
    n, _, wide = gradient.shape
    block = max(1, _BLOCK // (wide * inputs.shape[2]))
    parts = [
        lengths(torch.bmm(gradient[start : start + block].transpose(1, 2), inputs[start : start + block]))
        for start in range(0, n, block)
    ]
    return torch.cat(parts)


def _by_positions(gradient: Tensor, inputs: Tensor) -> Tensor:
    """The same as the sum of (g gᵀ) * (a aᵀ), where positions are fewer than weights.

    In float64: gradients of positions that cancel would leave nothing but rounding.
    """
    n, positions, wide = gradient.shape
    block = max(1, _BLOCK // (positions * (positions + wide + inputs.shape[2])))
    parts = []
    for start in range(0, n, block):
        g, a = (each[start : start + block].double() for each in (gradient, inputs))
        parts.append((torch.bmm(g, g.transpose(1, 2)) * torch.bmm(a, a.transpose(1, 2))).sum(dim=(1, 2))[:, None])
    return torch.cat(parts).clamp_(min=0.0).sqrt_().float()


class ScaleCall(LayerCall):
    """Layers that scale and shift: per-example gradients are small, and kept."""

    scale: Tensor | None = None
    shift: Tensor | None = None

    def _measured(self) -> Tensor:
        kept = [lengths(each) for each in (self.scale, self.shift) if each is not None]
        return kept[0] if len(kept) == 1 else torch.hypot(*kept)

    def sum_into(self, factors: Tensor, weight: Tensor | None, bias: Tensor | None) -> None:
        for each, out in ((self.scale, weight), (self.shift, bias)):
            if out is not None and each is not None:
                torch.mv(each.t(), factors.view(-1), out=out.view(-1))


class GroupNormCall(ScaleCall):
    """dγ = sum over positions of g (a - mean) rstd, dβ = sum of g."""

    def __init__(self, module: nn.GroupNorm, trained: frozenset[str], inputs: Tensor, output: Tensor) -> None:
        super().__init__(module, trained, inputs, output)
        self._channels = module.num_channels // module.num_groups
        # Read now: the graph forgets them in its backward pass.
        self.mean, self.rstd = _statistics(output, inputs.reshape(len(inputs), module.num_groups, -1), module.eps)

    def norms(self, n: int) -> Tensor:
        gradient = self.gradient
        rows, channels = gradient.shape[:2]
        g, a = (each.reshape(rows, channels, -1) for each in (gradient, self.inputs))
        shift = g.sum(dim=2)
        if self.weight_wanted:
            products = torch.linalg.vecdot(g, a)
            mean, rstd = (each.repeat_interleave(self._channels, dim=1) for each in (self.mean, self.rstd))
            self.scale = over_views(products.sub_(mean * shift).mul_(rstd), n)
        self.shift = over_views(shift, n) if self.bias_wanted else None
        return self._measured()


class LayerNormCall(ScaleCall):
    """As :class:`GroupNormCall`, with statistics of each position."""

    def __init__(self, module: nn.LayerNorm, trained: frozenset[str], inputs: Tensor, output: Tensor) -> None:
        super().__init__(module, trained, inputs, output)
        self._size = module.weight.numel()
        self.mean, self.rstd = _statistics(output, inputs.reshape(len(inputs), -1, self._size), module.eps)

    def norms(self, n: int) -> Tensor:
        gradient = self.gradient
        g, a = (each.reshape(n, -1, self._size) for each in (gradient, self.inputs))
        if self.weight_wanted:
            mean, rstd = (each.reshape(n, -1, 1) for each in (self.mean, self.rstd))
            self.scale = ((a - mean).mul_(rstd).mul_(g)).sum(dim=1)
        self.shift = g.sum(dim=1) if self.bias_wanted else None
        return self._measured()


def over_views(rows: Tensor, n: int) -> Tensor:
    """float32[n, size]: the rows of each example added up."""
    return rows if len(rows) == n else rows.view(n, -1, rows.shape[1]).sum(dim=1)


def _statistics(output: Tensor, grouped: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Mean and 1 / standard deviation over the last dimension of ``grouped``: float32[row, group, value], both [row, group].

    From the graph where it holds them.
    """
    shape = grouped.shape[:2]
    node: Any = output.grad_fn
    if type(node).__name__ in ("NativeGroupNormBackward0", "NativeLayerNormBackward0"):
        mean, rstd = node._saved_result1, node._saved_result2
        if mean.numel() == rstd.numel() == shape.numel():
            return mean.detach().reshape(shape), rstd.detach().reshape(shape)
    variance, mean = torch.var_mean(grouped.detach(), dim=2, correction=0)
    return mean, (variance + eps).rsqrt_()


class EmbeddingCall(LayerCall):
    """The gradient of a table: rows of one index add up."""

    def __init__(self, module: nn.Embedding, trained: frozenset[str], inputs: Tensor, output: Tensor) -> None:
        super().__init__(module, trained, inputs, output)
        self._padding = module.padding_idx

    def norms(self, n: int) -> Tensor:
        gradient = self.gradient
        size = gradient.shape[-1]
        self.inputs = self.inputs.reshape(n, -1)
        self.gradient = gradient.reshape(n, -1, size)
        if self._padding is not None:
            self.gradient = self.gradient.masked_fill((self.inputs == self._padding)[:, :, None], 0.0)
        if self.inputs.shape[1] == 1:
            return lengths(self.gradient)
        example = torch.arange(n, device=gradient.device)
        place = example[:, None] * (self.inputs.max() + 1) + self.inputs
        found, slots = torch.unique(place, return_inverse=True)
        added = gradient.new_zeros(len(found), size).index_add_(0, slots.flatten(), self.gradient.flatten(0, 1))
        owner = found // (self.inputs.max() + 1)
        return gradient.new_zeros(n, 1).index_add_(0, owner, lengths(added).square_()).sqrt_()

    def sum_into(self, factors: Tensor, weight: Tensor | None, bias: Tensor | None) -> None:
        if weight is not None:
            scaled = self.gradient * factors.unsqueeze(2)
            weight.zero_().index_add_(0, self.inputs.flatten(), scaled.flatten(0, 1))
