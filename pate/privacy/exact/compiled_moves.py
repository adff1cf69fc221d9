# mypy: disallow-untyped-decorators=False
"""Compiled parts: fast exponentials, and the outcomes of every move of one histogram, as :mod:`samples` has them.

Optional: needs numba (extra ``fast``).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

_LN2_HIGH, _LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10


def compiled(function: Callable[..., Any], reorder: bool = True) -> Any:
    """Compile with sums free to be reordered. Nothing is cached here: see :func:`compiled._entry_point`."""
    fastmath = {"reassoc", "contract"} if reorder else {"contract"}
    return numba.njit(nogil=True, fastmath=fastmath, error_model="numpy")(function)


@intrinsic
def _as_float(typing_context: Any, bits: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.DoubleType())

    return types.float64(types.int64), generate


@intrinsic
def _as_bits(typing_context: Any, number: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.IntType(64))

    return types.int64(types.float64), generate


def _exp(x):  # type: ignore[no-untyped-def]
    """e^x to 1e-15 relative for |x| <= 700, in a form that the compiler can vectorise."""
    # Adding 1.5 * 2^52 leaves the nearest whole number in the low bits.
    shifted = x * 1.4426950408889634 + 6755399441055744.0
    n = shifted - 6755399441055744.0
    r = (x - n * _LN2_HIGH) - n * _LN2_LOW
    y = 1 / 6227020800 * r + 1 / 479001600
    y = y * r + 1 / 39916800
    y = y * r + 1 / 3628800
    y = y * r + 1 / 362880
    y = y * r + 1 / 40320
    y = y * r + 1 / 5040
    y = y * r + 1 / 720
    y = y * r + 1 / 120
    y = y * r + 1 / 24
    y = y * r + 1 / 6
    y = y * r + 0.5
    y = y * r + 1.0
    y = y * r + 1.0
    return y * _as_float((_as_bits(shifted) << 52) + (1023 << 52))


vector_exp = compiled(_exp, reorder=False)  # reordering would undo the shift


@compiled
def integrands(place, n_nodes, log_weight, classes, tables, density, log_p):  # type: ignore[no-untyped-def]
    """As :func:`samples._integrands` and :func:`samples._top_by_complement`, for one row.

    place[level] = (phase, first) of a level's nodes in tables[phase, table, node].
    """
    n_levels = classes.size
    common = np.full(n_nodes, log_weight)
    for j in range(n_levels):
        log_cdf = tables[place[j, 0], 1, place[j, 1] :]
        for x in range(n_nodes):
            common[x] += classes[j] * log_cdf[x]
    others = 0.0
    for j in range(n_levels):
        log_pdf, log_cdf = tables[place[j, 0], 0, place[j, 1] :], tables[place[j, 0], 1, place[j, 1] :]
        peak = -math.inf
        for x in range(n_nodes):
            density[j, x] = common[x] + log_pdf[x] - log_cdf[x]
            peak = max(peak, density[j, x])
        mass = 0.0
        for x in range(n_nodes):
            depth = density[j, x] - peak
            density[j, x] = vector_exp(max(depth, -700.0)) if depth > -700.0 else 0.0
            mass += density[j, x]
        for x in range(n_nodes):
            density[j, x] /= mass
        log_p[j] = peak + math.log(mass)
        if j:
            others += classes[j] * math.exp(log_p[j])
    if classes[0] == 1 and others < 0.5:
        log_p[0] = math.log1p(-others)


@compiled
def fill_moves(place, n_nodes, values, classes, tables, density, log_p, test, moves, weight, ratio, change, ends):  # type: ignore[no-untyped-def]
    """Fill [move, outcome]: weight = P times its number of classes, ratio = Q/P and change = Q/P - 1, which keeps the digits
    that a ratio near 1 loses; moves[move] = (from, to). Where no class is left in an outcome its ratio is 1.

    ends[from] is the number of moves up to and with that source. As :func:`samples.all_moves`.
    """
    n_levels = values.size
    ratios = np.empty((5, n_levels, n_nodes))
    moved, losing, gaining, lost, won = ratios[0], ratios[1], ratios[2], ratios[3], ratios[4]
    p = np.exp(log_p)
    for j in range(n_levels):
        own = tables[place[j, 0], :, place[j, 1] :]
        for x in range(n_nodes):
            losing[j, x] = own[2, x]
            gaining[j, x] = own[3, x]
            lost[j, x] = density[j, x] * own[4, x]
            won[j, x] = density[j, x] * own[5, x]
    likely = classes[0] == 1 and p[0] > 0.5
    move = 0
    for a in range(n_levels):
        ends[a] = move
        if values[a] < 1:
            continue
        for j in range(n_levels):
            for x in range(n_nodes):
                moved[j, x] = density[j, x] * losing[a, x]
        for b in range(n_levels):
            if a == b and classes[a] < 2:
                continue
            mass, quotient, delta = weight[move], ratio[move], change[move]
            for j in range(n_levels):
                total = 0.0
                for x in range(n_nodes):
                    total += moved[j, x] * gaining[b, x]
                quotient[j] = total
                mass[j] = p[j] * classes[j]
            mass[a] = p[a] * (classes[a] - (2 if a == b else 1))
            if a != b:
                mass[b] = p[b] * (classes[b] - 1)
            if classes[a] == (2 if a == b else 1):
                quotient[a] = 1.0
            if classes[b] == 1:
                quotient[b] = 1.0
            from_ratio, to_ratio = 0.0, 0.0
            for x in range(n_nodes):
                from_ratio += lost[a, x] * gaining[b, x]
                to_ratio += losing[a, x] * won[b, x]
            quotient[n_levels], quotient[n_levels + 1] = from_ratio, to_ratio
            for j in range(n_levels + 2):
                delta[j] = quotient[j] - 1.0
            mass[n_levels], mass[n_levels + 1] = p[a], p[b]
            if likely:
                top = n_levels if a == 0 else (n_levels + 1 if b == 0 else 0)
                delta[top], rest = 0.0, 0.0
                for j in range(n_levels + 2):
                    rest += mass[j] * delta[j]
                delta[top] = -rest / p[0]
                quotient[top] = 1.0 + delta[top]
            new_top = values[0] + 1 if b == 0 else values[0]
            if a == 0 and b != 0 and classes[0] == 1:
                new_top = max(values[0] - 1, values[b] + 1)
            moves[move, 0], moves[move, 1] = a, b
            if test.shape[1]:
                answer, rise = math.exp(test[0, values[0]]), test[0, new_top] - test[0, values[0]]
                scale, scale_change = math.exp(rise), math.expm1(rise)
                for j in range(n_levels + 2):
                    mass[j] *= answer
                    delta[j] += scale_change * quotient[j]
                    quotient[j] *= scale
                mass[n_levels + 2] = math.exp(test[1, values[0]])
                rise = test[1, new_top] - test[1, values[0]]
                quotient[n_levels + 2], delta[n_levels + 2] = math.exp(rise), math.expm1(rise)
            move += 1
        ends[a] = move
