"""Interactive-GNMax: the algorithm as the paper states it, its exact and worst-case costs, and what it refuses.

The oracle is naive: Algorithm 2 written as a loop in floating point, probabilities by quadrature, all neighbours written out.
"""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import simpson
from scipy.stats import norm

from pate.aggregators import Aggregator, GNMax, InteractiveGNMax, ask, curve_ahead, make_aggregator
from pate.arrays import FloatArray, IntArray
from pate.errors import ParameterError
from pate.experiments.release_files import read_release, write_release
from pate.experiments.serving import ServeOptions, open_service
from pate.ledger import Budget, Ledger
from pate.noise import Noise, SimulatedNoise
from pate.privacy.curve import DEFAULT_ORDERS
from pate.privacy.independent import confident_bound, noisy_max_bound
from pate.privacy.outcomes import moved_votes
from pate.release import ABSTAIN, Electorate, Release
from pate.student import student
from pate.student.answers import Answers
from pate.testing import check_aggregator
from pate.votes import Votes

FEW = 30_000
ORDERS = np.array([1.5, 2.0, 8.0, 32.0])


@pytest.mark.parametrize(
    ("mechanism", "n_teachers"),
    [
        (InteractiveGNMax(20, 6, 5, 0.8, [0.7, 0.3]), 50),
        (InteractiveGNMax(12, 4, 2, 0.9, [0.7, 0.2, 0.1]), 20),
        (InteractiveGNMax(12, 4, 2, 0.9, [1.0, 0.0, 0.0]), 20),
        pytest.param(InteractiveGNMax(100, 75, 40, 0.9, [0.6, 0.1, 0.1, 0.1, 0.1]), 250, marks=pytest.mark.slow),
        pytest.param(InteractiveGNMax(40, 10, 5, 0.8, [0.5, 0.5]), 100, marks=pytest.mark.slow),
    ],
    ids=repr,
)
def test_it_passes_the_conformance_suite(mechanism: InteractiveGNMax, n_teachers: int) -> None:
    report = check_aggregator(mechanism, n_teachers=n_teachers, n_classes=mechanism.n_classes or 0, samples=FEW, seed=1)
    assert report.evidence == "exact"


class FreeDrop(InteractiveGNMax):
    """Charges nothing where the teachers did not contradict the student."""

    def rdp_bound(self, release: Release, orders: FloatArray) -> FloatArray:
        return np.where(release.answered[:, None], self.rdp_ahead(release.electorate, orders), 0.0)


class ShiftedByTheVotes(InteractiveGNMax):
    """Compares the teachers with what they say themselves, on the average of the batch."""

    def release(self, votes: Votes, noise: Noise) -> Release:
        own = InteractiveGNMax.against(self, votes.counts.mean(axis=0) / votes.n_teachers)
        told = own.release(votes, noise)
        return Release(told.labels, told.electorate, self.mechanism, told.mode, reinforced=told.reinforced)


class ReinforcesTheWinner(InteractiveGNMax):
    """Teaches the student the teachers' own winner where they did not contradict it."""

    def release(self, votes: Votes, noise: Noise) -> Release:
        told = super().release(votes, noise)
        winner = np.where(told.answered, ABSTAIN, votes.counts.argmax(axis=1))
        return Release(told.labels, told.electorate, told.mechanism, told.mode, reinforced=winner)


class RangeOfTheLargestCount(InteractiveGNMax):
    """Takes over the bound of Confident-GNMax, whose statistic is never below an even split of the votes."""

    def rdp_ahead(self, electorate: Electorate, orders: FloatArray) -> FloatArray:
        answer = noisy_max_bound(self.sigma2, orders)
        return confident_bound(self.threshold, self.sigma1, answer, electorate.n_teachers, electorate.n_classes, orders)


@pytest.mark.parametrize(
    ("broken", "meant"),
    [
        (FreeDrop(16, 4, 3, 0.8, [0.9, 0.1]), "exact: rdp_bound"),
        (ShiftedByTheVotes(16, 4, 3, 0.8, [0.9, 0.1]), "exact: frequencies"),
        (ReinforcesTheWinner(16, 4, 3, 0.8, [0.5, 0.5]), "contract: release"),
        (RangeOfTheLargestCount(4, 2, 20, 0.8, [0.9, 0.1]), "exact: rdp_ahead"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Aggregator) else value,
)
def test_a_broken_variant_is_caught(broken: InteractiveGNMax, meant: str) -> None:
    report = check_aggregator(broken, n_teachers=40, n_classes=2, samples=FEW, seed=1, raise_on_failure=False)
    assert meant in [check.name for check in report.failures], str(report)


# Against a naive truth ------------------------------------------------------------------------------------------------------


def naive_probabilities(counts: IntArray, scores: FloatArray, mechanism: InteractiveGNMax) -> FloatArray:
    """float64[class + 1]: Algorithm 2 of one query, by Simpson's rule over the noise of the winner."""
    foreseen = np.floor(scores * counts.sum() + 1e-9)
    passed = norm.cdf((max(counts - foreseen) - mechanism.threshold) / mechanism.sigma1)
    noise = np.linspace(-12, 12, 2401)
    answers = []
    for j in range(len(counts)):
        density = norm.pdf(noise)
        for other in np.delete(counts, j):
            density = density * norm.cdf(noise + (counts[j] - other) / mechanism.sigma2)
        answers.append(simpson(density, x=noise))
    return np.array([*(passed * np.array(answers)), 1 - passed])


def naive_cost(counts: IntArray, scores: FloatArray, mechanism: InteractiveGNMax, order: float) -> float:
    worst = 0.0
    p = naive_probabilities(counts, scores, mechanism)
    for a in range(len(counts)):
        for b in range(len(counts)):
            if a == b or counts[a] == 0:
                continue
            other = counts.copy()
            other[a] -= 1
            other[b] += 1
            q = naive_probabilities(other, scores, mechanism)
            for one, two in ((p, q), (q, p)):
                worst = max(worst, float(np.log(np.sum(one**order * two ** (1 - order))) / (order - 1)))
    return worst


@pytest.mark.parametrize("seed", range(4))
def test_exact_costs_and_probabilities_of_a_batch_are_those_of_its_queries_by_quadrature(seed: int) -> None:
    rng = np.random.default_rng(seed)
    k, n_teachers = 3, 30
    counts = rng.multinomial(n_teachers, rng.dirichlet(np.ones(k), 3)).astype(np.int64)
    scores = rng.dirichlet(np.full(k, 0.5), 3)
    mechanism = InteractiveGNMax(12, 6.0, 5.0, 0.8).against(scores)
    found = mechanism.outcome_log_probs(counts)
    costs = mechanism.exact_rdp(counts, ORDERS)
    assert found is not None
    assert costs is not None
    for row, (votes, predicted) in enumerate(zip(counts, scores, strict=True)):
        np.testing.assert_allclose(np.exp(found[row]), naive_probabilities(votes, predicted, mechanism), atol=1e-9)
        naive = [naive_cost(votes, predicted, mechanism, order) for order in ORDERS]
        np.testing.assert_allclose(costs[row], naive, rtol=1e-5, atol=1e-8)
    ahead = mechanism.rdp_ahead(Electorate(n_teachers, k), ORDERS)
    assert (costs <= ahead * (1 + 1e-9)).all()
    np.testing.assert_array_equal(ahead, InteractiveGNMax(12, 6.0, 5.0, 0.8).rdp_ahead(Electorate(n_teachers, k), ORDERS))


def plain_algorithm(votes: Votes, scores: FloatArray, mechanism: InteractiveGNMax, rng: np.random.Generator) -> list[str]:
    """Algorithm 2 of arXiv:1802.08908 as a loop: what becomes of each query."""
    found = []
    for counts, p in zip(votes.counts, scores, strict=True):
        if (counts - np.floor(votes.n_teachers * p + 1e-9)).max() + rng.normal(0, mechanism.sigma1) >= mechanism.threshold:
            found.append(f"answer {np.argmax(counts + rng.normal(0, mechanism.sigma2, len(counts)))}")
        elif p.max() > mechanism.confidence:
            found.append(f"reinforce {p.argmax()}")
        else:
            found.append("drop")
    return found


def test_releases_are_distributed_as_the_papers_loop() -> None:
    """4,000 releases each of 3 queries; every share within 5 standard errors: fails by chance for one seed in 100,000."""
    draws, k = 4000, 3
    counts = np.array([[20, 8, 2], [20, 8, 2], [9, 10, 11]])
    scores = np.array([[0.9, 0.05, 0.05], [0.2, 0.7, 0.1], [0.4, 0.3, 0.3]])
    mechanism = InteractiveGNMax(7, 4.0, 4.0, 0.6)
    rows = np.repeat(np.arange(3), draws)
    votes = Votes(counts[rows], 30)
    told = mechanism.against(scores[rows]).release(votes, SimulatedNoise(3))
    assert told.reinforced is not None
    ours = [
        f"answer {label}" if label != ABSTAIN else f"reinforce {own}" if own != ABSTAIN else "drop"
        for label, own in zip(told.labels, told.reinforced, strict=True)
    ]
    loop = plain_algorithm(votes, scores[rows], mechanism, np.random.default_rng(4))
    for query in range(3):
        mine, theirs = (np.array(each)[rows == query] for each in (ours, loop))
        for outcome in {*mine, *theirs}:
            one, two = (mine == outcome).mean(), (theirs == outcome).mean()
            error = np.sqrt(max(one * (1 - one), two * (1 - two), 1 / draws) * 2 / draws)
            assert abs(one - two) < 5 * error, (query, outcome, one, two)
    assert {each.split()[0] for each in ours} == {"answer", "reinforce", "drop"}
    assert k == told.electorate.n_classes


@given(st.integers(2, 6), st.integers(4, 60), st.integers(0, 2**32 - 1))
def test_a_moved_vote_moves_the_statistic_by_at_most_one_inside_its_range(k: int, n_teachers: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    counts = rng.multinomial(n_teachers, rng.dirichlet(np.full(k, 0.4)))
    mechanism = InteractiveGNMax(5, 2.0, 2.0, 0.9).against(rng.dirichlet(np.full(k, 0.4)))
    foreseen = mechanism._foreseen(1, Electorate(n_teachers, k))[0]
    assert foreseen.sum() <= n_teachers
    statistic = (counts - foreseen).max()
    assert 0 <= statistic <= n_teachers
    moved = (moved_votes(counts) - foreseen).max(axis=1)
    assert (np.abs(moved - statistic) <= 1).all()


# What it says and refuses ---------------------------------------------------------------------------------------------------


def test_without_scores_it_states_the_worst_cost_and_releases_nothing() -> None:
    mechanism = make_aggregator("interactive-gnmax", {"threshold": 60, "sigma1": 20, "sigma2": 10, "confidence": 0.9})
    with pytest.raises(ParameterError, match=r"mechanism.against\(student.predict_proba\(queries\)\)"):
        mechanism.release(Votes([[90, 10]], 100), SimulatedNoise(1))
    assert mechanism.outcome_log_probs(np.array([[90, 10]])) is None
    assert (mechanism.rdp_ahead(Electorate(100, 2), DEFAULT_ORDERS) > 0).all()
    assert mechanism.before_student() == GNMax(10)
    assert mechanism.mechanism["scores"] is None


def test_it_is_paid_for_whatever_comes_out(tmp_path: Any) -> None:
    votes = Votes([[95, 5]] * 6, 100)
    mechanism = InteractiveGNMax(60, 10, 5, 0.8).against([0.9, 0.1])
    with Ledger.open(tmp_path / "ledger.db", "people", Budget(20.0, 1e-5)) as ledger:
        release = ask(mechanism, votes, ledger, SimulatedNoise(1))
        assert not release.answered.any(), "the teachers agree with the student"
        whole = curve_ahead(mechanism, votes.electorate, 6)
        assert ledger.spent_curve().values == pytest.approx(whole.values, rel=1e-6)
        assert ledger.entries()[1].memo["scores"] == mechanism.mechanism["scores"]


def test_without_scores_nothing_is_charged(tmp_path: Any) -> None:
    with Ledger.open(tmp_path / "ledger.db", "people", Budget(20.0, 1e-5)) as ledger:
        for mechanism in (InteractiveGNMax(60, 10, 5, 0.8), InteractiveGNMax(60, 10, 5, 0.8, [[0.5, 0.5]] * 2)):
            with pytest.raises(ParameterError, match=r"give what it predicts|scores must be of these queries"):
                ask(mechanism, Votes([[95, 5]], 100), ledger, SimulatedNoise(1))
        assert ledger.spent().epsilon == 0


def test_reinforced_classes_travel_with_the_release(tmp_path: Any) -> None:
    votes = Votes([[12, 88], [95, 5], [55, 45]], 100)
    mechanism = InteractiveGNMax(50, 1, 1, 0.9).against([[0.97, 0.03], [0.92, 0.08], [0.55, 0.45]])
    release = mechanism.release(votes, SimulatedNoise(1))
    assert release.lessons.tolist() == [1, 0, ABSTAIN]
    write_release(tmp_path / "release.json", release, [7, 3, 5])
    stored = read_release(tmp_path / "release.json").release
    assert stored.reinforced is not None
    assert (stored.labels.tolist(), stored.reinforced.tolist()) == ([1, ABSTAIN, ABSTAIN], [ABSTAIN, 0, ABSTAIN])
    assert pickle.loads(pickle.dumps(release)).lessons.tolist() == release.lessons.tolist()
    answers = Answers.of(9, release, [7, 3, 5])
    assert (answers.rows.tolist(), answers.labels.tolist()) == ([7, 3], [1, 0])
    with pytest.raises(ParameterError, match="either theirs or the student's own"):
        Release(np.array([1]), votes.electorate, {}, reinforced=np.array([0]))
    with pytest.raises(ParameterError, match="reinforced must be a class"):
        Release(np.array([ABSTAIN]), votes.electorate, {}, reinforced=np.array([2]))


def test_a_table_student_learns_what_was_confirmed() -> None:
    """Corrections alone would teach it that it was wrong everywhere."""
    x = np.linspace(-1, 1, 40)[:, None]
    truth = (x[:, 0] > 0).astype(np.int64)
    labels, own = np.full(40, ABSTAIN), truth.copy()
    labels[18:22], own[18:22] = truth[18:22], ABSTAIN
    facts = {"aggregator": "interactive-gnmax"}
    learned = student("vote-share").fit(x, Release(labels, Electorate(100, 2), facts, reinforced=own), show="none")
    assert learned.record["answered"] == 40
    assert learned.score(x, truth) > 0.9


def test_a_service_knows_no_student(tmp_path: Any) -> None:
    path = tmp_path / "votes.npz"
    np.savez(path, counts=np.array([[95, 5]]), n_teachers=100, fingerprint="people", unit="record")
    settings = {"threshold": 60, "sigma1": 10, "sigma2": 5, "confidence": 0.8}
    options = ServeOptions("interactive-gnmax", str(tmp_path / "ledger.db"), settings, votes=str(path), budget_epsilon=5.0)
    with pytest.raises(ParameterError, match="a service is not told of"):
        open_service(options)


def test_parts_and_copies_keep_to_their_queries() -> None:
    rng = np.random.default_rng(5)
    scores, counts = rng.dirichlet(np.ones(4), 9), rng.multinomial(50, np.ones(4) / 4, 9)
    mechanism = InteractiveGNMax(20, 5, 5, 0.5).against(scores)
    whole = mechanism.outcome_log_probs(counts)
    assert whole is not None
    np.testing.assert_array_equal(mechanism.part(3, 7).outcome_log_probs(counts[3:7]), whole[3:7])
    assert pickle.loads(pickle.dumps(mechanism)).mechanism == mechanism.mechanism
    assert mechanism.against(scores[::-1]).mechanism != mechanism.mechanism


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"threshold": 2.5}, "whole number of votes"),
        ({"threshold": -1}, "greater than 0"),
        ({"sigma1": 0}, "greater than 0"),
        ({"sigma2": 2.0**40}, "votes"),
        ({"confidence": 1.0}, "below 1"),
        ({"scores": [0.5, 0.6]}, "sum to 1"),
        ({"scores": [1.5, -0.5]}, "probabilities"),
        ({"scores": [1.0]}, "at least 2 classes"),
    ],
)
def test_parameters_are_checked(change: dict[str, Any], told: str) -> None:
    with pytest.raises(ParameterError, match=told):
        InteractiveGNMax(**({"threshold": 60, "sigma1": 20, "sigma2": 10, "confidence": 0.9} | change))


def test_scores_of_other_queries_and_partial_votes_are_refused() -> None:
    mechanism = InteractiveGNMax(60, 10, 5, 0.8)
    with pytest.raises(ParameterError, match="scores must be of these queries"):
        mechanism.against([[0.9, 0.1]]).release(Votes([[95, 5]] * 2, 100), SimulatedNoise(1))
    with pytest.raises(ParameterError, match="scores must be of these queries"):
        mechanism.against([0.5, 0.3, 0.2]).release(Votes([[95, 5]], 100), SimulatedNoise(1))
    with pytest.raises(ParameterError, match="every teacher must vote on every query"):
        mechanism.against([0.9, 0.1]).release(Votes([[5, 3]], 100, participation=1), SimulatedNoise(1))
    with pytest.raises(ParameterError, match="states no cost for a single count"):
        mechanism.rdp_ahead_one_count(Electorate(100, 2, 1), ORDERS)
    with pytest.raises(ParameterError, match="takes 2 classes"):
        check_aggregator(mechanism.against([0.9, 0.1]), n_classes=3, n_teachers=20)
    with pytest.raises(ParameterError, match="compares the teachers with a student"):
        check_aggregator(mechanism, n_classes=2, n_teachers=20)
