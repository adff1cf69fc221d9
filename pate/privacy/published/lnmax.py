"""LNMax as published: the label with the largest count after Laplace noise of scale 1/gamma on every count.

Papernot et al. 2017 (arXiv:1610.05755) account for it with the moments accountant: the log-moment l bounds l times the
Rényi divergence of order l + 1. Papernot et al. 2018 (arXiv:1802.08908) state the same theorem as RDP. A moved vote
changes two counts by 1, so one query is 2 gamma-DP. Both bound the one direction D(M(D) || M(D')).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import logsumexp

from pate.arrays import FloatArray
from pate.errors import ParameterError
from pate.privacy.curve import check_orders
from pate.privacy.logs import log1mexp
from pate.privacy.published.inputs import check_counts, check_log_probabilities, gaps_to_winner
from pate.validation import positive


def lnmax_logq(counts: ArrayLike, gamma: float) -> FloatArray:
    """log of an upper bound on Pr[noisy winner is not the winner]. counts: [query, class] -> float64[query].

    arXiv:1610.05755, Lemma 4: sum over the other classes of (2 + gamma gap) / (4 exp(gamma gap)), at most 1 - 1/k.
    """
    gaps = _scaled_gaps(counts, gamma)
    return _capped(logsumexp(_log_overtakes(gaps), axis=1), gaps.shape[1])


def lnmax_q(counts: ArrayLike, gamma: float) -> FloatArray:
    """exp of :func:`lnmax_logq`, as the 2017 code has it. Below 1e-308 it is 0: account with the log instead."""
    result: FloatArray = np.exp(lnmax_logq(counts, gamma))
    return result


def lnmax_q_approx(counts: ArrayLike, gamma: float) -> FloatArray:
    """As :func:`lnmax_q`, every other class put where the runner-up is; never smaller. float64[query]."""
    gaps = _scaled_gaps(counts, gamma)
    n_classes = gaps.shape[1]
    result: FloatArray = np.exp(_capped(math.log(n_classes - 1) + _log_overtakes(gaps.min(axis=1)), n_classes))
    return result


def lnmax_rdp_2018(logq: ArrayLike, gamma: float, orders: ArrayLike) -> FloatArray:
    """Data-dependent RDP of LNMax, one direction. logq: [query] -> float64[query, order].

    arXiv:1610.05755, Theorem 3, under its condition q <= 1/(e^{2 gamma} + 1); never above the data-independent cost.
    """
    logs = check_log_probabilities("logq", logq)
    grid = check_orders(orders)
    epsilon = _pure_epsilon(gamma)
    costs = np.tile(lnmax_independent_rdp(gamma, grid), (len(logs), 1))
    usable = np.flatnonzero(logs <= -np.logaddexp(0.0, epsilon))
    held = logs[usable, None]
    log1q = log1mexp(held)
    # log((1-q) ((1-q)/(1 - e^epsilon q))^(a-1) + q e^(epsilon (a-1)))
    moment = np.logaddexp(
        log1q + (grid - 1) * (log1q - log1mexp(np.minimum(epsilon + held, 0.0))),
        held + epsilon * (grid - 1),
    )
    costs[usable] = np.minimum(costs[usable], np.maximum(moment, 0.0) / (grid - 1))
    return costs


def lnmax_independent_rdp(gamma: float, orders: ArrayLike) -> FloatArray:
    """Data-independent RDP of one LNMax query: min(2 gamma, 2 gamma^2 a). float64[order].

    2 gamma-DP, and Bun & Steinke 2016 (arXiv:1605.02065), Proposition 3.3. ``mechanisms.pure_dp_rdp(2 * gamma, orders)``
    is the tight form of the same statement.
    """
    epsilon = _pure_epsilon(gamma)
    result: FloatArray = np.minimum(epsilon, epsilon**2 / 2 * check_orders(orders))
    return result


def lnmax_log_moments(logq: ArrayLike, gamma: float, moments: ArrayLike) -> FloatArray:
    """Log-moments of LNMax under the theorem's own condition. logq: [query] -> float64[query, moment].

    arXiv:1610.05755, Theorem 3. Moments may be several hundred; the 2017 code stops at 8, which costs a factor of 2.
    """
    held = _check_moments(moments)
    return held * lnmax_rdp_2018(logq, gamma, held + 1)


def lnmax_independent_log_moments(gamma: float, moments: ArrayLike) -> FloatArray:
    """Data-independent log-moments of one LNMax query. float64[moment]. arXiv:1610.05755, Theorem 2."""
    held = _check_moments(moments)
    return held * lnmax_independent_rdp(gamma, held + 1)


def lnmax_log_moments_2017(q: ArrayLike, gamma: float, moments: ArrayLike) -> FloatArray:
    """NOT A BOUND for q > 1/(e^{2 gamma} + 1). The 2017 code's arithmetic. q: [query] -> float64[query, moment].

    It applies Theorem 3 for every q < 1/2, where the theorem wants q <= 1/(e^{2 gamma} + 1), and for a tiny q its cost
    cancels to 0. Here only to compare with published figures: use :func:`lnmax_log_moments`.
    """
    probability = np.asarray(q, dtype=np.float64)
    if probability.ndim != 1 or not ((probability >= 0) & (probability <= 1)).all():
        raise ParameterError("q must be probabilities with the axis [query]; found another shape or a value outside 0..1.")
    probability = probability[:, None]
    held = _check_moments(moments)
    epsilon = _pure_epsilon(gamma)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        total = (1 - probability) * ((1 - probability) / (1 - math.exp(epsilon) * probability)) ** held
        log_total = np.log(total + probability * np.exp(epsilon * held))
    wanted = (probability < 0.5) & ~np.isnan(log_total)
    ceiling = np.minimum(epsilon**2 / 2 * held * (held + 1), epsilon * held)
    result: FloatArray = np.where(wanted, np.minimum(log_total, ceiling), ceiling)
    return result


def _pure_epsilon(gamma: float) -> float:
    positive(gamma, "gamma")
    return 2 * gamma


def _scaled_gaps(counts: ArrayLike, gamma: float) -> FloatArray:
    positive(gamma, "gamma")
    return gamma * gaps_to_winner(check_counts(counts))


def _log_overtakes(gaps: FloatArray) -> FloatArray:
    """log Pr[a class at this scaled gap overtakes the winner]; -inf at an infinite gap."""
    finite = np.where(np.isinf(gaps), 0.0, gaps)
    return np.where(np.isinf(gaps), -np.inf, np.log(2 + finite) - math.log(4) - finite)


def _capped(logq: FloatArray, n_classes: int) -> FloatArray:
    # The winner is at least as likely as any other class.
    result: FloatArray = np.minimum(logq, math.log1p(-1 / n_classes))
    return result


def _check_moments(moments: ArrayLike) -> FloatArray:
    held = np.array(moments, dtype=np.float64)
    if held.ndim != 1 or held.size == 0 or not (held > 0).all():
        raise ParameterError(f"moments must be a non-empty list of numbers above 0, got {moments!r}.")
    check_orders(held + 1)
    return held
