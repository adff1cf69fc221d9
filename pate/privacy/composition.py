"""How guarantees add up: composition, zCDP, groups, and amplification by subsampling. Small pure functions.

RDP composition is ``RdpCurve.__add__``. Everything here is for guarantees stated in other terms, and for comparison.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import minimize_scalar
from scipy.special import gammaln, logsumexp

from pate.arrays import FloatArray
from pate.errors import ParameterError
from pate.privacy.curve import Conversion, RdpCurve, check_delta, check_orders, epsilons_at_orders
from pate.privacy.mechanisms import check_epsilon, sensitivity_ratio, smallest_epsilon

_ROUND_UP = 1 + 1e-12
"""The sums below carry at most this relative rounding error; a cost is reported above it."""


class Guarantee(NamedTuple):
    """(epsilon, delta)-differential privacy."""

    epsilon: float
    delta: float


def basic_composition(epsilons: ArrayLike, deltas: ArrayLike = 0.0) -> Guarantee:
    """Epsilons and deltas of adaptive steps add up. epsilons, deltas: [step]; one delta may stand for all.

    Dwork & Roth 2014, Theorem 3.16 and its adaptive form, Appendix B.
    """
    e, d = np.broadcast_arrays(np.atleast_1d(_epsilons(epsilons)), _deltas(deltas))
    return Guarantee(math.fsum(e), min(1.0, math.fsum(d)))


def advanced_composition(epsilon: float, delta: float, times: int, slack: float) -> Guarantee:
    """``times`` adaptive (epsilon, delta) steps, for a further ``slack`` in delta.

    Dwork, Rothblum, Vadhan 2010, Theorem III.3 (Dwork & Roth 2014, Theorem 3.20):
    epsilon sqrt(2 k log(1/slack)) + k epsilon (e^epsilon - 1), k delta + slack.
    """
    e, k = check_epsilon(epsilon), _check_times(times)
    growth = math.expm1(e) if e < 700 else math.inf
    total = e * math.sqrt(2 * k * math.log(1 / check_delta(slack))) + k * e * growth
    return Guarantee(total, min(1.0, k * _check_probability("delta", delta) + slack))


def optimal_composition(epsilon: float, delta: float, times: int, slack: float) -> Guarantee:
    """The best guarantee for ``times`` adaptive (epsilon, delta) steps about which nothing else is known.

    Kairouz, Oh, Viswanath 2015 (arXiv:1311.0776), Theorem 3.3: the steps are dominated by randomised response repeated, of
    which the total delta at any epsilon is a binomial sum. Never above basic or advanced composition.
    """
    k = _check_times(times)
    total = smallest_epsilon(lambda target: optimal_composition_delta(epsilon, k, target), slack)
    # 1 - (1-delta)^k (1-slack), without cancellation.
    whole = -math.expm1(k * math.log1p(-_check_probability("delta", delta)) + math.log1p(-slack))
    return Guarantee(total, min(1.0, whole * _ROUND_UP))


def optimal_composition_delta(epsilon: float, times: int, total_epsilon: float) -> float:
    """The smallest delta of ``times`` pure epsilon-DP steps at ``total_epsilon``; exact for randomised response, rounded up.

    arXiv:1311.0776, Theorem 3.3, at any epsilon: sum over i of C(k, i) max(0, e^{(k-i) e} - e^{total + i e}) / (1+e^e)^k.
    """
    e, k, target = check_epsilon(epsilon), _check_times(times), check_epsilon(total_epsilon)
    i = np.arange(k + 1, dtype=np.float64)
    log_weight = gammaln(k + 1) - gammaln(i + 1) - gammaln(k - i + 1) - k * np.logaddexp(0.0, e)
    # (k-2i) e is the privacy loss of an outcome with i flips; only losses above the target count.
    surplus = (k - 2 * i) * e - target
    counted = surplus > 0
    if not counted.any():
        return 0.0
    terms = log_weight[counted] + (k - i[counted]) * e + np.log(-np.expm1(-surplus[counted]))
    rounding = np.finfo(np.float64).eps * (8 + 4 * k * (e + 1) + 4 * float(gammaln(k + 1)))
    return min(1.0, math.exp(float(logsumexp(terms))) * (1 + rounding))


def zcdp_of_gaussian(sensitivity: float, sigma: float) -> float:
    """rho of the Gaussian mechanism: sensitivity^2 / (2 sigma^2). Bun & Steinke 2016 (arXiv:1605.02065), Proposition 1.6."""
    return sensitivity_ratio(sensitivity, sigma, "sigma") ** 2 / 2


def zcdp_of_pure(epsilon: float) -> float:
    """rho of any epsilon-DP mechanism: epsilon^2 / 2. arXiv:1605.02065, Proposition 1.4."""
    return check_epsilon(epsilon) ** 2 / 2


def zcdp_compose(rhos: ArrayLike) -> float:
    """rhos of adaptive steps add up. arXiv:1605.02065, Lemma 1.7."""
    values = np.atleast_1d(np.asarray(rhos, dtype=np.float64))
    return math.fsum(_check_rho(value) for value in values)


def zcdp_to_rdp(rho: float, orders: ArrayLike) -> RdpCurve:
    """rho-zCDP is a curve of a * rho, by definition. arXiv:1605.02065, Definition 1.1."""
    grid = check_orders(orders)
    return RdpCurve(grid, _check_rho(rho) * grid)


def rdp_to_tcdp(curve: RdpCurve) -> tuple[float, float]:
    """(rho, omega): the curve's divergences are at most a * rho for every order a in (1, omega), omega the last order.

    A grid says nothing above its last order, so this is truncated CDP (Bun, Dwork, Rothblum, Steinke 2018, Definition 1),
    not zCDP. Between orders the divergence is at most that of the next order of the grid (it never falls with the order).
    """
    _check_no_slack(curve, "tCDP")
    below = np.concatenate(([1.0], curve.orders[:-1]))
    return float((curve.values / below).max()), float(curve.orders[-1])


def zcdp_epsilon(rho: float, delta: float, conversion: Conversion = "improved") -> float:
    """epsilon of rho-zCDP at delta.

    classic: rho + 2 sqrt(rho log(1/delta)), arXiv:1605.02065, Proposition 1.3. improved: the conversion of
    :func:`pate.privacy.curve.epsilons_at_orders` at the best order; every order is valid, so the search need not be exact.
    """
    r, d = _check_rho(rho), check_delta(delta)
    if r == 0:
        return 0.0
    classic_order = 1 + math.sqrt(math.log(1 / d) / r)
    if conversion == "classic":
        return float(epsilons_at_orders(np.array([classic_order]), np.array([r * classic_order]), d, "classic")[0])

    def implied(log_excess: float) -> float:
        order = np.array([1 + math.exp(log_excess)])
        return float(epsilons_at_orders(order, r * order, d, conversion)[0])

    centre = math.log(classic_order - 1)
    return float(minimize_scalar(implied, bounds=(centre - 5, centre + 1), method="bounded", options={"xatol": 1e-9}).fun)


def group_pure(epsilon: float, size: int) -> float:
    """A group of ``size`` records under epsilon-DP: size * epsilon. Dwork & Roth 2014, Theorem 2.2."""
    return _check_times(size, "size") * check_epsilon(epsilon)


def group_approximate(epsilon: float, delta: float, size: int) -> Guarantee:
    """A group under (epsilon, delta)-DP: (size epsilon, delta (1 + e^epsilon + … + e^{(size-1) epsilon})).

    Vadhan 2017, "The Complexity of Differential Privacy", Lemma 2.2, with the geometric sum of its proof.
    """
    total = group_pure(epsilon, size)
    if _check_probability("delta", delta) == 0:
        return Guarantee(total, 0.0)
    log_sum = total - epsilon + _log_ratio(total, epsilon) if epsilon else math.log(size)
    return Guarantee(total, min(1.0, math.exp(min(0.0, math.log(delta) + log_sum)) * _ROUND_UP))


def group_rdp(curve: RdpCurve, size: int) -> RdpCurve:
    """A group under RDP, on the orders that are left.

    Mironov 2017 (arXiv:1702.07476), Proposition 2: for a group of 2^c, order a >= 2^{c+1} becomes a / 2^c at 3^c times the
    cost. A size between powers of two is charged as the next one. For Gaussian noise scale the sensitivity instead.
    """
    _check_no_slack(curve, "group privacy")
    doublings = math.ceil(math.log2(_check_times(size, "size")))
    kept = curve.orders >= 2 ** (doublings + 1) if doublings else np.ones(curve.orders.shape, dtype=bool)
    if not kept.any():
        raise ParameterError(
            f"Group privacy for {size} records needs a Rényi order of at least {2 ** (doublings + 1)}, "
            f"the curve ends at {curve.orders[-1]:g}; compute it on a grid that reaches further."
        )
    return RdpCurve(curve.orders[kept] / 2**doublings, curve.values[kept] * 3**doublings)


def group_zcdp(rho: float, size: int) -> float:
    """A group under rho-zCDP: size^2 * rho. Bun & Steinke 2016 (arXiv:1605.02065), Proposition 1.9."""
    return _check_times(size, "size") ** 2 * _check_rho(rho)


def amplify_poisson(epsilon: float, delta: float, rate: float) -> Guarantee:
    """An (epsilon, delta)-DP mechanism run on a Poisson sample: each record enters with probability ``rate``.

    Both guarantees are for add/remove neighbours. Balle, Barthe, Gaboardi 2018 (arXiv:1807.01647), Theorem 8:
    log(1 + rate (e^epsilon - 1)), rate * delta. The sample must stay secret.
    """
    return _amplified(epsilon, delta, rate)


def amplify_without_replacement(epsilon: float, delta: float, n_sampled: int, n_records: int) -> Guarantee:
    """An (epsilon, delta)-DP mechanism run on ``n_sampled`` of ``n_records`` records, drawn without replacement.

    Both guarantees are for neighbours in which one record is substituted. Balle, Barthe, Gaboardi 2018
    (arXiv:1807.01647), Theorem 9: as :func:`amplify_poisson` with rate = n_sampled / n_records.
    """
    if not 1 <= n_sampled <= n_records:
        raise ParameterError(f"n_sampled must lie in 1..n_records={n_records}, got {n_sampled}.")
    return _amplified(epsilon, delta, n_sampled / n_records)


def _amplified(epsilon: float, delta: float, rate: float) -> Guarantee:
    e, d = check_epsilon(epsilon), _check_probability("delta", delta)
    if not 0 < rate <= 1:
        raise ParameterError(f"The sampling rate must lie in (0, 1], got {rate}.")
    # log(1 + rate (e^e - 1)) in a form that neither overflows nor cancels.
    amplified = e + math.log1p((1 - rate) * math.expm1(-e)) if e > 1 else math.log1p(rate * math.expm1(e))
    return Guarantee(amplified, rate * d)


def _log_ratio(total: float, epsilon: float) -> float:
    """log((1 - e^-total) / (1 - e^-epsilon))."""
    return math.log(-math.expm1(-total)) - math.log(-math.expm1(-epsilon))


def _epsilons(values: ArrayLike) -> FloatArray:
    array = np.asarray(values, dtype=np.float64)
    for value in array.flat:
        check_epsilon(value)
    return array


def _deltas(values: ArrayLike) -> FloatArray:
    array = np.asarray(values, dtype=np.float64)
    for value in array.flat:
        _check_probability("delta", value)
    return array


def _check_probability(name: str, value: float) -> float:
    if not 0 <= value < 1:
        raise ParameterError(f"{name} must be at least 0 and below 1, got {value}.")
    return float(value)


def _check_rho(rho: float) -> float:
    if not (rho >= 0 and math.isfinite(rho)):
        raise ParameterError(f"rho must be finite and not negative, got {rho}.")
    return float(rho)


def _check_no_slack(curve: RdpCurve, what: str) -> None:
    if curve.slack:
        raise ParameterError(
            f"A curve with a slack ({curve.slack:g}) has no {what} here: convert it to (epsilon, delta) first, and use the "
            "functions for that, such as group_approximate."
        )


def _check_times(times: int, name: str = "times") -> int:
    if times < 1 or times != int(times):
        raise ParameterError(f"{name} must be a whole number of at least 1, got {times}.")
    return int(times)
