"""The largest Rényi divergence over many neighbours, without evaluating every neighbour at every order.

With s = a - 1, u = Q/P - 1 and l = log(P/Q) = -log(1+u), ψ(s) = s·D_{1+s}(P||Q) = log Σ P e^{s l}. Since Σ P u = 0,
e^ψ - 1 = Σ P g(u) with g(u) = (1+u)^-s - 1 + s u >= 0.

The bound: by Taylor's theorem g(u) = c₂ u² - u³ R(u), c₂ = s(s+1)/2, where R(u) = c₂ (s+2) ∫₀¹ (1-t)² (1+tu)^-(s+3) dt > 0
falls in u. So a term with u > 0 is at most c₂ u², any other at most c₂ u² + |u|³ R(least u), and

    (e^ψ - 1) / c₂ <= V + M R(least u) / c₂,    V = Σ P u²,  M = Σ_{u<0} P |u|³.

Three numbers of a neighbour serve every order: Bennett's inequality with one more moment. R/c₂ rises with s, so the
right side at one order holds for all below it. Only neighbours whose bound is above the best value found so far are
evaluated.

Precision: Σ P e^{s l} - 1 = Σ P [expm1(s l) + s expm1(-l)], whose terms are all >= 0. An error of η in l then moves D by
at most η·2/|l| relative, where the plain sum loses the square of 1/|l|.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from pate.arrays import BoolArray, FloatArray, IntArray
from pate.privacy.exact.samples import Moves

PRUNING_SLACK = 2e-13
"""A neighbour that could exceed the best one by no more than this in D is left out. Covered by the margin."""

BOUND_SLACK = 1e-8
"""Covers the rounding of a bound, relative; see :meth:`_Bounds.at`."""

LEAST_EXPONENT = 0.05
"""s |least u| is taken as no less than this in a bound, which keeps the digits of R and gives little away."""

LEAST_BOUND_ORDER = 0.1
"""A bound is taken at no smaller s than this, so that LEAST_EXPONENT / s stays well below 1."""

EXPONENT_LIMIT = 500.0

GROWTH = 1.0
"""Orders share a bound while s |least u| of a typical neighbour grows by no more than this."""


def largest_divergence(moves: Moves, orders: FloatArray) -> FloatArray:
    """float64[direction, row, order]: max over valid moves of D(P||Q) and of D(Q||P); 0 in a row that has none."""
    return np.stack([_largest(moves, each, orders - 1) for each in _directions(moves)])


def psi(log_p: FloatArray, log_ratio: FloatArray, s: FloatArray) -> FloatArray:
    """float64[order, pair]: log Σ P e^{s l}. log_p, log_ratio: float64[outcome, pair]; s: float64[order]."""
    p = np.exp(log_p)
    excess = _sum_expm1(log_p, p, -log_ratio)  # Σ(Q - P), 0 but for rounding
    exponent = log_ratio[:, None, :] * s[:, None]
    total = _sum_expm1(log_p[:, None, :], p[:, None, :], exponent)
    total += excess * s[:, None]
    small: FloatArray = np.log1p(np.maximum(total, 0.0))
    exponent += log_p[:, None, :]
    peak = exponent.max(axis=0)
    large = peak + np.log(np.exp(exponent - peak).sum(axis=0))
    return np.where(peak > 1, large, small)


class _Bounds(NamedTuple):
    """V, M, the least u and the log(P/Q) that belongs to it, of every neighbour, all of one shape."""

    square: FloatArray
    cube: FloatArray
    least: FloatArray
    steepest: FloatArray

    def at(self, orders: FloatArray) -> FloatArray:
        """float64[order, ...]: no less than (e^ψ - 1) / c₂ at each s of ``orders`` and all below it."""
        s = np.maximum(orders, LEAST_BOUND_ORDER).reshape(-1, *(1 for _ in self.least.shape))
        c2 = s * (s + 1) / 2
        # R falls in u, so a u further from 0 is on the safe side. With s|u| >= 0.05 the difference below is above 1e-5 and
        # its relative error below 1e-10.
        u = np.minimum(self.least, -LEAST_EXPONENT / s)
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            bound = np.maximum(self.steepest, -np.log1p(-LEAST_EXPONENT / s))
            bound *= s
            np.exp(bound, out=bound)
            taylor = u * -c2
            taylor += s
            taylor *= u
            bound += taylor
            bound -= 1
            np.multiply(u, u, out=taylor)
            taylor *= u
            taylor *= -c2
            bound /= taylor
            bound *= self.cube
            bound += self.square
        return bound


class _Direction(NamedTuple):
    """Forward, or in reverse with P and Q exchanged. Arrays are float64[row, move].

    sign: 1, or -1, which turns log(P/Q) round. excess: Σ(Q - P), or Σ(P - Q), 0 but for rounding.
    """

    sign: float
    excess: FloatArray
    bounds: _Bounds


def _directions(moves: Moves) -> tuple[_Direction, _Direction]:
    """In reverse u is v = P/Q - 1 = -u/(1+u), and Q v² = -P u v, Q |v|³ = P u v².

    The steepest log(P/Q) is taken from the logs: 1 + u has lost its digits where u is near -1.
    """
    shape = moves.valid.shape
    excess, least, least_back = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    square, square_back, cube, cube_back = np.zeros(shape), np.zeros(shape), np.zeros(shape), np.zeros(shape)
    # One outcome at a time: these arrays stay in the fast caches, those of all outcomes would not.
    with np.errstate(over="ignore", invalid="ignore"):
        for p, u, log_ratio in zip(moves.p, moves.change, moves.log_ratio, strict=True):
            v = np.expm1(log_ratio)
            flow = p * u
            excess += flow
            np.minimum(least, u, out=least)
            np.minimum(least_back, v, out=least_back)
            forward, back = flow * u, flow * v
            square += forward
            square_back -= back
            cube -= np.minimum(forward * u, 0.0)
            cube_back += np.maximum(back * v, 0.0)
    steepest, steepest_back = moves.log_ratio.max(axis=0), -moves.log_ratio.min(axis=0)
    bounds = _Bounds(square, cube, least, steepest), _Bounds(square_back, cube_back, least_back, steepest_back)
    invalid = ~moves.valid
    for field in (*bounds[0], *bounds[1]):
        field[invalid] = 0.0
    return _Direction(1.0, excess, bounds[0]), _Direction(-1.0, -excess, bounds[1])


def _groups(s: FloatArray, bounds: _Bounds, valid: BoolArray) -> Iterator[slice]:
    """Runs of orders that share a first bound."""
    typical = -float(bounds.least.sum()) / max(1, int(np.count_nonzero(valid)))
    first = 0
    for i in range(1, s.size + 1):
        if i == s.size or (s[i] - s[first]) * typical > GROWTH:
            yield slice(first, i)
            first = i


def _largest(moves: Moves, direction: _Direction, s: FloatArray) -> FloatArray:
    """float64[row, order]: the largest D of one direction."""
    n_rows, n_moves = moves.valid.shape
    bounds, sign = direction.bounds, direction.sign
    log_p, log_ratio, p = (table.reshape(len(table), -1) for table in (moves.log_p, moves.log_ratio, moves.p))

    def evaluate(place: IntArray, s: FloatArray) -> FloatArray:
        ratio = log_ratio.take(place, axis=1)
        if max(ratio.max(), -ratio.min()) * (1 + s[-1]) > EXPONENT_LIMIT:
            own = log_p.take(place, axis=1)
            return psi(own, ratio, s) if sign > 0 else psi(own - ratio, -ratio, s)
        terms = ratio[:, None, :] * (sign * s[:, None])
        np.expm1(terms, out=terms)
        weight = p.take(place, axis=1)
        if sign < 0:
            weight *= np.exp(-ratio)
        terms *= weight[:, None, :]
        total = terms.sum(axis=0)
        total += direction.excess.take(place) * s[:, None]
        value: FloatArray = np.log1p(np.maximum(total, 0.0, out=total), out=total)
        return value

    def hopeful(place: IntArray, s: FloatArray, bar: FloatArray) -> IntArray:
        # Negated, so that NaN counts as hope.
        chosen = _Bounds(*(field.take(place) for field in bounds))
        kept: IntArray = place[~(chosen.at(s) <= bar.take(place // n_moves, axis=1)).all(axis=0)]
        return kept

    crowds = moves.crowds if sign > 0 else moves.crowds.T
    alone = np.setdiff1d(np.arange(n_moves), crowds)
    first_place = np.arange(n_rows) * n_moves
    # A neighbour that is worse than each of a crowd in all three numbers has a bound above all of theirs.
    few = _Bounds(
        *(
            np.concatenate([field[:, alone], worst(field[:, crowds], axis=2, initial=0.0)], axis=1)
            for field, worst in zip(bounds, (np.max, np.max, np.min, np.max), strict=True)
        )
    )
    best = np.zeros((s.size, n_rows))
    c2 = s * (s + 1) / 2
    for group in _groups(s, bounds, moves.valid):
        some, last = s[group], s[group][-1:]
        bound = few.at(last)[0]
        leader = first_place + alone[np.argmax(bound[:, : alone.size], axis=1)]
        best[group] = evaluate(leader, some)
        # ψ <= best + slack follows from e^ψ - 1 <= e^best - 1 + slack.
        bar = np.expm1(np.minimum(best[group], 700.0)) + PRUNING_SLACK * some[:, None]
        bar /= c2[group, None] * (1 + BOUND_SLACK)
        lowest = bar.min(axis=0)
        who, which = np.nonzero(~(bound <= lowest[:, None]))
        crowded = which >= alone.size
        members = (first_place[who[crowded], None] + crowds[which[crowded] - alone.size]).ravel()
        place = np.concatenate([first_place[who[~crowded]] + alone[which[~crowded]], hopeful(members, last, lowest[None])])
        place = place[moves.valid.ravel()[place] & (place != leader[place // n_moves])]
        if some.size > 1:
            place = hopeful(place, some, bar)
        if place.size:
            place.sort()
            who = place // n_moves
            starts = np.flatnonzero(np.diff(who, prepend=-1))
            rest = np.maximum.reduceat(evaluate(place, some), starts, axis=1)
            best[group, who[starts]] = np.maximum(best[group, who[starts]], rest)
    best[:, ~moves.valid.any(axis=1)] = 0.0
    return best.T / s


def _sum_expm1(log_p: FloatArray, p: FloatArray, exponent: FloatArray) -> FloatArray:
    """Σ p expm1(exponent) over the first axis, where e^exponent alone may overflow."""
    if max(exponent.max(initial=0.0), -exponent.min(initial=0.0)) <= EXPONENT_LIMIT:
        terms = np.expm1(exponent)
        terms *= p
    else:
        small = np.abs(exponent) < 1
        terms = np.where(small, p * np.expm1(np.where(small, exponent, 0.0)), np.exp(np.minimum(log_p + exponent, 700.0)) - p)
    total: FloatArray = terms.sum(axis=0)
    return total
