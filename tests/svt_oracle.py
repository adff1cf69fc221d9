"""The law of the sparse vector technique by quadrature over the threshold's noise: every outcome, by a plain recursion."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from scipy.special import logsumexp
from scipy.stats import laplace, norm

from pate.mechanisms import AboveThreshold

Outcome = tuple[bool, ...]
"""Which queries were above, up to where it halted."""

LAWS: dict[str, Any] = {"laplace": laplace, "gaussian": norm}


@cache
def nodes(law: str, scale: float) -> tuple[np.ndarray, np.ndarray]:
    """Places and probabilities of a fine midpoint rule; corners of the integrand at whole numbers fall between cells."""
    reach = int(np.ceil(scale * (40 if law == "laplace" else 12)))
    per_vote = max(64, int(np.ceil(400 / scale)))
    z = (np.arange(-reach * per_vote, reach * per_vote) + 0.5) / per_vote
    return z, LAWS[law].pdf(z, scale=scale) / per_vote


def outcomes(svt: AboveThreshold, values: list[int]) -> dict[Outcome, float]:
    """The probability of every outcome of comparing ``values``."""
    z, weight = nodes(svt.law, svt.threshold_scale)
    above = [LAWS[svt.law].sf(svt.threshold + z - value, scale=svt.query_scale) for value in values]
    below = [LAWS[svt.law].cdf(svt.threshold + z - value, scale=svt.query_scale) for value in values]
    found: dict[Outcome, float] = {}

    def go(told: Outcome, given_z: np.ndarray, before: float) -> None:
        if len(told) == len(values) or sum(told) == svt.tops:
            found[told] = found.get(told, 0.0) + before * float(given_z @ weight)
            return
        chance = above[len(told)]
        go((*told, False), given_z * below[len(told)], before)
        if svt.refresh:
            # The threshold is drawn anew: what came before is integrated, what follows begins again.
            go((*told, True), np.ones_like(z), before * float((given_z * chance) @ weight))
        else:
            go((*told, True), given_z * chance, before)

    go((), np.ones_like(z), 1.0)
    return found


def renyi(p: dict[Outcome, float], q: dict[Outcome, float], order: float) -> float:
    return float(logsumexp([order * np.log(p[o]) - (order - 1) * np.log(q[o]) for o in p]) / (order - 1))


def largest_ratio(p: dict[Outcome, float], q: dict[Outcome, float]) -> float:
    return max(float(np.log(p[o] / q[o])) for o in p)
