"""A data-dependent epsilon that may be published: planned from public facts, paid for, drawn once.

docs/sanitised-epsilon.md says what is claimed, and proves it.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, TypeGuard

import numpy as np
from scipy.special import ndtri

from pate.aggregators import Aggregator, Confident, ConfidentGNMax, curve_ahead
from pate.arrays import FloatArray
from pate.errors import ParameterError
from pate.experiments.accounting import as_noisy_max
from pate.noise import Noise
from pate.privacy import smooth
from pate.privacy.curve import DEFAULT_ORDERS, GridEdgeWarning, RdpCurve, check_delta, delta_beside, epsilons_at_orders
from pate.privacy.mechanisms import gaussian_rdp
from pate.privacy.smooth.costs import check_size
from pate.privacy.smooth.rule import FAILURE_SHARE
from pate.release import SIMULATION_STAMP, Electorate, Mode
from pate.validation import whole
from pate.votes import Votes

_UNIT_BITS = 16
"""What is released lies on a lattice of 2^-16 changes, RDP or log units; the rounding is paid for as sensitivity."""

_ROUNDING = 1 + 2.0**-20
"""Of what is rounded up to the lattice; far above the errors of floats."""

_LARGEST_SCALE = 2.0**30  # of exact noise, in lattice points


@dataclass(frozen=True)
class Sanitised:
    """A published epsilon. Everything here may be told.

    epsilon: the claim, for the answers and for this release together: the smaller of ``bound`` and ``independent``.
    bound: from the votes, through noise. independent: the data-independent epsilon of the answers and this release.
    estimate, low, high: where the noise happens to be 0, and one standard deviation to either side: the spread.
    release_rdp: the cost of the release itself at ``order``; it is contained in all the epsilons here.
    failure: the chance that ``bound`` is too low; contained in ``delta``. drawn: the noisy numbers it is computed from.
    """

    epsilon: float
    bound: float
    estimate: float
    low: float
    high: float
    independent: float
    answers_independent: float
    order: float
    delta: float
    failure: float
    release_rdp: float
    method: str
    settings: Mapping[str, float]
    drawn: Mapping[str, float]
    queries: int
    mode: Mode
    rule: str = smooth.STATED_RULE

    @property
    def stamp(self) -> str:
        """What every artefact that shows it must say about its noise."""
        return SIMULATION_STAMP if self.mode == "simulation" else "noise from the operating system"

    @property
    def helps(self) -> bool:
        """Whether it is below the data-independent epsilon of the answers alone, which costs nothing to publish."""
        return self.epsilon < self.answers_independent

    def to_json(self) -> dict[str, Any]:
        """As it stands in reports and ledgers."""
        return {**asdict(self), "settings": dict(self.settings), "drawn": dict(self.drawn), "stamp": self.stamp}

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> Sanitised:
        """The inverse of :meth:`to_json`; what a later version added is left out."""
        return cls(**{each.name: facts[each.name] for each in fields(cls)})

    def __str__(self) -> str:
        return (
            f"epsilon {self.epsilon:.4g} sanitised (estimate {self.estimate:.4g}, one standard deviation {self.low:.4g} to "
            f"{self.high:.4g}; data-independent {self.answers_independent:.4g}; {self.stamp})"
        )


@dataclass(frozen=True)
class Sanitiser:
    """How the epsilon of a batch will be sanitised: from public facts alone, before any vote is looked at.

    curve: what the release costs, whatever the votes; to be paid before :meth:`draw`, and again for every other one.

    >>> from pate import GNMax, SimulatedNoise
    >>> votes = Votes(([[48, 1, 1]] * 8 + [[30, 15, 5]] * 2) * 10, n_teachers=50)
    >>> plan = Sanitiser.plan(GNMax(sigma=10), votes.electorate, len(votes), delta=1e-5)
    >>> told = plan.draw(votes, SimulatedNoise(1))  # pate.experiments.sanitised_release pays first, and draws once
    >>> told.epsilon <= told.independent, told.stamp
    (True, 'simulation, not private')
    """

    aggregator: Aggregator
    electorate: Electorate
    queries: int
    delta: float
    chosen: smooth.GrowthSettings | smooth.GnssSettings
    curve: RdpCurve = field(repr=False)

    @classmethod
    def plan(
        cls,
        aggregator: Aggregator,
        electorate: Electorate,
        queries: int,
        delta: float,
        method: smooth.Method = "growth",
        charged_at: float | None = None,
    ) -> Sanitiser:
        """Choose order and noise by the stated rule. charged_at: the order of the budget that pays, if one does.

        Raises ParameterError where no valid release is known. No vote is looked at.
        """
        check_delta(delta)
        whole(queries, "queries", 1)
        if method not in ("growth", "gnss"):
            raise ParameterError(f"method must be 'growth' or 'gnss', got {method!r}.")
        check_covered(aggregator, electorate)

        def tables(orders: FloatArray) -> list[smooth.CostTable]:
            return cost_tables(aggregator, electorate, orders)

        n_teachers, n_classes = electorate.n_teachers, electorate.n_classes
        chosen: smooth.GrowthSettings | smooth.GnssSettings
        if method == "growth":
            chosen = smooth.growth_settings(tables, n_teachers, n_classes, queries, delta)
            values = gaussian_rdp(1.0, chosen.sigma, DEFAULT_ORDERS)
        else:
            chosen = smooth.gnss_settings(tables, n_teachers, n_classes, queries, delta, charged_at)
            values = smooth.release_rdp(chosen.beta, chosen.sigma, chosen.scale_sigma, DEFAULT_ORDERS)
        return cls(aggregator, electorate, queries, delta, chosen, RdpCurve(DEFAULT_ORDERS, values))

    @property
    def method(self) -> smooth.Method:
        return "growth" if isinstance(self.chosen, smooth.GrowthSettings) else "gnss"

    @property
    def settings(self) -> dict[str, float]:
        """The numbers that the rule chose."""
        names = ("order", "sigma") if self.method == "growth" else ("order", "beta", "sigma", "scale_sigma")
        return {name: float(getattr(self.chosen, name)) for name in names}

    @property
    def facts(self) -> dict[str, Any]:
        """What a ledger records of the release before it is drawn. Public."""
        return {
            "release": "sanitised epsilon",
            "mechanism": dict(self.aggregator.mechanism),
            "queries": self.queries,
            "n_teachers": self.electorate.n_teachers,
            "n_classes": self.electorate.n_classes,
            "delta": self.delta,
            "method": self.method,
            "settings": self.settings,
        }

    def check(self, votes: Votes) -> None:
        """Raise ParameterError where these are not the votes that this was planned for. Before anything is charged."""
        if votes.electorate != self.electorate or len(votes) != self.queries:
            raise ParameterError(
                f"This release was planned for {self.queries} queries and {self.electorate!r}, got {votes!r}. Plan another."
            )

    def draw(self, votes: Votes, noise: Noise) -> Sanitised:
        """Draw the noise. Only after :attr:`curve` has been paid for: every call is a release of its own."""
        self.check(votes)
        order = self.chosen.order
        table = cost_tables(self.aggregator, self.electorate, np.array([order]))[0]
        cap = self.queries * float(table.values[table.valid].max())
        if isinstance(self.chosen, smooth.GrowthSettings):
            drawn, costs = _draw_growth(self.chosen, table, votes, noise, self.failure)
        else:
            drawn, costs = _draw_gnss(self.chosen, table, votes, noise, self.failure, cap)
        release = float(self.curve.values[np.searchsorted(DEFAULT_ORDERS, order)])
        total = np.clip(costs, 0.0, cap) + release
        low, estimate, high, bound = epsilons_at_orders(np.array(order), total, delta_beside(self.delta, self.failure)).tolist()
        answers = curve_ahead(self.aggregator, self.electorate, self.queries)
        independent, alone = (_epsilon(curve, self.delta) for curve in (answers + self.curve, answers))
        return Sanitised(
            epsilon=min(bound, independent),
            bound=bound,
            estimate=estimate,
            low=low,
            high=high,
            independent=independent,
            answers_independent=alone,
            order=order,
            delta=self.delta,
            failure=self.failure,
            release_rdp=release,
            method=self.method,
            settings=self.settings,
            drawn=drawn,
            queries=self.queries,
            mode=noise.mode,
        )

    @property
    def failure(self) -> float:
        return FAILURE_SHARE * self.delta


def cost_tables(aggregator: Aggregator, electorate: Electorate, orders: FloatArray) -> list[smooth.CostTable]:
    """The cost table of one query at each order. Of a Confident around an aggregator that has none, over its test alone."""
    mechanism = as_noisy_max(aggregator)
    n_teachers, n_classes = electorate.n_teachers, electorate.n_classes
    if mechanism is not None:
        return smooth.cost_tables(mechanism, n_teachers, n_classes, orders)
    if _around_any(aggregator):
        inner = aggregator.inner.rdp_ahead(electorate, orders)
        return [
            smooth.threshold_table(aggregator.test, n_teachers, n_classes, float(order), float(cost))
            for order, cost in zip(orders, inner, strict=True)
        ]
    raise ParameterError(f"no cost table is known for {aggregator!r}; check_covered tells ahead.")


def check_covered(aggregator: Aggregator, electorate: Electorate) -> None:
    """Raise ParameterError where no valid release is known."""
    if electorate.participation is not None:
        raise ParameterError(
            "The cost of partial votes does not depend on the votes, so there is nothing to sanitise: publish the "
            "data-independent epsilon."
        )
    if as_noisy_max(aggregator) is not None:
        check_size(electorate.n_teachers, electorate.n_classes)
    elif not _around_any(aggregator):
        raise ParameterError(
            f"no sanitised epsilon is known for {aggregator!r}; there is one for gnmax, lnmax, confident-gnmax and a Confident "
            "that charges jointly. Publish the data-independent epsilon."
        )
    if aggregator.slack_ahead(electorate):
        raise ParameterError(f"{aggregator!r} has a cost that may fail to hold; publish its data-independent epsilon.")


def _around_any(aggregator: Aggregator) -> TypeGuard[Confident]:
    # Exact types: a subclass may test in another way.
    return type(aggregator) in (Confident, ConfidentGNMax) and aggregator.parameters["charging"] == "joint"


def _draw_growth(
    chosen: smooth.GrowthSettings, table: smooth.CostTable, votes: Votes, noise: Noise, failure: float
) -> tuple[dict[str, float], FloatArray]:
    """Published numbers; RDP at (low, estimate, high, bound)."""
    statistic = chosen.growth.statistic(table.costs_within([votes.counts])[0])
    unit = 2.0**-_UNIT_BITS
    # Rounding up can add a lattice point to the sensitivity of 1.
    changes = _noisy(statistic, unit, chosen.sigma * (1 + unit), noise)
    reach = -float(ndtri(failure)) * chosen.sigma * (1 + unit) + unit
    ends = np.array([changes - chosen.sigma, changes, changes + chosen.sigma, changes + reach])
    return {"changes": changes}, chosen.growth.cost(ends)


def _draw_gnss(
    chosen: smooth.GnssSettings, table: smooth.CostTable, votes: Votes, noise: Noise, failure: float, cap: float
) -> tuple[dict[str, float], FloatArray]:
    """Published numbers; RDP at (low, estimate, high, bound)."""
    fine = 2.0**-_UNIT_BITS
    # No smooth sensitivity exceeds the largest cost, so whether the noise can be drawn is public.
    unit = max(fine, 2.0 ** math.ceil(math.log2(4 * chosen.sigma * (cap + fine) / _LARGEST_SCALE)))
    scale = float(table.sensitivity_within([votes.counts])[0].smooth(chosen.beta))
    scale = (scale + unit) * _ROUNDING
    figure = _noisy(float(table.cost(votes.counts).sum()), unit, chosen.sigma * scale, noise)
    step = chosen.scale_sigma * (chosen.beta + fine)
    log_scale = _noisy(math.log(scale), fine, step, noise)
    spread = chosen.sigma * math.exp(log_scale + fine)
    bound = figure + unit + smooth.bound_factor(step, failure) * spread
    return {"figure": figure, "log_smooth_sensitivity": log_scale}, np.array([figure - spread, figure, figure + spread, bound])


def _noisy(value: float, unit: float, sigma: float, noise: Noise) -> float:
    """value + N(0, sigma^2), rounded: the value up, and the sum down, to a lattice of ``unit``. Exact noise: no float of
    private size is ever seen."""
    points = math.ceil(value / unit)
    draw = noise.gaussian(sigma / unit, (1,))
    return float(((points << draw.step_bits) + int(draw.lattice[0])) >> draw.step_bits) * unit


def _epsilon(curve: RdpCurve, delta: float) -> float:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GridEdgeWarning)
        return curve.epsilon(delta).epsilon
