"""The steps of DP-SGD. What one step draws is a function of the seed and its number, so a resumed simulation repeats itself."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from pate.experiments.baselines.dpsgd.accounting import Training
from pate.experiments.baselines.dpsgd.clipping import ClippedGradients
from pate.experiments.baselines.dpsgd.lots import PoissonLots, noised
from pate.experiments.baselines.dpsgd.settings import Settings
from pate.experiments.baselines.dpsgd.training.optimiser import FlatOptimiser
from pate.noise import Noise, SimulatedNoise
from pate.student.neural.augment import augment_named
from pate.student.neural.inputs import own_randomness


class Loop:
    """Draws lots, sums clipped gradients, adds noise, updates the weights."""

    def __init__(
        self,
        engine: ClippedGradients,
        optimiser: FlatOptimiser,
        records: Tensor,
        labels: Tensor,
        lots: PoissonLots,
        training: Training,
        settings: Settings,
        noise: Noise,
        seed: int,
    ) -> None:
        self._engine, self._optimiser = engine, optimiser
        self._records, self._labels = records, labels
        self._lots, self._training, self._settings = lots, training, settings
        self._noise, self._seed = noise, seed
        self._augment = None if settings.augment == "none" else augment_named(settings.augment, tuple(records.shape[1:]))
        self._norms: list[Tensor] = []
        self._bad = 0

    def take(self, steps: int, told: Callable[[], None]) -> None:
        bound = self._settings.clip
        for _ in range(steps):
            noise = self._noise_of_step()
            rows = torch.from_numpy(self._lots.draw(noise))
            with own_randomness(self._number("training")):
                total = self._clipped_sum(rows)
            gradient = noised(total.numpy(), self._training.sigma, bound, noise) / self._settings.lot_size
            self._optimiser.update(torch.from_numpy(gradient.astype(np.float32)))
            told()

    def diagnostics(self) -> dict[str, float]:
        """Private. Of the gradients since the last call."""
        norms = torch.cat(self._norms) if self._norms else torch.zeros(0)
        found = {
            "clipped": float((norms > self._settings.clip).float().mean()) if len(norms) else math.nan,
            "median_norm": float(norms.median()) if len(norms) else 0.0,
            "bad": float(self._bad),
        }
        self._norms, self._bad = [], 0
        return {key: value if math.isfinite(value) else 0.0 for key, value in found.items()}

    def _clipped_sum(self, rows: Tensor) -> Tensor:
        total = torch.zeros(self._engine.size)
        for part in torch.split(rows, self._settings.micro_batch):
            x, y = self._records[part], self._labels[part]
            views = self._settings.views
            if views > 1:
                x, y = x.repeat_interleave(views, dim=0), y.repeat_interleave(views)
            if self._augment is not None:
                x = self._augment(x, 1.0)
            found = self._engine.clipped_sum(x, y, views)
            total += found.total
            self._norms.append(found.norms.norm(dim=1))
            self._bad += found.bad
        return total

    def _noise_of_step(self) -> Noise:
        return SimulatedNoise(self._number("noise")) if self._noise.mode == "simulation" else self._noise

    def _number(self, what: str) -> int:
        seed = getattr(self._noise, "seed", 0) if what == "noise" else self._seed
        text = f"{what} {seed} {self._optimiser.step}"
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little") >> 1
