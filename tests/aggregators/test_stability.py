"""StableMax and SparseVector: what they release, what they claim, and the claim against the true divergence."""

from __future__ import annotations

import doctest
import json
import math
import pickle
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mpmath import mp, quad
from scipy.stats import binom, laplace, norm
from svt_oracle import outcomes
from typer.testing import CliRunner

from pate import Votes
from pate.aggregators import Confident, SparseVector, StableMax, ask, curve_ahead, curve_bound, curve_dependent
from pate.aggregators.stability import log_tail_of_difference
from pate.cli import app
from pate.errors import BudgetExceeded, ParameterError
from pate.experiments.accounting import account
from pate.experiments.planning import plan
from pate.ledger import Budget, Ledger
from pate.mechanisms.stability import plurality_distance
from pate.noise import SimulatedNoise
from pate.privacy.curve import DEFAULT_ORDERS, RdpCurve
from pate.release import ABSTAIN, Electorate, Release
from pate.testing import check_aggregator

ELECTORATE = Electorate(40, 3)
Labels = tuple[int, ...]


def law_of_labels(mechanism: SparseVector, counts: np.ndarray) -> dict[Labels, float]:
    """The probability of every released batch, by quadrature and a plain translation of refusals into labels."""
    refusing = mechanism._refusing(mechanism.threshold)
    found: dict[Labels, float] = {}
    for refused, probability in outcomes(refusing, (-plurality_distance(counts)).tolist()).items():
        labels = [ABSTAIN] * len(counts)
        for query, no in enumerate(refused):
            row = counts[query].tolist()
            if not no and row.count(max(row)) == 1:
                labels[query] = row.index(max(row))
        found[tuple(labels)] = found.get(tuple(labels), 0.0) + probability
    return found


def hockey_stick(p: dict[Labels, float], q: dict[Labels, float], epsilon: float) -> float:
    return sum(max(each - math.exp(epsilon) * q.get(labels, 0.0), 0.0) for labels, each in p.items())


def moved(counts: np.ndarray, moves: list[tuple[int, int]]) -> np.ndarray:
    """Another batch in which one teacher votes otherwise: on every query one vote may move."""
    result = counts.copy()
    for row, (source, target) in zip(result, moves, strict=False):
        if row[source]:
            row[source] -= 1
            row[target] += 1
    return result


tables = st.lists(
    st.sampled_from([[20, 20, 0], [21, 19, 0], [24, 16, 0], [30, 5, 5], [14, 13, 13], [40, 0, 0]]), min_size=1, max_size=4
)
moves = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=4, max_size=4)


@pytest.mark.parametrize("law", ["laplace", "gaussian"])
@settings(deadline=None, max_examples=25)
@given(
    table=tables,
    some=moves,
    scales=st.sampled_from([(1.0, 1.0), (0.7, 2.0)]),
    delta=st.sampled_from([0.01, 0.2]),
    refusals=st.integers(1, 2),
    refresh=st.booleans(),
    epsilon=st.floats(0, 4),
)
def test_a_sparse_vector_batch_costs_no_more_than_it_claims(
    law: Any, table: list[list[int]], some: Any, scales: Any, delta: float, refusals: int, refresh: bool, epsilon: float
) -> None:
    mechanism = SparseVector(*scales, delta, refusals, law, refresh)
    one = np.array(table)
    two = moved(one, some)
    p, q = law_of_labels(mechanism, one), law_of_labels(mechanism, two)
    assert sum(p.values()) == pytest.approx(1, abs=1e-3)
    claimed = curve_ahead(mechanism, ELECTORATE, len(one)).delta(epsilon)
    for left, right in ((p, q), (q, p)):
        assert hockey_stick(left, right, epsilon) <= claimed * (1 + 1e-6) + 1e-6


def test_a_sparse_vector_without_its_slack_would_be_caught() -> None:
    """Two queries on which the neighbours disagree: at a large epsilon nothing but the slack is left, and it is real."""
    mechanism = SparseVector(1.0, 1.0, 0.2, refusals=2)
    one, two = np.array([[21, 19, 0]] * 2), np.array([[20, 20, 0]] * 2)
    claimed = curve_ahead(mechanism, ELECTORATE, 2)
    truly = hockey_stick(law_of_labels(mechanism, one), law_of_labels(mechanism, two), 30.0)
    assert RdpCurve(claimed.orders, claimed.values).delta(30.0) < truly <= claimed.slack


def test_a_slack_too_small_for_a_float_is_not_none() -> None:
    assert 0 < curve_ahead(SparseVector(0.02, 0.02, 1e-9), ELECTORATE, 3).slack <= 1e-9


def test_a_batch_is_paid_for_as_one() -> None:
    mechanism = SparseVector(10, 20, 1e-8, refusals=3)
    one, many = (curve_ahead(mechanism, ELECTORATE, n) for n in (1, 10_000))
    assert one.slack == many.slack <= 1e-8
    assert many.epsilon(1e-5).epsilon < 10 * one.epsilon(1e-5).epsilon
    release = Release(np.full(500, ABSTAIN), ELECTORATE, mechanism.mechanism)
    np.testing.assert_array_equal(curve_bound(mechanism, release).values, curve_ahead(mechanism, ELECTORATE, 500).values)
    votes = Votes(np.tile([30, 5, 5], (500, 1)), 40)
    np.testing.assert_array_equal(curve_dependent(mechanism, votes, release).values, curve_bound(mechanism, release).values)
    assert not curve_ahead(mechanism, ELECTORATE, 0).values.any()
    assert curve_ahead(mechanism, ELECTORATE, 0).slack == 0


def test_a_sparse_vector_halts_for_good() -> None:
    mechanism = SparseVector(1.0, 1.0, 1e-6, refusals=2)
    counts = np.array([[40, 0, 0], [20, 20, 0], [0, 40, 0], [14, 13, 13], [40, 0, 0], [40, 0, 0]])
    assert mechanism.release(Votes(counts, 40), SimulatedNoise(1)).labels.tolist() == [0, ABSTAIN, 1, ABSTAIN, ABSTAIN, ABSTAIN]


@pytest.mark.parametrize("law", ["laplace", "gaussian"])
def test_sparse_vector_releases_have_their_law(law: Any) -> None:
    """600 batches; exact binomial intervals, false-alarm rate 1e-6 in all."""
    mechanism, n = SparseVector(1.0, 2.0, 0.1, refusals=1, law=law), 600
    counts = np.array([[30, 5, 5], [24, 16, 0], [22, 18, 0]])
    noise, votes = SimulatedNoise(4), Votes(counts, 40)
    seen = Counter(tuple(mechanism.release(votes, noise).labels.tolist()) for _ in range(n))
    stated = law_of_labels(mechanism, counts)
    assert set(seen) <= set(stated)
    for labels, probability in stated.items():
        chance = 2 * min(binom.cdf(seen[labels], n, probability), binom.sf(seen[labels] - 1, n, probability))
        assert chance > 1e-6 / len(stated)


@pytest.mark.parametrize(("one", "two"), [(1.0, 1.0), (1.0, 1.0005), (1.0, 1.01), (3.0, 0.5), (0.2, 7.0)])
@pytest.mark.parametrize("at", [0.5, 4.0, 25.0])
def test_the_tail_of_a_difference(one: float, two: float, at: float) -> None:
    """Against an integral over one of the two noises, by mpmath."""
    mp.dps = 30

    def integrand(y: Any) -> Any:
        x = at + y
        tail = mp.exp(-x / one) / 2 if x >= 0 else 1 - mp.exp(x / one) / 2
        return tail * mp.exp(-abs(y) / two) / (2 * two)

    true = quad(integrand, [-mp.inf, -at - 5, -at, -at / 2, 0, 5, mp.inf])
    found = log_tail_of_difference("laplace", one, two, at)
    assert found >= mp.log(true) - 1e-9
    assert found <= mp.log(true) + (0.02 if two in (1.0, 1.0005) else 1e-9)
    assert log_tail_of_difference("gaussian", one, two, at) == pytest.approx(norm.logsf(at / math.hypot(one, two)), rel=1e-12)


@pytest.mark.parametrize("law", ["laplace", "gaussian"])
def test_stable_max_costs_the_tail_and_one_count(law: Any) -> None:
    mechanism = StableMax(4.0, 1e-6, law)
    batch = curve_ahead(mechanism, ELECTORATE, 100)
    assert 0 < batch.slack <= 100 * 1e-6
    spread = {"laplace": laplace, "gaussian": norm}[law]
    assert batch.slack == pytest.approx(100 * spread.sf(mechanism.threshold, scale=4.0), rel=1e-9)
    assert batch.epsilon(1e-3).epsilon > RdpCurve(batch.orders, batch.values).epsilon(1e-3).epsilon


def test_stable_max_data_dependent_cost_has_the_slack_of_unstable_queries_only() -> None:
    mechanism = StableMax(4.0, 1e-6)
    votes = Votes([[250, 0, 0]] * 90 + [[125, 124, 1]] * 10, 250)
    release = mechanism.release(votes, SimulatedNoise(1))
    dependent, bound = curve_dependent(mechanism, votes, release), curve_bound(mechanism, release)
    assert dependent.slack == pytest.approx(bound.slack / 10)
    assert (dependent.values <= bound.values).all()
    assert dependent.epsilon(1e-4).epsilon < bound.epsilon(1e-4).epsilon / 5


@pytest.mark.parametrize("law", ["laplace", "gaussian"])
def test_check_aggregator_passes_stable_max(law: Any) -> None:
    report = check_aggregator(StableMax(2.0, 1e-3, law), n_teachers=40, n_classes=4, samples=40_000, seed=1)
    assert report.passed
    assert report.evidence == "exact"
    assert any(check.name.startswith("approximate") for check in report.checks)


def test_check_aggregator_passes_a_sparse_vector() -> None:
    report = check_aggregator(SparseVector(1.0, 2.0, 1e-3, refusals=2), n_teachers=40, n_classes=3, samples=2_000, seed=1)
    assert report.passed
    assert report.evidence.startswith("empirical")


class HalfTheSlack(StableMax):
    name = "half-the-slack"

    def slack_ahead(self, electorate: Electorate) -> float:
        return super().slack_ahead(electorate) / 2


class HalfTheDistance(StableMax):
    """Counts the lead as the distance, though a moved vote changes it by two."""

    name = "half-the-distance"

    def release(self, votes: Votes, noise: Any) -> Release:
        passed = self.test.passes(2 * plurality_distance(votes.counts), noise)
        labels = np.where(passed, votes.counts.argmax(axis=1), ABSTAIN)
        return Release(labels, votes.electorate, self.mechanism, noise.mode)

    def outcome_log_probs(self, counts: np.ndarray) -> np.ndarray:
        twice = super().outcome_log_probs(counts)
        passed, failed = self.test.log_pass(2 * plurality_distance(counts))
        answered = twice[:, :-1] > -np.inf
        return np.column_stack([np.where(answered, passed[:, None], -np.inf), np.where(answered.any(axis=1), failed, 0.0)])


class NoThresholdNoise(SparseVector):
    """Lets every stable query pass without noise on the threshold or the distance."""

    name = "no-noise"

    def release(self, votes: Votes, noise: Any) -> Release:
        passed = plurality_distance(votes.counts) >= 3
        return Release(np.where(passed, votes.counts.argmax(axis=1), ABSTAIN), votes.electorate, self.mechanism, noise.mode)


@pytest.mark.parametrize("broken", [HalfTheSlack(2.0, 1e-3), HalfTheDistance(2.0, 1e-3)])
def test_check_aggregator_catches_a_broken_stable_max(broken: StableMax) -> None:
    report = check_aggregator(broken, n_teachers=40, n_classes=3, samples=40_000, seed=1, raise_on_failure=False)
    assert any(check.name.startswith("approximate") and not check.passed for check in report.checks)


def test_check_aggregator_catches_a_sparse_vector_without_noise() -> None:
    report = check_aggregator(
        NoThresholdNoise(5.0, 5.0, 1e-3), n_teachers=40, n_classes=3, samples=2_000, seed=1, raise_on_failure=False
    )
    assert any(check.name.startswith("approximate") and not check.passed for check in report.checks)


def test_account_states_what_is_known_and_what_is_not() -> None:
    votes = Votes([[250, 0, 0]] * 90 + [[125, 124, 1]] * 10, 250)
    report = account(votes, StableMax(4.0, 1e-8), 1e-5)
    facts = report.to_json()
    assert facts["slack"]["data_independent"] == pytest.approx(10 * facts["slack"]["data_dependent"], rel=1e-9)
    assert facts["epsilon"]["data_dependent"] < facts["epsilon"]["data_independent"]
    assert 85 < facts["expected"]["answered"] < 90.001
    assert facts["published"] == {}
    assert report.independent.epsilons(1e-5)[-1] == pytest.approx(facts["epsilon"]["data_independent"])

    report = account(votes, SparseVector(4.0, 8.0, 1e-8, refusals=3), 1e-5)
    facts = report.to_json()
    assert facts["epsilon"]["data_dependent"] == facts["epsilon"]["data_independent"]
    assert "none known" in report.dependent.title
    assert facts["expected"] == {"answered": None, "abstained": None}
    assert facts["slack"]["data_independent"] <= 1e-8
    json.dumps(facts, allow_nan=False)


def test_the_commands_know_them(tmp_path: Any) -> None:
    np.savez(tmp_path / "votes.npz", counts=np.tile([[230, 15, 5]], (200, 1)))
    votes, ledger, out = (str(tmp_path / name) for name in ("votes.npz", "ledger.db", "release.json"))
    settings = ["-a", "sparse-vector", "-s", "threshold_scale=8", "-s", "query_scale=8", "-s", "delta=1e-6"]
    shown = CliRunner().invoke(app, ["account", votes, *settings])
    assert shown.exit_code == 0, shown.output
    assert "not known" in shown.output
    asked = ["ask", "--votes", votes, *settings, "--ledger", ledger, "--out", out, "--dataset", "ward", "--budget-epsilon", "3"]
    refused = CliRunner().invoke(app, [*asked[:-4], "--dataset", "dry", "--budget-epsilon", "3"])
    assert isinstance(refused.exception, BudgetExceeded)
    paid = CliRunner().invoke(app, [*asked, "--slack", "2e-6", "--json"])
    assert paid.exit_code == 0, paid.output
    assert json.loads(paid.output)["answered"] == 200
    planned = CliRunner().invoke(app, ["plan", "--epsilon", "3", "--slack", "2e-6", "--teachers", "250", *settings, "--json"])
    assert json.loads(planned.output)["plans"][0]["queries"] > 1000


def test_a_ledger_takes_both_kinds_and_refuses_without_slack(tmp_path: Any) -> None:
    votes = Votes([[40, 0, 0]] * 20, 40)
    with Ledger.open(tmp_path / "a.db", "data", Budget(8.0, 1e-5, slack=2e-6)) as ledger:
        ask(StableMax(4.0, 1e-8), votes, ledger, SimulatedNoise(1))
        ask(SparseVector(4.0, 4.0, 1e-6), votes, ledger, SimulatedNoise(1))
        spent = ledger.spent_curve()
        total = curve_ahead(StableMax(4.0, 1e-8), ELECTORATE, 20) + curve_ahead(SparseVector(4.0, 4.0, 1e-6), ELECTORATE, 20)
        np.testing.assert_allclose(spent.values, total.values, atol=1e-10)
        assert spent.slack >= total.slack
    with (
        Ledger.open(tmp_path / "b.db", "data", Budget(8.0, 1e-5)) as ledger,
        pytest.raises(BudgetExceeded, match="nothing of delta is set aside"),
    ):
        ask(StableMax(4.0, 1e-8), votes, ledger, SimulatedNoise(1))


def test_plans_count_as_the_ledger_does(tmp_path: Any) -> None:
    budget = Budget(2.0, 1e-5, slack=5e-7)
    for name, parameters in (
        ("stable-max", {"scale": 60.0, "delta": 1e-8}),
        ("sparse-vector", {"threshold_scale": 10.0, "query_scale": 40.0, "delta": 1e-7}),
    ):
        row = plan(name, parameters, budget, ELECTORATE)[0]
        with Ledger.open(tmp_path / f"{name}.db", "data", budget) as ledger:
            ledger.afford(curve_ahead(row.aggregator, ELECTORATE, row.queries))
            if row.queries < 1 << 20:
                with pytest.raises(BudgetExceeded):
                    ledger.afford(curve_ahead(row.aggregator, ELECTORATE, row.queries + 1))
        assert 0 < row.epsilon <= 2.0


def test_the_examples_of_the_documentation(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    page = Path(__file__).parents[2] / "docs" / "stability.md"
    monkeypatch.chdir(tmp_path)
    failed, tried = doctest.testfile(str(page), module_relative=False)
    assert failed == 0
    assert tried > 15


def test_partial_votes() -> None:
    partial = Electorate(40, 3, participation=2)
    assert curve_ahead(StableMax(4.0, 1e-8), partial, 500).slack == pytest.approx(4 * StableMax(4.0, 1e-8).slack_ahead(partial))
    with pytest.raises(ParameterError, match="partial votes"):
        curve_ahead(SparseVector(4.0, 4.0, 1e-8), partial, 10)


def test_confident_takes_only_what_answers_by_itself() -> None:
    with pytest.raises(ParameterError, match="each query by itself"):
        Confident(SparseVector(4.0, 4.0, 1e-8), 20, 5)


@pytest.mark.parametrize("mechanism", [StableMax(4.0, 1e-8, "laplace"), SparseVector(4.0, 8.0, 1e-8, 3, "laplace", True)])
def test_copies_and_mechanisms(mechanism: Any) -> None:
    twin = pickle.loads(pickle.dumps(mechanism))
    assert twin == mechanism
    assert json.loads(json.dumps(mechanism.mechanism))["aggregator"] == mechanism.name
    np.testing.assert_array_equal(
        curve_ahead(twin, ELECTORATE, 5).values, curve_ahead(mechanism, ELECTORATE, 5, DEFAULT_ORDERS).values
    )
