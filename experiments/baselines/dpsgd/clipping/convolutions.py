"""Convolutions: per-example gradients, by a convolution of groups or from the patches that the kernel saw."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.grad import conv2d_weight

from pate.experiments.baselines.dpsgd.clipping.layers import LayerCall, lengths, over_views, without

# Measured, on one thread: a convolution of groups wins from eight channels on, while a row's kernel fits in the cache.
_CHANNELS = 8
_SMALL = 1 << 16
_CHUNK = 1 << 18  # floats of per-example gradients that one such convolution makes (1 MB)
_BLOCK = 1 << 17  # floats of patches made at a time; with 4 MB of them it took half as long again
_KEPT = 1 << 25  # floats of per-example gradients kept for the sum (128 MB); beyond it, a second convolution makes it


class ConvCall(LayerCall):
    """Conv1d and Conv2d; the first as the second, of height one."""

    kept: list[Tensor] | None = None
    _grouped: bool
    shift: Tensor | None = None

    def __init__(self, module: nn.Conv1d | nn.Conv2d, trained: frozenset[str], inputs: Tensor, output: Tensor) -> None:
        super().__init__(module, trained, inputs, output)
        self._module = module
        self._flat = isinstance(module, nn.Conv1d)
        self._kernel, self._stride, self._dilation = (
            (1, *each) if self._flat else each for each in (module.kernel_size, module.stride, module.dilation)
        )

    def norms(self, n: int) -> Tensor:
        gradient = self.gradient
        padded = self._padded()
        self.inputs, self.gradient = (each.unsqueeze(2) if self._flat else each for each in (padded, gradient.contiguous()))
        if self.bias_wanted:
            self.shift = over_views(self.gradient.sum(dim=(2, 3)), n)
        found = [] if self.shift is None else [lengths(self.shift)]
        found += [self._weight_norms(n)] if self.weight_wanted else []
        return found[0] if len(found) == 1 else torch.hypot(*found)

    def _padded(self) -> Tensor:
        around = self._module._reversed_padding_repeated_twice  # what torch's own forward pads with, 'same' included
        if not any(around):
            return self.inputs.contiguous()
        mode = self._module.padding_mode
        return functional.pad(self.inputs, around, mode="constant" if mode == "zeros" else mode)

    def _weight_norms(self, n: int) -> Tensor:
        """Per-example gradients for a few examples at a time, kept for the sum unless they are too large."""
        views, size, groups = len(self.gradient) // n, self._module.weight.numel(), self._module.groups
        channels = self._module.in_channels // groups
        self._grouped = channels >= _CHANNELS and size <= _SMALL
        positions = self.gradient.shape[2] * self.gradient.shape[3]
        if self._grouped:
            step = max(1, _CHUNK // (views * size))
        else:
            step = max(1, _BLOCK // (views * groups * (size // self._module.out_channels) * positions))
        self.kept = [] if n * size <= _KEPT else None
        norms = []
        for start in range(0, n, step):
            stop = min(start + step, n)
            rows = slice(start * views, stop * views)
            work = self._by_convolution if self._grouped else self._by_patches
            made = work(self.inputs[rows], self.gradient[rows]).view(stop - start, views, size)
            made = made.squeeze(1) if views == 1 else made.sum(dim=1)
            if self.kept is not None:
                self.kept.append(made)
            norms.append(lengths(made))
        return torch.cat(norms)

    def _by_convolution(self, inputs: Tensor, gradient: Tensor) -> Tensor:
        """The rows side by side as groups of channels: the gradient of such a convolution has one kernel a row."""
        rows, shape = len(inputs), self._module.weight.shape
        made: Tensor = conv2d_weight(  # type: ignore[no-untyped-call]
            inputs.reshape(1, -1, *inputs.shape[2:]),
            (rows * shape[0], shape[1], *self._kernel),
            gradient.reshape(1, -1, *gradient.shape[2:]),
            stride=self._stride,
            dilation=self._dilation,
            groups=rows * self._module.groups,
        )
        return made

    def _by_patches(self, inputs: Tensor, gradient: Tensor) -> Tensor:
        """Patches times gradients: faster for few channels. Outputs are last, as _in_order() knows."""
        groups, positions = self._module.groups, gradient.shape[2] * gradient.shape[3]
        patches = self._patches(inputs).reshape(len(inputs) * groups, -1, positions)
        return torch.bmm(patches, gradient.reshape(len(patches), -1, positions).transpose(1, 2))

    def _in_order(self, made: Tensor) -> Tensor:
        shape, groups = self._module.weight.shape, self._module.groups
        if self._grouped:
            return made.view(shape)
        return made.view(groups, -1, shape[0] // groups).transpose(1, 2).reshape(shape)

    def _patches(self, inputs: Tensor) -> Tensor:
        """A view, float32[row, channel, kernel height, kernel width, output height, output width]."""
        rows, channels = inputs.shape[:2]
        sample, channel, down, right = inputs.stride()
        (dilation_down, dilation_right), (stride_down, stride_right) = self._dilation, self._stride
        steps = (down * dilation_down, right * dilation_right, down * stride_down, right * stride_right)
        return inputs.as_strided((rows, channels, *self._kernel, *self.gradient.shape[2:]), (sample, channel, *steps))

    def leave_out(self, bad: Tensor) -> None:
        super().leave_out(bad)
        if self.kept is not None:
            pieces = bad.split_with_sizes([len(each) for each in self.kept])
            self.kept = [without(each, some) for each, some in zip(self.kept, pieces, strict=True)]

    def sum_into(self, factors: Tensor, weight: Tensor | None, bias: Tensor | None) -> None:
        if bias is not None and self.shift is not None:
            torch.mv(self.shift.t(), factors.view(-1), out=bias)
        if weight is None:
            return
        if self.kept is not None:
            total = weight.new_zeros(weight.numel())
            for part, some in zip(self.kept, factors.view(-1).split_with_sizes([len(each) for each in self.kept]), strict=True):
                total.addmv_(part.t(), some)
            weight.copy_(self._in_order(total))
            return
        rows = factors.view(-1).repeat_interleave(len(self.gradient) // len(factors))
        shape = (*self._module.weight.shape[:2], *self._kernel)
        made = conv2d_weight(  # type: ignore[no-untyped-call]
            self.inputs,
            shape,
            self.gradient * rows[:, None, None, None],
            stride=self._stride,
            dilation=self._dilation,
            groups=self._module.groups,
        )
        weight.copy_(made.view(weight.shape))
