"""What counted runs prove about epsilon: lower bounds at a stated confidence, as pure functions.

Every bound here may only err downwards: with probability at least ``confidence`` the true epsilon is no smaller.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import beta, binom

from pate.arrays import FloatArray, IntArray
from pate.errors import ParameterError
from pate.privacy.curve import RdpCurve
from pate.testing.empirical import Interval, clopper_pearson, log_filter_floor
from pate.validation import whole

_LARGEST = 700.0
"""No epsilon above it is looked for: e^-700 is the smallest probability that floats hold well."""
_FREE = np.zeros((1, 1))


class Box(NamedTuple):
    """What is known of an event: its probability is at least ``low`` in one world and at most ``high`` in the other."""

    low: FloatArray
    high: FloatArray


def lower_bound(hits: int, runs: int, other_hits: int, other_runs: int, *, delta: float, confidence: float = 0.95) -> float:
    """The least epsilon that is compatible, at this confidence, with an event seen in ``hits`` of ``runs`` runs in one world
    and in ``other_hits`` of ``other_runs`` in the neighbouring one; 0 where nothing is proven.

    (epsilon, delta)-DP means P(E) <= e^epsilon Q(E) + delta for the event, its complement, and both ways round: four
    inequalities, of which the strongest counts. They hold together for all probabilities inside two Clopper-Pearson intervals
    (1934), each of which misses with probability (1 - confidence) / 2, so by the union bound the result is larger than
    the true epsilon with probability at most 1 - confidence. The event must have been fixed before these runs were looked at:
    choose it on other runs, or divide 1 - confidence by the number of events tried (Bonferroni).

    >>> round(lower_bound(95, 100, 5, 100, delta=1e-5), 2)
    1.97
    >>> lower_bound(52, 100, 48, 100, delta=1e-5)
    0.0
    """
    check_confidence(confidence)
    _check_delta(delta)
    for hit, run, what in ((hits, runs, "runs"), (other_hits, other_runs, "other_runs")):
        whole(run, what, 1)
        if not 0 <= hit <= run:
            raise ParameterError(f"An event happens in 0 to {run} of {run} runs, got {hit}. Count runs, not hits in a run.")
    one, two = (
        clopper_pearson(np.array([hit]), run, (1 - confidence) / 2) for hit, run in ((hits, runs), (other_hits, other_runs))
    )
    floors = [epsilon_floor(Box(p.low, q.high), delta) for p, q in ((one, two), (two, one))]
    return float(np.max(floors))


def box(hits: ArrayLike, runs: int, other_hits: ArrayLike, other_runs: int, false_alarm: float) -> Box:
    """One-sided Clopper-Pearson bounds for an event that is the more likely in the first world; both hold but for
    ``false_alarm``. hits, other_hits: [event]; the choice of the event and its direction must not come from these runs.
    """
    happened, other = np.asarray(hits), np.asarray(other_hits)
    each = false_alarm / 2
    low = np.where(happened > 0, beta.ppf(each, np.maximum(happened, 1), runs - happened + 1), 0.0)
    high = np.where(other < other_runs, beta.isf(each, other + 1, np.maximum(other_runs - other, 1)), 1.0)
    return Box(low, high)


def epsilon_floor(known: Box, delta: float) -> FloatArray:
    """float64[event]: the least epsilon of any (epsilon, delta)-DP pair of worlds inside the box.

    Of the event log((p - delta) / q), of its complement log((1 - q - delta) / (1 - p)); both rise in p and fall in q, so
    the corner of the box is the least.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        event = np.log(np.maximum(known.low - delta, 0.0)) - np.log(known.high)
        complement = np.log(np.maximum(1 - known.high - delta, 0.0)) - np.log1p(-known.low)
    floors = [np.where(np.isnan(each), 0.0, each) for each in (event, complement)]
    result: FloatArray = np.clip(np.maximum(*floors), 0.0, _LARGEST)
    return result


def renyi_floor(known: Box, orders: FloatArray) -> FloatArray:
    """float64[event, order]: the least Rényi divergence, the larger of both directions, of any worlds inside the box.

    By the data-processing inequality (van Erven and Harremoës 2014, arXiv:1206.2459, Theorem 9) no event shows more than
    the mechanism has. Where the box holds p = q, nothing is proven.
    """
    p, q = Interval(known.low, np.ones_like(known.low)), Interval(np.zeros_like(known.high), known.high)
    there, back = (log_filter_floor(one, two, _FREE, _FREE, orders) for one, two in ((p, q), (q, p)))
    found = np.where(known.low[:, None] > known.high[:, None], np.maximum(there, back), 0.0)
    result: FloatArray = np.maximum(found, 0.0)
    return result


def proven_share(known: Box, curve: RdpCurve) -> tuple[FloatArray, FloatArray]:
    """The largest share of a claimed curve that is proven to be spent, float64[event], and the order at which, float64[event].

    A share above 1 refutes the claim: the box bounds two probabilities, so every order may be looked at. Where the curve has a
    slack s, P = (1-s) P' + s P'' and so for Q, and it bounds P' and Q' alone: P' is at least (P - s)/(1-s), Q' at most Q/(1-s).
    """
    kept = max(1 - curve.slack, np.finfo(np.float64).tiny)
    beside = Box(np.maximum(known.low - curve.slack, 0.0) / kept, np.minimum(known.high / kept, 1.0))
    floors = renyi_floor(beside, curve.orders)
    with np.errstate(divide="ignore", invalid="ignore"):
        shares = np.where(floors > 0, floors / curve.values, 0.0)
    best = shares.argmax(axis=1)
    return shares[np.arange(len(shares)), best], curve.orders[best]


def one_run_p_value(canaries: int, guesses: int, correct: int, epsilon: float, delta: float) -> float:
    """The chance that an (epsilon, delta)-DP mechanism lets ``correct`` or more of ``guesses`` guesses be right, at most.

    Steinke, Nasr, Jagielski 2023 (arXiv:2305.08846), Theorem 5.2: each of m canaries is in the data by the toss of a fair
    coin of its own; of one output an auditor guesses the coins of r of them and leaves the others. With W = Binomial(r,
    e^epsilon / (1 + e^epsilon)) and f(v) = P[W >= v], at least v guesses are right with probability at most
    f(v) + 2 m delta max_i (f(v - i) - f(v)) / i.
    """
    share = 1 / (1 + np.exp(-epsilon))
    tail = float(binom.sf(correct - 1, guesses, share))
    if delta == 0 or correct == 0:
        return min(tail, 1.0)
    steps = np.arange(1, correct + 1)
    gained = np.cumsum(binom.pmf(correct - steps, guesses, share))  # f(v - i) - f(v)
    return min(1.0, tail + 2 * canaries * delta * float((gained / steps).max()))


def one_run_lower_bound(canaries: int, guesses: int, correct: int, *, delta: float, confidence: float = 0.95) -> float:
    """The largest epsilon that one run refutes, 0 where it refutes none; too large with probability at most 1 - confidence.

    canaries: how many coins were tossed. guesses: how many were guessed, fixed ahead. correct: how many of those were right.

    >>> round(one_run_lower_bound(1000, 1000, 600, delta=1e-5), 2)
    0.3
    >>> one_run_lower_bound(1000, 1000, 500, delta=1e-5)
    0.0
    """
    check_confidence(confidence)
    _check_delta(delta)
    whole(canaries, "canaries", 1)
    if not 0 <= correct <= guesses <= canaries:
        raise ParameterError(
            f"Of {canaries} canaries some are guessed, and of those some rightly; got {guesses} guesses, {correct} of "
            "them right."
        )
    if one_run_p_value(canaries, guesses, correct, 0.0, delta) > 1 - confidence:
        return 0.0
    # The end at which the claim is seen to be refuted is returned, so the result is never too large.
    low, high = 0.0, 1.0
    while high < _LARGEST and one_run_p_value(canaries, guesses, correct, high, delta) <= 1 - confidence:
        low, high = high, 2 * high
    for _ in range(60):
        middle = (low + high) / 2
        refuted = one_run_p_value(canaries, guesses, correct, middle, delta) <= 1 - confidence
        low, high = (middle, high) if refuted else (low, middle)
    return low


def best_one_run(
    scores: ArrayLike, present: ArrayLike, guesses: Sequence[int], *, delta: float, confidence: float = 0.95
) -> tuple[float, int, int]:
    """The best lower bound over several numbers of guesses, that number, and how many were right.

    scores: float[canary], larger where the canary seems to be in. present: bool[canary], the coins. The half of the guesses
    with the largest scores says "in", that with the smallest "out". 1 - confidence is divided by len(guesses) (Bonferroni).

    >>> best_one_run([9.0, 8.0, -8.0, -9.0] * 15, [True, True, False, False] * 15, [20, 60], delta=0)[1:]
    (60, 60)
    """
    values, coins = np.asarray(scores, dtype=np.float64), np.asarray(present, dtype=np.bool_)
    if values.ndim != 1 or values.shape != coins.shape or not values.size:
        raise ParameterError(f"scores and present must have one entry a canary, got shapes {values.shape} and {coins.shape}.")
    if not guesses or min(guesses) < 2 or max(guesses) > values.size:
        raise ParameterError(f"guesses must be numbers from 2 to the {values.size} canaries, got {list(guesses)}.")
    each = 1 - (1 - check_confidence(confidence)) / len(guesses)
    order = np.argsort(-values, kind="stable")
    found = []
    for number in guesses:
        half = number // 2
        right = int(coins[order[:half]].sum() + (~coins[order[-half:]]).sum())
        found.append((one_run_lower_bound(values.size, 2 * half, right, delta=delta, confidence=each), 2 * half, right))
    return max(found)


def check_confidence(confidence: float) -> float:
    """Return the confidence after checking that it lies strictly between 0 and 1."""
    if not 0 < confidence < 1:
        raise ParameterError(f"confidence must lie strictly between 0 and 1, such as 0.95, got {confidence}.")
    return float(confidence)


def _check_delta(delta: float) -> None:
    if not 0 <= delta < 1:
        raise ParameterError(f"delta must lie in [0, 1), got {delta}.")


def hits(scores: FloatArray, cuts: FloatArray) -> IntArray:
    """int64[cut]: how many scores are at least each cut."""
    ordered = np.sort(scores)
    found: IntArray = (len(ordered) - np.searchsorted(ordered, cuts, side="left")).astype(np.int64)
    return found
