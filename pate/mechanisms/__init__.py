"""Elementary mechanisms: each draws exact noise and states its cost as an :class:`~pate.privacy.curve.RdpCurve`.

>>> from pate.mechanisms import AboveThreshold, NoisyCounts
>>> screening = AboveThreshold(100, threshold_scale=20, query_scale=40).cost(500)
>>> counting = NoisyCounts(scale=30).cost(groups=10)
>>> round((10 * (screening + counting)).epsilon(1e-6).epsilon, 2)
1.38
"""

from __future__ import annotations

from pate.mechanisms.above_threshold import AboveThreshold, Crossings, Law
from pate.mechanisms.counts import Neighbours, NoisyCounts
from pate.mechanisms.exponential import ExponentialMechanism, PermuteAndFlip
from pate.mechanisms.propose_test_release import ProposeTestRelease, median_distance, private_mode
from pate.mechanisms.stability import StabilityTest, plurality_distance

__all__ = [
    "AboveThreshold",
    "Crossings",
    "ExponentialMechanism",
    "Law",
    "Neighbours",
    "NoisyCounts",
    "PermuteAndFlip",
    "ProposeTestRelease",
    "StabilityTest",
    "median_distance",
    "plurality_distance",
    "private_mode",
]
