"""Training for :class:`~pate.features.masked.Masked`. Imports torch: import it only where torch is wanted."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from pate.arrays import FloatArray
from pate.execution.threads import one_thread
from pate.features.base import Progress
from pate.features.distortions import columns_swapped

_WEIGHT_DECAY = 1e-4


def train(
    rows: FloatArray,
    *,
    width: int,
    features: int,
    epochs: int,
    batch: int,
    share: float,
    mask_weight: float,
    rate: float,
    seed: int,
    progress: Progress | None,
) -> list[tuple[FloatArray, FloatArray]]:
    """(kernel [term, output], bias [output]) of the encoder's two layers.

    rows: [record, column] with mean 0 and mean variance 1. The caller's random state of torch stays as it was.
    """
    with one_thread(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        data = torch.from_numpy(rows.astype(np.float32))
        columns = data.shape[1]
        first, second = nn.Linear(columns, width), nn.Linear(width, features)
        network = nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), nn.Linear(features, 2 * columns))  # values, and the mask
        steps = len(data) // batch
        optimiser = torch.optim.AdamW(network.parameters(), lr=rate, weight_decay=_WEIGHT_DECAY)
        pace = torch.optim.lr_scheduler.OneCycleLR(optimiser, max_lr=rate, total_steps=epochs * steps + 1)
        for epoch in range(epochs):
            order = torch.randperm(len(data))
            for step in range(steps):
                true = data[order[step * batch : (step + 1) * batch]]
                given = columns_swapped(true, share)
                values, mask = network(given).chunk(2, dim=1)
                loss = functional.mse_loss(values, true)
                if mask_weight:
                    loss = loss + mask_weight * functional.binary_cross_entropy_with_logits(
                        mask, (given != true).to(mask.dtype)
                    )
                optimiser.zero_grad(set_to_none=True)
                loss.backward()  # type: ignore[no-untyped-call]
                optimiser.step()
                pace.step()
            if progress is not None:
                progress("masked", epoch + 1, epochs)
        return [(_numbers(layer.weight).T, _numbers(layer.bias)) for layer in (first, second)]


def _numbers(values: Tensor) -> FloatArray:
    return values.detach().numpy().astype(np.float64)
