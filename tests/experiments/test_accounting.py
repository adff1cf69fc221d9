"""The account of a batch: which figures it holds and how they relate."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pate.aggregators import Aggregator, Confident, ConfidentGNMax, GNMax, LNMax, NoisyHistogram
from pate.arrays import FloatArray
from pate.errors import ParameterError
from pate.experiments.accounting import account
from pate.release import Release
from pate.votes import Votes

VOTES = Votes([[220, 20, 10], [130, 110, 10], [84, 83, 83]] * 20, n_teachers=250)


@pytest.mark.parametrize(
    "aggregator",
    [GNMax(40.0), LNMax(0.05), ConfidentGNMax(200, 150.0, 40.0), Confident(LNMax(0.05), 200, 150.0), NoisyHistogram(40.0)],
    ids=repr,
)
def test_ours_is_never_above_the_papers(aggregator: Aggregator) -> None:
    report = account(VOTES, aggregator, 1e-5)
    lines = {line.key: line.epsilon(1e-5).epsilon for line in report.lines}
    assert lines["data_dependent"] <= lines["data_independent"]
    for theirs in ("proposition8", "theorem2_2017"):
        assert lines["data_independent"] <= lines.get(theirs, np.inf)
    json = report.to_json()
    assert json["epsilon"]["data_independent"] == lines["data_independent"]
    assert json["queries"] == 60


def test_realised_charging_makes_no_data_dependent_claim() -> None:
    report = account(VOTES, ConfidentGNMax(200, 150.0, 40.0, charging="realised"), 1e-5)
    assert report.dependent.rdp == pytest.approx(report.independent.rdp, rel=1e-12)


class CheapAnswer(GNMax):
    """A stranger's rule: class 0 is charged little, all else in full. An account must not take it at its cheapest."""

    def rdp_bound(self, release: Release, orders: FloatArray) -> FloatArray:
        share = np.where(release.labels == 0, 0.1, 1.0)
        return share[:, None] * self.rdp_ahead(release.electorate, orders)


def test_a_charge_by_outcome_is_accounted_at_its_worst() -> None:
    report = account(VOTES, CheapAnswer(40.0), 1e-5)
    assert report.dependent.epsilon(1e-5) == report.independent.epsilon(1e-5)
    # And the formulas for GNMax are not taken for those of a class derived from it.
    predictions = np.repeat([[0], [1]], 5, axis=0)
    report = account(Votes.from_predictions(predictions, 2), CheapAnswer(4.0), 1e-5, predictions)
    assert report.per_teacher is None
    assert report.published == ()


@pytest.mark.filterwarnings("ignore::pate.privacy.curve.GridEdgeWarning")  # one query alone has its best order at the edge
@given(st.integers(1, 200))
@settings(max_examples=20, deadline=None)
def test_per_teacher_lies_below_per_query(n_queries: int) -> None:
    predictions = np.random.default_rng(n_queries).choice(3, p=[0.6, 0.3, 0.1], size=(30, n_queries))
    report = account(Votes.from_predictions(predictions, 3), GNMax(6.0), 1e-5, predictions)
    assert report.per_teacher is not None
    assert report.per_teacher.epsilon(1e-5).epsilon <= report.dependent.epsilon(1e-5).epsilon


def test_an_empty_batch_costs_nothing() -> None:
    report = account(Votes(np.zeros((0, 3), dtype=np.int64), n_teachers=5), GNMax(4.0), 1e-5)
    assert report.dependent.epsilon(1e-5).epsilon == report.independent.epsilon(1e-5).epsilon == 0


def test_delta_is_checked() -> None:
    with pytest.raises(ParameterError, match="delta"):
        account(VOTES, GNMax(4.0), 1.5)
