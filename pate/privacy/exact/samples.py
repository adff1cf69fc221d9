"""All neighbours of a histogram from one set of nodes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pate.arrays import BoolArray, FloatArray, IntArray
from pate.privacy.exact.mechanism import ThresholdTest, threshold_log_probs


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

    log_p: float64[row, from, to, outcome], log-probability of an outcome times the number of classes it stands for.
    log_ratio: same shape, log(P/Q) of one such class, Q being the probability after the move.
    valid: bool[row, from, to].
    magnitude: float64[row], the largest |log-probability| of a single class, which rounding errors grow with.
    Outcomes: the classes of each level that keep their votes, the class that loses one, the class that gains one, and
    abstention if there is a threshold test.
    """

    log_p: FloatArray
    log_ratio: FloatArray
    valid: BoolArray
    magnitude: FloatArray


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
    n_outcomes = n_levels + (2 if confident is None else 3)
    gaining = samples.cdf_gaining.transpose(0, 2, 1)
    kept = (samples.cdf_losing[:, :, None, :] * density[:, None, :, :]).reshape(n_rows, n_levels * n_levels, -1)
    ratio = np.empty((n_rows, n_levels, n_levels, n_levels + 2))
    ratio[..., :n_levels] = (kept @ gaining).reshape(n_rows, n_levels, n_levels, n_levels).transpose(0, 1, 3, 2)
    ratio[..., n_levels] = (density * samples.pdf_losing) @ gaining
    ratio[..., n_levels + 1] = samples.cdf_losing @ (density * samples.pdf_gaining).transpose(0, 2, 1)
    log_ratio = np.empty((n_rows, n_levels, n_levels, n_outcomes))
    log_ratio[..., : n_levels + 2] = -np.log(ratio)

    level = np.arange(n_levels)
    number = np.broadcast_to(classes[:, None, None, :], (n_rows, n_levels, n_levels, n_levels)).astype(np.float64)
    number[:, level, :, level] -= 1
    number[:, :, level, level] -= 1
    valid = (values[:, :, None] >= 1) & ((classes[:, :, None] >= 2) | (level[:, None] != level))
    with np.errstate(divide="ignore"):
        log_number = np.log(np.maximum(number, 0))
    log_mass = np.empty_like(log_ratio)
    log_mass[..., :n_levels] = log_number + log_p[:, None, None, :]
    log_mass[..., n_levels] = log_p[:, :, None]
    log_mass[..., n_levels + 1] = log_p[:, None, :]
    _complement_ratio(log_mass, log_ratio, classes)
    magnitude = np.abs(log_p).max(axis=1)
    if confident is not None:
        magnitude = np.maximum(magnitude, _join_threshold(log_mass, log_ratio, values, classes, confident))
    return Moves(log_mass, log_ratio, valid, magnitude)


def _complement_ratio(log_mass: FloatArray, log_ratio: FloatArray, classes: IntArray) -> None:
    """Where one class wins more often than not, take its change as minus the sum of all other changes."""
    n_levels = classes.shape[1]
    top = np.full(log_mass.shape[1:3], 0)
    top[0, :], top[:, 0] = n_levels, n_levels + 1  # the top class itself loses, or gains, the vote
    spot = np.broadcast_to(top[None, :, :, None], (*log_mass.shape[:3], 1))
    log_top = np.take_along_axis(log_mass, spot, axis=3)[..., 0]
    likely = (classes[:, 0] == 1)[:, None, None] & (log_top > np.log(0.5))
    likely[:, 0, 0] = False
    if not likely.any():
        return
    others = np.exp(log_mass[..., : n_levels + 2])
    np.put_along_axis(others, spot, 0.0, axis=3)
    gained = (others * np.expm1(-log_ratio[..., : n_levels + 2])).sum(axis=3)  # Q - P over all other classes
    with np.errstate(invalid="ignore", divide="ignore"):
        better = -np.log1p(-gained * np.exp(-log_top))
    current = np.take_along_axis(log_ratio, spot, axis=3)[..., 0]
    np.put_along_axis(log_ratio, spot, np.where(likely, better, current)[..., None], axis=3)


def _join_threshold(
    log_mass: FloatArray, log_ratio: FloatArray, values: IntArray, classes: IntArray, test: ThresholdTest
) -> FloatArray:
    """Make every class conditional on an answer and add abstention as the last outcome, in place.

    Returns the largest |log-probability| of the test's outcomes, float64[row].
    """
    top = values[:, 0]
    new_top = np.broadcast_to(top[:, None, None], log_mass.shape[:3]).copy()
    single = classes[:, 0] == 1
    new_top[single, 0, :] = np.maximum(top[single, None] - 1, values[single] + 1)
    new_top[:, :, 0] = top[:, None] + 1
    answer, abstain = (side[:, None, None] for side in threshold_log_probs(test, top))
    new_answer, new_abstain = threshold_log_probs(test, new_top)
    log_mass[..., :-1] += answer[..., None]
    log_ratio[..., :-1] += (answer - new_answer)[..., None]
    log_mass[..., -1] = abstain
    log_ratio[..., -1] = abstain - new_abstain
    sides = np.stack([np.abs(side).max(axis=(1, 2)) for side in (answer, abstain, new_answer, new_abstain)])
    largest: FloatArray = sides.max(axis=0)
    return largest
