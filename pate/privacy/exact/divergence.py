"""The largest Rényi divergence over many neighbours, without evaluating every neighbour at every order.

With s = a - 1 and l = log(P/Q), ψ(s) = s·D_{1+s}(P||Q) = log Σ P e^{s l}. It is convex in s with ψ(0) = 0 and never falls.
So values at s = …, 1/2, 1, 2, 4, … (each the square of the one before: no exponential needed) bound ψ from above
between them by a chord, and only neighbours whose chord rises above the best value found so far are evaluated.

Precision: Σ(P - Q) = 0, so Σ P e^{s l} - 1 = Σ P [expm1(s l) + s expm1(-l)], whose terms are all >= 0. An error of η in l
then moves D by at most η·2/|l| relative, where the plain sum loses the square of 1/|l|.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from pate.arrays import BoolArray, FloatArray

PRUNING_SLACK = 2e-13
"""A neighbour that could exceed the best one by no more than this in D is left out. Covered by the margin."""

EXPONENT_LIMIT = 500.0


def largest_divergence(log_p: FloatArray, log_ratio: FloatArray, valid: BoolArray, orders: FloatArray) -> FloatArray:
    """float64[row, order]: max over valid neighbours of D(P||Q); 0 in a row that has none.

    log_p, log_ratio: float64[row, neighbour, outcome], log P (-inf for an impossible outcome) and log(P/Q), finite.
    """
    s = orders - 1
    p = np.exp(log_p)
    pairs = _Pairs(log_p, p, log_ratio, _sum_expm1(log_p, p, -log_ratio))
    levels = dyadic_levels(s)
    psi = _psi_at_powers(pairs, levels)
    rows = np.arange(len(log_p))
    best = np.zeros((rows.size, s.size))
    interval = np.clip(np.searchsorted(levels, s, side="left"), 1, levels.size - 1)
    for i in np.unique(interval):
        at = np.flatnonzero(interval == i)
        leader = np.argmax(np.where(valid, psi[i], -1.0), axis=1)
        best[:, at] = _psi(_Pairs(*(field[rows, leader] for field in pairs)), s[at])
        hopeful = np.zeros(valid.shape, dtype=np.bool_)
        rise = psi[i] - psi[i - 1]
        for j in at:
            chord = rise * ((s[j] - levels[i - 1]) / (levels[i] - levels[i - 1]))
            chord += psi[i - 1]
            hopeful |= chord > (best[:, j] + PRUNING_SLACK * s[j])[:, None]
        hopeful &= valid
        hopeful[rows, leader] = False
        who, which = np.nonzero(hopeful)
        if who.size:
            first = np.flatnonzero(np.diff(who, prepend=-1))
            rest = np.maximum.reduceat(_psi(_Pairs(*(field[who, which] for field in pairs)), s[at]), first, axis=0)
            place = np.ix_(who[first], at)
            best[place] = np.maximum(best[place], rest)
    best[~valid.any(axis=1)] = 0.0
    return best / s


class _Pairs(NamedTuple):
    """Distributions and their neighbours: float64[..., outcome], and excess = Σ(Q - P) float64[...], 0 but for rounding."""

    log_p: FloatArray
    p: FloatArray
    log_ratio: FloatArray
    excess: FloatArray


def dyadic_levels(s: FloatArray) -> FloatArray:
    """The powers of 2 from below s[0] to above s[-1]."""
    low = math.floor(math.log2(s[0]))
    high = max(math.ceil(math.log2(s[-1])), low + 1)
    levels: FloatArray = np.exp2(np.arange(low, high + 1, dtype=np.float64))
    return levels


def _psi_at_powers(pairs: _Pairs, levels: FloatArray) -> FloatArray:
    """float64[level, row, neighbour]: ψ at the dyadic levels, or a bound from above where e^{s l} would overflow."""
    log_p, p, log_ratio, excess = pairs
    steepest = float(np.abs(log_ratio).max(initial=0.0))
    mass = p.sum(axis=2)
    psi = np.empty((levels.size, *excess.shape))
    power = np.empty(0)
    for i, s in enumerate(levels):
        if s * steepest > EXPONENT_LIMIT:
            # A sum of m terms is at most m times the largest.
            psi[i] = np.maximum((log_p + s * log_ratio).max(axis=2) + math.log(log_p.shape[2]), 0.0)
            continue
        power = np.multiply(power, power, out=power) if i else np.exp(s * log_ratio)
        np.einsum("rno,rno->rn", p, power, out=psi[i])
        psi[i] += s * excess - mass
    tame = levels * steepest <= EXPONENT_LIMIT
    psi[tame] = np.log1p(psi[tame])
    return psi


def _sum_expm1(log_p: FloatArray, p: FloatArray, exponent: FloatArray) -> FloatArray:
    """Σ p expm1(exponent) over the last axis, where e^exponent alone may overflow."""
    if np.abs(exponent).max(initial=0.0) <= EXPONENT_LIMIT:
        terms = np.expm1(exponent)
        terms *= p
    else:
        small = np.abs(exponent) < 1
        terms = np.where(small, p * np.expm1(np.where(small, exponent, 0.0)), np.exp(np.minimum(log_p + exponent, 700.0)) - p)
    total: FloatArray = terms.sum(axis=-1)
    return total


def _psi(pairs: _Pairs, s: FloatArray) -> FloatArray:
    """float64[pair, order]: log Σ P e^{s l}, for s: float64[order]."""
    log_p, p, log_ratio, excess = pairs
    exponent = log_ratio[:, None, :] * s[:, None]
    total = _sum_expm1(log_p[:, None, :], p[:, None, :], exponent) + excess[:, None] * s
    psi = np.log1p(np.maximum(total, 0.0))
    if np.abs(exponent).max(initial=0.0) <= EXPONENT_LIMIT:
        return psi
    exponent += log_p[:, None, :]
    peak = exponent.max(axis=2)
    large = peak + np.log(np.exp(exponent - peak[:, :, None]).sum(axis=2))
    return np.where(peak > 1, large, psi)
