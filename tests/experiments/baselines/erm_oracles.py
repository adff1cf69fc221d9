"""Private ERM the naive way: records one by one, plain sums, densities from their definition."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import mpmath
import numpy as np

from pate.arrays import FloatArray, IntArray
from pate.experiments.baselines.erm.losses import HuberHinge, Logistic, Loss
from pate.experiments.baselines.erm.solving import People, Task

LOSSES: tuple[Loss, ...] = (Logistic(), HuberHinge(0.5), HuberHinge(0.1))
Person = tuple[FloatArray, FloatArray]
"""rows float64[record, column] and signs float64[record] of one person."""


def people(persons: Sequence[Person]) -> People:
    rows = np.concatenate([rows for rows, _ in persons])
    signs = np.concatenate([signs for _, signs in persons])
    weights = np.concatenate([np.full(len(signs), 1 / len(signs)) for _, signs in persons])
    return People(rows, signs, weights, len(persons))


def random_person(rng: np.random.Generator, columns: int, most: int = 1) -> Person:
    """Often at the very bounds: length 1, along an axis."""
    count = int(rng.integers(1, most + 1))
    rows = rng.normal(size=(count, columns))
    if rng.random() < 0.5:
        rows = np.eye(columns)[rng.integers(0, columns, count)]
    length = np.linalg.norm(rows, axis=1, keepdims=True)
    rows = rows / length * (1.0 if rng.random() < 0.7 else rng.random())
    return rows, rng.choice([-1.0, 1.0], count)


def neighbours(rng: np.random.Generator, count: int, columns: int, most: int = 1) -> tuple[People, People]:
    """The last person is replaced; half the time by its own opposite, the worst there is."""
    persons = [random_person(rng, columns, most) for _ in range(count)]
    other = random_person(rng, columns, most) if rng.random() < 0.5 else (persons[-1][0], -persons[-1][1])
    return people(persons), people([*persons[:-1], other])


def exact_gradient(task: Task, data: People, w: FloatArray, noise: FloatArray | None = None) -> list[Any]:
    """In 60 digits, from the definition."""
    with mpmath.workdps(60):
        total = [mpmath.mpf(task.regularisation) * mpmath.mpf(each) for each in w]
        for row, sign, weight in zip(data.rows, data.signs, data.weights, strict=True):
            margin = mpmath.mpf(sign) * mpmath.fsum(mpmath.mpf(x) * mpmath.mpf(v) for x, v in zip(row, w, strict=True))
            slope = exact_slope(task.loss, margin) * mpmath.mpf(sign) * mpmath.mpf(weight) / mpmath.mpf(task.records)
            total = [t + slope * mpmath.mpf(x) for t, x in zip(total, row, strict=True)]
        if noise is not None:
            total = [t + mpmath.mpf(b) / mpmath.mpf(task.records) for t, b in zip(total, noise, strict=True)]
        return total


def exact_slope(loss: Loss, margin: Any) -> Any:
    if isinstance(loss, Logistic):
        return -1 / (1 + mpmath.exp(margin))
    assert isinstance(loss, HuberHinge)
    h = mpmath.mpf(loss.width)
    if margin > 1 + h:
        return mpmath.mpf(0)
    return -(1 + h - margin) / (2 * h) if margin >= 1 - h else mpmath.mpf(-1)


def length(vector: Sequence[Any]) -> float:
    return float(mpmath.sqrt(mpmath.fsum(each**2 for each in vector)))


def log_density_output(v: FloatArray, minimiser: FloatArray, scale: float) -> float:
    """Of minimiser + noise, up to the constant that neighbours share."""
    return -float(np.linalg.norm(v - minimiser)) / scale


def log_density_objective(w: FloatArray, task: Task, data: People, scale: float) -> float:
    """Of the exact minimiser at w, up to a constant: that of the one noise vector that makes it the minimiser, and the
    determinant of the map from w to that vector."""
    noise, jacobian = -task.records * task.regularisation * w, -task.records * task.regularisation * np.eye(len(w))
    for row, sign, weight in zip(data.rows, data.signs, data.weights, strict=True):
        margin = np.array([sign * (row @ w)])
        noise = noise - weight * sign * task.loss.slope(margin)[0] * row
        jacobian = jacobian - weight * task.loss.curvature(margin)[0] * np.outer(row, row)
    return -float(np.linalg.norm(noise)) / scale + float(np.linalg.slogdet(jacobian)[1])


Density = Callable[[FloatArray, People], float]
"""The log of a density at a point, when the data are these."""


def worst_ratio(density: Density, pair: tuple[People, People], points: Sequence[FloatArray]) -> float:
    """The largest |log ratio| of the two densities over the points."""
    return max(abs(density(point, pair[0]) - density(point, pair[1])) for point in points)


def one_dimension(loss: Loss, count: int) -> tuple[People, People]:
    """All pull one way, the last one the other: where the bound on the minimiser's move is nearly reached."""
    everybody = [(np.ones((1, 1)), np.array([1.0 if i % 2 else -1.0])) for i in range(count - 1)]
    last = (np.ones((1, 1)), np.array([1.0]))
    return people([*everybody, last]), people([*everybody, (last[0], -last[1])])


def toy(count: int = 3000, seed: int = 0) -> tuple[FloatArray, IntArray]:
    """Two classes that a line tells apart, but for few: x float64[record, 3] and y int64[record]."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, count)
    return rng.normal(size=(count, 3)) + 1.5 * y[:, None], y


def hoeffding(n: int, alarm: float) -> float:
    """How far a share of n draws may be from its probability, but for one case in 1/alarm."""
    return math.sqrt(math.log(2 / alarm) / (2 * n))
