"""How many queries a budget buys, before any data is touched."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import brentq
from scipy.special import ndtri

from pate.aggregators import Aggregator, LNMax, curve_ahead, make_aggregator
from pate.ledger import Budget
from pate.privacy.curve import GridEdgeWarning
from pate.release import Electorate

SIGMA_SHARES = (0.04, 0.08, 0.1, 0.16, 0.2, 0.3, 0.4, 0.6)
"""Noise as a share of the number of teachers, swept where the user names none."""

MOST_AT_ONCE = 1 << 20
"""A batch that costs hardly more however long it is, is planned up to this many queries."""

_SIGMA_STEP = 0.1  # votes


@dataclass(frozen=True)
class Plan:
    """One row of a plan: an aggregator, how many queries it may be asked, and how large a lead its noise drowns."""

    aggregator: Aggregator
    queries: int
    """Queries the budget buys; batches of queries where votes are partial; the largest single batch where a batch does not
    cost the sum of its queries."""
    epsilon: float
    """What they cost together, at most the budget."""
    lead: float | None
    """Votes by which one class must lead another to come out ahead with 99% probability; None where that is unknown."""

    def to_json(self) -> dict[str, Any]:
        return {
            "aggregator": dict(self.aggregator.mechanism),
            "queries": self.queries,
            "lead": self.lead,
            "epsilon": self.epsilon,
        }


def plan(name: str, settings: Mapping[str, Any], budget: Budget, electorate: Electorate) -> list[Plan]:
    """How many queries the budget buys, for the settings given or over a sweep of the noise where they leave it open.

    The count is the one that a ledger with this budget would allow: it uses the same filter, at the same order.
    """
    return [_row(make_aggregator(name, each), budget, electorate) for each in _sweep(name, settings, electorate.n_teachers)]


def least_sigma(name: str, queries: int, budget: Budget, electorate: Electorate, shares: int = 1) -> float:
    """The least sigma, to a tenth of a vote, at which a ledger with this budget allows ``shares`` batches of ``queries``.

    name: an aggregator with one parameter, sigma. Looks at no data: the cost is the data-independent one.

    >>> least_sigma("gnmax", 200, Budget(0.5, 1e-5), Electorate(500, 2))
    122.9
    """
    batches = shares * (queries if electorate.participation is None else 1)

    def affords(tenths: int) -> bool:
        return plan(name, {"sigma": tenths * _SIGMA_STEP}, budget, electorate)[0].queries >= batches

    high = 1
    while not affords(high):
        high *= 2
    low = high // 2
    while high - low > 1:  # more noise buys more queries
        middle = (low + high) // 2
        low, high = (low, middle) if affords(middle) else (middle, high)
    return round(high * _SIGMA_STEP, 1)


def _sweep(name: str, settings: Mapping[str, Any], n_teachers: int) -> Sequence[Mapping[str, Any]]:
    sigmas = [max(1.0, round(share * n_teachers, 1)) for share in SIGMA_SHARES]
    sweeps: dict[str, list[dict[str, Any]]] = {
        "gnmax": [{"sigma": sigma} for sigma in sigmas],
        "noisy-histogram": [{"sigma": sigma} for sigma in sigmas],
        "lnmax": [{"gamma": round(float(np.sqrt(2)) / sigma, 5)} for sigma in sigmas],
        # The paper's proportions: 250 teachers, threshold 200, sigma1 150.
        "confident-gnmax": [
            {"threshold": round(0.8 * n_teachers), "sigma1": round(0.6 * n_teachers, 1), "sigma2": sigma} for sigma in sigmas
        ],
        # Contradicted by half the teachers more than the student foresees.
        "interactive-gnmax": [
            {
                "threshold": max(1, round(0.5 * n_teachers)),
                "sigma1": round(0.3 * n_teachers, 1),
                "sigma2": sigma,
                "confidence": 0.9,
            }
            for sigma in sigmas
        ],
    }
    rows = [{**row, **settings} for row in sweeps.get(name, [{}])]
    return [row for i, row in enumerate(rows) if row not in rows[:i]]


def _row(aggregator: Aggregator, budget: Budget, electorate: Electorate) -> Plan:
    # With partial votes the unit that is paid for is a whole batch, whatever its number of queries.
    size = 1 if electorate.participation is None else electorate.participation
    if aggregator.adds_up:
        unit = curve_ahead(aggregator, electorate, size)
        affordable = budget.queries_affordable(unit)
        whole = affordable * unit
    else:
        affordable = _largest_batch(aggregator, budget, electorate)
        whole = curve_ahead(aggregator, electorate, affordable)
    with warnings.catch_warnings():
        # What is planned is the count; that a wider grid of orders might show a smaller epsilon for it changes nothing.
        warnings.simplefilter("ignore", GridEdgeWarning)
        spent = whole.epsilon(budget.delta).epsilon
    return Plan(aggregator, affordable, spent, _lead(aggregator))


def _largest_batch(aggregator: Aggregator, budget: Budget, electorate: Electorate) -> int:
    """The most queries of one batch that fit, where a batch does not cost the sum of its queries; at most MOST_AT_ONCE."""

    def fits(queries: int) -> bool:
        return budget.queries_affordable(curve_ahead(aggregator, electorate, queries)) >= 1

    low, high = 0, 1
    while high <= MOST_AT_ONCE and fits(high):
        low, high = high, 2 * high
    high = min(high, MOST_AT_ONCE + 1)
    while high - low > 1:  # more queries never cost less
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _lead(aggregator: Aggregator) -> float | None:
    """The lead L of one class over another at which noise leaves it ahead with 99% probability; None where unknown."""
    if isinstance(aggregator, LNMax):
        # The difference of two Laplace draws of scale 1 exceeds s with probability e^-s (1/2 + s/4).
        scaled: float = brentq(lambda s: np.exp(-s) * (0.5 + s / 4) - 0.01, 1, 20)
        return scaled / aggregator.gamma
    parameters = aggregator.parameters
    sigma = parameters.get("sigma2", parameters.get("sigma"))
    return None if sigma is None else float(ndtri(0.99) * np.sqrt(2) * sigma)
