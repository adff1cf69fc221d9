"""Per-teacher costs against a plain loop over teachers and queries."""

from __future__ import annotations

import numpy as np
import pytest

from pate.arrays import FloatArray, IntArray
from pate.errors import VotesError
from pate.privacy.exact import NoisyMax, ThresholdTest, noisy_max_log_probs, noisy_max_rdp, per_teacher_rdp
from pate.privacy.exact.engine import distinct_costs, kernel
from pate.privacy.exact.rows import sorted_rows
from pate.privacy.outcomes import numeric_margin, renyi_divergence
from pate.votes import Votes

ORDERS = np.array([1.2, 2.0, 8.0, 100.0])


def _predictions(teachers: int, queries: int, n_classes: int, seed: int) -> IntArray:
    rng = np.random.default_rng(seed)
    truth = rng.integers(n_classes, size=queries)
    noise = rng.integers(n_classes, size=(teachers, queries))
    return np.where(rng.random((teachers, queries)) < 0.6, truth, noise)


def _loop(mechanism: NoisyMax, predictions: IntArray, n_classes: int) -> FloatArray:
    counts = Votes.from_predictions(predictions, n_classes).counts
    total = np.zeros((2, len(predictions), ORDERS.size))
    for t, votes in enumerate(predictions):
        for query, vote in enumerate(votes):
            row = counts[query]
            neighbours = np.array(
                [
                    row - np.eye(n_classes, dtype=np.int64)[vote] + np.eye(n_classes, dtype=np.int64)[b]
                    for b in range(n_classes)
                    if b != vote
                ]
            )
            q = noisy_max_log_probs(mechanism, neighbours)
            p = np.broadcast_to(noisy_max_log_probs(mechanism, row[None]), q.shape)
            total[0, t] += renyi_divergence(p, q, ORDERS).max(axis=0)
            total[1, t] += renyi_divergence(q, p, ORDERS).max(axis=0)
    return total.max(axis=(0, 1))


@pytest.mark.parametrize(
    "mechanism",
    [NoisyMax("gaussian", 3.0), NoisyMax("gaussian", 3.0, ThresholdTest(6, 2)), NoisyMax("laplace", 0.4)],
    ids=str,
)
def test_agrees_with_a_plain_loop(mechanism: NoisyMax) -> None:
    predictions = _predictions(teachers=9, queries=6, n_classes=4, seed=1)
    expected = _loop(mechanism, predictions, 4)
    got = per_teacher_rdp(mechanism, predictions, 4, ORDERS)
    assert (got >= expected).all()
    np.testing.assert_allclose(got, expected, rtol=1e-10, atol=7 * float(numeric_margin(ORDERS).max()))


def test_never_above_the_worst_case_of_every_query() -> None:
    predictions = _predictions(teachers=50, queries=40, n_classes=10, seed=2)
    mechanism = NoisyMax("gaussian", 8.0)
    counts = Votes.from_predictions(predictions, 10).counts
    cost = noisy_max_rdp(mechanism, counts, ORDERS)
    together = np.maximum(cost.forward.sum(axis=0), cost.reverse.sum(axis=0))
    mine = per_teacher_rdp(mechanism, predictions, 10, ORDERS)
    assert (mine <= together * (1 + 1e-12)).all()
    assert (mine < 0.99 * together).any(), "no teacher is the worst one on every query"


@pytest.mark.skipif(kernel() is None, reason="numba is not installed")
def test_both_paths_agree_by_source() -> None:
    rows = sorted_rows(np.random.default_rng(4).multinomial(30, np.full(5, 0.2), 20).astype(np.int64))
    both = [distinct_costs(NoisyMax("gaussian", 4.0), rows, ORDERS, by_source=True, compiled=use) for use in (False, True)]
    np.testing.assert_allclose(both[0], both[1], rtol=1e-11, atol=5e-13)


def test_predictions_are_checked() -> None:
    with pytest.raises(VotesError, match=r"must lie in 0\.\.3"):
        per_teacher_rdp(NoisyMax("gaussian", 4.0), np.array([[0, 4]]), 4, ORDERS)
