"""Votes: what is refused and how, what is never shown, and counting against a plain loop."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pate.arrays import IntArray
from pate.errors import PateError, VotesError
from pate.release import ABSTAIN, Electorate
from pate.votes import Votes

SECRET = 7919
"""A count that no message and no repr may show."""


@st.composite
def prediction_tables(draw: st.DrawFn, abstain: bool = False) -> tuple[IntArray, int]:
    n_classes = draw(st.integers(2, 6))
    shape = draw(st.tuples(st.integers(1, 12), st.integers(0, 8)))
    lowest = ABSTAIN if abstain else 0
    cells = draw(st.lists(st.integers(lowest, n_classes - 1), min_size=shape[0] * shape[1], max_size=shape[0] * shape[1]))
    return np.array(cells, dtype=np.int64).reshape(shape), n_classes


def counted_by_a_plain_loop(predictions: IntArray, n_classes: int) -> IntArray:
    counts = np.zeros((predictions.shape[1], n_classes), dtype=np.int64)
    for teacher in predictions:
        for query, label in enumerate(teacher):
            if label != ABSTAIN:
                counts[query, label] += 1
    return counts


@given(prediction_tables())
def test_predictions_are_counted_as_a_plain_loop_counts(case: tuple[IntArray, int]) -> None:
    predictions, n_classes = case
    votes = Votes.from_predictions(predictions, n_classes)
    np.testing.assert_array_equal(votes.counts, counted_by_a_plain_loop(predictions, n_classes))
    assert len(votes) == predictions.shape[1]
    assert votes.electorate == Electorate(predictions.shape[0], n_classes)


@given(prediction_tables(abstain=True))
def test_partial_votes_are_counted_as_a_plain_loop_counts(case: tuple[IntArray, int]) -> None:
    predictions, n_classes = case
    most = max(1, int((predictions != ABSTAIN).sum(axis=1).max()))
    votes = Votes.from_predictions(predictions, n_classes, participation=most)
    np.testing.assert_array_equal(votes.counts, counted_by_a_plain_loop(predictions, n_classes))
    assert votes.participation == most


@given(prediction_tables(abstain=True))
def test_ballots_and_predictions_agree(case: tuple[IntArray, int]) -> None:
    predictions, n_classes = case
    most = max(1, int((predictions != ABSTAIN).sum(axis=1).max()))
    voters, queries = np.nonzero(predictions != ABSTAIN)
    sparse = Votes.from_ballots(
        voters,
        queries,
        predictions[voters, queries],
        n_teachers=predictions.shape[0],
        n_queries=predictions.shape[1],
        n_classes=n_classes,
        participation=most,
    )
    dense = Votes.from_predictions(predictions, n_classes, participation=most)
    np.testing.assert_array_equal(sparse.counts, dense.counts)
    assert sparse.electorate == dense.electorate


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        ([1, 2], "axes"),
        ([[[1, 2]]], "axes"),
        ([], "axes"),
        ([[1, 2], [3]], "counts"),
        ([[3]], "at least 2 classes"),
        ([[-1, 4]], "not be negative"),
        ([[1, 1]], "sum to n_teachers=3"),
        ([[2, 2]], "sum to n_teachers=3"),
        ([[1.0, 2.0]], "integer dtype"),
        ([[1.0, np.nan]], "NaN or infinity"),
        ([[1.0, np.inf]], "NaN or infinity"),
        ([[True, False]], "integer dtype"),
        ([["1", "2"]], "integer dtype"),
        ([[None, 3]], "integer dtype"),
        ([[1 + 0j, 2]], "integer dtype"),
        (np.array([[2**63 + 3, 0]], dtype=np.uint64), "64 signed bits"),
        # The row sum wraps around to 3 in 64 bits.
        ([[2**62, 2**62, 2**62, 2**62 + 3]], "n_teachers=3"),
    ],
)
def test_bad_counts_are_refused(counts: Any, message: str) -> None:
    with pytest.raises(VotesError, match=message):
        Votes(counts, n_teachers=3)


@pytest.mark.parametrize("n_teachers", [0, -3, 2.5, float("nan"), True, "3"])
@pytest.mark.parametrize("participation", [None, 1])
def test_bad_teacher_counts_are_refused(n_teachers: Any, participation: int | None) -> None:
    with pytest.raises(PateError, match="n_teachers"):
        Votes([[1, 0]], n_teachers, participation)


@pytest.mark.parametrize("participation", [0, -1, 1.5, float("nan")])
def test_bad_participation_is_refused(participation: Any) -> None:
    with pytest.raises(PateError, match="participation"):
        Votes([[1, 0]], 3, participation)


def test_the_wrong_row_is_named() -> None:
    with pytest.raises(VotesError, match=r"2 of 3 rows do not, the first is row 1\b"):
        Votes([[3, 0], [1, 1], [4, 0]], n_teachers=3)


def test_partial_rows_may_fall_short_but_totals_are_checked() -> None:
    assert len(Votes([[1, 0], [0, 2]], n_teachers=3, participation=1)) == 2
    with pytest.raises(VotesError, match="more votes than there are teachers"):
        Votes([[2, 2], [0, 0]], n_teachers=3, participation=2)
    with pytest.raises(VotesError, match="at most 3 votes in all"):
        Votes([[2, 0], [0, 2]], n_teachers=3, participation=1)


@pytest.mark.parametrize(
    ("predictions", "n_classes", "participation", "message"),
    [
        ([[0, 3]], 3, None, r"0\.\.2"),
        ([[0, -1]], 3, None, r"0\.\.2"),
        ([[0, -2]], 3, 2, "ABSTAIN"),
        ([[0, 1]], 1, None, "n_classes"),
        ([0, 1], 3, None, "axes"),
        ([[0.0, 1.0]], 3, None, "integer dtype"),
        ([[0.0, np.nan]], 3, None, "NaN or infinity"),
        (np.zeros((0, 4), dtype=np.int64), 3, None, "at least one teacher"),
        ([[0, 1, 2], [0, -1, -1]], 3, 2, "participation=2 queries of the batch; 1 do"),
    ],
)
def test_bad_predictions_are_refused(predictions: Any, n_classes: int, participation: int | None, message: str) -> None:
    with pytest.raises(VotesError, match=message):
        Votes.from_predictions(predictions, n_classes, participation)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"voters": [0, 0, 2]}, "participation=1"),
        ({"voters": [0, 1, 3]}, r"voters must lie in 0\.\.2"),
        ({"voters": [0, 1, -1]}, "voters"),
        ({"queries": [0, 1, 4]}, r"queries must lie in 0\.\.3"),
        ({"labels": [0, 1, 2]}, r"0\.\.1"),
        ({"labels": [0, 1, ABSTAIN]}, r"0\.\.1"),
        ({"labels": [0, 1]}, "equally long"),
        ({"labels": [0.0, 1.0, 1.0]}, "integer dtype"),
        ({"voters": [0, 0, 2], "queries": [1, 1, 0], "participation": 2}, "second one"),
        ({"participation": 0}, "participation"),
        ({"n_teachers": 0}, "voters|n_teachers"),
    ],
)
def test_bad_ballots_are_refused(change: dict[str, Any], message: str) -> None:
    good: dict[str, Any] = {
        "voters": [0, 1, 2],
        "queries": [0, 1, 3],
        "labels": [0, 1, 1],
        "n_teachers": 3,
        "n_queries": 4,
        "n_classes": 2,
        "participation": 1,
    }
    assert Votes.from_ballots(**good).counts.sum() == 3
    with pytest.raises(PateError, match=message):
        Votes.from_ballots(**(good | change))


def test_a_negative_number_of_queries_is_refused() -> None:
    none = np.zeros(0, dtype=np.int64)
    with pytest.raises(PateError, match="n_queries"):
        Votes.from_ballots(none, none, none, n_teachers=3, n_queries=-1, n_classes=2, participation=1)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Votes([[SECRET, -1]], SECRET - 1),
        lambda: Votes([[SECRET, 0]], 10),
        lambda: Votes([[float(SECRET), 0.0]], SECRET),
        lambda: Votes([[SECRET, 0]], 10, participation=3),
        lambda: Votes([[5, 0], [SECRET - 5, 0]], SECRET // 2, participation=1),
        lambda: Votes.from_predictions([[SECRET]], 10),
    ],
)
def test_errors_never_show_a_vote(make: Any) -> None:
    with pytest.raises(VotesError) as caught:
        make()
    assert str(SECRET) not in str(caught.value)


def test_repr_never_shows_a_count() -> None:
    votes = Votes([[SECRET, 1], [0, SECRET + 1]], SECRET + 1)
    assert repr(votes) == f"{votes}" == f"Votes(2 queries, 2 classes, {SECRET + 1} teachers)"
    assert repr(Votes([[2, 1]], 9, participation=4)) == "Votes(1 queries, 2 classes, 9 teachers, at most 4 votes each)"
    assert str(SECRET) not in repr([votes])[len("[Votes(2 queries, 2 classes, 7920") :]
    assert not hasattr(votes, "__dict__")


def test_counts_cannot_be_changed_from_inside_or_outside() -> None:
    source = np.array([[3, 1], [0, 4]])
    votes = Votes(source, 4)
    source[0, 0] = 99
    np.testing.assert_array_equal(votes.counts, [[3, 1], [0, 4]])
    with pytest.raises(ValueError, match="read-only"):
        votes.counts[0, 0] = 5
    with pytest.raises(AttributeError):
        votes.counts = source  # type: ignore[misc]
    with pytest.raises(AttributeError):
        votes.n_teachers = 5  # type: ignore[misc]


@pytest.mark.parametrize("through", [lambda v: pickle.loads(pickle.dumps(v)), copy.copy, copy.deepcopy])
@pytest.mark.parametrize("participation", [None, 2])
def test_votes_survive_a_journey_and_stay_immutable(through: Any, participation: int | None) -> None:
    votes = Votes([[3, 1], [0, 4]], 4, participation)
    back = through(votes)
    np.testing.assert_array_equal(back.counts, votes.counts)
    assert back.electorate == votes.electorate
    with pytest.raises(ValueError, match="read-only"):
        back.counts[0, 0] = 5


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.uint64, np.int64])
def test_every_integer_dtype_is_taken(dtype: Any) -> None:
    counts = Votes(np.array([[3, 1]], dtype=dtype), 4).counts
    assert counts.dtype == np.int64
    assert counts.flags.c_contiguous


def test_rows_are_a_slice_of_the_batch_under_the_same_electorate() -> None:
    votes = Votes([[3, 1], [0, 4], [2, 2]], 4, participation=3)
    np.testing.assert_array_equal(votes.rows(1, 3).counts, [[0, 4], [2, 2]])
    assert votes.rows(1, 3).electorate == votes.electorate
    assert len(votes.rows(0, 0)) == 0
    assert len(votes.rows(2, 9)) == 1


def test_an_empty_batch_is_a_batch() -> None:
    votes = Votes(np.zeros((0, 5), dtype=np.int64), 10)
    assert (len(votes), votes.n_classes, votes.n_teachers) == (0, 5, 10)
