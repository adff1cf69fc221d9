"""The search for the worst move of each histogram, compiled: the same computation as :mod:`divergence`.

Optional: needs numba (extra ``fast``). The kernel keeps P and Q/P of every move, takes powers by squaring, and
evaluates exponentials only for moves that may be the worst. Its error in D is below 1e-13 * (1 + 1/(a-1)), which the
margin covers; the NumPy path keeps more digits of tiny values.
"""

from __future__ import annotations

import hashlib
import math
import os
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import numba
import numpy as np

from pate.arrays import FloatArray, IntArray
from pate.privacy.exact import compiled_moves
from pate.privacy.exact.compiled_moves import compiled, fill_moves, integrands, log_above, vector_exp
from pate.privacy.exact.divergence import EXPONENT_LIMIT, PRUNING_SLACK, dyadic_levels
from pate.privacy.exact.gaussian import Grid
from pate.privacy.exact.rows import Group

_LANES = 8
_ROWS_WORTH_A_THREAD = 64


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
def _know(move, values, classes, log_p, test, ratio, change, log_mass, log_ratio):  # type: ignore[no-untyped-def]
    """log P and log(P/Q) of a move's outcomes, taken when it is first needed."""
    a, b = move[0], move[1]
    n_levels = values.size
    answer = test[0, values[0]] if test.shape[1] else 0.0
    for j in range(n_levels):
        number = classes[j] - (j == a) - (j == b)
        log_mass[j] = log_p[j] + answer if number == 1 else -math.inf
        if number > 1:
            log_mass[j] = log_p[j] + math.log(number) + answer
    log_mass[n_levels], log_mass[n_levels + 1] = log_p[a] + answer, log_p[b] + answer
    if test.shape[1]:
        log_mass[n_levels + 2] = test[1, values[0]]
    for j in range(n_levels + (3 if test.shape[1] else 2)):
        log_ratio[j] = -math.log1p(change[j]) if abs(change[j]) < 0.5 else -math.log(ratio[j])


@compiled
def _evaluate(weight, log_mass, log_ratio, excess, reverse, s, first, last, best, beaten):  # type: ignore[no-untyped-def]
    """Raise best to ψ of one move for the orders first..last-1, and beaten = e^best - 1. weight: P, or Q in reverse."""
    steepest, mass = 0.0, 0.0
    for j in range(weight.size):
        steepest = max(steepest, abs(log_ratio[j]))
        mass += weight[j]
    for o in range(first, last):
        if s[o] * steepest > EXPONENT_LIMIT:
            # Σ Q (Q/P)^s = Σ P (P/Q)^-(1+s)
            best[o] = max(best[o], _log_sum(log_mass, log_ratio, -1.0 - s[o] if reverse else s[o]))
            beaten[o] = math.expm1(min(best[o], 700.0))
        else:
            total = 0.0
            power = -s[o] if reverse else s[o]
            for j in range(weight.size):
                total += weight[j] * vector_exp(power * log_ratio[j])
            total += s[o] * excess - mass
            if total > beaten[o]:
                beaten[o], best[o] = total, math.log1p(total)


@compiled
def _rises(n_outcomes, weight, ratio, change, reverse, levels, share, excess, rise):  # type: ignore[no-untyped-def]
    """Fill share = P (Q in reverse), excess = Σ(Q - P) (Σ(P - Q)), and rise[level, move] = e^ψ - 1 by roots and squares."""
    n_moves = weight.shape[0]
    # [outcome, move] here, so that the sums over outcomes run along moves, many at a time.
    power, root, mass = np.empty((3, n_outcomes, n_moves))
    for m in range(n_moves):
        excess[m] = 0.0
        for j in range(n_outcomes):
            moved = weight[m, j] * change[m, j]
            share[m, j] = weight[m, j] * ratio[m, j] if reverse else weight[m, j]
            mass[j, m] = share[m, j]
            root[j, m] = ratio[m, j] if reverse else 1.0 / ratio[m, j]
            excess[m] += -moved if reverse else moved
    now = 2.0  # power = e^{now·l}, root = e^{now·l/2}
    while now > levels[1]:
        power[:], root[:] = root, np.sqrt(root)
        now /= 2
    for i in range(1, levels.size):
        if levels[i] >= 2 * now:
            for j in range(n_outcomes):
                for m in range(n_moves):
                    root[j, m] = power[j, m]
                    power[j, m] *= power[j, m]
            now *= 2
        total = rise[i]
        for m in range(n_moves):
            total[m] = levels[i] * excess[m]
        for j in range(n_outcomes):
            if levels[i] > now:
                for m in range(n_moves):
                    total[m] += mass[j, m] * (power[j, m] * root[j, m] - 1.0)
            else:
                for m in range(n_moves):
                    total[m] += mass[j, m] * (power[j, m] - 1.0)
        for m in range(n_moves):
            if total[m] != total[m]:  # 0 * inf: let the evaluation decide
                total[m] = math.inf


@compiled
def _hopeful(rise, i, s, levels, first, last, best):  # type: ignore[no-untyped-def]
    """Whether the chord of a move's ψ rises above the best value at one of the orders first..last-1."""
    low, high = math.log1p(max(rise[i - 1], 0.0)), math.log1p(rise[i])
    slope = (high - low) / (levels[i] - levels[i - 1])
    for o in range(first, last):  # noqa: SIM110, numba compiles no generators
        if not low + slope * (s[o] - levels[i - 1]) <= best[o] + PRUNING_SLACK * s[o]:
            return True
    return False


@compiled
def _rows(start, n_nodes, stride, resolution, offset, log_weight, tables, values, classes, test, s, levels, splits, out, size):  # type: ignore[no-untyped-def]
    """Fill out[direction, row, source, order] with D, size[row] with the largest |log-probability|.

    The search for the worst move is that of :func:`divergence.largest_divergence`, with ψ(0) = 0 as the first level.
    """
    n_rows, n_levels = values.shape
    n_outcomes = n_levels + (3 if test.shape[1] else 2)
    padded = (n_outcomes + _LANES - 1) // _LANES * _LANES
    density, log_p = np.empty((n_levels, n_nodes)), np.empty(n_levels)
    shape = (n_levels * n_levels, padded)
    weight, ratio, change, share = np.zeros(shape), np.ones(shape), np.zeros(shape), np.zeros(shape)
    log_mass, log_ratio = np.full(shape, -math.inf), np.zeros(shape)
    rise, excess = np.zeros((levels.size, shape[0])), np.zeros(shape[0])
    known, moves = np.zeros(shape[0], np.bool_), np.zeros((shape[0], 3), np.int64)
    ends, place = np.zeros(n_levels, np.int64), np.empty(n_levels, np.int64)
    best, beaten = np.empty(s.size), np.empty(s.size)
    for r in range(n_rows):
        for j in range(n_levels):
            place[j] = start[r] - values[r, j] * resolution - offset
        integrands(place, n_nodes, stride, log_weight, classes[r], tables, density, log_p)
        fill_moves(
            place, n_nodes, stride, values[r], classes[r], tables, density, log_p, test, moves, weight, ratio, change, ends
        )
        n_moves = ends[n_levels - 1]
        known[:] = False
        size[r] = np.abs(log_p).max()
        for direction in range(2):
            reverse = direction == 1
            _rises(n_outcomes, weight[:n_moves], ratio[:n_moves], change[:n_moves], reverse, levels, share, excess, rise)
            for source in range(out.shape[2]):
                begin = ends[source - 1] if source else 0
                end = ends[source] if out.shape[2] > 1 else n_moves
                best[:], beaten[:] = 0.0, 0.0
                for i in range(1, levels.size):
                    first, last = splits[i - 1], splits[i]
                    if first == last or begin == end:
                        continue
                    leader = begin + np.argmax(rise[i, begin:end])
                    for turn in range(end - begin + 1):
                        m = leader if turn == 0 else begin + turn - 1
                        if turn:
                            # ψ never falls, so its value at the end of the interval is the quickest bound.
                            if rise[i, m] <= beaten[first] or m == leader:
                                continue
                            # e^ψ is convex too: where it is small, its chord is a test without logs; where it is large,
                            # rough logs do. Negated, so that NaN counts as hope.
                            small, hope = rise[i, m] < 0.1, rise[i, m] == math.inf
                            low = rise[i - 1, m] if small else log_above(max(rise[i - 1, m], 0.0) + 1.0)
                            high = rise[i, m] if small else log_above(rise[i, m] + 1.0)
                            slope = (high - low) / (levels[i] - levels[i - 1])
                            for o in range(first, last):
                                bar = beaten[o] if small else best[o]
                                hope |= not low + slope * (s[o] - levels[i - 1]) <= bar + PRUNING_SLACK * s[o]
                            if not hope or not (small or _hopeful(rise[:, m], i, s, levels, first, last, best)):
                                continue
                        if not known[m]:
                            _know(moves[m], values[r], classes[r], log_p, test, ratio[m], change[m], log_mass[m], log_ratio[m])
                            known[m] = True
                        _evaluate(share[m], log_mass[m], log_ratio[m], excess[m], reverse, s, first, last, best, beaten)
                for o in range(s.size):
                    out[direction, r, source, o] = best[o] / s[o]


def _entry_point() -> Any:
    """The kernel, its machine code kept on disk where that can be done.

    numba notices changes of the one file that a cached function stands in. This code comes from several, so a
    fingerprint of all of them is made part of the key, as a variable of the closure.
    """
    try:
        sources = [Path(file).read_bytes() for file in (__file__, compiled_moves.__file__)]
    except OSError:  # no source files, as in a frozen application
        return _rows
    constants = repr((EXPONENT_LIMIT, PRUNING_SLACK)).encode()
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
    grid: Grid, start: IntArray, n_nodes: int, group: Group, test: FloatArray, orders: FloatArray, n_sources: int
) -> tuple[FloatArray, FloatArray]:
    """(float64[direction, row, source, order] divergences without margin, float64[row] largest |log-probability|).

    start, n_nodes: the nodes of :func:`gaussian.nodes`. test: float64[2, votes], log-probabilities of an answer and of an
    abstention by largest count, or float64[2, 0] without a threshold test.
    """
    s = orders - 1
    # From at most 1, since powers start at e^l, but not far below: ψ(0) = 0 bounds the rest.
    octaves = dyadic_levels(np.array([min(max(s[0], 0.25), 1.0), max(s[-1], 1.0)]))
    levels = np.concatenate([[0.0], np.stack([octaves, 1.5 * octaves], axis=1).ravel()[:-1]])
    splits = np.searchsorted(s, levels, side="right")
    splits[0] = 0
    splits[-1] = s.size
    out = np.empty((2, len(start), n_sources, s.size))
    size = np.empty(len(start))
    log_weight = math.log(grid.stride / (grid.resolution * grid.sigma))

    def work(some: slice) -> None:
        _kernel(
            start[some], n_nodes, grid.stride, grid.resolution, grid.first, log_weight, grid.tables,
            group.values[some], group.classes[some], test, s, levels, splits, out[:, some], size[some],
        )  # fmt: skip

    # The kernel runs without the interpreter lock, so plain threads use every core.
    n_threads = min(os.cpu_count() or 1, max(1, len(start) // _ROWS_WORTH_A_THREAD))
    edges = np.linspace(0, len(start), n_threads + 1).astype(np.int64)
    parts = [slice(int(a), int(b)) for a, b in pairwise(edges)]
    if n_threads == 1:
        work(parts[0])
    else:
        with ThreadPoolExecutor(n_threads) as pool:
            list(pool.map(work, parts))
    return out, size
