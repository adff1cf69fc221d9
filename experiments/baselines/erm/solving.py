"""The minimiser of a regularised risk, with a proven bound on how far the computed one is from the exact one.

The theorems speak of the exact minimiser. A computer finds a point where the gradient is small: by strong convexity no farther
from the exact one than (length of the gradient) / regularisation. ``Task.slack`` bounds that length from public facts
alone, the rounding of the gradient's own computation with it, and a point is handed out only if it keeps the bound.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from pate.arrays import FloatArray
from pate.errors import DataError, ExecutionError
from pate.experiments.baselines.erm.losses import Loss

MOST_PEOPLE = 4.0
"""People in the data may be so many times the declared number; the bound on rounding counts on it."""

_UNIT = 2.0**-53
_BLOCK = 2048  # records summed at a time, the sums exactly: a sum rounds as its longest chain of additions
_RELATIVE = 1e-6  # of 1/records, the pull of one person: what the solver aims at
_STEPS, _HALVINGS = 10_000, 60


@dataclass(frozen=True, eq=False)
class People:
    """Private. rows: float64[record, column], each of length at most 1; signs: float64[record], -1 or 1.

    weights: float64[record]: of a person's records 1 in all. count: how many persons.
    """

    rows: FloatArray
    signs: FloatArray
    weights: FloatArray
    count: int


@dataclass(frozen=True)
class Task:
    """What is minimised, all of it public: sum of losses / records + regularisation/2 |w|^2 (+ noise . w / records).

    records: a declared number near that of persons. It is a constant of the task: with another one in the data nothing changes
        but how much the losses weigh, so the bounds hold whatever the data are.
    columns: with that of the intercept. users: whether a person may have several records.
    """

    loss: Loss
    records: float
    columns: int
    regularisation: float
    users: bool = False

    def weights_at_most(self, pull: float = 0.0) -> float:
        """A bound on |w| at the minimum, for a noise vector of length at most ``pull``.

        There the objective is at most its value at 0: regularisation/2 |w|^2 <= losses at 0 + pull/records |w|.
        """
        slope = pull / self.records
        level = MOST_PEOPLE * self.loss.at_zero
        return (slope + math.sqrt(slope**2 + 2 * self.regularisation * level)) / self.regularisation

    def rounding(self, pull: float = 0.0) -> float:
        """How far the computed gradient can be from the true one, within twice :meth:`weights_at_most`.

        Standard bounds for sums and dot products (Higham 2002, section 3.1), doubled: a chain of k additions is off by k units
        relative to the sum of sizes; a margin is off by ``columns`` units of |x||w|, and the slope by c times that.
        """
        reach = 2 * self.weights_at_most(pull)
        chain = _BLOCK + 64
        margins = self.loss.most_curved * (self.columns + 4) * reach + 8
        return 2 * _UNIT * (MOST_PEOPLE * (chain + margins) + 4 * (self.regularisation * reach + pull / self.records))

    def tolerance(self, pull: float = 0.0) -> float:
        """At what length of the computed gradient the solver stops."""
        return max(_RELATIVE / self.records, 4 * self.rounding(pull))

    def slack(self, pull: float = 0.0) -> float:
        """A bound on the true gradient where the solver stopped. Over ``regularisation``: how far the exact minimum can be."""
        return self.tolerance(pull) + self.rounding(pull)


def check_count(task: Task, people: People) -> None:
    """Raise if there are far more persons than declared: the bound on rounding would not hold."""
    if people.count > MOST_PEOPLE * task.records:
        raise DataError(
            f"The declared number of records, {task.records:g}, must be at least a quarter of what there is. Declare a number "
            "near it."
        )


def minimise(task: Task, people: People, noise: FloatArray | None = None, pull: float = 0.0) -> FloatArray:
    """float64[column]: within ``task.slack(pull) / task.regularisation`` of the exact minimiser.

    noise: float64[column], added as noise . w / records. pull: a bound on its length.

    Newton's method. A full step must leave a gradient shorter than any before; where it does not, a shorter one is taken that
    goes downhill all the way. So it comes to an end. How long it takes depends on the data.
    """
    check_count(task, people)
    linear = np.zeros(task.columns) if noise is None else noise / task.records
    target = task.tolerance(pull)
    w, shortest = np.zeros(task.columns), math.inf
    gradient = _gradient(task, people, linear, w)
    for _ in range(_STEPS):
        length = float(np.linalg.norm(gradient))
        if length <= target:
            if np.linalg.norm(w) > 2 * task.weights_at_most(pull):
                break  # outside of where the bound on rounding was proven: cannot be by exact arithmetic
            return w
        shortest = min(shortest, length)
        direction = np.asarray(np.linalg.solve(_hessian(task, people, w), -gradient), dtype=np.float64)
        there = w + direction
        found = _gradient(task, people, linear, there)
        if np.linalg.norm(found) > 0.75 * shortest:
            there = w + _downhill(task, people, linear, w, gradient, direction)
            found = _gradient(task, people, linear, there)
        w, gradient = there, found
    raise ExecutionError(
        f"The minimum was not found to {target:.1e}: regularisation {task.regularisation:g} is too small for double precision. "
        "Take a larger one."
    )


def _downhill(
    task: Task, people: People, linear: FloatArray, w: FloatArray, gradient: FloatArray, direction: FloatArray
) -> FloatArray:
    """float64[column]: a step along the direction to where it hardly goes down any more, and not yet up.

    The objective is convex and its slope along a line continuous, so bisection finds such a point; where rounding hides it, the
    step is that of gradient descent, which goes down, too.
    """
    steepest = float(gradient @ direction)
    low, high = 0.0, 2.0
    for _ in range(_HALVINGS):
        share = (low + high) / 2
        slope = float(_gradient(task, people, linear, w + share * direction) @ direction)
        if steepest / 10 <= slope <= 0 or (share == 1 and slope <= 0):
            return share * direction
        low, high = (share, high) if slope < 0 else (low, share)
    return -gradient / (MOST_PEOPLE * task.loss.most_curved + task.regularisation)


def _gradient(task: Task, people: People, linear: FloatArray, w: FloatArray) -> FloatArray:
    slopes = people.weights * people.signs * task.loss.slope(people.signs * (people.rows @ w))
    starts = range(0, len(slopes), _BLOCK)
    parts = np.array([np.zeros(task.columns), *(slopes[a : a + _BLOCK] @ people.rows[a : a + _BLOCK] for a in starts)])
    total = np.array([math.fsum(column) for column in parts.T])  # rounds once, however many records there are
    found: FloatArray = total / task.records + task.regularisation * w + linear
    return found


def _hessian(task: Task, people: People, w: FloatArray) -> FloatArray:
    curved = people.weights * task.loss.curvature(people.signs * (people.rows @ w)) / task.records
    found: FloatArray = people.rows.T @ (people.rows * curved[:, None])
    found[np.diag_indices(task.columns)] += task.regularisation
    return found
