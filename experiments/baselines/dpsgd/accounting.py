"""What a DP-SGD run costs, how much noise a budget asks for, and how many steps it buys. No data is looked at."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq

from pate.arrays import FloatArray, IntArray
from pate.errors import MissingExtra, ParameterError
from pate.extras import require
from pate.ledger import Budget
from pate.ledger.chain import Neighbours
from pate.privacy.composition import advanced_composition, amplify_poisson
from pate.privacy.curve import Epsilon, GridEdgeWarning, RdpCurve, check_delta
from pate.privacy.mechanisms import gaussian_epsilon
from pate.privacy.subsampled import check_rate, positive_sigma, replace_rdp, subsampled_gaussian_rdp
from pate.validation import whole

ADD_REMOVE = "one record (or user) more or less"
DISCRETISATION = 1e-4
"""Of the privacy-loss distribution. Its errors fall on the safe side (dp_accounting rounds losses up)."""

_LEAST, _MOST = 1e-2, 1e6  # noise multipliers that are searched
_COARSE = 1e-3  # discretisation in a search: faster, and never smaller than with the finer one
_MOST_PLD = 50.0  # an epsilon from which on it promises nothing, and its distribution would fill the memory
_FINE = 1e-3  # relative step of a noise multiplier that is found


@dataclass(frozen=True)
class Training:
    """All that the cost depends on: lots by Poisson sampling at ``rate``, noise of ``sigma`` bounds, so many ``steps``."""

    rate: float
    sigma: float
    steps: int

    def __post_init__(self) -> None:
        check_rate(self.rate)
        positive_sigma(self.sigma)
        whole(self.steps, "steps", 1)

    def curve(self, neighbours: Neighbours = "add-remove", steps: int | None = None) -> RdpCurve:
        """RDP of ``steps`` of them (all unless given)."""

        return (self.steps if steps is None else steps) * RdpCurve.of(lambda orders: self.step_rdp(orders, neighbours))

    def step_rdp(self, orders: FloatArray, neighbours: Neighbours = "add-remove") -> FloatArray:
        """float64[order]: the cost of one step."""

        def cost(orders: FloatArray) -> FloatArray:
            return subsampled_gaussian_rdp(self.rate, self.sigma, orders)

        return cost(orders) if neighbours == "add-remove" else replace_rdp(cost, orders)

    def epsilon_rdp(self, delta: float) -> Epsilon:
        """By Rényi-DP, add/remove."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", GridEdgeWarning)  # PLD stands beside it
            return self.curve().epsilon(delta)

    def epsilon_pld(self, delta: float, discretisation: float = DISCRETISATION) -> float:
        """By the privacy-loss distribution (Koskela, Jälkö, Honkela 2020, arXiv:1906.03049) of dp_accounting, add/remove.

        Numerical composition of the very distribution, so it is smaller than by RDP; its discretisation is pessimistic.
        """
        return _epsilon_pld(self, check_delta(delta), discretisation)

    def cost(self, delta: float) -> Cost:
        rdp, pld = self.epsilon_rdp(delta), None
        if rdp.epsilon <= _MOST_PLD:
            with suppress(MissingExtra):
                pld = self.epsilon_pld(delta)
        return Cost(self, delta, rdp, pld)


@lru_cache(maxsize=256)
def _epsilon_pld(training: Training, delta: float, discretisation: float) -> float:
    """Takes a second, and runs that are repeated ask for it again."""
    pld: Any = require("dp_accounting.pld.privacy_loss_distribution", "dpsgd")
    step = pld.from_gaussian_mechanism(
        training.sigma, value_discretization_interval=discretisation, sampling_prob=training.rate, pessimistic_estimate=True
    )
    return float(step.self_compose(training.steps).get_epsilon_for_delta(delta))


@dataclass(frozen=True)
class Cost:
    """Both figures. Steps, rate and noise were fixed in advance, so the smaller one is a valid claim."""

    training: Training
    delta: float
    rdp: Epsilon
    pld: float | None

    @property
    def epsilon(self) -> float:
        return self.rdp.epsilon if self.pld is None or not self.pld > 0 else min(self.rdp.epsilon, self.pld)

    @property
    def accountant(self) -> str:
        return "RDP" if self.epsilon == self.rdp.epsilon else "PLD"

    def to_json(self) -> dict[str, Any]:
        training = self.training
        return {
            "rate": training.rate,
            "noise_multiplier": training.sigma,
            "steps": training.steps,
            "delta": self.delta,
            "epsilon": self.epsilon,
            "accountant": self.accountant,
            "epsilon_rdp": self.rdp.epsilon,
            "order": self.rdp.order,
            "epsilon_pld": self.pld,
            "neighbours": ADD_REMOVE,
        }


def least_noise(rate: float, steps: int, budget: Budget, neighbours: Neighbours = "add-remove") -> float:
    """The least noise multiplier, to a thousandth of itself, at which a ledger with this budget allows ``steps`` steps.

    The ledger's filter stands at one order, so a little more noise comes out than a target epsilon by PLD would need.

    >>> least_noise(0.02, 1000, Budget(1.0, 1e-5))
    2.715
    """
    order = np.array([budget.order])

    def excess(sigma: float) -> float:
        cost = steps * float(Training(rate, sigma, steps).step_rdp(order, neighbours)[0])
        return math.log(cost / budget.cap) if math.isfinite(cost) else math.inf

    return _least(excess, f"epsilon={budget.epsilon:g} at delta={budget.delta:g}")


def noise_for_epsilon(rate: float, steps: int, epsilon: float, delta: float) -> float:
    """The least noise multiplier, to a thousandth, whose epsilon (the smaller of RDP and PLD) is at most ``epsilon``."""
    check_rate(rate)
    if not (epsilon > 0 and math.isfinite(epsilon)):
        raise ParameterError(f"A target epsilon must be a finite number above 0, got {epsilon}.")
    whole(steps, "steps", 1)
    by_rdp = _least(lambda sigma: Training(rate, sigma, steps).epsilon_rdp(delta).epsilon - epsilon, f"epsilon={epsilon:g}")
    try:
        require("dp_accounting.pld.privacy_loss_distribution", "dpsgd")
    except MissingExtra:
        return by_rdp
    if epsilon > _MOST_PLD:
        return by_rdp
    # PLD is never larger than RDP says; half the noise is below what it needs at any useful epsilon.
    # No finer than the cost is told with: what is found must be told as within the target, and a tiny one would take for ever.
    low, high, interval = by_rdp / 2, by_rdp, max(DISCRETISATION, min(_COARSE, epsilon / 1000))
    while high - low > _FINE * high:
        middle = (low + high) / 2
        enough = Training(rate, middle, steps).epsilon_pld(delta, interval) <= epsilon
        low, high = (low, middle) if enough else (middle, high)
    return _rounded_up(high)


def most_steps(rate: float, sigma: float, budget: Budget, neighbours: Neighbours = "add-remove") -> int:
    """How many steps a ledger with this budget allows: training while within the budget (Abadi et al. 2016), known ahead."""
    return budget.queries_affordable(Training(rate, sigma, 1).curve(neighbours))


def _least(excess: Callable[[float], float], target: str) -> float:
    """The least sigma, rounded up to a thousandth of itself, with ``excess(sigma) <= 0``; it falls in sigma."""
    if excess(_MOST) > 0:
        raise ParameterError(f"No noise multiplier up to {_MOST:g} reaches {target}: take fewer steps, or a larger epsilon.")
    if excess(_LEAST) <= 0:
        return _LEAST
    root = float(brentq(lambda log: excess(math.exp(log)), math.log(_LEAST), math.log(_MOST), xtol=1e-5))
    found = _rounded_up(math.exp(root))
    while excess(found) > 0:
        found = _rounded_up(found * (1 + _FINE))
    return found


def _rounded_up(sigma: float) -> float:
    """To four digits that count.

    >>> _rounded_up(2.77312), _rounded_up(0.8)
    (2.774, 0.8)
    """
    places = 3 - math.floor(math.log10(sigma))
    scaled = sigma * 10.0**places
    return round(math.ceil(scaled - 1e-9) / 10.0**places, max(places, 0))


@dataclass(frozen=True)
class Composition:
    """Epsilon over the number of steps, by the moments accountant and by what was known before it."""

    steps: IntArray
    rdp: FloatArray
    pld: FloatArray | None
    training: Training
    delta: float

    @property
    def best(self) -> FloatArray:
        """The smaller of both accountants."""
        return self.rdp if self.pld is None else np.minimum(self.rdp, self.pld)

    @property
    def strong(self) -> FloatArray:
        """Amplification by sampling (Balle, Barthe, Gaboardi 2018, Theorem 8), then basic or strong composition (Dwork,
        Rothblum, Vadhan 2010), whichever is smaller; the best of three ways to share delta between the two."""
        return np.array([_strong(replace(self.training, steps=int(step)), self.delta) for step in self.steps])


def composition(training: Training, delta: float, steps: ArrayLike | None = None) -> Composition:
    """The same training, step after step: at ``steps``, or at some that lie evenly on a logarithmic scale."""
    given = np.geomspace(1, training.steps, 24) if steps is None else np.asarray(steps)
    counts = np.unique(given.astype(np.int64))
    one = training.curve(steps=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GridEdgeWarning)
        rdp = np.array([(int(count) * one).epsilon(delta).epsilon for count in counts])
    pld = None
    if rdp[-1] <= _MOST_PLD:
        with suppress(MissingExtra):
            pld = np.array([replace(training, steps=int(count)).epsilon_pld(delta, _COARSE) for count in counts])
    return Composition(counts, rdp, pld, training, delta)


def _strong(training: Training, delta: float) -> float:
    """The delta of a step, after sampling, is a share of delta over all steps; the rest is the slack of the composition."""
    found = []
    for share in (0.1, 0.5, 0.9):
        of_step = share * delta / training.steps
        plain = gaussian_epsilon(1.0, training.sigma, min(of_step / training.rate, 0.5))
        sampled = amplify_poisson(plain, min(of_step / training.rate, 0.5), training.rate)
        basic = training.steps * sampled.epsilon
        strong = advanced_composition(sampled.epsilon, sampled.delta, training.steps, (1 - share) * delta).epsilon
        found.append(min(basic, strong))
    return min(found)
