"""The two networks of the semi-supervised GAN: a discriminator without batch norm, and generators."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from pate.student.neural.nets import Net, make_net

LATENT = 64  # random numbers that a generated record is made of


def discriminator(input_shape: Sequence[int], n_classes: int, width: int) -> Net:
    """The usual network for records of this shape, :func:`without_batch_norm`."""
    return without_batch_norm(make_net("auto", input_shape, n_classes, width))


def without_batch_norm(net: Net) -> Net:
    """``net`` with group norms in the place of batch norms, and fixed units in the place of one that comes before all layers.

    Batch norm has no good use in telling public records from generated ones: normalised by their own batches, both have the
    same mean feature; by one's statistics, the network tells which statistics were used (tried: on digits it then fits its
    labels and predicts the rest at 55%).
    """
    first = True
    for name, module in list(net.named_modules()):
        if isinstance(module, _BatchNorm):
            features = module.num_features
            norm: nn.Module = Units(features) if first else nn.GroupNorm(math.gcd(8, features), features)
            parent, _, child = name.rpartition(".")
            setattr(net.get_submodule(parent), child, norm)
        first = first and not any(True for _ in module.parameters(recurse=False))
    return net


class Units(nn.Module):
    """Columns minus their mean, over their standard deviation: those of public records, set by :meth:`measure`."""

    mean: Tensor
    scale: Tensor

    def __init__(self, columns: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(columns))
        self.register_buffer("scale", torch.ones(columns))

    def measure(self, records: Tensor) -> None:
        """From records [record, ...]; a constant column becomes 0."""
        flat = records.flatten(1)
        deviation = flat.std(dim=0, correction=0)
        self.mean.copy_(flat.mean(dim=0))
        self.scale.copy_(torch.where(deviation > 0, deviation, 1.0))

    def forward(self, x: Tensor) -> Tensor:
        return (x - self.mean) / self.scale


def make_generator(public: Tensor, width: int) -> nn.Module:
    """A generator of records like ``public`` [record, ...], on their device."""
    kind = PictureGenerator if public.ndim == 4 else TableGenerator
    return kind(public, width).to(public.device)


class TableGenerator(nn.Module):
    """float32[record, LATENT] -> float32[record, column], with the public columns' means and scales."""

    mean: Tensor
    scale: Tensor

    def __init__(self, public: Tensor, width: int) -> None:
        super().__init__()
        columns = public.shape[1]
        self.body = nn.Sequential(*_dense(LATENT, 4 * width), *_dense(4 * width, 4 * width), nn.Linear(4 * width, columns))
        self.register_buffer("mean", public.mean(dim=0))
        self.register_buffer("scale", public.std(dim=0, correction=0))

    def forward(self, noise: Tensor) -> Tensor:
        standard: Tensor = self.body(noise)
        return standard * self.scale + self.mean


class PictureGenerator(nn.Module):
    """float32[record, LATENT] -> float32[record, channel, height, width], between the darkest and brightest public pixel."""

    def __init__(self, public: Tensor, width: int) -> None:
        super().__init__()
        channels, *side = public.shape[1:]
        quarter, half = ([math.ceil(each / part) for each in side] for part in (4, 2))
        self.body = nn.Sequential(
            *_dense(LATENT, 2 * width * math.prod(quarter)),
            nn.Unflatten(1, (2 * width, *quarter)),
            nn.Upsample(tuple(half)),
            nn.Conv2d(2 * width, width, 3, padding=1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.Upsample(tuple(side)),
            nn.Conv2d(width, channels, 5, padding=2),
            nn.Sigmoid(),
        ).to(memory_format=torch.channels_last)
        self.darkest, self.range = float(public.min()), float(public.max() - public.min())

    def forward(self, noise: Tensor) -> Tensor:
        pictures: Tensor = self.body(noise)
        return self.darkest + self.range * pictures


def _dense(before: int, after: int) -> tuple[nn.Module, ...]:
    return nn.Linear(before, after, bias=False), nn.BatchNorm1d(after), nn.ReLU()
