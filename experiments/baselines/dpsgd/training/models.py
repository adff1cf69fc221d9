"""Models for DP-SGD by name. None of them mixes records: normalisation is within a record, or there is none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import torch
from torch import Tensor, nn

from pate.errors import ParameterError
from pate.experiments.baselines.dpsgd.settings import Settings, check_model_name
from pate.references import load_reference

Factory = Callable[[Sequence[int], int, Settings], nn.Module]


class TemperedSigmoid(nn.Module):
    """scale * sigmoid(temperature * x) - offset: bounded, so gradients stay small (Papernot et al. 2021, arXiv:2007.14191).

    With scale 2, temperature 2, offset 1 it is tanh. The defaults are that paper's for Fashion-MNIST.
    """

    def __init__(self, scale: float = 1.58, temperature: float = 3.0, offset: float = 0.71) -> None:
        super().__init__()
        self.scale, self.temperature, self.offset = scale, temperature, offset

    def forward(self, x: Tensor) -> Tensor:
        return self.scale * torch.sigmoid(self.temperature * x) - self.offset


def logistic(shape: Sequence[int], n_classes: int, settings: Settings) -> nn.Module:
    """One linear layer, from zero: nothing is drawn, and all classes are alike at first."""
    layer = nn.Linear(prod(shape), n_classes, bias=settings.bias)
    for each in layer.parameters():
        nn.init.zeros_(each)
    return nn.Sequential(nn.Flatten(), layer)


def mlp(shape: Sequence[int], n_classes: int, settings: Settings) -> nn.Module:
    """One hidden layer of ``width`` units (64)."""
    units = settings.width or 64
    hidden = nn.Linear(prod(shape), units)
    return nn.Sequential(nn.Flatten(), hidden, _activation(settings.activation), nn.Linear(units, n_classes))


def cnn(shape: Sequence[int], n_classes: int, settings: Settings) -> nn.Module:
    """Two convolutions and two linear layers: 26,010 parameters for 28 x 28 (Papernot et al. 2021, Table 1)."""
    channels, *_ = _picture(shape, "cnn", 14)
    first, activation = settings.width or 16, settings.activation
    body = nn.Sequential(
        nn.Conv2d(channels, first, 8, stride=2, padding=2),
        _activation(activation),
        nn.MaxPool2d(2, 1),
        nn.Conv2d(first, 2 * first, 4, stride=2),
        _activation(activation),
        nn.MaxPool2d(2, 1),
        nn.Flatten(),
    )
    with torch.no_grad():
        flat = body(torch.zeros(1, *shape)).shape[1]
    return nn.Sequential(*body, nn.Linear(flat, 2 * first), _activation(activation), nn.Linear(2 * first, n_classes))


def group_norm_cnn(shape: Sequence[int], n_classes: int, settings: Settings) -> nn.Module:
    """Three pairs of convolutions with GroupNorm and a mean over places, for photographs."""
    channels, *_ = _picture(shape, "group-norm-cnn", 8)
    layers: list[nn.Module] = []
    before = channels
    for stage, wide in enumerate((1, 2, 4)):
        after = wide * (settings.width or 32)
        for _ in range(2):
            layers += [nn.Conv2d(before, after, 3, padding=1), nn.GroupNorm(_groups(after), after)]
            layers.append(_activation(settings.activation))
            before = after
        if stage < 2:
            layers.append(nn.MaxPool2d(2))
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, n_classes))


MODELS: dict[str, Factory] = {"logistic": logistic, "mlp": mlp, "cnn": cnn, "group-norm-cnn": group_norm_cnn}


def make_model(name: str, shape: Sequence[int], n_classes: int, settings: Settings) -> nn.Module:
    """A built-in model, or "package.module:factory", called with the shape of a record and the number of classes."""
    if ":" in name:
        found = load_reference(name)(tuple(shape), n_classes)
        if not isinstance(found, nn.Module):
            raise ParameterError(f"{name!r} must return a torch.nn.Module, got {type(found).__name__}.")
        return found
    check_model_name(name)
    return MODELS[name](shape, n_classes, settings)


def _activation(name: str) -> nn.Module:
    kinds: dict[str, Callable[[], Any]] = {"tanh": nn.Tanh, "tempered-sigmoid": TemperedSigmoid, "relu": nn.ReLU}
    made: nn.Module = kinds[name]()
    return made


def _groups(channels: int) -> int:
    return next(count for count in (16, 8, 4, 2, 1) if channels % count == 0)


def _picture(shape: Sequence[int], name: str, least: int) -> Sequence[int]:
    if len(shape) != 3 or min(shape[1:]) < least:
        raise ParameterError(
            f"{name} is for pictures [channel, height, width] of at least {least} x {least} pixels; these records have shape "
            f"{list(shape)}. Take logistic or mlp, or give shape = [channel, height, width] for flat pictures."
        )
    return shape
