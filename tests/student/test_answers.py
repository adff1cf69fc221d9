"""What is given to a student is checked before anything is learnt."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from student_cases import released

from pate.errors import StudentError
from pate.release import ABSTAIN, Electorate, Release
from pate.student.answers import Answers


def test_answers_join_rounds_and_leave_out_what_was_declined() -> None:
    first, second = released([2, ABSTAIN, 0], 3), released([1, 1], 3)
    answers = Answers.of(10, [first, second], [[7, 3, 1], [0, 7]])
    assert answers.rows.tolist() == [7, 1, 0, 7]
    assert answers.labels.tolist() == [2, 0, 1, 1]
    assert answers.class_counts.tolist() == [1, 2, 1]
    assert len(answers) == 4
    assert answers.histogram is None
    assert answers.only(np.array([0, 3])).labels.tolist() == [2, 1]
    assert answers.only(np.array([0, 3])).rows.tolist() == [7, 7]


def test_without_queries_every_record_was_asked_in_order() -> None:
    answers = Answers.of(3, released([0, ABSTAIN, 1], 2), None)
    assert answers.rows.tolist() == [0, 2]


def test_noisy_counts_come_along() -> None:
    histogram = np.array([[3.0, 1.0], [0.5, 2.5], [1.0, 1.5]])
    release = Release(np.array([0, ABSTAIN, 1]), Electorate(4, 2), {"name": "histogram"}, "simulation", histogram)
    found = Answers.of(9, release, [4, 5, 6]).histogram
    assert found is not None
    np.testing.assert_array_equal(found, histogram[[0, 2]])


BAD: list[tuple[Any, Any, str]] = [
    (released([], 2), [], "answers no query"),
    (released([ABSTAIN] * 3, 2), [0, 1, 2], "all 3 queries were declined"),
    (released([0, 1], 2), None, "answers 2 queries and there are 5 public records"),
    (released([0, 1], 2), [0, 1, 2], "one length, got 3 rows for 2 answers"),
    (released([0, 1], 2), [0, 5], "found 5, a query that is not among the public records"),
    (released([0, 1], 2), [0, -1], "found -1"),
    (released([0, 1], 2), [0.0, 1.0], "row numbers"),
    (released([0, 1], 2), [[0, 1]], "row numbers"),
    (np.array([0, 1]), [0, 1], "learns from a Release"),
    ([], [], "learns from a Release"),
    ([released([0], 2), released([0], 3)], [[0], [1]], "same number of classes"),
    ([released([0], 2), released([0], 2)], [[0]], "one array of queries for each release"),
]


@pytest.mark.parametrize(("release", "queries", "message"), BAD)
def test_bad_input_is_refused_with_the_reason(release: Any, queries: Any, message: str) -> None:
    with pytest.raises(StudentError, match=message):
        Answers.of(5, release, queries)
