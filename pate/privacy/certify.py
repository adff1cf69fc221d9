"""Certified suprema behind the data-independent bounds: proof in ``docs/data-independent-bound.md``.

Two suprema of a Rényi divergence are bracketed by branch and bound, for all orders at once:

* :func:`certify_noisy_max`: a vote moves from one class to another and only the noisy winner is seen (two dimensions);
* :func:`certify_one_count`: a single count changes by one (one dimension).

``python -m pate.privacy.certify`` rebuilds the table that :mod:`pate.privacy.independent` reads;
``python -m pate.privacy.certify --sigma 40`` certifies one noise level and prints it.

Everything is stated through the excess of :mod:`pate.privacy.excess`: the divergence is log1p(excess)/(a-1).
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import log_ndtr, ndtr

from pate.arrays import BoolArray, FloatArray, IntArray
from pate.errors import ParameterError
from pate.privacy.curve import DEFAULT_ORDERS, check_orders
from pate.privacy.excess import curvature, excess_terms, side_log_probs, winner_log_probs

TABLE_PATH = Path(__file__).with_name("noisy_max_table.npz")
TOLERANCE = 1e-4
"""Relative gap, on the excess, at which the search stops."""
FLOAT_MARGIN = 1e-6
"""Relative margin for floating-point error; the tests find errors below 1e-9 against mpmath at 50 digits."""
LARGEST_TILT = 12.0
"""Orders with a*|shift| above this keep the Gaussian mechanism's own cost, which is about 5% above the supremum there."""
LARGEST_SHIFT = 3.0
"""Shifts (in units of sigma) above this keep the Gaussian mechanism's own cost."""

_SMALLEST_SIGMA, _LARGEST_SIGMA = 0.5, 2000.0
_ROUND_SIGMAS = np.array(
    [1, 2, 3, 4, 5, 8, 10, 15, 20, 25, 30, 40, 50, 60, 75, 80, 91, 100, 120, 150, 160, 200, 250, 300, 400, 500, 1000],
    dtype=np.float64,
)
_FIRST_WIDTH = 0.5
_LEVELS = 10
_RADII = np.arange(1.5, 12.01, 0.25)


class Bracket(NamedTuple):
    """lower <= supremum <= upper, each float64[order]."""

    lower: FloatArray
    upper: FloatArray


class _Region(NamedTuple):
    """A bounded search region per order, and what the excess is at most outside it (float64[order])."""

    lowest: FloatArray  # float64[dim]: no order's region reaches below this corner
    highest: FloatArray  # float64[dim]
    touches: Callable[[FloatArray, float], BoolArray]  # (lower corners [box, dim], width) -> [box, order]
    excess_outside: FloatArray


def certify_noisy_max(sigma: float, orders: FloatArray, tolerance: float = TOLERANCE) -> Bracket:
    """Bracket S(a, sigma) = sup over (u, v) of D_a( t(u, v) || t(u - 1/sigma, v + 1/sigma) ), float64[order] each.

    t(u, v) are the chances that class a, class b or another class wins, when a and b stand u and v (in units of sigma)
    above the noisy maximum of the rest. The upper end is never above a/sigma^2 (Mironov 2017, arXiv:1702.07476,
    Proposition 7, with L2 sensitivity sqrt 2) and includes FLOAT_MARGIN.
    """
    grid, d = check_orders(orders), 1 / check_sigma(sigma)
    cap = grid * d**2
    shift = np.array([-d, d])
    todo = _worth_certifying(grid, shift)
    lower, upper = np.zeros_like(cap), cap.copy()
    if todo.any():
        a = grid[todo]
        two_classes = _one_count_excess(np.sqrt(2) * d, a, tolerance / 4)
        region = _noisy_max_region(d, a, two_classes, tolerance)
        excess = _branch_and_bound(winner_log_probs, shift, a, two_classes.lower, region, tolerance)
        lower[todo], upper[todo] = as_divergence(excess, a)
    return Bracket(np.fmin(lower, cap), np.fmin(upper, cap))  # fmin: the cap where a value is not a number


def certify_one_count(sigma: float, orders: FloatArray, tolerance: float = TOLERANCE) -> Bracket:
    """Bracket S1(a, sigma) = sup over u of D_a( Bern(Phi(u)) || Bern(Phi(u - 1/sigma)) ), float64[order] each.

    The upper end is never above a/(2 sigma^2) (Mironov 2017, Proposition 7, with sensitivity 1).
    """
    grid, d = check_orders(orders), 1 / check_sigma(sigma)
    cap = grid * d**2 / 2
    todo = _worth_certifying(grid, np.array([-d]))
    lower, upper = np.zeros_like(cap), cap.copy()
    if todo.any():
        lower[todo], upper[todo] = as_divergence(_one_count_excess(d, grid[todo], tolerance), grid[todo])
    return Bracket(np.fmin(lower, cap), np.fmin(upper, cap))  # fmin: the cap where a value is not a number


def _branch_and_bound(
    log_probs: Callable[[FloatArray], FloatArray],
    shift: FloatArray,
    orders: FloatArray,
    known: FloatArray,
    region: _Region,
    tolerance: float,
) -> Bracket:
    """Bracket the supremum of the excess over all points, for every order at once; ``known`` is a lower end to start from.

    On a box of width w the excess plus curvature * |x - centre|^2 / 2 is convex, so it is at most the largest corner
    value plus curvature * dim * w^2 / 8. Boxes that cannot beat (1 + tolerance) * best are dropped, the others halved.
    """
    dim, length = shift.size, float(np.sqrt(shift @ shift))
    corner_steps = lattice_points([0] * dim, [2] * dim)
    width = _FIRST_WIDTH
    boxes = lattice_points(np.floor(region.lowest / width), np.ceil(region.highest / width))
    alive = np.ones((len(boxes), orders.size), dtype=bool)
    best, leftover = known.copy(), np.zeros_like(known)
    for _ in range(_LEVELS):
        alive &= region.touches(boxes.astype(np.float64) * width, width)
        boxes, alive = surviving(boxes, alive)
        lattice, corner = unique_points(boxes[:, None] + corner_steps)
        points = lattice.astype(np.float64) * width
        log_q = log_probs(points + shift)
        ratio = log_probs(points) - log_q
        # |grad l| <= |shift|, and no point of a box is further than sqrt(dim) w/2 from its nearest corner.
        stray = length * np.sqrt(dim) * width / 2
        lowest, highest = ratio[corner].min(1) - stray, ratio[corner].max(1) + stray
        q_most = np.exp(log_q[corner].max(1))  # every t_i is monotone in every coordinate: largest at a corner
        leftover = np.zeros_like(known)
        for j, a in enumerate(orders):
            mine = np.flatnonzero(alive[:, j])
            used = np.zeros(len(points), dtype=bool)
            used[corner[mine]] = True
            value = np.zeros(len(points))
            value[used] = excess_terms(a, log_q[used], ratio[used]).sum(1)
            best[j] = value.max(initial=best[j])
            sag = (q_most[mine] * curvature(a, lowest[mine], highest[mine], length)).sum(1) * dim * width**2 / 8
            bound = value[corner[mine]].max(1) + sag
            beats = ~(bound <= best[j] * (1 + tolerance))  # a NaN must keep its box
            alive[mine, j] = beats
            leftover[j] = bound[beats].max(initial=0.0)
        boxes, alive = surviving(boxes, alive)
        if not len(boxes):
            break
        boxes = (2 * boxes[:, None] + corner_steps).reshape(-1, dim)
        alive, width = np.repeat(alive, len(corner_steps), axis=0), width / 2
    # Boxes left at the deepest level keep the bound they had there: looser, never invalid.
    return Bracket(best, np.max([best * (1 + tolerance), leftover, region.excess_outside], axis=0))


def _one_count_excess(d: float, orders: FloatArray, tolerance: float) -> Bracket:
    """The excess behind S1 for a shift of ``d``: the one-dimensional search (docs, section 6)."""
    middle = np.linspace(-3, 3, 61)[:, None] - orders * d / 2  # any points will do: they only give a first lower end
    log_q = side_log_probs(middle.reshape(-1, 1) - d)
    terms = (log_q, side_log_probs(middle.reshape(-1, 1)) - log_q)
    log_q, ratio = (part.reshape(*middle.shape, 2) for part in terms)
    known = np.array([excess_terms(a, log_q[:, j], ratio[:, j]).sum(1).max() for j, a in enumerate(orders)])
    tilt, radius = (orders - 1) * d, _RADII[:, None]
    moment = np.exp(orders * (orders - 1) * d**2 / 2)
    above = np.expm1(-(orders - 1) * log_ndtr(radius - d)) + moment * ndtr(-radius - tilt)
    below = moment * ndtr(-radius)
    (high, most_above), (low, most_below) = (smallest_radius(_RADII, outside, known) for outside in (above, below))

    def touches(corner: FloatArray, width: float) -> BoolArray:
        inside: BoolArray = (corner < high) & (corner + width > -low - tilt)
        return inside

    region = _Region(-(low + tilt).max(keepdims=True), high.max(keepdims=True), touches, np.maximum(most_above, most_below))
    return _branch_and_bound(side_log_probs, np.array([-d]), orders, known, region, tolerance)


def _noisy_max_region(d: float, orders: FloatArray, two_classes: Bracket, tolerance: float) -> _Region:
    """The bounded triangle outside of which S cannot exceed what is already known (docs, section 6)."""
    tilt, radius = (orders - 1) * d, _RADII[:, None]
    known = two_classes.lower
    log_moment = orders * (orders - 1) * d**2
    stretch = -(orders - 1) * log_ndtr(radius)
    # u + v >= sqrt2 R: only a and b can win, up to terms in Phi(-R).
    both_high = two_classes.upper + (1 + two_classes.upper) * np.expm1(stretch) + np.exp(log_moment) * ndtr(-radius)
    # v <= -R, and u <= -R - (a-1)d: one count matters, up to terms in Phi(-R).
    b_low = np.expm1(log_moment / 2 - (orders - 1) * log_ndtr(radius - d)) + ndtr(-radius)
    a_low = np.expm1(log_moment / 2 + stretch) + np.exp(log_moment) * ndtr(-radius)
    (high, most_high), (low_b, most_b), (low_a, most_a) = (
        smallest_radius(_RADII, outside, known * (1 + tolerance)) for outside in (both_high, b_low, a_low)
    )

    def touches(corner: FloatArray, width: float) -> BoolArray:
        u, v = corner[:, :1], corner[:, 1:]
        inside: BoolArray = (u + v < np.sqrt(2) * high) & (v + width > -low_b) & (u + width > -low_a - tilt)
        return inside

    lowest = np.array([-(low_a + tilt).max(), -low_b.max()])
    highest = np.array([(np.sqrt(2) * high + low_b).max(), (np.sqrt(2) * high + low_a + tilt).max()])
    return _Region(lowest, highest, touches, np.max([most_high, most_b, most_a], axis=0))


def smallest_radius(radii: FloatArray, outside: FloatArray, target: FloatArray) -> tuple[FloatArray, FloatArray]:
    """From the excess outside each radius, [radius, order]: the first radius where it is at most ``target``, and that excess.

    Where no radius reaches the target the last one is taken, and its excess counts in the result.
    """
    fits = outside <= target
    first = np.where(fits.any(0), fits.argmax(0), len(radii) - 1)
    return radii[first], outside[first, np.arange(target.size)]


def as_divergence(excess: Bracket, orders: FloatArray) -> Bracket:
    """log1p(excess)/(a-1) at both ends, with FLOAT_MARGIN on the safe side of each."""
    lower, upper = (np.log1p(end) / (orders - 1) for end in excess)
    return Bracket(lower * (1 - FLOAT_MARGIN), upper * (1 + FLOAT_MARGIN))


def _worth_certifying(orders: FloatArray, shift: FloatArray) -> BoolArray:
    length = float(np.sqrt(shift @ shift))
    result: BoolArray = (orders * length <= LARGEST_TILT) & (length <= LARGEST_SHIFT)
    return result


def check_sigma(sigma: float) -> float:
    if not (np.isfinite(sigma) and sigma > 0):
        raise ParameterError(f"sigma must be a finite number above 0, got {sigma}; PATE uses values such as 40.")
    return float(sigma)


def lattice_points(lowest: ArrayLike, highest: ArrayLike) -> IntArray:
    """All integer points with lowest <= point < highest: int64[point, dim]."""
    spans = [np.arange(low, high, dtype=np.int64) for low, high in zip(np.asarray(lowest), np.asarray(highest), strict=True)]
    return np.stack(np.meshgrid(*spans, indexing="ij"), axis=-1).reshape(-1, len(spans))


def unique_points(points: IntArray) -> tuple[IntArray, IntArray]:
    """Distinct lattice points int64[unique, dim], and the place of each given one: int64[box, corner]."""
    base = np.int64(2**31)  # lattice coordinates stay below 2^30
    keys = points[..., 0] if points.shape[-1] == 1 else points[..., 0] * base + points[..., 1]
    _, first, place = np.unique(keys.ravel(), return_index=True, return_inverse=True)
    return points.reshape(-1, points.shape[-1])[first], place.reshape(keys.shape)


def surviving(boxes: IntArray, alive: BoolArray) -> tuple[IntArray, BoolArray]:
    """The boxes that some order still needs, and for which orders."""
    keep = alive.any(axis=1)
    return boxes[keep], alive[keep]


def table_sigmas() -> FloatArray:
    """Noise levels of the table, float64[node], from the largest down: a geometric grid and the round numbers people use.

    S is convex in 1/sigma, so a chord over a step of 2% is at most 1e-4 too high (docs, section 2).
    """
    steps = int(np.ceil(np.log(_LARGEST_SIGMA / _SMALLEST_SIGMA) / np.log(1.02)))
    grid = np.geomspace(_SMALLEST_SIGMA, _LARGEST_SIGMA, steps + 1)
    return np.unique(np.concatenate([grid, _ROUND_SIGMAS]))[::-1]


def build_table(sigmas: FloatArray, orders: FloatArray, progress: Callable[[str], None]) -> IntArray:
    """Certify every noise level: costs as a share of a/sigma^2, in millionths, rounded up: int64[node, order]."""
    rows = []
    started = time.monotonic()
    for done, sigma in enumerate(sigmas, start=1):
        share = certify_noisy_max(float(sigma), orders).upper * sigma**2 / orders
        rows.append(np.minimum(np.ceil(share * 1e6), 1e6).astype(np.int64))
        progress(f"{done}/{len(sigmas)} sigma {sigma:g} after {time.monotonic() - started:.0f} s")
    return np.array(rows)


def main(arguments: list[str] | None = None) -> None:
    """Rebuild the table, or certify one noise level and print it."""
    parser = argparse.ArgumentParser(prog="python -m pate.privacy.certify", description=main.__doc__)
    parser.add_argument("--sigma", type=float, help="certify this noise level only, and print sigma^2/a times the bracket")
    parser.add_argument("--output", type=Path, default=TABLE_PATH, help="where to write the table")
    options = parser.parse_args(arguments)
    if options.sigma is not None:
        bracket = certify_noisy_max(options.sigma, DEFAULT_ORDERS)
        for a, low, high in zip(DEFAULT_ORDERS, *(end * options.sigma**2 / DEFAULT_ORDERS for end in bracket), strict=True):
            print(f"order {a:7.2f}   {low:.6f} <= S sigma^2/a <= {high:.6f}")
        return
    sigmas = table_sigmas()
    millionths = build_table(sigmas, DEFAULT_ORDERS, lambda line: print(line, file=sys.stderr, flush=True))
    np.savez_compressed(options.output, sigmas=sigmas, orders=DEFAULT_ORDERS, millionths=millionths)


if __name__ == "__main__":
    main()
