"""A service that answers what is stable: a request is a batch, slack is spent with it, and a ledger without slack refuses."""

from __future__ import annotations

from pathlib import Path

import pytest
from desk_cases import TestPool, opened, reservations

from pate.aggregators import SparseVector, StableMax, curve_ahead
from pate.errors import BudgetExceeded
from pate.ledger import Budget
from pate.release import ABSTAIN
from pate.votes import Votes

BUDGET = Budget(20.0, 1e-5, slack=4e-6)


def test_a_request_is_a_batch_of_a_sparse_vector(tmp_path: Path) -> None:
    # 90 votes to 10: distance 39, 22 above this threshold: six standard deviations of the noise, a refusal in 10^9 questions.
    mechanism = SparseVector(2.5, 2.5, 1e-6)
    with opened(tmp_path, aggregator=mechanism, budget=BUDGET) as service:
        one = curve_ahead(mechanism, service.source.electorate, 4)
        batches = int(BUDGET.slack / one.slack)  # epsilon would cover more
        assert service.budget_facts()["queries_left"] == batches
        assert service.ask("ann", "1", [0, 1, 2, 3]) == [0, 1, 2, 3]
        spent = service.ledger.spent_curve()
        assert one.slack <= spent.slack <= one.slack * (1 + 1e-9)
        # What was answered before is free; new questions are a batch of their own.
        assert service.ask("ann", "2", [0, 5]) == [0, 1]
        assert service.ledger.spent_curve().slack == pytest.approx(2 * one.slack)
        assert service.budget_facts()["queries_left"] == batches - 2
        assert all(row["epsilon"] is None or row["epsilon"] >= 0 for row in service.owner_facts()["recent"])
        service.verify()


def test_after_so_many_refusals_the_rest_of_a_request_abstains(tmp_path: Path) -> None:
    # 90 votes to 10: distance 39, far below the threshold of this noise, so the first question is refused.
    mechanism = SparseVector(12.0, 12.0, 1e-6)
    assert mechanism.threshold > 39 + 30
    with opened(tmp_path, aggregator=mechanism, budget=BUDGET) as service:
        answers = service.ask("ann", "1", list(range(10)))
    assert answers.count(ABSTAIN) >= 8


def test_requests_that_wait_together_are_batches_of_their_own(tmp_path: Path) -> None:
    """Else one client's unstable questions would use up the refusals of another's, whose answers are stored for ever."""
    counts = [[50, 50, 0, 0]] * 5 + [[100, 0, 0, 0]] * 5
    source = TestPool()
    source._votes = Votes(counts, n_teachers=100)
    with opened(tmp_path, source, aggregator=SparseVector(2.5, 2.5, 1e-6), budget=BUDGET) as service:
        source.go.clear()
        source.held.clear()
        first = service.submit("ann", "0", [9])
        assert source.held.wait(60)
        unstable, stable = service.submit("ann", "1", list(range(5))), service.submit("bob", "1", [5, 6, 7, 8])
        source.go.set()
        assert first.result(10) == [0]
        assert unstable.result(10) == [ABSTAIN] * 5
        assert stable.result(10) == [0] * 4
        assert reservations(service) == [1, 5, 4]


def test_each_question_has_its_slack_with_stable_max(tmp_path: Path) -> None:
    mechanism = StableMax(4.0, 1e-6)
    with opened(tmp_path, aggregator=mechanism, budget=BUDGET) as service:
        assert service.ask("ann", "1", [0, 1]) == [0, 1]
        left = service.budget_facts()["queries_left"]
        assert left == int((BUDGET.slack - 2 * mechanism.test.slack) / mechanism.test.slack)
        with pytest.raises(BudgetExceeded, match="does not cover"):
            service.ask("ann", "2", list(range(2, 5 + left)))


def test_a_ledger_without_slack_refuses_before_noise_is_drawn(tmp_path: Path) -> None:
    source = TestPool()
    with opened(tmp_path, source, aggregator=StableMax(4.0, 1e-6), budget=Budget(20.0, 1e-5)) as service:
        assert service.budget_facts()["queries_left"] == 0
        with pytest.raises(BudgetExceeded):
            service.ask("ann", "1", [0])
        assert service.ledger.verify().rows == 1
