"""Networks by name. Factories are plain functions, so that importing this module does not import torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pate.errors import ParameterError
from pate.extras import require
from pate.validation import whole

if TYPE_CHECKING:
    from torch.nn import Module

SMALLEST = 4  # pixels
POOLED = 7  # pixels: smaller maps are not pooled, since little would be left of 8x8 images


def small_cnn(n_classes: int, input_shape: Sequence[int], width: int = 16) -> Module:
    """Three convolutions, each pooled and normalised, and one linear layer: 17,354 parameters for 28x28 and 10 classes.

    input_shape: (channel, height, width). Why it looks so: max-pooling early is where channels_last gains most on a CPU;
    a norm after the pooling costs a quarter of one before it; GroupNorm with one group needs no running statistics (a
    teacher has few records, and vmap can stack it) and makes the net insensitive to the scale of the pixels.
    """
    whole(width, "width", 1)
    if len(input_shape) != 3 or min(input_shape[1:]) < SMALLEST:
        raise ParameterError(
            f"A CNN needs images of at least {SMALLEST}x{SMALLEST} pixels, [image, height, width] or [image, channel, height, "
            f"width]; got records of shape {tuple(input_shape)}. Flat images need reshape=[channel, height, width]; tables "
            "and smaller images suit logistic or MLP teachers."
        )
    nn = require("torch.nn", "train")
    channels, high, wide = input_shape
    layers = []
    for size, before, after in ((5, channels, width), (3, width, 2 * width), (3, 2 * width, 2 * width)):
        layers.append(nn.Conv2d(before, after, size, padding=size // 2))
        if min(high, wide) >= POOLED:
            layers.append(nn.MaxPool2d(2))
            high, wide = high // 2, wide // 2
        layers += [nn.GroupNorm(1, after), nn.ReLU()]
    net: Module = nn.Sequential(*layers, nn.Flatten(), nn.Linear(2 * width * high * wide, n_classes))
    return net
