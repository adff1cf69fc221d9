"""A sanitised epsilon: planned without a vote, paid for before noise, drawn once, and above the truth as often as it says."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from scipy.special import ndtri
from scipy.stats import binom, norm

from pate.aggregators import Aggregator, Confident, ConfidentGNMax, GNMax, LNMax, ask
from pate.arrays import IntArray
from pate.errors import BudgetExceeded, ParameterError
from pate.experiments.sanitised_release import SanitisedBefore, recorded, release_sanitised
from pate.experiments.sanitising import Sanitised, Sanitiser, cost_tables
from pate.ledger import Budget, Ledger, faultpoints
from pate.noise import Noise, OSNoise, SimulatedNoise
from pate.privacy.curve import epsilons_at_orders
from pate.privacy.published import confident_worst_rdp
from pate.privacy.smooth import (
    GrowthSettings,
    Method,
    discounted_max,
    gnmax_local_sensitivity,
    gnss_rdp_2018,
    threshold_local_sensitivity,
)
from pate.sampling import Words
from pate.votes import Votes

MECHANISM = GNMax(sigma=8.0)
QUERIES, TEACHERS, CLASSES = 60, 60, 3


def votes_of(seed: int = 0) -> Votes:
    shares = np.random.default_rng(seed).dirichlet([0.15] * CLASSES, QUERIES)
    return Votes(np.random.default_rng(seed).multinomial(TEACHERS, shares), TEACHERS)


VOTES = votes_of()


def plan(method: Method = "growth", delta: float = 1e-5, aggregator: Aggregator = MECHANISM) -> Sanitiser:
    return Sanitiser.plan(aggregator, VOTES.electorate, QUERIES, delta, method)


PLANS: dict[Method, Sanitiser] = {"growth": plan(), "gnss": plan("gnss")}


class Counted(OSNoise):
    """The operating system's noise, and whether any was asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.drawn = 0

    def words(self, size: int) -> Words:
        self.drawn += 1
        return super().words(size)


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger.open(tmp_path / "ledger.db", "ward", Budget(50.0, 1e-5))


@pytest.mark.parametrize("method", ["growth", "gnss"])
def test_the_bound_is_above_the_true_cost(method: Method) -> None:
    """delta = 0.02, so a bound fails in at most 2 of 1,000 draws: more than 3 of 40 happen in 1 of 10^6 test runs."""
    made = plan(method, delta=0.02)
    order = made.settings["order"]
    truth = cost_tables(MECHANISM, VOTES.electorate, np.array([order]))[0].cost(VOTES.counts).sum()
    noise = SimulatedNoise(4)
    draws = [made.draw(VOTES, noise) for _ in range(40)]
    release = draws[0].release_rdp
    least = float(epsilons_at_orders(np.array(order), np.array(truth + release), 0.02 - made.failure))
    assert sum(drawn.bound < least for drawn in draws) <= 3
    estimates = np.array([drawn.estimate for drawn in draws])
    assert estimates.std() > 0
    for drawn in draws:
        assert drawn.low <= drawn.estimate <= drawn.high
        assert drawn.estimate <= drawn.bound
        assert drawn.epsilon == min(drawn.bound, drawn.independent)
        assert drawn.independent > drawn.answers_independent


@pytest.mark.slow
@pytest.mark.parametrize("method", ["growth", "gnss"])
def test_real_votes(method: Method, mnist_votes: IntArray) -> None:
    """640 MNIST queries at sigma = 40: exact 0.886 (the owner's), data-independent 3.234."""
    votes = Votes(mnist_votes[:640], 250)
    drawn = Sanitiser.plan(GNMax(40.0), votes.electorate, 640, 1e-5, method).draw(votes, SimulatedNoise(1))
    assert 0.886 < drawn.epsilon < (1.8 if method == "growth" else 2.4)
    assert drawn.answers_independent == pytest.approx(3.234, abs=1e-3)
    assert drawn.helps


@pytest.mark.slow
def test_two_classes_against_the_2018_machinery() -> None:
    """600 Confident queries like Adult's (top shares from Beta(8, 1.5)). The 2018 machinery, tuned on these very votes and with
    two deviations only, against the exact table with the same release and tuning, and against what is published here."""
    share = np.random.default_rng(1).beta(8, 1.5, 600)
    top = np.round(250 * np.maximum(share, 1 - share)).astype(np.int64)
    counts = np.stack([top, 250 - top], axis=1)
    aggregator = ConfidentGNMax(200, 150.0, 40.0)
    votes = Votes(counts, 250)
    published, exact = [], []
    for order in (8.0, 12.0, 16.0):
        figure = confident_worst_rdp(counts, 200.0, 150.0, 40.0, [order]).sum()
        local = gnmax_local_sensitivity(counts, 40.0, order) + threshold_local_sensitivity(counts, 250, 200.0, 150.0, order)
        table = cost_tables(aggregator, votes.electorate, np.array([order]))[0]
        reach = table.sensitivity_within([counts])[0]
        for beta in (0.1 / order, 0.2 / order, 0.3 / order, 0.4 / order):
            for sigma in np.geomspace(2, 200, 40):
                cost = gnss_rdp_2018(beta, sigma, [order])[0]
                totals = (
                    figure + cost + 2 * sigma * float(discounted_max(beta, local.sum(axis=0))),
                    table.cost(counts).sum() + cost + 2 * sigma * float(reach.smooth(beta)),
                )
                for found, total in zip((published, exact), totals, strict=True):
                    found.append(float(epsilons_at_orders(np.array(order), np.array(total), 1e-5)))
    ours = plan_for(aggregator, votes).draw(votes, SimulatedNoise(1)).epsilon
    assert min(exact) == pytest.approx(1.25, abs=0.03)
    assert min(published) == pytest.approx(2.93, abs=0.08)
    assert ours < 1.7
    assert ours < 0.6 * min(published)


def plan_for(aggregator: Aggregator, votes: Votes) -> Sanitiser:
    return Sanitiser.plan(aggregator, votes.electorate, len(votes), 1e-5)


@pytest.mark.parametrize(
    "aggregator",
    [
        LNMax(0.2),
        ConfidentGNMax(50, 20.0, 8.0),
        Confident(LNMax(0.2), 50, 20.0),
        Confident(GNMax(8.0), 50, 20.0),
    ],
    ids=repr,
)
def test_every_mechanism_with_a_table(aggregator: Aggregator) -> None:
    drawn = plan(aggregator=aggregator).draw(VOTES, SimulatedNoise(2))
    assert 0 < drawn.epsilon <= drawn.independent
    assert drawn.stamp == "simulation, not private"


class OwnMax(GNMax):
    """Somebody's own, whose costs no table knows."""


def test_a_confident_around_any_aggregator_is_sanitised_over_its_test() -> None:
    drawn = plan(aggregator=Confident(OwnMax(8.0), 50, 10.0)).draw(VOTES, SimulatedNoise(2))
    assert 0 < drawn.epsilon <= drawn.independent


def test_what_has_no_valid_release_is_refused() -> None:
    with pytest.raises(ParameterError, match="no sanitised epsilon is known"):
        plan(aggregator=OwnMax(8.0))
    with pytest.raises(ParameterError, match="no sanitised epsilon is known"):
        plan(aggregator=ConfidentGNMax(50, 20.0, 8.0, charging="realised"))
    partial = Votes(np.array([[3, 1]]), 60, participation=1)
    with pytest.raises(ParameterError, match="nothing to sanitise"):
        Sanitiser.plan(MECHANISM, partial.electorate, 1, 1e-5)
    with pytest.raises(ParameterError, match="'growth' or 'gnss'"):
        plan("smooth")  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="planned for 60 queries"):
        PLANS["growth"].draw(VOTES.rows(0, 5), SimulatedNoise(1))


@pytest.mark.parametrize("method", ["growth", "gnss"])
def test_what_is_published_survives_json(method: Method) -> None:
    drawn = PLANS[method].draw(VOTES, SimulatedNoise(3))
    assert Sanitised.of(json.loads(json.dumps(drawn.to_json()))) == drawn
    assert f"{drawn.epsilon:.4g}" in str(drawn)


def test_drawn_once_for_a_state_of_the_ledger(ledger: Ledger) -> None:
    ask(MECHANISM, VOTES, ledger)
    made, answers = PLANS["growth"], ledger.entries()[-1].hash
    spent = ledger.spent().epsilon
    first = release_sanitised(made, VOTES, ledger, OSNoise(), state=answers)
    paid, rows = ledger.spent().epsilon, len(ledger.entries())
    assert paid > spent
    noise = Counted()
    assert release_sanitised(made, VOTES, ledger, noise, state=answers) == first
    assert (noise.drawn, ledger.spent().epsilon, len(ledger.entries())) == (0, paid, rows)
    assert recorded(ledger) == [first]
    # Another one is charged again, and so is the same question after new answers.
    second = release_sanitised(made, VOTES, ledger, OSNoise(), state=answers, again=True)
    assert release_sanitised(made, VOTES, ledger, OSNoise(), state=answers) == second
    ask(MECHANISM, VOTES.rows(0, 1), ledger)
    third = release_sanitised(made, VOTES, ledger, OSNoise())
    assert recorded(ledger) == [first, second, third]
    charges = [row for row in ledger.entries() if row.key is not None and row.kind == "reserve"]
    assert len(charges) == 3
    assert len({first.drawn["changes"], second.drawn["changes"], third.drawn["changes"]}) == 3


def test_the_figure_of_other_votes_is_never_told(ledger: Ledger) -> None:
    """Agreed and split votes of one shape in one state of the ledger: what the first cost says nothing of the second."""
    agreed, split = (Votes([row] * QUERIES, TEACHERS) for row in ([60, 0, 0], [20, 20, 20]))
    made, noise = PLANS["growth"], Counted()
    first = release_sanitised(made, agreed, ledger, OSNoise())
    rows = len(ledger.entries())
    for votes in (split, agreed):  # a refusal that looked at the votes would tell of them
        with pytest.raises(SanitisedBefore, match=f"{first.epsilon:.4g}, and the ledger does not know for which votes"):
            release_sanitised(made, votes, ledger, noise)
    assert (noise.drawn, len(ledger.entries())) == (0, rows)
    order = made.settings["order"]
    truth = cost_tables(MECHANISM, split.electorate, np.array([order]))[0].cost(split.counts).sum()
    assert first.epsilon < epsilons_at_orders(np.array(order), np.array(truth), made.delta)
    assert release_sanitised(made, split, ledger, OSNoise(), again=True) == recorded(ledger)[-1] != first


def test_votes_that_were_not_planned_for_cost_nothing(ledger: Ledger) -> None:
    with pytest.raises(ParameterError, match="planned for 60 queries"):
        release_sanitised(PLANS["growth"], VOTES.rows(0, 5), ledger, OSNoise())
    assert len(ledger.entries()) == 1


def test_two_at_a_time_draw_once(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second has read the ledger before the first wrote to it."""
    before, noise = ledger.entries(), Counted()
    first = release_sanitised(PLANS["growth"], VOTES, ledger, OSNoise())
    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "entries", lambda self: before)
        with pytest.raises(SanitisedBefore, match="Somebody else"):
            release_sanitised(PLANS["growth"], VOTES, ledger, noise)
    assert not noise.drawn
    assert recorded(ledger) == [first]


def test_another_question_is_another_release(ledger: Ledger) -> None:
    found = [release_sanitised(PLANS[method], VOTES, ledger, OSNoise()) for method in ("growth", "gnss")]
    found.append(release_sanitised(plan(delta=1e-4), VOTES, ledger, OSNoise()))
    assert recorded(ledger) == found


def test_a_state_may_be_named(ledger: Ledger) -> None:
    ask(MECHANISM, VOTES, ledger)
    answers = ledger.entries()[-1].hash
    first = release_sanitised(PLANS["growth"], VOTES, ledger, OSNoise(), state=answers)
    ask(MECHANISM, VOTES, ledger)
    assert release_sanitised(PLANS["growth"], VOTES, ledger, OSNoise(), state=answers) == first


def test_without_budget_nothing_is_drawn(tmp_path: Path) -> None:
    noise = Counted()
    with Ledger.open(tmp_path / "small.db", "ward", Budget(0.2, 1e-5)) as small:
        with pytest.raises(BudgetExceeded):
            release_sanitised(PLANS["growth"], VOTES, small, noise)
        assert len(small.entries()) == 1
    assert noise.drawn == 0


class Killed(BaseException):
    """As if the process had ended here."""


@pytest.mark.parametrize("append", [1, 2], ids=["reserving", "recording"])
@pytest.mark.parametrize("step", faultpoints.APPEND_STEPS)
def test_killed_at_any_step_it_is_charged_never_unpaid(
    step: str, append: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No second draw for one charge, and a value that may have been seen is in the ledger or lost for good."""
    place = tmp_path / "ledger.db"
    Ledger.open(place, "ward", Budget(50.0, 1e-5)).close()
    passed = {"count": 0}

    def reached(name: str) -> None:
        passed["count"] += name == step
        if passed["count"] == append:
            raise Killed

    first, second = Counted(), Counted()
    with monkeypatch.context() as patch, Ledger.open(place, "ward") as ledger:
        patch.setattr(faultpoints, "reached", reached)
        with pytest.raises(Killed):
            release_sanitised(PLANS["growth"], VOTES, ledger, first)
    with Ledger.open(place, "ward") as ledger:
        charges = [row for row in ledger.entries() if row.kind == "reserve"]
        values, begun = recorded(ledger), ledger.entries()[0].hash
        assert bool(first.drawn) <= len(charges)
        if values:
            assert release_sanitised(PLANS["growth"], VOTES, ledger, second, state=begun) == values[0]
            assert not second.drawn
        elif charges:
            with pytest.raises(SanitisedBefore, match="again"):
                release_sanitised(PLANS["growth"], VOTES, ledger, second)
            assert not second.drawn
            release_sanitised(PLANS["growth"], VOTES, ledger, second, again=True)
            assert len([row for row in ledger.entries() if row.kind == "reserve"]) == 2
        else:
            assert not first.drawn
            release_sanitised(PLANS["growth"], VOTES, ledger, second)
        ledger.verify()


def test_a_simulation_goes_on_with_the_same_noise(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = PLANS["growth"].draw(VOTES, SimulatedNoise(7))

    def killed(self: Ledger, *_: object, **__: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "settle", killed)
        with pytest.raises(Killed):
            release_sanitised(PLANS["growth"], VOTES, ledger, SimulatedNoise(7))
    assert release_sanitised(PLANS["growth"], VOTES, ledger, SimulatedNoise(7)) == expected
    assert len([row for row in ledger.entries() if row.kind == "reserve"]) == 1
    assert recorded(ledger)[0].stamp == "simulation, not private"


def test_a_simulated_value_never_answers_for_a_release(ledger: Ledger) -> None:
    simulated: Noise = SimulatedNoise(7)
    first = release_sanitised(PLANS["growth"], VOTES, ledger, simulated)
    second = release_sanitised(PLANS["growth"], VOTES, ledger, OSNoise())
    assert (first.mode, second.mode) == ("simulation", "release")
    assert len(recorded(ledger)) == 2


def test_neighbours_votes_are_hardly_told_apart() -> None:
    """The lattice statistic of 200 random neighbours moves by no more than its sensitivity of one change (and its rounding)."""
    made = PLANS["growth"]
    table = cost_tables(MECHANISM, VOTES.electorate, np.array([made.settings["order"]]))[0]
    rng = np.random.default_rng(8)
    growth = made.chosen.growth  # type: ignore[union-attr]
    before = growth.statistic(table.costs_within([VOTES.counts])[0])
    for _ in range(200):
        moved = VOTES.counts.copy()
        for row in moved:
            giver = rng.choice(np.flatnonzero(row))
            row[giver] -= 1
            row[rng.integers(CLASSES)] += 1
        assert abs(growth.statistic(table.costs_within([moved])[0]) - before) <= 1 + 1e-9


def excess_over_claim(margin: float) -> float:
    """The delta that the claim of docs/sanitised-epsilon.md needs, over all neighbours and thresholds epsilon0, by integration
    over both the answers and the release. margin: of the bound, in deviations.

    40 queries with two classes on which 30 teachers vote alike, so that the answers are a binomial number of ones; R below r
    are the outcomes with a figure of at most epsilon0(r).
    """
    n, queries, delta, sigma = 30, 40, 0.05, 6.0
    aggregator = GNMax(sigma)
    batches = {m: np.repeat([[m, n - m]], queries, axis=0) for m in range(15, n + 1)}
    made = Sanitiser.plan(aggregator, Votes(batches[15], n).electorate, queries, delta)
    chosen = made.chosen
    assert isinstance(chosen, GrowthSettings)
    order = chosen.order
    table = cost_tables(aggregator, Votes(batches[15], n).electorate, np.array([order]))[0]
    statistic = {m: chosen.growth.statistic(table.costs_within([batch])[0]) for m, batch in batches.items()}
    answers = {m: binom.pmf(np.arange(queries + 1), queries, norm.sf((n - 2 * m) / (sigma * 2**0.5))) for m in batches}
    r = np.linspace(min(statistic.values()) - 9 * chosen.sigma, max(statistic.values()) + 9 * chosen.sigma, 1501)
    cost = chosen.growth.cost(r + margin * chosen.sigma) + order / (2 * chosen.sigma**2)
    figure = epsilons_at_orders(np.array(order), cost, delta - made.failure)
    worst = 0.0
    for m in batches:
        for other in {m - 1, m + 1} & set(batches):
            here = norm.pdf(r, statistic[m], chosen.sigma)[:, None] * answers[m]
            there = norm.pdf(r, statistic[other], chosen.sigma)[:, None] * answers[other]
            for last in range(100, r.size, 100):
                gap = np.maximum(here[: last + 1] - np.exp(figure[last]) * there[: last + 1], 0.0)
                worst = max(worst, float(gap.sum() * (r[1] - r[0])))
    return worst


def test_the_claim_holds_for_all_neighbours_and_figures() -> None:
    margin = -float(ndtri(0.1 * 0.05))
    assert 0 < excess_over_claim(margin) <= 0.05
    # A figure that is too low by six deviations would break it: the integral can tell.
    assert excess_over_claim(-6.0) > 0.05
