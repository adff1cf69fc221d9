"""Training for :class:`~pate.features.contrastive.Contrastive`. Imports torch: import it only where torch is wanted."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from pate.arrays import FloatArray
from pate.execution.threads import one_thread
from pate.features.base import Float32Array, Progress

_WEIGHT_DECAY = 1e-4


def train(
    images: Float32Array,
    *,
    channels: Sequence[int],
    features: int,
    epochs: int,
    batch: int,
    temperature: float,
    rate: float,
    strength: float,
    seed: int,
    progress: Progress | None,
) -> list[tuple[FloatArray, FloatArray]]:
    """(kernel [term, output], bias [output]) of the four layers, batch normalisation worked in.

    images: float32[record, height, width] in 0..1. The caller's random state of torch stays as it was.
    """
    with one_thread(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        data = torch.from_numpy(images)
        network = _network(data, channels, features)
        network.train()
        steps = len(data) // batch
        optimiser = torch.optim.AdamW(network.parameters(), lr=rate, weight_decay=_WEIGHT_DECAY)
        pace = torch.optim.lr_scheduler.OneCycleLR(optimiser, max_lr=rate, total_steps=epochs * steps + 1)
        for epoch in range(epochs):
            order = torch.randperm(len(data))
            for step in range(steps):
                chosen = data[order[step * batch : (step + 1) * batch]]
                views = torch.cat([distorted(chosen, strength), distorted(chosen, strength)])
                loss = contrast(network(views[:, None].contiguous(memory_format=torch.channels_last)), temperature)
                optimiser.zero_grad(set_to_none=True)
                loss.backward()  # type: ignore[no-untyped-call]
                optimiser.step()
                pace.step()
            if progress is not None:
                progress("contrastive", epoch + 1, epochs)
        return _folded(network)


def _network(data: Tensor, channels: Sequence[int], features: int) -> nn.Sequential:
    first, second, third = channels
    body = nn.Sequential(
        nn.Conv2d(1, first, 5, stride=2, padding=2, bias=False),
        nn.BatchNorm2d(first),
        nn.ReLU(),
        nn.Conv2d(first, second, 3, padding=1, bias=False),
        nn.BatchNorm2d(second),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(second, third, 3, padding=1, bias=False),
        nn.BatchNorm2d(third),
        nn.ReLU(),
        nn.MaxPool2d(2),
    )
    down, right = ((side + 1) // 2 // 2 // 2 for side in data.shape[1:])
    body.extend([nn.Flatten(), nn.Linear(third * down * right, features, bias=False), nn.BatchNorm1d(features)])
    return body.to(memory_format=torch.channels_last)


def contrast(outputs: Tensor, temperature: float) -> Tensor:
    """NT-Xent: each of 2n outputs [view, feature] should find its other view, n places away, among all others."""
    unit = functional.normalize(outputs, dim=1)
    scores = unit @ unit.T / temperature
    scores = scores.masked_fill(torch.eye(len(unit), dtype=torch.bool), float("-inf"))
    half = len(unit) // 2
    partner = torch.arange(len(unit)).roll(half)
    return functional.cross_entropy(scores, partner)


@torch.no_grad()
def distorted(images: Tensor, strength: float) -> Tensor:
    """A random variant of each picture [record, height, width], as strong as ``strength``."""
    count, height, width = images.shape
    angle, stretch_x, stretch_y, shear, move_x, move_y = (torch.rand(6, count) * 2 - 1) * strength
    angle = angle * 0.35  # radians
    across, down = 1 + 0.2 * stretch_x, 1 + 0.2 * stretch_y
    cosine, sine = angle.cos(), angle.sin()
    affine = torch.stack(
        [
            torch.stack([cosine * across, -sine * across + 0.25 * shear, 0.15 * move_x], dim=1),
            torch.stack([sine * down, cosine * down, 0.15 * move_y], dim=1),
        ],
        dim=1,
    )
    grid = functional.affine_grid(affine, [count, 1, height, width], align_corners=False)
    waves = torch.randn(count, 2, 5, 5) * (0.06 * strength)
    waves = functional.interpolate(waves, size=(height, width), mode="bicubic", align_corners=False)
    out = functional.grid_sample(images[:, None], grid + waves.permute(0, 2, 3, 1), align_corners=False)
    thick = ((torch.rand(count, 1, 1, 1) * 2 - 1) * 0.7 * strength).clamp(-1, 1)
    wider = functional.max_pool2d(out, 3, stride=1, padding=1)
    thinner = -functional.max_pool2d(-out, 3, stride=1, padding=1)
    out = out + thick.clamp(min=0) * (wider - out) + (-thick).clamp(min=0) * (thinner - out)
    return _cut_out(out[:, 0], strength)


def _cut_out(images: Tensor, strength: float) -> Tensor:
    """A square of up to a third of the side set to 0, in half of the pictures."""
    count, height, width = images.shape
    half = torch.rand(count, 1, 1) * (min(height, width) * strength / 6)
    half = torch.where(torch.rand(count, 1, 1) < 0.5, half, -1.0)
    row, column = torch.rand(count, 1, 1) * height, torch.rand(count, 1, 1) * width
    rows, columns = torch.arange(height)[None, :, None] + 0.5, torch.arange(width)[None, None, :] + 0.5
    inside = ((rows - row).abs() <= half) & ((columns - column).abs() <= half)
    return images.masked_fill(inside, 0.0)


def _folded(network: nn.Sequential) -> list[tuple[FloatArray, FloatArray]]:
    """Each layer and the normalisation behind it as one kernel and bias, for channels-last maps."""
    layers: list[tuple[FloatArray, FloatArray]] = []
    for layer, norm in pairwise(network):
        if not isinstance(norm, nn.BatchNorm1d | nn.BatchNorm2d):
            continue
        weight = _numbers(layer.weight)
        gain = _numbers(norm.weight) / np.sqrt(_numbers(norm.running_var) + norm.eps)
        if isinstance(layer, nn.Linear):  # torch flattens channel by channel, we place by place
            weight = weight.reshape(len(weight), layers[-1][1].size, -1).transpose(0, 2, 1)
        kernel = weight.reshape(len(weight), -1).T * gain
        layers.append((kernel, _numbers(norm.bias) - _numbers(norm.running_mean) * gain))
    return layers


def _numbers(values: Tensor | nn.Module | None) -> FloatArray:
    assert isinstance(values, Tensor)  # a batch normalisation with its default settings has them all
    return values.detach().numpy().astype(np.float64)
