"""What the tutorials about privacy claim is true.

The oracles are naive on purpose: plain loops, sums over all outcomes, quadrature on a fine grid.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy.special import log_ndtr, logsumexp, ndtr
from tutorial_pages import ran

from pate import GNMax, Votes, account
from pate.arrays import FloatArray
from pate.errors import ParameterError
from pate.experiments.baselines.dpsgd.accounting import Training
from pate.privacy.composition import group_rdp, zcdp_of_gaussian, zcdp_to_rdp
from pate.privacy.curve import DEFAULT_ORDERS
from pate.privacy.mechanisms import gaussian_rdp, laplace_rdp
from pate.privacy.subsampled import replace_rdp, subsampled_gaussian_rdp

for package in ("matplotlib", "dp_accounting"):
    pytest.importorskip(package, reason=f"{package} is not installed (extras 'plot' and 'dpsgd')")

# Composition ------------------------------------------------------------------------------------------------------------------


def test_rules_of_composition_are_ordered_as_the_page_says() -> None:
    names = ran("composition").names
    for k in names["steps"]:
        cost = {name: rule(k) for name, rule in names["RULES"].items()}
        slack = 2e-3  # the losses lie on a grid of 1e-3
        assert cost["PLD"] <= cost["optimal"] + slack
        assert cost["PLD"] <= cost["RDP"] + slack
        assert cost["optimal"] <= min(cost["basic"], cost["advanced"]) * (1 + 1e-9)
        assert max(cost["RDP"], cost["zCDP"], cost["optimal"]) <= cost["advanced"] * (1 + 1e-9)
    orders = [2.0, 7.5]
    assert zcdp_to_rdp(zcdp_of_gaussian(1.0, 3.0), orders).values == pytest.approx(gaussian_rdp(1.0, 3.0, orders), rel=1e-12)


def test_the_closed_formulas_of_composition() -> None:
    names = ran("composition").names
    e, log, rules = names["EPSILON"], math.log(1 / names["DELTA"]), names["RULES"]
    for k in (1, 10, 200):
        assert rules["basic"](k) == pytest.approx(k * e, rel=1e-12)
        assert rules["advanced"](k) == pytest.approx(e * math.sqrt(2 * k * log) + k * e * (math.exp(e) - 1), rel=1e-12)
        assert rules["zCDP"](k) == pytest.approx(k * e**2 / 2 + 2 * math.sqrt(k * e**2 / 2 * log), rel=1e-12)


def test_optimal_composition_against_all_outcomes_of_randomised_response() -> None:
    names = ran("composition").names
    epsilon, delta, k = names["EPSILON"], names["DELTA"], 10
    truth = math.exp(epsilon) / (1 + math.exp(epsilon))
    told = list(itertools.product((True, False), repeat=k))
    laws = [[math.prod(bit if right else 1 - bit for right in each) for each in told] for bit in (truth, 1 - truth)]

    def true_delta(total: float) -> float:
        return sum(max(0.0, p - math.exp(total) * q) for p, q in zip(*laws, strict=True))

    found = names["RULES"]["optimal"](k)
    assert true_delta(found) <= delta * (1 + 1e-9)
    assert true_delta(found - 1e-6) > delta


def test_the_laplace_curve_against_quadrature() -> None:
    names = ran("composition").names
    e = names["EPSILON"]
    x = np.arange(-600, 600, 0.005) + 0.0025  # neither density has its corner inside a cell
    log_p, log_q = -e * np.abs(x), -e * np.abs(x - 1)
    for order in (2.0, 8.0, 40.0):
        moment = (e / 2 * np.exp(order * log_p + (1 - order) * log_q)).sum() * 0.005
        assert laplace_rdp(1.0, 1 / e, [order])[0] == pytest.approx(math.log(moment) / (order - 1), rel=1e-5)


def test_the_loss_distribution_of_two_steps_against_a_double_sum() -> None:
    names = ran("composition").names
    e, cells = names["EPSILON"], 1000
    # Left of 0 the loss is e, right of 1 it is -e, between it falls on a line.
    x = (np.arange(cells) + 0.5) / cells
    loss = np.concatenate([[e], e * (1 - 2 * x), [-e]])
    mass = np.concatenate([[0.5], e / 2 * np.exp(-e * x) / cells, [math.exp(-e) / 2]])
    assert mass.sum() == pytest.approx(1, abs=1e-6)
    for target in (0.05, 0.15):
        both = loss[:, None] + loss[None, :]
        delta = (mass[:, None] * mass[None, :] * np.maximum(0, -np.expm1(target - both))).sum()
        assert names["pld"].self_compose(2).get_delta_for_epsilon(target) == pytest.approx(delta, rel=2e-3)


# The moments accountant -------------------------------------------------------------------------------------------------------


def _log_mixture(x: FloatArray, rate: float, sigma: float, shift: float = 1.0) -> FloatArray:
    """Log-density of noise on a sum that holds a record of length ``shift`` with probability ``rate``."""
    out, inside = (-((x - mean) ** 2) / (2 * sigma**2) - math.log(sigma * math.sqrt(2 * math.pi)) for mean in (0.0, shift))
    return out if rate == 0 else np.logaddexp(math.log1p(-rate) + out, math.log(rate) + inside)


def _divergence(log_p: FloatArray, log_q: FloatArray, order: float, step: float = 1.0) -> float:
    """The Rényi divergence as its definition has it: of densities on a grid of this step, or of whole laws."""
    return float(logsumexp(order * log_p + (1 - order) * log_q) + math.log(step)) / (order - 1)


def test_moments_of_a_sampled_step_against_quadrature() -> None:
    names = ran("moments-accountant").names
    q, sigma = names["Q"], names["SIGMA"]
    x, step = np.linspace(-80, 160, 200_001, retstep=True)
    out, inside = _log_mixture(x, 0.0, sigma), _log_mixture(x, q, sigma)
    for order in (2.0, 10.0, 20.0, 33.0):
        forward, reverse = _divergence(inside, out, order, step), _divergence(out, inside, order, step)
        assert reverse < forward
        assert subsampled_gaussian_rdp(q, sigma, [order])[0] == pytest.approx(forward, rel=1e-6)


def test_the_figures_of_abadi_et_al() -> None:
    names = ran("moments-accountant").names
    moments, strong = names["moments_2016"], names["strong_2016"]
    assert round(moments(10_000), 2) == 1.26
    assert 1.005 < moments(40_000) / 2.55 < 1.015
    assert abs(strong(10_000) - 9.34) < 0.02
    assert abs(strong(40_000) - 24.22) < 0.02


def test_strong_composition_proven_is_larger_as_the_page_says() -> None:
    names = ran("moments-accountant").names
    q, delta, steps = names["Q"], names["DELTA"], 10_000
    at = list(names["epochs"]).index(100)
    proven = names["found"].strong[at]
    # By hand, on a grid of shares, with the Gaussian's epsilon by bisection on its exact delta.
    by_hand = []
    for share in (0.1, 0.5, 0.9):
        whole_delta = share * delta / steps / q
        low, high = 0.0, 10.0
        for _ in range(60):
            e = (low + high) / 2
            exact = ndtr(1 / 8 - 4 * e) - math.exp(e) * ndtr(-1 / 8 - 4 * e)
            low, high = (e, high) if exact > whole_delta else (low, e)
        step = math.log1p(q * math.expm1(high))
        by_hand.append(step * math.sqrt(2 * steps * math.log(1 / ((1 - share) * delta))) + steps * step * math.expm1(step))
        assert 1.7 < step / (q * high) < 2.5  # "about twice as much"
    assert proven == pytest.approx(min(by_hand), rel=1e-6)
    assert int(names["strong_2016"](steps) / names["moments_2016"](steps)) == 7
    assert int(proven / names["moments_2016"](steps)) == 13


# Groups -----------------------------------------------------------------------------------------------------------------------


def test_a_group_under_gaussian_noise() -> None:
    names = ran("group-privacy").names
    moved, sigma, delta, rules = names["MOVED"], names["SIGMA"], names["DELTA"], names["RULES"]
    x, step = np.linspace(-14, 30, 400_001, retstep=True)
    for m in (1, 4, 16):
        exact = rules["noise known to be Gaussian, exact"](m)
        shift = m * moved / sigma
        p, q = (np.exp(-((x - mean) ** 2) / 2) / math.sqrt(2 * math.pi) for mean in (shift, 0.0))
        assert np.maximum(p - math.exp(exact) * q, 0).sum() * step == pytest.approx(delta, rel=1e-3)
        for name, rule in rules.items():
            if name != "partitioned by person":
                assert rule(m) >= exact * (1 - 1e-9), name
    assert 23 <= rules["noise known to be Gaussian, exact"](16) / rules["noise known to be Gaussian, exact"](1) < 24


def test_where_a_guarantee_for_groups_ends() -> None:
    names = ran("group-privacy").names
    epsilon, delta, curve = names["epsilon"], names["DELTA"], names["curve"]
    grown = [sum(delta * math.exp(i * epsilon) for i in range(m)) for m in range(1, 33)]
    assert next(m for m, each in enumerate(grown, 1) if each >= 1) == names["end"] == round(math.log(1 / delta) / epsilon) == 23
    for doublings in (1, 2, 4):
        group = group_rdp(curve, 2**doublings)
        assert group.values == pytest.approx(6**doublings * names["rho"] * group.orders, rel=1e-9)
        assert group.orders.min() >= 2
    with pytest.raises(ParameterError, match="Rényi order of at least"):
        group_rdp(curve, 4096)


# Abstention -------------------------------------------------------------------------------------------------------------------


def _confident_law(votes: tuple[int, ...], threshold: float, sigma1: float, sigma2: float) -> FloatArray:
    """Probability of every class and of abstention, by a plain sum on a fine grid."""
    x, step = np.linspace(-40, 100, 70_001, retstep=True)
    answer = float(ndtr((max(votes) - threshold) / sigma1))
    law = []
    for j, count in enumerate(votes):
        density = np.exp(-(((x - count) / sigma2) ** 2) / 2) / (sigma2 * math.sqrt(2 * math.pi))
        others = math.prod(ndtr((x - other) / sigma2) for i, other in enumerate(votes) if i != j)
        law.append(answer * float((density * others).sum()) * step)
    return np.array([*law, 1 - answer])


def test_the_expected_cost_of_a_confident_query_is_no_bound() -> None:
    names = ran("abstention").names
    setting = (names["THRESHOLD"], names["SIGMA1"], names["SIGMA2"])
    votes = tuple(int(each) for each in names["VOTES"][0])
    here = _confident_law(votes, *setting)
    worst, worst_delta = 0.0, 0.0
    for a, b in itertools.permutations(range(3), 2):
        moved = list(votes)
        moved[a] -= 1
        moved[b] += 1
        there = _confident_law(tuple(moved), *setting)
        for p, q in ((here, there), (there, here)):
            worst = max(worst, _divergence(np.log(p), np.log(q), 32))
            worst_delta = max(worst_delta, float(np.maximum(p - math.exp(names["claim"]) * q, 0).sum()))
    at = names["at"]
    assert worst == pytest.approx(names["truth"][at], abs=1e-6) == pytest.approx(2.008, abs=5e-4)
    assert names["expected"][at] == pytest.approx(0.149, abs=5e-4)
    assert names["expected"][at] < worst < names["charged"][at]
    assert worst_delta == pytest.approx(names["true_delta"], rel=1e-6)
    assert worst_delta > 100 * 1e-5
    assert (names["charged"] > names["truth"]).all()


def test_the_bit_of_abstention_costs_what_the_page_says() -> None:
    names = ran("abstention").names
    log_p, log_q = (log_ndtr([m / 15.0, -m / 15.0]) for m in (-15, -16))  # 45 and 44 votes, threshold 60
    for order, cost in zip(names["bits"].orders, names["bits"].values, strict=True):
        worst = max(_divergence(log_p, log_q, order), _divergence(log_q, log_p, order))
        assert cost == pytest.approx(worst, rel=1e-6)


# Publishing -------------------------------------------------------------------------------------------------------------------


def _two_classes(agreeing: int, order: float, delta: float, queries: int) -> float:
    """epsilon at one order: with two classes the first wins with probability Φ(lead / (σ√2))."""

    def law(votes: int) -> FloatArray:
        lead = (2 * votes - 250) / (40 * math.sqrt(2))
        return np.asarray(log_ndtr([lead, -lead]))

    worst = 0.0
    for other in (agreeing - 1, agreeing + 1):
        if other <= 250:
            for p, q in itertools.permutations((law(agreeing), law(other))):
                worst = max(worst, _divergence(p, q, order))
    return queries * worst + math.log1p(-1 / order) - math.log(delta * order) / (order - 1)


def test_the_published_epsilon_tells_neighbours_apart() -> None:
    names = ran("publishing-epsilon").names
    delta, queries = names["DELTA"], names["QUERIES"]
    counts = np.array([130, 199, 200, 250])
    private = names["dependent"](counts)
    for count, epsilon in zip(counts, private, strict=True):
        naive = min(_two_classes(int(count), float(order), delta, queries) for order in DEFAULT_ORDERS)
        assert epsilon == pytest.approx(naive, rel=1e-5)
        votes = Votes([[int(count), 250 - int(count)]] * queries, n_teachers=250)
        report = account(votes, GNMax(sigma=40), delta)
        assert report.dependent.epsilon(delta).epsilon == pytest.approx(epsilon, rel=1e-9)
        assert report.independent.epsilon(delta).epsilon == names["flat"]
    assert names["delta"] == 1
    for step in names["steps"]:  # neighbours on two sides of a rounding step
        assert np.ptp(names["dependent"](np.array([step - 1, step])).round(1)) > 0
    assert 6.5 < names["flat"] / private[-1] < 7.5  # "a seventh of it"


# Neighbours -------------------------------------------------------------------------------------------------------------------


def test_a_swap_costs_between_the_worst_known_pair_and_the_bound() -> None:
    x, step = np.linspace(-40, 60, 200_001, retstep=True)
    here, without, there = (_log_mixture(x, rate, 1.0, shift) for rate, shift in ((0.01, 1.0), (0.0, 1.0), (0.01, -1.0)))
    for order in (2.0, 4.0, 8.0):
        one, pair = _divergence(here, without, order, step), _divergence(here, there, order, step)
        bound = replace_rdp(lambda orders: subsampled_gaussian_rdp(0.01, 1.0, orders), [order])[0]
        assert one < pair <= bound


def test_the_pair_of_the_page_is_a_record_and_its_opposite() -> None:
    names = ran("neighbours").names
    x, step = np.linspace(-30, 30, 300_001, retstep=True)
    here, there = (np.exp(_log_mixture(x, 0.01, 1.0, shift)) for shift in (1.0, -1.0))
    for epsilon in (0.02, 0.1):
        exact = np.maximum(here - math.exp(epsilon) * there, 0).sum() * step
        found = names["pair"].get_delta_for_epsilon(epsilon)
        assert 0.98 * exact < found <= exact * (1 + 1e-9)


def test_dp_accounting_reports_add_and_remove_by_default() -> None:
    """At whole orders, where its formula is right. That Opacus agrees is a test of the accountant's."""
    import dp_accounting
    from dp_accounting.rdp import RdpAccountant

    orders = [2, 4, 8, 16]
    add_remove = Training(0.01, 1.0, 1).step_rdp(np.array(orders, dtype=np.float64), "add-remove")
    accountant = RdpAccountant(orders)
    event = dp_accounting.PoissonSampledDpEvent(0.01, dp_accounting.GaussianDpEvent(1.0))
    assert accountant.neighboring_relation is dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE
    assert accountant.compose(event)._rdp == pytest.approx(add_remove, rel=1e-6)
