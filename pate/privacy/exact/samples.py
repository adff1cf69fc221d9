"""All neighbours of a histogram from one set of nodes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pate.arrays import BoolArray, FloatArray, IntArray
from pate.privacy.exact.mechanism import ThresholdTest, threshold_log_probs

_BLOCK = 1 << 16
"""Numbers in the largest array over [level, level, node]: few enough for the fast caches."""


class Samples(NamedTuple):
    """The noise at quadrature nodes. F and f are its distribution and density, z = node - count, in one unit.

    log_weight: float64[row, node]; the others float64[row, level, node]: log f(z), log F(z), then the ratios of a count
    that loses (z+1) or gains (z-1) a vote to what it was: F(z+1)/F(z), F(z-1)/F(z), f(z+1)/f(z), f(z-1)/f(z).
    """

    log_weight: FloatArray
    log_pdf: FloatArray
    log_cdf: FloatArray
    cdf_losing: FloatArray
    cdf_gaining: FloatArray
    pdf_losing: FloatArray
    pdf_gaining: FloatArray


class Moves(NamedTuple):
    """Every way to move one vote, from a class of one level to a class of another (or of the same) level.

    log_p: float64[outcome, row, move], log of p, the probability of an outcome times the number of classes it stands for.
    log_ratio: same shape, log(P/Q) of one such class, Q being the probability after the move; and change = Q/P - 1. Both
    are 0 where no class is left in an outcome.
    valid: bool[row, move]. Moves are ordered by the level they come from, then by the one they go to.
    crowds: int64[from, to], the many moves that are hardly ever the worst: those that leave the top level alone.
    magnitude: float64[row], the largest |log-probability| of a single class, which rounding errors grow with.
    Outcomes: the classes of each level that keep their votes, the class that loses one, the class that gains one, and
    abstention if there is a threshold test.
    """

    log_p: FloatArray
    p: FloatArray
    log_ratio: FloatArray
    change: FloatArray
    valid: BoolArray
    crowds: IntArray
    magnitude: FloatArray

    def by_source(self, n_levels: int) -> Moves:
        """The same with rows split by the level that a move comes from, and no crowds."""
        shape = (-1, len(self.valid) * n_levels, n_levels)
        log_p, p, log_ratio, change = (table.reshape(shape) for table in self[:4])
        return Moves(log_p, p, log_ratio, change, self.valid.reshape(shape[1:]), np.zeros((0, 0), np.int64), self.magnitude)


def _integrands(samples: Samples, classes: IntArray) -> tuple[FloatArray, FloatArray]:
    """(log P of one class of each level [row, level], normalised integrands [row, level, node])."""
    total = np.einsum("rl,rln->rn", classes.astype(np.float64), samples.log_cdf)
    exponent = samples.log_pdf - samples.log_cdf + (total + samples.log_weight)[:, None, :]
    peak = exponent.max(axis=2, keepdims=True)
    exponent -= peak
    density = np.exp(exponent, out=exponent)
    mass = density.sum(axis=2, keepdims=True)
    density /= mass
    return (peak + np.log(mass))[:, :, 0], density


def _top_by_complement(log_p: FloatArray, classes: IntArray) -> FloatArray:
    """log P of the top level, from the other classes where it is one class that wins more often than not.

    One minus the others has the small *absolute* error that the log of a probability near 1 needs.
    """
    others = (np.exp(log_p[:, 1:]) * classes[:, 1:]).sum(axis=1)
    likely = (classes[:, 0] == 1) & (others < 0.5)
    return np.where(likely, np.log1p(-np.minimum(others, 0.5)), log_p[:, 0])


def class_log_probs(samples: Samples, classes: IntArray) -> FloatArray:
    """float64[row, level]: log-probability that one given class of the level wins."""
    log_p, _ = _integrands(samples, classes)
    log_p[:, 0] = _top_by_complement(log_p, classes)
    return log_p


def all_moves(samples: Samples, values: IntArray, classes: IntArray, confident: ThresholdTest | None) -> Moves:
    """Outcome probabilities before and after every possible move of one vote.

    With G_j the integrand of class j, the integrand after a move from a to b is G_j times F(z_a+1)/F(z_a) times
    F(z_b-1)/F(z_b) for j other than a and b; for a itself the first factor becomes f(z_a+1)/f(z_a), for b itself the
    second becomes f(z_b-1)/f(z_b). The quadrature of each is a product of matrices.
    """
    n_rows, n_levels = values.shape
    log_p, density = _integrands(samples, classes)
    log_p[:, 0] = _top_by_complement(log_p, classes)
    shape = (n_levels + 2, n_rows, n_levels, n_levels)  # [outcome, row, from, to]
    gaining = samples.cdf_gaining.transpose(0, 2, 1)
    ratio = np.empty(shape)
    size = max(1, _BLOCK // (n_levels * density[0].size))
    for start in range(0, n_rows, size):
        rows = slice(start, start + size)
        kept = density[rows, :, None, :] * samples.cdf_losing[rows, None, :, :]
        after = kept.reshape(len(kept), n_levels * n_levels, -1) @ gaining[rows]
        ratio[:n_levels, rows] = after.reshape(-1, *(n_levels,) * 3).transpose(1, 0, 2, 3)
    np.matmul(density * samples.pdf_losing, gaining, out=ratio[n_levels])
    np.matmul(samples.cdf_losing, (density * samples.pdf_gaining).transpose(0, 2, 1), out=ratio[n_levels + 1])

    log_mass, p = np.empty(shape), np.empty(shape)
    level = np.arange(n_levels)
    # All classes of a level keep their votes, but for one of the levels that the move comes from and goes to.
    mass = _log_mass(log_p, classes)[:, :, None, None]
    log_mass[:n_levels], p[:n_levels] = mass, _at_least_tiny(mass)
    for missing, place in (
        (1, (level, slice(None), level, slice(None))),
        (1, (level, slice(None), slice(None), level)),
        (2, (level, slice(None), level, level)),
    ):
        mass = _log_mass(log_p, classes - missing)
        mass = mass if missing == 2 else mass[:, :, None]
        log_mass[place], p[place] = mass, _at_least_tiny(mass)
        ratio[place] = np.where(mass > -np.inf, ratio[place], 1.0)
    one = _at_least_tiny(log_p)
    log_mass[n_levels], p[n_levels] = log_p[:, :, None], one[:, :, None]
    log_mass[n_levels + 1], p[n_levels + 1] = log_p[:, None, :], one[:, None, :]
    valid = (values[:, :, None] >= 1) & ((classes[:, :, None] >= 2) | (level[:, None] != level))

    change = ratio - 1
    log_ratio = np.negative(np.log(ratio, out=ratio), out=ratio)
    _complement_ratio(p, log_ratio, change, (classes[:, 0] == 1) & (log_p[:, 0] > np.log(0.5)))
    magnitude = np.abs(log_p).max(axis=1)
    if confident is not None:
        log_mass, log_ratio, largest = _join_threshold(log_mass, log_ratio, values, classes, confident)
        magnitude = np.maximum(magnitude, largest)
        with np.errstate(over="ignore"):
            p, change = _at_least_tiny(log_mass), np.expm1(-log_ratio)
    flat = (len(p), n_rows, n_levels * n_levels)
    return Moves(
        log_mass.reshape(flat),
        p.reshape(flat),
        log_ratio.reshape(flat),
        change.reshape(flat),
        valid.reshape(flat[1:]),
        level[1:, None] * n_levels + level[1:],
        magnitude,
    )


def _at_least_tiny(log_p: FloatArray) -> FloatArray:
    """e^log_p, or 1e-290: a probability that underflows may still matter at a high order, and must not vanish from a bound.

    Costs are taken from logs where e^500 or more could multiply it, so it adds less than 1e-72 to them.
    """
    p = np.exp(log_p)
    return np.maximum(p, 1e-290, out=p)


def _log_mass(log_p: FloatArray, classes: IntArray) -> FloatArray:
    """float64[level, row]: log-probability that one of several classes of a level wins."""
    with np.errstate(divide="ignore"):
        mass: FloatArray = (log_p + np.log(np.maximum(classes, 0))).T
    return mass


def _complement_ratio(p: FloatArray, log_ratio: FloatArray, change: FloatArray, likely: BoolArray) -> None:
    """Where one class wins more often than not, take its change as minus the sum of all other changes, in place.

    likely: bool[row]. The others: float64[outcome, row, from, to].
    """
    rows = np.flatnonzero(likely)
    n_levels = p.shape[2]
    others = slice(1, n_levels)
    # The top class itself loses the vote, or gains it, or neither.
    places = (n_levels, rows, 0, others), (n_levels + 1, rows, others, 0), (0, rows, others, others)
    for place in places:
        change[place] = 0.0
    gained = np.einsum("orab,orab->rab", p, change)  # Q - P over all other classes
    for place in places:
        change[place] = -gained[place[1:]] / p[place]
        with np.errstate(invalid="ignore", divide="ignore"):
            log_ratio[place] = -np.log1p(change[place])


def _join_threshold(
    log_mass: FloatArray, log_ratio: FloatArray, values: IntArray, classes: IntArray, test: ThresholdTest
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """(log_mass, log_ratio) with every class conditional on an answer and abstention as the last outcome.

    The third is the largest |log-probability| of the test's outcomes, float64[row].
    """
    top = values[:, 0]
    new_top = np.broadcast_to(top[:, None, None], log_mass.shape[1:]).copy()
    single = classes[:, 0] == 1
    new_top[single, 0, :] = np.maximum(top[single, None] - 1, values[single] + 1)
    new_top[:, :, 0] = top[:, None] + 1
    answer, abstain = (side[:, None, None] for side in threshold_log_probs(test, top))
    new_answer, new_abstain = threshold_log_probs(test, new_top)
    sides = np.stack([np.abs(side).max(axis=(1, 2)) for side in (answer, abstain, new_answer, new_abstain)])
    joint_mass = np.concatenate([log_mass + answer, np.broadcast_to(abstain, (1, *new_top.shape))])
    joint_ratio = np.concatenate([log_ratio + (answer - new_answer), (abstain - new_abstain)[None]])
    # Outcomes that no class is left in stay at a ratio of 1.
    joint_ratio[joint_mass == -np.inf] = 0.0
    largest: FloatArray = sides.max(axis=0)
    return joint_mass, joint_ratio, largest
