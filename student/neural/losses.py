"""Losses that bear wrong labels."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional


def generalised_cross_entropy(scores: Tensor, labels: Tensor, q: float) -> Tensor:
    """(1 - p^q)/q of each record, p the probability of its label; cross-entropy at q = 0, its limit; 1 - p at q = 1.

    Zhang and Sabuncu 2018 (arXiv:1805.07836): the larger q, the less a label counts that the network finds impossible.
    scores: float32[record, class]; labels: int64[record]; gives float32[record].
    """
    log_p = -functional.cross_entropy(scores, labels, reduction="none")
    return -torch.expm1(q * log_p) / q if q else -log_p
