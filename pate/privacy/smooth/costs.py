"""Cost tables of the noisy maximum, with and without a threshold test: exact where a table can hold them, else bounds.

| classes | state | cost |
|---|---|---|
| 2 | the largest count | exact, all neighbours, both directions |
| 3 | the two largest counts | exact, all neighbours, both directions |
| more | the two largest counts | the smaller of two bounds on every histogram with that state |

With more classes the rest of the votes is put where it does most harm: as many as possible beside the runner-up. Both bounds
on the probability that another class wins, Phi(-gap / (sigma sqrt 2)) and (2 + gamma gap) / (4 e^(gamma gap)), are convex in
a loser's count, so their sum over losers is largest at an extreme point of the histograms with these two counts.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from scipy.ndimage import maximum_filter1d
from scipy.special import ndtr

from pate.arrays import BoolArray, FloatArray, IntArray
from pate.errors import ParameterError
from pate.privacy.curve import check_orders
from pate.privacy.exact import NoisyMax, ThresholdTest, noisy_max_rdp, threshold_log_probs
from pate.privacy.independent import confident_bound, laplace_max_bound, noisy_max_bound
from pate.privacy.outcomes import numeric_margin, renyi_divergence
from pate.privacy.published import gnmax_rdp, lnmax_rdp_2018
from pate.privacy.smooth.table import CostTable
from pate.privacy.smooth.tail import gaussian_tail_excess, laplace_tail_excess
from pate.validation import whole

MOST_TEACHERS_TWO_CLASSES = 100_000
MOST_TEACHERS = 2000
"""With more than two classes a table has about half the square of this many states."""

_EXACT_CLASSES = 3
_STEPS = 512  # of log q


def cost_tables(mechanism: NoisyMax, n_teachers: int, n_classes: int, orders: FloatArray) -> list[CostTable]:
    """The table of each order, one query of ``mechanism``: no cost is below the true one, in either direction.

    >>> table = cost_tables(NoisyMax("gaussian", 40.0), 250, 2, np.array([8.0]))[0]
    >>> bool(table.cost(np.array([[250, 0]])) < table.cost(np.array([[126, 124]])))
    True
    """
    grid = check_orders(orders)
    whole(n_teachers, "n_teachers", 1)
    whole(n_classes, "n_classes", 2)
    check_size(n_teachers, n_classes)
    caps = independent_cost(mechanism, n_teachers, n_classes, grid)
    if n_classes <= _EXACT_CLASSES:
        costs, valid = _exact(mechanism, n_teachers, n_classes, grid)
    else:
        costs, valid = _bounds(mechanism, n_teachers, n_classes, grid)
    return [CostTable(np.where(valid, np.fmin(cost, cap), 0.0), valid) for cost, cap in zip(costs, caps, strict=True)]


def check_size(n_teachers: int, n_classes: int) -> None:
    """Raise where a table would not fit in memory and time."""
    most = MOST_TEACHERS_TWO_CLASSES if n_classes == 2 else MOST_TEACHERS
    if n_teachers > most:
        raise ParameterError(
            f"A sanitised epsilon needs a table of all largest counts, which is made for at most {most} teachers with "
            f"{'two' if n_classes == 2 else 'more than two'} classes, got {n_teachers}. Publish the data-independent epsilon."
        )


def threshold_table(test: ThresholdTest, n_teachers: int, n_classes: int, order: float, argmax_rdp: float = 0.0) -> CostTable:
    """Exact cost of the threshold step, both directions, over the largest count; jointly with an answer of ``argmax_rdp``.

    ``argmax_rdp``: what the answer costs at most, whatever the votes; 0 for the step alone.
    """
    largest = np.arange(n_teachers + 1)
    valid = largest >= -(-n_teachers // n_classes)
    with np.errstate(over="ignore"):
        excess = np.full(largest.shape, np.expm1((order - 1) * argmax_rdp))
    cap = confident_bound(test.threshold, test.sigma, [argmax_rdp], n_teachers, n_classes, [order])[0]
    return CostTable(np.where(valid, np.fmin(_joint(test, largest, valid, excess, order), cap), 0.0), valid)


def independent_cost(mechanism: NoisyMax, n_teachers: int, n_classes: int, orders: FloatArray) -> FloatArray:
    """float64[order]: the worst case over all histograms, which no entry of a table exceeds."""
    bound = noisy_max_bound if mechanism.noise == "gaussian" else laplace_max_bound
    argmax = bound(mechanism.scale, orders)
    if mechanism.confident is None:
        return argmax
    threshold, sigma = mechanism.confident
    return confident_bound(threshold, sigma, argmax, n_teachers, n_classes, orders)


def _exact(mechanism: NoisyMax, n: int, n_classes: int, orders: FloatArray) -> tuple[FloatArray, BoolArray]:
    """float64[order, *state], bool[*state]."""
    if n_classes == 2:
        largest = np.arange(-(-n // 2), n + 1)
        rows = np.stack([largest, n - largest], axis=1)
        index: tuple[IntArray, ...] = (largest,)
        shape: tuple[int, ...] = (n + 1,)
    else:
        _, _, valid = _states(n, n_classes)
        index = np.nonzero(valid)
        rows = np.stack([*index, n - index[0] - index[1]], axis=1)
        shape = valid.shape
    place = np.ravel_multi_index(index, shape)
    flat = np.zeros((orders.size, math.prod(shape)))
    flat[:, place] = noisy_max_rdp(mechanism, rows, orders).worst.T
    costs = flat.reshape(orders.size, *shape)
    valid = np.zeros(shape, dtype=np.bool_)
    valid[index] = True
    # An exact cost that could not be computed is infinite, and the data-independent one takes its place.
    return np.where(np.isnan(costs), np.inf, costs), valid


def _bounds(mechanism: NoisyMax, n: int, n_classes: int, orders: FloatArray) -> tuple[FloatArray, BoolArray]:
    largest, _, valid = _states(n, n_classes)
    # Any upper bound on q will do, so q is rounded up to one of few values.
    steps, which = np.unique(
        np.ceil(np.log(_most_likely_loss(mechanism.noise, mechanism.scale, n, n_classes)) * _STEPS), return_inverse=True
    )
    logs = np.minimum(steps / _STEPS, 0.0)
    costs = np.zeros((orders.size, *valid.shape))
    gaussian = mechanism.noise == "gaussian"
    published = (gnmax_rdp if gaussian else lnmax_rdp_2018)(logs, mechanism.scale, orders)
    tail = gaussian_tail_excess if gaussian else laplace_tail_excess
    for i, order in enumerate(orders):
        excess = np.full(valid.shape, np.inf)
        excess[valid] = tail(np.exp(logs), mechanism.scale, float(order))[which]
        both = _both_directions(published[:, i][which], valid)
        with np.errstate(over="ignore"):
            excess = np.fmin(excess, np.expm1((order - 1) * both))
        if mechanism.confident is None:
            costs[i] = np.log1p(excess) / (order - 1)
        else:
            costs[i] = _joint(mechanism.confident, largest, valid, excess, float(order))
    return costs, valid


def _both_directions(forward: FloatArray, valid: BoolArray) -> FloatArray:
    """A published bound of every valid state, made one of both directions. It is the smaller one where there is little noise.

    A reverse divergence is the forward one of a neighbour, so the worst of all neighbours' bounds holds too.
    """
    table = np.zeros(valid.shape)
    table[valid] = forward
    return maximum_filter1d(maximum_filter1d(table, 3, axis=0, mode="constant"), 3, axis=1, mode="constant")


def _joint(test: ThresholdTest, largest: IntArray, valid: BoolArray, excess: FloatArray, order: float) -> FloatArray:
    """Joint cost of a test and an answer with e^((a-1) D) - 1 = excess, the larger of both directions and all neighbours.

    E = N^a N'^(1-a) + A^a A'^(1-a) e^((a-1) D): the divergence of the test, and what an answer adds.
    """
    grid = np.array([order])
    lowest, highest = int(largest[valid].min()), int(largest[valid].max())
    counts = np.arange(highest + 1)  # the test looks at nothing but the largest count
    here = np.stack(threshold_log_probs(test, counts), axis=-1)
    row = tuple(slice(None) if axis == 0 else None for axis in range(excess.ndim))
    worst = np.zeros(excess.shape)
    for step in (-1, 0, 1):
        there = np.stack(threshold_log_probs(test, np.clip(counts + step, lowest, highest)), axis=-1)
        for p, q in ((here, there), (there, here)):
            with np.errstate(over="ignore", invalid="ignore"):
                bit = np.expm1((order - 1) * renyi_divergence(p, q, grid)[..., 0])
                moment = bit[row] + np.exp(order * p[..., 0] - (order - 1) * q[..., 0])[row] * excess
            worst = np.fmax(worst, np.where(np.isnan(moment), np.inf, moment))
    result: FloatArray = np.log1p(worst) / (order - 1) + numeric_margin(grid)[0]
    return result


@lru_cache(maxsize=4)
def _states(n: int, n_classes: int) -> tuple[IntArray, IntArray, BoolArray]:
    """int64[largest, second] of both counts, and which of them a histogram of n votes can have."""
    largest, second = np.meshgrid(np.arange(n + 1), np.arange(n // 2 + 1), indexing="ij")
    rest = n - largest - second
    return largest, second, (second <= largest) & (rest >= 0) & (rest <= (n_classes - 2) * second)


def _most_likely_loss(noise: str, scale: float, n: int, n_classes: int) -> FloatArray:
    """float64[valid state]: no less than Pr[not the top class], for every histogram in that state."""
    largest, second, valid = (each for each in _states(n, n_classes))
    top, runner = largest[valid], second[valid]
    rest = n - top - runner
    level = np.divide(rest, runner, out=np.zeros(rest.shape), where=runner > 0).astype(np.int64)
    left = rest - level * runner
    gap = np.arange(n + 1)
    # PATE 2018 (arXiv:1802.08908), Proposition 7, and PATE 2017 (arXiv:1610.05755), Lemma 4.
    gaussian = noise == "gaussian"
    overtakes = ndtr(-gap / (math.sqrt(2) * scale)) if gaussian else (2 + scale * gap) / 4 * np.exp(-scale * gap)
    others = n_classes - 2 - level
    lone = others > 0
    q = (1 + level) * overtakes[top - runner]
    q += np.where(lone, overtakes[top - np.where(lone, left, 0)] + (others - 1) * overtakes[top], 0.0)
    # The top class is at least as likely as any other; and what underflows is not 0.
    result: FloatArray = np.clip(q * (1 + 1e-12), 1e-300, 1 - 1 / n_classes)
    return result
