"""How an example's gradient is scaled, so that it moves the sum by the bound at most."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from pate.errors import ParameterError
from pate.validation import positive

_MARGIN = 1e-6  # relative; above the rounding of float32 norms, so that a scaled gradient is not longer than the bound

_LEAST, _MOST = 1e-10, 1e15


@dataclass(frozen=True)
class Clipping:
    """The rule by which gradients are clipped.

    ``bound`` is C, the L2 sensitivity of the whole sum to adding or removing one example. ``per_layer`` clips each layer to
    C / sqrt(number of layers), so that the whole is still C. ``automatic`` scales by C / (norm + stability) in place of
    min(1, C / norm) (Bu et al. 2022, arXiv:2206.07136).

    >>> Clipping(bound=0)
    Traceback (most recent call last):
    ...
    pate.errors.ParameterError: The clipping bound must be a finite number greater than 0, got 0.
    """

    bound: float = 1.0
    per_layer: bool = False
    automatic: bool = False
    stability: float = 0.01

    def __post_init__(self) -> None:
        positive(self.bound, "The clipping bound")
        if not _LEAST <= self.bound <= _MOST:
            raise ParameterError(
                f"The clipping bound must lie in [{_LEAST:g}, {_MOST:g}], where squares keep their digits, got {self.bound}."
            )
        positive(self.stability, "The stability of automatic clipping")
        for name in ("per_layer", "automatic"):
            if not isinstance(getattr(self, name), bool):
                raise ParameterError(f"{name} must be True or False, got {getattr(self, name)!r}.")

    def factors(self, norms: Tensor) -> Tensor:
        """float32[example, group]: what multiplies each gradient, given ``norms`` of the same shape."""
        bound = self.bound * (1 - _MARGIN) / math.sqrt(norms.shape[1])
        # Never divided by less than the bound, so that it is 1 below it.
        lengths = norms + self.stability if self.automatic else norms.clamp(min=bound)
        return lengths.reciprocal_().mul_(bound)


def unusable(norms: Tensor) -> Tensor | None:
    """bool[example]: whether a norm of the example is infinite or no number, and it contributes nothing; None if none is."""
    if math.isfinite(float(norms.sum())):  # one number, as this is asked in every step
        return None
    bad = ~torch.isfinite(norms).all(dim=1)
    return bad if bool(bad.any()) else None
