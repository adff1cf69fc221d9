"""Certified suprema behind the data-independent bounds for Laplace noise: proof in ``docs/data-independent-bound.md``.

As :mod:`pate.privacy.certify` does for Gaussian noise, two suprema of a Rényi divergence are bracketed for all orders at
once: :func:`certify_laplace_max` (a vote moves, only the noisy winner is seen) and :func:`certify_laplace_one_count` (a
single count changes by one). Sections are those of the document, where gamma is the shift d.

The chances of the outcomes have closed forms (:mod:`pate.privacy.laplace_outcomes`), and the plane reduces to two strips
of width gamma and a few lines (section 9.3), so a bracket takes a fraction of a second and needs no table.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from pate.arrays import BoolArray, FloatArray
from pate.privacy.certify import Bracket, as_divergence, lattice_points, smallest_radius, surviving, unique_points
from pate.privacy.curve import check_orders
from pate.privacy.laplace_outcomes import exponential_rest, only_a, only_b, some_rest, two_classes
from pate.validation import positive

TOLERANCE = 2e-4
"""Relative gap, on the divergence, at which the search stops."""
SMALLEST_SHIFT = 1e-4
"""Below it the search would take longer, and far below it lose the digits that FLOAT_MARGIN covers."""
LARGEST_SHIFT = 10.0
"""Above it the cost of any pure-DP mechanism is kept."""
LARGEST_TILT = 250.0
"""Orders with a*gamma above this keep the cost of any pure-DP mechanism, which is some 6% above the supremum there."""

_FIRST_WIDTH = 0.25
_LEVELS = 20
_RADII = np.concatenate([np.arange(0.5, 8, 0.25), np.arange(8, 200, 2.0)])
_GUESSES = np.concatenate([[0.0], np.geomspace(0.01, 60, 30)])
_PIECES = 4

_LogProbs = Callable[[FloatArray], FloatArray]


class _Region(NamedTuple):
    """A rectangle of (u, v), or a line, endless along one axis; along it one class, ``sure``, wins ever more surely."""

    log_probs: _LogProbs
    corner: tuple[float, float]  # smallest u and v
    width: float  # across
    axis: int  # 0: along u, where a is sure; 1: along v, where b is
    offset: float  # beyond offset + R along the axis ...
    log_least: FloatArray  # float64[radius]: ... the sure class has at least this chance, before the move and after it
    largest_ratio: float  # |log p - log q| is at most this for every outcome


class _Found(NamedTuple):
    """float64[order] each: the largest excess seen at a point, and what it is at most in boxes and tails left unsearched."""

    best: FloatArray
    elsewhere: FloatArray


def certify_laplace_max(gamma: float, orders: FloatArray, tolerance: float = TOLERANCE) -> Bracket:
    """Bracket S(a, gamma) = sup over (u, v) of D_a( t(u, v) || t(u - gamma, v + gamma) ), float64[order] each.

    t(u, v) are the chances that class a, class b or another class wins, when a and b stand u and v (in units of 1/gamma)
    above the place from which the largest of the rest is exponential. The upper end includes FLOAT_MARGIN, and is infinite
    where no search was made. At high orders a step of the proof, and so the bracket, has some width.
    """

    def excess(d: float, a: FloatArray) -> Bracket:
        attained = _search([*_two_classes(d), *_strips(d), *_one_count(d)], d, a, _inside(d, a), tolerance)
        known, most = attained.best, np.maximum(attained.elsewhere, _raised(attained.best, tolerance))
        # At low orders one piece of every diagonal will do; a poor choice would make the bound looser, never wrong.
        simple = np.max([_seen(one.log_probs, _guesses(one), d, a) for one in _diagonals(d, 1)], axis=0) <= known
        for orders_here, pieces in ((simple, 1), (~simple, _PIECES)):
            best, elsewhere = _search(_diagonals(d, pieces), d, a[orders_here], known[orders_here], tolerance)
            most[orders_here] = np.max([most[orders_here], elsewhere, _raised(best, tolerance)], axis=0)
        return Bracket(known, most)

    return _where_worthwhile(excess, gamma, orders)


def certify_laplace_one_count(gamma: float, orders: FloatArray, tolerance: float = TOLERANCE) -> Bracket:
    """Bracket sup over u of D_a, both directions, of (a wins, the rest wins) at u and u - gamma; float64[order] each.

    The rest is an exponential variable. The upper end includes FLOAT_MARGIN, and is infinite where no search was made.
    """

    def excess(d: float, a: FloatArray) -> Bracket:
        best, elsewhere = _search(_one_count(d), d, a, np.zeros_like(a), tolerance)
        return Bracket(best, np.maximum(elsewhere, _raised(best, tolerance)))

    return _where_worthwhile(excess, gamma, orders)


def box_slack(widths: FloatArray) -> float:
    """eta such that on a box every chance is within a factor 1 ± eta of the interpolation of its corners (section 9.4)."""
    return float((widths**2).sum() / 8 * np.exp(widths.sum()))


def box_excess(a: FloatArray, log_q: FloatArray, ratio: FloatArray, eta: float) -> FloatArray:
    """What the excess is at most on a box of slack eta, as far as one corner can tell; at eta = 0 the excess itself.

    (1 + eta) sum_i q_i max{ g(l) : |l - l_i| <= 2 artanh(eta) } (section 9.4): the largest over the corners of a box is a
    bound for the box. g falls before 0 and rises after it, so an end decides. a: float64[point], an order for each point;
    log_q and ratio: float64[point, outcome]; the result: float64[point].
    """
    stray = 2 * np.arctanh(eta)
    with np.errstate(over="ignore"):  # an infinite bound keeps its box
        g = np.maximum(_g(a[:, None], ratio - stray), _g(a[:, None], ratio + stray)) if eta else _g(a[:, None], ratio)
        total: FloatArray = (1 + eta) * (np.exp(log_q) * g).sum(1)
    return total


def moved_terms(log_probs: _LogProbs, points: FloatArray, d: float) -> tuple[FloatArray, FloatArray]:
    """log q and l = log p - log q when a falls by d and b rises by d, float64[point, outcome] each."""
    log_q = log_probs(points + np.array([-d, d]))
    return log_q, log_probs(points) - log_q


def _g(a: FloatArray, ratio: FloatArray) -> FloatArray:
    """g(l) = expm1(a l) - a expm1(l) >= 0, written so that an order next to 1 loses no digits.

    For |l| near SMALLEST_SHIFT 1e-11 of it is lost, far less than FLOAT_MARGIN.
    """
    result: FloatArray = np.exp(ratio) * np.expm1((a - 1) * ratio) - (a - 1) * np.expm1(ratio)
    return result


def _inside(d: float, orders: FloatArray) -> FloatArray:
    """The largest excess over some points of the quadrant that only the diagonal step covers, float64[order]."""
    gaps = np.concatenate([[0.0], np.geomspace(0.05, 40, 24)])
    return _seen(exponential_rest, np.array([(u, u + gap) for u in np.linspace(0, 3, 13) for gap in gaps]), d, orders)


def _seen(log_probs: _LogProbs, points: FloatArray, d: float, orders: FloatArray) -> FloatArray:
    """The largest excess over the points, float64[order]."""
    terms = moved_terms(log_probs, points, d)
    return np.array([box_excess(np.full(len(points), a), *terms, eta=0.0).max() for a in orders])


def _guesses(region: _Region) -> FloatArray:
    """Some points along the edge of a region, float64[point, 2]."""
    points: FloatArray = np.array(region.corner) + np.outer(_GUESSES, np.arange(2) == region.axis)
    return points


def _strips(d: float) -> list[_Region]:
    """0 <= u <= d, v >= -d, where a falls below the start of the rest; u >= d, -d <= v <= 0, where b rises above it."""
    sure = exponential_rest(np.stack([_RADII, np.full_like(_RADII, d)], axis=1))[:, 0]
    return [
        _Region(exponential_rest, (0.0, -d), d, 1, d, sure, 2 * d),
        _Region(exponential_rest, (d, -d), d, 0, 0.0, sure, 2 * d),
    ]


def _two_classes(d: float) -> list[_Region]:
    """u - v <= d and u - v >= d: the same lines as in :func:`_diagonals`, but only u - v matters."""
    sure = two_classes(np.stack([_RADII, np.zeros_like(_RADII)], axis=1))[:, 0]
    return [_Region(two_classes, (d, 0.0), 0.0, axis, d, sure, 2 * d) for axis in (1, 0)]


def _diagonals(d: float, pieces: int) -> list[_Region]:
    """u = d, v >= 0 and v = 0, u >= d: each point stands for a piece of the diagonal that starts there (section 9.3)."""
    # A class is surest without a rest, least sure against an exponential one.
    sure = exponential_rest(np.stack([_RADII, np.full_like(_RADII, d)], axis=1))[:, 0]
    regions = []
    for s, t in pairwise(np.linspace(0, 1, pieces + 1)):
        middle = (s * (1 - t) + t * (1 - s)) / 2
        blend = partial(some_rest, weights=((1 - s) * (1 - t), middle, middle + s * t))
        regions += [_Region(blend, (d, 0.0), 0.0, axis, 0.0, sure, 2 * d) for axis in (1, 0)]
    return regions


def _one_count(d: float) -> list[_Region]:
    """v >= -d with b alone, which rises; u >= 0 with a alone, which falls: both directions for one count."""
    sure = only_a(_RADII[:, None])[:, 0]
    return [_Region(only_b, (0.0, -d), 0.0, 1, d, sure, d), _Region(only_a, (0.0, 0.0), 0.0, 0, d, sure, d)]


def _search(regions: list[_Region], d: float, orders: FloatArray, known: FloatArray, tolerance: float) -> _Found:
    """Branch and bound over all regions; ``known`` is an excess to beat, float64[order]."""
    best, elsewhere = known, np.zeros_like(known)
    for region in regions if orders.size else []:
        best = np.maximum(best, _seen(region.log_probs, _guesses(region), d, orders))
        reach, beyond = smallest_radius(_RADII, _excess_beyond(region, orders), best)
        best, leftover = _branch_and_bound(region, region.offset + reach, d, orders, best, tolerance)
        elsewhere = np.max([elsewhere, leftover, beyond], axis=0)
    return _Found(best, elsewhere)


def _excess_beyond(region: _Region, orders: FloatArray) -> FloatArray:
    """The excess beyond every radius, float64[radius, order], at most: the sure class hardly changes (section 9.5)."""
    log_least = region.log_least[:, None]
    change = np.log1p(np.expm1(-log_least) * -np.expm1(-region.largest_ratio))
    with np.errstate(over="ignore"):
        bound: FloatArray = -np.expm1(log_least) * _g(orders, np.array(region.largest_ratio)) + _g(orders, change)
    return bound


def _branch_and_bound(
    region: _Region, reach: FloatArray, d: float, orders: FloatArray, best: FloatArray, tolerance: float
) -> _Found:
    """The largest excess seen, at least ``best``, and the largest bound of the boxes that were left: float64[order] each.

    Boxes that cannot beat (1 + tolerance) times the best divergence are dropped, the others halved along the longer side.
    """
    size = np.where(np.arange(2) == region.axis, reach.max(), region.width)
    counts = np.maximum(np.ceil(size / _FIRST_WIDTH), 1).astype(np.int64)
    widths = size / counts
    boxes = lattice_points([0, 0], counts)
    alive: BoolArray = boxes[:, [region.axis]] * widths[region.axis] < reach
    steps = lattice_points([0, 0], 1 + (size > 0))  # a line has two corners, not four
    leftover = np.zeros_like(best)
    for _ in range(_LEVELS):
        boxes, alive = surviving(boxes, alive)
        if not len(boxes):
            break
        eta = box_slack(widths)
        lattice, corner = unique_points(boxes[:, None] + steps)
        log_q, ratio = moved_terms(region.log_probs, np.array(region.corner) + lattice * widths, d)
        used = np.zeros((len(lattice), orders.size), dtype=bool)
        for one_of_each in corner.T:  # distinct boxes have distinct lower corners, upper corners, and so on
            used[one_of_each] |= alive
        point, order = np.nonzero(used)
        value = np.zeros(used.shape)
        value[point, order] = box_excess(orders[order], log_q[point], ratio[point], 0.0)
        best = np.maximum(best, value.max(0))
        value[point, order] = box_excess(orders[order], log_q[point], ratio[point], eta)
        bound = value[corner].max(1)
        alive &= ~(bound <= _raised(best, tolerance))  # a NaN must keep its box
        leftover = np.where(alive, bound, 0.0).max(0)
        halves = np.where(np.arange(2) == np.argmax(widths), 2, 1)
        boxes = ((boxes * halves)[:, None] + lattice_points([0, 0], halves)).reshape(-1, 2)
        alive, widths = np.repeat(alive, 2, axis=0), widths / halves
    # Boxes left at the deepest level keep the bound they had there: looser, never invalid.
    return _Found(best, leftover)


def _raised(excess: FloatArray, tolerance: float) -> FloatArray:
    """The excess at which the divergence is larger by the factor 1 + tolerance."""
    result: FloatArray = np.expm1(np.log1p(excess) * (1 + tolerance))
    return result


def _where_worthwhile(excess: Callable[[float, FloatArray], Bracket], gamma: float, orders: FloatArray) -> Bracket:
    """The bracket of the divergence, from 0 to infinity at the orders where no search is made."""
    grid, d = check_orders(orders), check_gamma(gamma)
    todo = (grid * d <= LARGEST_TILT) & (SMALLEST_SHIFT <= d <= LARGEST_SHIFT)
    lower, upper = np.zeros(grid.size), np.full(grid.size, np.inf)
    if todo.any():
        lower[todo], upper[todo] = as_divergence(excess(d, grid[todo]), grid[todo])
    return Bracket(lower, upper)


def check_gamma(gamma: float) -> float:
    positive(gamma, "gamma, the inverse scale of the noise,")
    return float(gamma)
