"""Networks for students. Each maps a batch to an embedding, and a linear head maps that to scores."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from pate.errors import StudentError
from pate.references import load_reference


class Net(nn.Module):
    """``body`` [record, ...] -> [record, feature], ``head`` [record, feature] -> [record, class].

    precision: of the matrix products and convolutions of ``body``, torch.float32 or torch.bfloat16. Weights, head and losses
    are float32 in both.
    """

    precision: torch.dtype = torch.float32

    def __init__(self, body: nn.Module, features: int, n_classes: int) -> None:
        super().__init__()
        self.body = body
        self.head = nn.Linear(features, n_classes)

    def embed(self, x: Tensor) -> Tensor:
        with torch.autocast(x.device.type, torch.bfloat16, enabled=self.precision is torch.bfloat16):
            embedding: Tensor = self.body(x)
        return embedding.float()

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.head(self.embed(x))
        return scores


def make_net(kind: str, input_shape: Sequence[int], n_classes: int, width: int) -> Net:
    """``conv`` or ``mlp``; ``auto``: by the shape of a record; or "package.module:factory", called with the last three."""
    if kind == "auto":
        kind = "conv" if len(input_shape) == 3 else "mlp"
    if ":" in kind:
        found = load_reference(kind)(input_shape, n_classes, width)
        if not isinstance(found, Net):
            raise StudentError(f"{kind!r} must return a pate.student.neural.nets.Net, got {type(found).__name__}.")
        return found
    if kind == "mlp":
        columns = int(torch.tensor(input_shape).prod())
        return Net(mlp_body(columns, width), width, n_classes)
    if kind != "conv" or len(input_shape) != 3:
        raise StudentError(f"net must be 'auto', 'conv' (for pictures), 'mlp' or a reference, got {kind!r}.")
    net = Net(conv_body(input_shape, width), 4 * width, n_classes)
    return net.to(memory_format=torch.channels_last)


def mlp_body(columns: int, width: int) -> nn.Sequential:
    """Two hidden layers; the first normalises what comes in, so columns may have any scale."""
    return nn.Sequential(
        nn.Flatten(),
        nn.BatchNorm1d(columns),
        nn.Linear(columns, width),
        nn.BatchNorm1d(width),
        nn.ReLU(),
        nn.Linear(width, width),
        nn.BatchNorm1d(width),
        nn.ReLU(),
    )


def conv_body(input_shape: Sequence[int], width: int) -> nn.Sequential:
    """Five convolutions with two poolings and a mean over places at the end, for pictures of 8 x 8 pixels and more."""
    channels = input_shape[0]
    return nn.Sequential(
        *_layer(channels, width, 5, stride=2 if min(input_shape[1:]) >= 20 else 1),
        *_layer(width, 2 * width, 3),
        nn.MaxPool2d(2),
        *_layer(2 * width, 2 * width, 3),
        *_layer(2 * width, 4 * width, 3),
        nn.MaxPool2d(2),
        *_layer(4 * width, 4 * width, 1),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
    )


def _layer(before: int, after: int, side: int, stride: int = 1) -> tuple[nn.Module, ...]:
    convolution = nn.Conv2d(before, after, side, stride=stride, padding=side // 2, bias=False)
    return convolution, nn.BatchNorm2d(after), nn.LeakyReLU(0.1)
