"""The search for the worst move of each histogram, compiled: the same computation as :mod:`divergence`.

Optional: needs numba (extra ``fast``). The kernel keeps P and Q/P of every move, and takes logs and exponentials only of
moves that may be the worst. Its error in D is below 1e-13 * (1 + 1/(a-1)), which the margin covers; the NumPy path keeps
more digits of tiny values.
"""

from __future__ import annotations

import hashlib
import math
from pathlib import Path
from typing import Any

import numba
import numpy as np

from pate.arrays import FloatArray, IntArray
from pate.privacy.exact import compiled_moves
from pate.privacy.exact.compiled_moves import compiled, fill_moves, integrands, vector_exp
from pate.privacy.exact.divergence import (
    BOUND_SLACK,
    EXPONENT_LIMIT,
    GROWTH,
    LEAST_BOUND_ORDER,
    LEAST_EXPONENT,
    PRUNING_SLACK,
)
from pate.privacy.exact.gaussian import Grid, phased, whole_lanes
from pate.privacy.exact.rows import Group
from pate.privacy.exact.threads import in_threads

_LANES = 8
_ROWS_OF_A_PART = 256


@compiled
def _log_sum(log_p, log_ratio, power):  # type: ignore[no-untyped-def]
    """log Σ P e^{power·l} where single exponentials may overflow."""
    peak = -math.inf
    for j in range(log_p.size):
        peak = max(peak, log_p[j] + power * log_ratio[j])
    total = 0.0
    for j in range(log_p.size):
        total += math.exp(log_p[j] + power * log_ratio[j] - peak)
    return peak + math.log(total)


@compiled
def _log_mass(move, values, classes, log_p, test, log_mass):  # type: ignore[no-untyped-def]
    """log P of a move's outcomes."""
    a, b = move[0], move[1]
    n_levels = values.size
    answer = test[0, values[0]] if test.shape[1] else 0.0
    for j in range(n_levels):
        number = classes[j] - (j == a) - (j == b)
        log_mass[j] = log_p[j] + math.log(number) + answer if number > 0 else -math.inf
    log_mass[n_levels], log_mass[n_levels + 1] = log_p[a] + answer, log_p[b] + answer
    if test.shape[1]:
        log_mass[n_levels + 2] = test[1, values[0]]


@compiled
def _moments(weight, ratio, change, reverse, share, squares, cubes, leasts, steepest, excesses):  # type: ignore[no-untyped-def]
    """Fill share = P, or Q in reverse, and V, M, the least u, its log(P/Q), and Σ(Q - P), for every move."""
    for m in range(weight.shape[0]):
        square, cube, least, excess, quotient = 0.0, 0.0, 0.0, 0.0, 1.0
        for j in range(weight.shape[1]):
            p = weight[m, j] * ratio[m, j] if reverse else weight[m, j]
            u = -change[m, j] / ratio[m, j] if reverse else change[m, j]
            share[m, j] = p
            excess += p * u
            # An outcome whose probability underflows may still matter at a high order.
            flow = max(p, 1e-290) * u
            square += flow * u
            cube -= min(flow, 0.0) * (u * u)
            least = min(least, u)
            quotient = max(quotient, ratio[m, j]) if reverse else min(quotient, ratio[m, j])
        # 1 + u has lost its digits where u is near -1.
        steepest[m] = -math.log1p(least) if least > -0.5 else abs(math.log(quotient))
        squares[m], cubes[m], leasts[m], excesses[m] = square, cube, least, excess


@compiled
def _bound(square, cube, least, steepest, s, floor, floor_exponent):  # type: ignore[no-untyped-def]
    """As :meth:`divergence._Bounds.at`. floor, floor_exponent: the u nearest to 0 that it takes, and its s log(P/Q)."""
    c2 = s * (s + 1) / 2
    u = min(least, floor)
    exponent = max(s * steepest, floor_exponent)
    remainder = (vector_exp(min(exponent, EXPONENT_LIMIT)) - 1.0 + (s - c2 * u) * u) / (-c2 * u * u * u)
    return square + cube * remainder if exponent < EXPONENT_LIMIT else math.inf


@compiled
def _bound_moves(square, cube, least, steepest, s, floor, floor_exponent, out):  # type: ignore[no-untyped-def]
    """Of every move at one order. A loop of its own, which the compiler can vectorise, and so below."""
    for m in range(out.size):
        out[m] = _bound(square[m], cube[m], least[m], steepest[m], s, floor, floor_exponent)


@compiled
def _bound_orders(square, cube, least, steepest, s, floor, floor_exponent, out):  # type: ignore[no-untyped-def]
    """Of one move at every order."""
    for o in range(out.size):
        out[o] = _bound(square, cube, least, steepest, s[o], floor[o], floor_exponent[o])


@compiled
def _sum(weight, log_ratio, power):  # type: ignore[no-untyped-def]
    """Σ P (e^{power·l} - 1)."""
    total = 0.0
    for j in range(weight.size):
        total += weight[j] * (vector_exp(power * log_ratio[j]) - 1.0)
    return total


@compiled
def _rows(start, n_nodes, stride, resolution, offset, log_weight, tables, values, classes, test, s, out, size):  # type: ignore[no-untyped-def]
    """Fill out[direction, row, source, order] with D, size[row] with the largest |log-probability|.

    The search for the worst move is that of :func:`divergence.largest_divergence`.
    """
    n_rows, n_levels = values.shape
    n_outcomes = n_levels + (3 if test.shape[1] else 2)
    padded = (n_outcomes + _LANES - 1) // _LANES * _LANES
    density, log_p = np.empty((n_levels, n_nodes)), np.empty(n_levels)
    shape = (n_levels * n_levels, padded)
    weight, ratio, change, share = np.zeros(shape), np.ones(shape), np.zeros(shape), np.zeros(shape)
    log_mass, log_ratio = np.full(padded, -math.inf), np.zeros(shape)
    square, cube, least, steep = np.zeros(shape[0]), np.zeros(shape[0]), np.zeros(shape[0]), np.zeros(shape[0])
    excess, bound, steepest = np.zeros(shape[0]), np.zeros(shape[0]), np.zeros(shape[0])
    known, moves = np.zeros(shape[0], np.bool_), np.zeros((shape[0], 2), np.int64)
    ends, place = np.zeros(n_levels, np.int64), np.empty((n_levels, 2), np.int64)
    best, beaten, own = np.empty(s.size), np.empty(s.size), np.empty(s.size)
    scale = s * (s + 1) / 2 * (1 + BOUND_SLACK)
    t = np.maximum(s, LEAST_BOUND_ORDER)
    floor = -LEAST_EXPONENT / t
    floor_exponent = -t * np.log1p(floor)
    for r in range(n_rows):
        for j in range(n_levels):
            unit = start[r] - values[r, j] * resolution - offset
            place[j, 0], place[j, 1] = unit % stride, unit // stride
        integrands(place, n_nodes, log_weight, classes[r], tables, density, log_p)
        fill_moves(place, n_nodes, values[r], classes[r], tables, density, log_p, test, moves, weight, ratio, change, ends)
        n_moves = ends[n_levels - 1]
        known[:] = False
        size[r] = np.abs(log_p).max()
        for direction in range(2):
            reverse = direction == 1
            _moments(weight[:n_moves], ratio[:n_moves], change[:n_moves], reverse, share, square, cube, least, steep, excess)
            for source in range(out.shape[2]):
                begin = ends[source - 1] if source else 0
                end = ends[source] if out.shape[2] > 1 else n_moves
                best[:], beaten[:] = 0.0, 0.0
                typical = steep[begin:end].sum() / max(end - begin, 1)
                first = 0
                while first < s.size and begin < end:
                    last = first + 1
                    while last < s.size and (s[last] - s[first]) * typical <= GROWTH:
                        last += 1
                    _bound_moves(
                        square[begin:end], cube[begin:end], least[begin:end], steep[begin:end],
                        t[last - 1], floor[last - 1], floor_exponent[last - 1], bound[begin:end],
                    )  # fmt: skip
                    leader = begin + np.argmax(bound[begin:end])
                    bar = math.inf
                    for turn in range(end - begin + 1):
                        m = leader if turn == 0 else begin + turn - 1
                        # Negated, here and below, so that NaN counts as hope.
                        if turn and (m == leader or bound[m] <= bar):
                            continue
                        if not known[m]:
                            known[m], steepest[m] = True, 0.0
                            for j in range(n_outcomes):
                                near = abs(change[m, j]) < 0.5
                                log_ratio[m, j] = -math.log1p(change[m, j]) if near else -math.log(ratio[m, j])
                                steepest[m] = max(steepest[m], abs(log_ratio[m, j]))
                        if turn:
                            _bound_orders(
                                square[m], cube[m], least[m], steep[m],
                                t[first:last], floor[first:last], floor_exponent[first:last], own[first:last],
                            )  # fmt: skip
                        for o in range(first, last):
                            limit = (beaten[o] + PRUNING_SLACK * s[o]) / scale[o]
                            if turn == 0 or not own[o] <= limit:
                                power = -s[o] if reverse else s[o]
                                if s[o] * steepest[m] > EXPONENT_LIMIT:
                                    # Σ Q (Q/P)^s = Σ P (P/Q)^-(1+s)
                                    _log_mass(moves[m], values[r], classes[r], log_p, test, log_mass)
                                    best[o] = max(best[o], _log_sum(log_mass, log_ratio[m], power - reverse))
                                    beaten[o] = max(beaten[o], math.expm1(min(best[o], 700.0)))
                                else:
                                    beaten[o] = max(beaten[o], _sum(share[m], log_ratio[m], power) + s[o] * excess[m])
                            if turn == 0:
                                bar = min(bar, (beaten[o] + PRUNING_SLACK * s[o]) / scale[o])
                    first = last
                for o in range(s.size):
                    out[direction, r, source, o] = max(best[o], math.log1p(beaten[o])) / s[o]


def _entry_point() -> Any:
    """The kernel, its machine code kept on disk where that can be done.

    numba notices changes of the one file that a cached function stands in. This code comes from several, so a
    fingerprint of all of them is made part of the key, as a variable of the closure.
    """
    try:
        sources = [Path(file).read_bytes() for file in (__file__, compiled_moves.__file__)]
    except OSError:  # no source files, as in a frozen application
        return _rows
    constants = repr((BOUND_SLACK, EXPONENT_LIMIT, GROWTH, LEAST_BOUND_ORDER, LEAST_EXPONENT, PRUNING_SLACK)).encode()
    fingerprint = int.from_bytes(hashlib.sha256(b"".join([*sources, constants])).digest()[:7])

    def entry(*arguments: Any) -> None:
        if fingerprint >= 0:
            _rows(*arguments)

    try:
        return numba.njit(nogil=True, cache=True)(entry)
    except RuntimeError:  # a read-only install, and no other folder that can be written
        return _rows


_kernel = _entry_point()


def gaussian_costs(
    grid: Grid, start: IntArray, needed: IntArray, group: Group, test: FloatArray, orders: FloatArray, n_sources: int
) -> tuple[FloatArray, FloatArray]:
    """(float64[direction, row, source, order] divergences without margin, float64[row] largest |log-probability|).

    start, needed: the nodes of :func:`gaussian.nodes`. test: float64[2, votes], log-probabilities of an answer and of an
    abstention by largest count, or float64[2, 0] without a threshold test.
    """
    s = orders - 1
    out = np.empty((2, len(start), n_sources, s.size))
    size = np.empty(len(start))
    log_weight = math.log(grid.stride / (grid.resolution * grid.sigma))
    tables = phased(grid)

    def work(some: slice) -> None:
        _kernel(
            start[some], whole_lanes(needed[some]), grid.stride, grid.resolution, grid.first, log_weight, tables,
            group.values[some], group.classes[some], test, s, out[:, some], size[some],
        )  # fmt: skip

    parts = [slice(first, first + _ROWS_OF_A_PART) for first in range(0, len(start), _ROWS_OF_A_PART)]
    for _ in in_threads(work, parts):
        pass
    return out, size
