"""Training for :class:`~pate.features.contrastive.Contrastive`. Imports torch: import it only where torch is wanted."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from pate.arrays import FloatArray
from pate.execution.threads import one_thread
from pate.features.base import Float32Array, Progress
from pate.features.distortions import distorted

_WEIGHT_DECAY = 1e-4
_EPSILON = 1e-5  # that torch's batch normalisation adds to a variance


class Layer(NamedTuple):
    """A layer and the batch normalisation behind it, all float32 and in torch's own order."""

    weight: Float32Array  # [output, ...]
    gain: Float32Array  # [output], as the rest
    shift: Float32Array
    mean: Float32Array
    variance: Float32Array


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
) -> list[Layer]:
    """The four layers of the trained network.

    images: float32[record, height, width] in 0..1. The caller's random state of torch stays as it was.
    """
    with one_thread(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        data = torch.from_numpy(images)
        network = fresh_network(images.shape[1:], channels, features)
        network.train()
        steps = len(data) // batch
        optimiser = torch.optim.AdamW(network.parameters(), lr=rate, weight_decay=_WEIGHT_DECAY)
        pace = torch.optim.lr_scheduler.OneCycleLR(optimiser, max_lr=rate, total_steps=epochs * steps + 1)
        for epoch in range(epochs):
            order = torch.randperm(len(data))
            for step in range(steps):
                chosen = data[order[step * batch : (step + 1) * batch], None]
                views = torch.cat([distorted(chosen, strength), distorted(chosen, strength)])
                loss = contrast(network(views.contiguous(memory_format=torch.channels_last)), temperature)
                optimiser.zero_grad(set_to_none=True)
                loss.backward()  # type: ignore[no-untyped-call]
                optimiser.step()
                pace.step()
            if progress is not None:
                progress("contrastive", epoch + 1, epochs)
        return [
            Layer(*map(_numbers, (layer.weight, norm.weight, norm.bias, norm.running_mean, norm.running_var)))
            for layer, norm in _pairs(network)
        ]


def rebuilt(layers: Sequence[Layer]) -> nn.Sequential:
    """The network of these layers, with weights of its own, in evaluation mode. torch's random state stays as it was."""
    with torch.random.fork_rng(devices=[]), torch.no_grad():  # making layers draws weights
        features, places = layers[-1].weight.shape
        network = _network([len(layer.weight) for layer in layers[:-1]], places, features)
        for (layer, norm), values in zip(_pairs(network), layers, strict=True):
            targets = (layer.weight, norm.weight, norm.bias, norm.running_mean, norm.running_var)
            for target, value in zip(targets, values, strict=True):
                assert isinstance(target, Tensor)
                target.copy_(torch.from_numpy(value))
    return network.eval()


def fresh_network(shape: Sequence[int], channels: Sequence[int], features: int) -> nn.Sequential:
    """The untrained network for pictures of ``shape`` (height, width)."""
    down, right = ((side + 1) // 2 // 2 // 2 for side in shape)
    return _network(channels, channels[-1] * down * right, features)


def _network(channels: Sequence[int], places: int, features: int) -> nn.Sequential:
    """places: how many numbers the last layer gets."""
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
    body.extend([nn.Flatten(), nn.Linear(places, features, bias=False), nn.BatchNorm1d(features)])
    return body.to(memory_format=torch.channels_last)


def contrast(outputs: Tensor, temperature: float) -> Tensor:
    """NT-Xent: each of 2n outputs [view, feature] should find its other view, n places away, among all others."""
    unit = functional.normalize(outputs, dim=1)
    scores = unit @ unit.T / temperature
    scores = scores.masked_fill(torch.eye(len(unit), dtype=torch.bool), float("-inf"))
    half = len(unit) // 2
    partner = torch.arange(len(unit)).roll(half)
    return functional.cross_entropy(scores, partner)


def folded(layers: Sequence[Layer]) -> list[tuple[FloatArray, FloatArray]]:
    """(kernel [term, output], bias [output]) of each layer with its normalisation worked in, for channels-last maps."""
    out: list[tuple[FloatArray, FloatArray]] = []
    for weight, gain, shift, mean, variance in layers:
        factor = gain.astype(np.float64) / np.sqrt(variance.astype(np.float64) + _EPSILON)
        if weight.ndim == 2:  # torch flattens channel by channel, we place by place
            weight = weight.reshape(len(weight), out[-1][1].size, -1).transpose(0, 2, 1)
        out.append((weight.reshape(len(weight), -1).T * factor, shift - mean * factor))
    return out


def _pairs(network: nn.Sequential) -> list[tuple[nn.Conv2d | nn.Linear, nn.BatchNorm1d | nn.BatchNorm2d]]:
    """Each layer with the normalisation behind it."""
    return [
        (layer, norm)
        for layer, norm in pairwise(network)
        if isinstance(layer, nn.Conv2d | nn.Linear) and isinstance(norm, nn.BatchNorm1d | nn.BatchNorm2d)
    ]


def _numbers(values: Tensor | None) -> Float32Array:
    assert values is not None  # a batch normalisation with its default settings has them all
    return np.array(values.detach().numpy(), dtype=np.float32)
