"""Output and objective perturbation: what is added to what, why it suffices, and what it costs.

With p persons declared, regularisation r and losses of slope at most 1 on rows of length at most 1, replacing one person's
records moves the exact minimiser by at most 2/(p r) (Chaudhuri, Monteleoni, Sarwate 2011, arXiv:0912.0071, Corollary 8). A
person with several records counts as one whose loss is their mean: it has the same slope, so the same bound.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from pate.arrays import FloatArray
from pate.errors import ParameterError
from pate.experiments.baselines.erm.noise import COARSEST, gaussian_vector, length_vector, longest
from pate.experiments.baselines.erm.solving import People, Task, minimise
from pate.noise import Noise
from pate.privacy.curve import RdpCurve, check_delta
from pate.privacy.mechanisms import gaussian_delta, gaussian_epsilon, gaussian_rdp, pure_dp_rdp
from pate.validation import positive

SAFETY = 1 + 1e-9
"""Noise is wider by this than the formulas say, for their own rounding."""

FINISHING_SHARE = 0.01
"""Of objective perturbation's epsilon, for noise on what the solver left of the minimum."""


class Perturbation(ABC):
    """A way to release a minimiser. Its cost depends on its own parameter alone: the noise follows from the task."""

    name: ClassVar[str]

    @property
    @abstractmethod
    def curve(self) -> RdpCurve:
        """RDP for the replacement of one person's records; no less than for one added or removed."""

    @abstractmethod
    def epsilon(self, delta: float) -> float:
        """The smallest epsilon at delta of this mechanism alone."""

    @abstractmethod
    def facts(self, task: Task) -> dict[str, Any]:
        """Noise and whatever else decides it, all public."""

    @abstractmethod
    def release(self, task: Task, people: People, noise: Noise) -> FloatArray:
        """float64[column]: weights that may be published. Charge :attr:`curve` first."""

    @abstractmethod
    def regularisation(self, loss_curved: float, records: float, columns: int, length: float) -> float:
        """A rule fixed in advance: where the harm of noise and of regularisation are about equal if the best weights are
        ``length`` long. It looks at no data."""


@dataclass(frozen=True)
class PurePerturbation(Perturbation):
    """One that is ``pure``-DP, for every delta."""

    pure: float

    def __post_init__(self) -> None:
        positive(self.pure, "epsilon")

    @property
    def curve(self) -> RdpCurve:
        return RdpCurve.of(lambda orders: pure_dp_rdp(self.pure, orders))

    def epsilon(self, delta: float) -> float:
        check_delta(delta)
        return self.pure


@dataclass(frozen=True)
class OutputPerturbation(PurePerturbation):
    """Algorithm 1, Theorem 6: the minimiser and noise of density exp(-|b| / scale), scale = 2/(p r epsilon). Pure DP.

    >>> OutputPerturbation(1.0).epsilon(1e-5)
    1.0
    """

    name: ClassVar[str] = "output"

    def scale(self, task: Task) -> float:
        return widened(moved(task), 1 / self.pure, task.columns)

    def facts(self, task: Task) -> dict[str, Any]:
        return {"epsilon": self.pure, "noise_scale": self.scale(task)}

    def release(self, task: Task, people: People, noise: Noise) -> FloatArray:
        found = minimise(task, people)
        return length_vector(self.scale(task), task.columns, noise).added_to(found)

    def regularisation(self, loss_curved: float, records: float, columns: int, length: float) -> float:
        # Noise is about 2 columns / (p r epsilon) long, a column's share of the curvature at most c / columns.
        return math.cbrt(8 * loss_curved * columns / (records * self.pure * length) ** 2)


@dataclass(frozen=True)
class GaussianPerturbation(Perturbation):
    """The same with Gaussian noise of ``noise_multiplier`` sensitivities: (epsilon, delta)-DP, and exact in a ledger.

    Theorem 8 of Balle and Wang 2018 (arXiv:1805.06530) for epsilon, Mironov 2017 (arXiv:1702.07476) for RDP.

    >>> round(GaussianPerturbation(3.731).epsilon(1e-5), 3)
    1.0
    """

    noise_multiplier: float
    name: ClassVar[str] = "gaussian"

    def __post_init__(self) -> None:
        positive(self.noise_multiplier, "noise_multiplier")

    @classmethod
    def of(cls, epsilon: float, delta: float) -> GaussianPerturbation:
        """The least noise for this epsilon.

        >>> round(GaussianPerturbation.of(1.0, 1e-5).noise_multiplier, 4)
        3.7306
        """
        positive(epsilon, "epsilon")
        check_delta(delta)
        low, high = 1e-6, 1.0
        while gaussian_delta(1.0, high, epsilon) > delta:
            low, high = high, 2 * high
        while high - low > 1e-9 * high:
            middle = (low + high) / 2
            low, high = (low, middle) if gaussian_delta(1.0, middle, epsilon) <= delta else (middle, high)
        return cls(high)

    @property
    def curve(self) -> RdpCurve:
        return RdpCurve.of(lambda orders: gaussian_rdp(1.0, self.noise_multiplier, orders))

    def epsilon(self, delta: float) -> float:
        return gaussian_epsilon(1.0, self.noise_multiplier, delta)

    def sigma(self, task: Task) -> float:
        return widened(moved(task), self.noise_multiplier, task.columns)

    def facts(self, task: Task) -> dict[str, Any]:
        return {"noise_multiplier": self.noise_multiplier, "sigma": self.sigma(task)}

    def release(self, task: Task, people: People, noise: Noise) -> FloatArray:
        found = minimise(task, people)
        return gaussian_vector(self.sigma(task), task.columns, noise).added_to(found)

    def regularisation(self, loss_curved: float, records: float, columns: int, length: float) -> float:
        return math.cbrt(8 * loss_curved * (self.noise_multiplier / (records * length)) ** 2)


@dataclass(frozen=True)
class ObjectivePerturbation(PurePerturbation):
    """Algorithm 2: a random linear term in the objective, whose exact minimiser is released. Pure DP.

    Theorem 9 charges epsilon' for the noise, of density exp(-epsilon'/2 |b|), and log(1 + 2t + t^2), t = c/(p r), for the
    determinant of the change of variables. Here it is log(1 + t), and t for persons with several records: of two neighbours'
    Hessians the common part is at least p r, one person's is at least 0 in the denominator and has trace at most c in the
    numerator; and det(I + M) is at most 1 + trace(M) where M has rank one, e^trace(M) else. Where that takes more than half of
    epsilon, regularisation is raised until it takes half (the paper does so where nothing is left).

    The theorem is about the exact minimiser for a real vector b, which no computer finds. So, as in approximate minima
    perturbation (Iyengar, Near, Song, Thakkar, Thakurta, Wang 2019, IEEE S&P), what is released is the point where the solver
    stopped and a little noise: given the exact minimiser, that point lies within slack/r of it whatever the data are, so 2
    slack/r is its sensitivity, and the two costs, 99% and 1% of epsilon, add up.

    >>> ObjectivePerturbation(1.0).epsilon(1e-5)
    1.0
    """

    name: ClassVar[str] = "objective"

    def raised(self, task: Task) -> Task:
        """The task with a regularisation at which the determinant costs at most half."""
        half = self._main / 2
        if determinant(task) <= half:
            return task
        ratio = half if task.users else math.expm1(half)
        return replace(task, regularisation=SAFETY * task.loss.most_curved / (task.records * ratio))

    def noise_scale(self, task: Task) -> float:
        """Of the linear term: 2/epsilon'. One person moves it by at most 2."""
        return SAFETY * 2 / (self._main - determinant(self.raised(task)))

    def finishing_scale(self, task: Task) -> float:
        done = self.raised(task)
        return widened(2 * self._left(done) / done.regularisation, 1 / (self.pure * FINISHING_SHARE), task.columns)

    def facts(self, task: Task) -> dict[str, Any]:
        done = self.raised(task)
        return {
            "epsilon": self.pure,
            "noise_scale": self.noise_scale(task),
            "added_regularisation": done.regularisation - task.regularisation,
            "finishing_scale": self.finishing_scale(task),
        }

    def release(self, task: Task, people: People, noise: Noise) -> FloatArray:
        done = self.raised(task)
        linear = length_vector(self.noise_scale(task), task.columns, noise)
        found = minimise(done, people, linear.values, self._pull(done))
        return length_vector(self.finishing_scale(task), task.columns, noise).added_to(found)

    def regularisation(self, loss_curved: float, records: float, columns: int, length: float) -> float:
        return 2 * columns / (records * self.pure * length)

    @property
    def _main(self) -> float:
        return self.pure * (1 - FINISHING_SHARE)

    def _pull(self, done: Task) -> float:
        return longest(self.noise_scale(done), done.columns)

    def _left(self, done: Task) -> float:
        """The gradient, of the objective with the exact real noise, where the solver stopped."""
        rounded = math.sqrt(done.columns) * COARSEST * self.noise_scale(done) / done.records
        return done.slack(self._pull(done)) + rounded


def moved(task: Task) -> float:
    """How far one person replaced moves what the solver finds (L2)."""
    return 2 * (1 / task.records + task.slack()) / task.regularisation


def determinant(task: Task) -> float:
    """How much one person replaced changes the log of the determinant in the change of variables, at most."""
    share = task.loss.most_curved / (task.records * task.regularisation)
    return share if task.users else math.log1p(share)


def widened(sensitivity: float, multiplier: float, columns: int) -> float:
    """The scale of noise that is ``multiplier`` times the sensitivity of weights rounded to the noise's own lattice.

    Rounding moves each of two vectors by up to half a step a column, so the sensitivity grows by sqrt(columns) steps, and a
    step is at most COARSEST of the scale: scale = multiplier * (sensitivity + sqrt(columns) * COARSEST * scale).
    """
    share = multiplier * math.sqrt(columns) * COARSEST
    if share > 0.01:
        raise ParameterError(
            f"Noise of {multiplier:g} sensitivities on {columns} columns is too fine for its lattice. Take a larger epsilon or "
            "fewer columns."
        )
    return SAFETY * multiplier * sensitivity / (1 - share)


def perturbation(method: str, epsilon: float, delta: float | None = None) -> Perturbation:
    """The mechanism that spends ``epsilon``; "gaussian" needs delta.

    >>> perturbation("objective", 0.5)
    ObjectivePerturbation(pure=0.5)
    """
    if method == "gaussian":
        if delta is None:
            raise ParameterError('method "gaussian" needs delta: it has no pure epsilon. Give one below 1/(number of records).')
        return GaussianPerturbation.of(epsilon, delta)
    known: dict[str, type[PurePerturbation]] = {
        "output": OutputPerturbation,
        "objective": ObjectivePerturbation,
    }
    if method not in known:
        raise ParameterError(f'method must be "output", "objective" or "gaussian", got {method!r}.')
    return known[method](epsilon)
