"""The settings of a sanitised epsilon, by a rule that looks at public facts only.

The order and the noise are those with the smallest expected published epsilon, on average over three *stated* batches of votes:
64 histograms each, for the given numbers of teachers and classes, most of them agreed on, some split. No private vote is looked
at, so the choice is free of privacy cost. Where the true votes are otherwise, the figure is larger than it might have been, and
as valid.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Literal, TypeVar

import numpy as np
from scipy.special import ndtri

from pate.arrays import FloatArray, IntArray
from pate.errors import ParameterError
from pate.privacy.curve import check_delta, epsilons_at_orders
from pate.privacy.smooth.growth import Growth
from pate.privacy.smooth.release import bound_factor, gnss_rdp, largest_beta
from pate.privacy.smooth.table import CostTable
from pate.validation import whole

T = TypeVar("T")
Method = Literal["growth", "gnss"]
Tables = Callable[[FloatArray], list[CostTable]]
"""The cost table of one query at each order."""

FAILURE_SHARE = 0.1
"""The share of delta that pays for the chance that a published figure is too low."""

STATED_RULE = "least expected epsilon on stated votes; looks at no private vote (docs/sanitised-epsilon.md)"
AGREEMENTS = (4.0, 8.0, 16.0)
"""Of the stated batches. The largest costs grow as those of the one in the middle do."""

PROFILE = 64
_ORDERS = np.array([2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 12.0, 14.0, 16.0, 20.0, 24.0, 32.0, 48.0, 64.0, 96.0])
_NOISES = np.round(np.concatenate([np.geomspace(0.3, 1, 8)[:-1], np.geomspace(1, 200, 54), np.geomspace(200, 2000, 24)[1:]]), 2)
_BETA_SHARES = np.array([0.02, 0.03, 0.05, 0.07, 0.1, 0.14, 0.19, 0.25, 0.32, 0.4, 0.5, 0.6, 0.7, 0.8])
_SIGMAS = np.round(np.geomspace(1, 1000, 37), 2)
_SCALE_SIGMAS = np.round(np.geomspace(2, 500, 21), 2)
_TAUS = np.linspace(0, 1.2, 41)
_STRIDES = 256  # distances looked at


@dataclass(frozen=True)
class GrowthSettings:
    """order: of the Rényi divergence that is bounded. sigma: noise on the statistic, in changes. growth: the scale psi."""

    order: float
    sigma: float
    growth: Growth


@dataclass(frozen=True)
class GnssSettings:
    """order: of the Rényi divergence that is released. beta: of the smooth sensitivity. sigma: noise on the figure, in smooth
    sensitivities; scale_sigma: noise on the log of the smooth sensitivity, in units of beta.
    """

    order: float
    beta: float
    sigma: float
    scale_sigma: float


def stated_votes(n_teachers: int, n_classes: int, agreement: float) -> IntArray:
    """int64[64, class]: votes that the rule looks at in place of private ones.

    The u-th quantile has a top share of 1 - (1 - 1/k) u^agreement; the runner-up gets half of the rest, the next half of what
    is left, and so on. At an agreement of 8, half of the queries are agreed on by more than 99% of the teachers, one in ten by
    less than 70%.

    >>> stated_votes(100, 3, 4.0)[[0, 40]].tolist()
    [[100, 0, 0], [89, 5, 6]]
    """
    u = (np.arange(PROFILE) + 0.5) / PROFILE
    top = np.round(n_teachers * (1 - (1 - 1 / n_classes) * u**agreement)).astype(np.int64)
    counts = np.zeros((PROFILE, n_classes), dtype=np.int64)
    counts[:, 0] = top
    left = n_teachers - top
    for j in range(1, n_classes):
        counts[:, j] = left if j == n_classes - 1 else left // 2
        left = left - counts[:, j]
    return counts


def growth_settings(tables: Tables, n_teachers: int, n_classes: int, n_queries: int, delta: float) -> GrowthSettings:
    """The rule for :mod:`pate.privacy.smooth.growth`."""
    batches, stride, share = _stated(n_teachers, n_classes, n_queries, delta)
    best, found = math.inf, None
    noises = _NOISES[max(200.0, n_teachers / 20) >= _NOISES]  # more changes than that are never drowned to any use
    reach_of_noise = -float(ndtri(FAILURE_SHARE * delta)) * noises
    for order, table in zip(_ORDERS, tables(_ORDERS), strict=True):
        reaches = [each._replace(value=share * each.value) for each in table.costs_within(batches, stride)]
        stated = reaches[len(AGREEMENTS) // 2]
        if stated.value[0] >= stated.value[-1]:
            continue  # the worst case everywhere
        growth = Growth.of(stated)
        middle = np.array([growth.statistic(reach) for reach in reaches])
        cap = share * PROFILE * float(table.values[table.valid].max())
        total = np.minimum(growth.cost(middle[:, None] + reach_of_noise), cap) + order / (2 * noises**2)
        expected = _epsilon(order, total, delta).mean(axis=0)
        place = int(np.argmin(expected))
        if expected[place] < best:
            best, found = float(expected[place]), GrowthSettings(float(order), float(noises[place]), growth)
    return _chosen(found)


def gnss_settings(
    tables: Tables, n_teachers: int, n_classes: int, n_queries: int, delta: float, charged_at: float | None = None
) -> GnssSettings:
    """The rule for :mod:`pate.privacy.smooth.release`. charged_at: the order at which a budget is enforced, if one is: the cost
    of the release must be finite there, too."""
    batches, stride, share = _stated(n_teachers, n_classes, n_queries, delta)
    best, found = math.inf, None
    for order, table in zip(_ORDERS, tables(_ORDERS), strict=True):
        betas = np.round(largest_beta(max(order, charged_at or order)) * _BETA_SHARES, 6)
        figures = share * np.array([table.cost(batch).sum() for batch in batches])
        smooth = share * np.array([reach.smooth(betas) for reach in table.sensitivity_within(batches, stride)])
        if not smooth.all():
            continue  # the worst case everywhere
        extra = _expected_extra(float(order), betas, smooth, FAILURE_SHARE * delta)
        expected = _epsilon(order, figures[:, None, None, None] + extra, delta).mean(axis=0)
        beta, sigma, scale = np.unravel_index(int(np.argmin(expected)), expected.shape)
        if expected[beta, sigma, scale] < best:
            best = float(expected[beta, sigma, scale])
            found = GnssSettings(float(order), float(betas[beta]), float(_SIGMAS[sigma]), float(_SCALE_SIGMAS[scale]))
    return _chosen(found)


def _expected_extra(order: float, betas: FloatArray, smooth: FloatArray, failure: float) -> FloatArray:
    """float64[batch, beta, sigma, scale_sigma]: what noise adds to a figure where it happens to be 0, and what it costs."""
    tau = betas[:, None, None] * _SCALE_SIGMAS
    factor = np.interp(tau, _TAUS, _factors(failure), right=np.inf)
    # All of the price but the part that is there with infinite noise falls with the square of sigma.
    spread, whole_price = (np.array([gnss_rdp(beta, sigma, [order])[0] for beta in betas]) for sigma in (1e9, 1.0))
    price = spread[:, None] + (whole_price - spread)[:, None] / _SIGMAS**2
    second = order / (2 * _SCALE_SIGMAS**2)
    extra: FloatArray = factor * _SIGMAS[:, None] * smooth[:, :, None, None] + price[:, :, None] + second
    return extra


@cache
def _factors(failure: float) -> FloatArray:
    return np.array([bound_factor(tau, failure) for tau in _TAUS])


def _stated(n_teachers: int, n_classes: int, n_queries: int, delta: float) -> tuple[list[IntArray], int, float]:
    """Batches, the stride at which they are looked at, and the number of queries that each of their rows stands for."""
    whole(n_queries, "n_queries", 1)
    check_delta(delta)
    batches = [stated_votes(n_teachers, n_classes, agreement) for agreement in AGREEMENTS]
    return batches, max(1, -(-n_teachers // _STRIDES)), n_queries / PROFILE


def _epsilon(order: float, total: FloatArray, delta: float) -> FloatArray:
    return epsilons_at_orders(np.array(order), total, delta * (1 - FAILURE_SHARE))


def _chosen(found: T | None) -> T:
    if found is None:
        raise ParameterError("No settings give a finite sanitised epsilon. Publish the data-independent one.")
    return found
