"""Choosing queries: what each strategy promises, rounds, and what is refused."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from student_cases import released

from pate.arrays import FloatArray, IntArray
from pate.errors import ParameterError, ReferenceNotFound, StudentError
from pate.features import PCA, Identity
from pate.student.answers import Answers
from pate.student.base import Student
from pate.student.diary import Diary
from pate.student.queries import select_queries

BUILT_IN = ("medoids", "random", "k-centre", "robust-k-centre", "uncertainty", "boundary")


class Fence(Student):
    """Knows two classes, left and right of 0: the surer the farther."""

    def _fit(self, x: NDArray[Any], answers: Answers, diary: Diary) -> None: ...

    def _probabilities(self, x: NDArray[Any]) -> FloatArray:
        right = 1 / (1 + np.exp(-x.reshape(len(x), -1)[:, 0].astype(np.float64)))
        return np.stack([1 - right, right], axis=1)

    def _save(self, folder: Path) -> None: ...

    def _load(self, folder: Path) -> None: ...


def fence(x: NDArray[Any]) -> Fence:
    return Fence().fit(x, released([0, 1], 2), [0, 1], show="none")


def blobs(seed: int = 0) -> tuple[FloatArray, IntArray]:
    """Eight round blobs far apart: two of 500 points, six of 12."""
    random = np.random.default_rng(seed)
    y = np.repeat(np.arange(8), [500, 500] + [12] * 6)
    return 10 * np.eye(8)[y] + random.normal(0, 0.5, (len(y), 8)), y


def own_choice(x: Any, n: int, *, features: Any, student: Any, asked: Any, seed: int) -> Any:
    """A user's strategy: the last rows; with seed 1..4 it breaks the contract in one way each."""
    assert features.shape == (len(x), features.shape[1])
    rows = np.setdiff1d(np.arange(len(x)), asked)[-n:]
    wrong = {1: rows[:-1], 2: rows.astype(float), 3: np.repeat(rows[:1], n), 4: np.arange(n)}
    return wrong.get(seed, rows)


@pytest.mark.parametrize("strategy", BUILT_IN)
def test_rows_are_distinct_new_and_repeat_for_a_seed(strategy: str) -> None:
    x, _ = blobs()
    student = fence(x)
    state = np.random.get_state()[1].copy()  # type: ignore[union-attr]  # noqa: NPY002
    asked = np.arange(0, len(x), 3)[:40]
    rows = select_queries(x, 30, strategy, student=student, asked=asked, seed=5)
    assert rows.dtype == np.int64
    assert rows.shape == (30,)
    assert len(np.unique(rows)) == 30
    assert not np.isin(rows, asked).any()
    assert (select_queries(x, 30, strategy, student=student, asked=asked[::-1], seed=5) == rows).all()
    assert (np.random.get_state()[1] == state).all()  # noqa: NPY002
    if strategy not in ("k-centre", "boundary"):
        assert (select_queries(x, 30, strategy, student=student, asked=asked, seed=6) != rows).any()


@pytest.mark.parametrize("strategy", BUILT_IN)
def test_every_record_can_be_asked_in_rounds_also_where_many_are_equal(strategy: str) -> None:
    x = np.repeat([[0.0, 1.0], [1.0, 0.0], [-0.0, 1.0], [3.0, 3.0]], [5, 4, 3, 1], axis=0)
    student = fence(x)
    asked: list[int] = []
    for n in (2, 3, 8):
        asked.extend(select_queries(x, n, strategy, student=student, asked=asked))
        if n < 8:
            contents = np.unique(x[asked] + 0.0, axis=0)
            assert len(contents) == min(3, len(asked)), "equal records come last"
    assert sorted(asked) == list(range(13))
    with pytest.raises(StudentError, match="at most 0, the public records not asked yet"):
        select_queries(x, 1, strategy, student=student, asked=asked)


def test_medoids_and_k_centre_find_classes_that_random_misses() -> None:
    x, y = blobs()
    assert len(set(y[select_queries(x, 8, "random")])) <= 3
    for strategy in ("medoids", "k-centre"):
        assert len(set(y[select_queries(x, 8, strategy)])) == 8
    assert set(y[select_queries(x, 8)[:2]]) == {0, 1}, "large clusters first"


def test_a_medoid_is_the_record_nearest_to_the_middle_of_its_cluster() -> None:
    x, y = blobs()
    for row in select_queries(x, 8):
        mine = np.flatnonzero(y == y[row])
        assert row == mine[np.linalg.norm(x[mine] - x[mine].mean(axis=0), axis=1).argmin()]


def test_equal_records_weigh_as_many() -> None:
    """Of two clusters with three contents each, the middle is where nearly all rows are."""
    x = np.array([0.0, 1.0, 2.0] + [2.0] * 50 + [10.0, 11.0, 12.0] + [10.0] * 50)[:, None]
    assert set(x[select_queries(x, 2)].ravel()) == {2.0, 10.0}


@pytest.mark.parametrize("strategy", ["medoids", "k-centre"])
def test_the_next_round_goes_where_nothing_was_asked(strategy: str) -> None:
    x, y = blobs()
    first = np.flatnonzero(y % 2 == 0)[::7]
    assert set(y[first]) == {0, 2, 4, 6}
    assert set(y[select_queries(x, 4, strategy, asked=first)]) == {1, 3, 5, 7}


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(-9, 9), st.integers(-9, 9)), min_size=4, max_size=9, unique=True),
    st.integers(1, 3),
    st.floats(1e-150, 1e150),
)
def test_k_centre_is_within_twice_the_least_radius(points: list[tuple[int, int]], n: int, unit: float) -> None:
    x = np.array(points, dtype=np.float64)
    apart = np.linalg.norm(x[:, None] - x[None], axis=2)
    least = min(apart[list(centres)].min(axis=0).max() for centres in combinations(range(len(x)), n))
    rows = select_queries(x * unit, n, "k-centre")
    assert apart[rows].min(axis=0).max() <= 2 * least + 1e-9
    assert (select_queries(x * unit, 1, "k-centre") == rows[:1]).all(), "the order is the order of choice"


def test_robust_k_centre_leaves_most_outliers_alone() -> None:
    random = np.random.default_rng(0)
    x = np.concatenate([random.normal(0, 1, (1000, 2)), 50 * random.normal(0, 1, (10, 2))])
    assert (select_queries(x, 10, "k-centre") >= 1000).sum() >= 8
    assert (select_queries(x, 10, "robust-k-centre") >= 1000).sum() <= 3


def test_uncertainty_asks_near_the_border_and_not_the_same_place() -> None:
    x = np.random.default_rng(0).uniform(-10, 10, (2000, 2))
    rows = select_queries(x, 20, "uncertainty", student=fence(x))
    distance = np.abs(x[rows, 0])
    assert distance.max() < 1.3, "of 2,000 the nearest 200 lie within about 1"
    assert (np.diff(distance) >= 0).all(), "the most uncertain first"
    assert np.histogram(x[rows, 1], bins=10, range=(-10, 10))[0].min() >= 1, "along the whole border"


def test_boundary_asks_what_is_nearest_whatever_it_is_like() -> None:
    x = np.random.default_rng(0).uniform(-10, 10, (2000, 2))
    rows = select_queries(x, 20, "boundary", student=fence(x))
    assert set(rows) == set(np.argsort(np.abs(x[:, 0]))[:20])
    more = select_queries(x, 20, "boundary", student=fence(x), asked=rows)
    assert set(more) == set(np.argsort(np.abs(x[:, 0]))[20:40])
    with pytest.raises(StudentError, match="'uncertainty' or 'boundary' needs student="):
        select_queries(x, 20, "boundary")


@pytest.mark.parametrize("sure", [0.0, 1000.0])
def test_uncertainty_of_a_student_that_doubts_all_or_nothing_is_a_spread_choice(sure: float) -> None:
    x, y = blobs()
    where = np.concatenate([np.full((len(x), 1), sure), x], axis=1)
    rows = select_queries(where, 40, "uncertainty", student=fence(where))
    assert len(set(y[rows])) >= 5


def test_features_decide_what_is_near() -> None:
    random = np.random.default_rng(0)
    y = np.arange(200) % 4
    x = np.concatenate([1000 * random.normal(size=(200, 3)), np.eye(4)[y]], axis=1)
    told = x[:, 3:]
    assert set(y[select_queries(x, 4, features=told)]) == {0, 1, 2, 3}
    assert (select_queries(x, 4, features=told.reshape(200, 2, 2)) == select_queries(x, 4, features=told)).all()
    components = PCA(2)
    rows = select_queries(x, 4, features=components)
    assert components.fitted_on == "public"
    assert (select_queries(x, 4, features=components.transform(x)) == rows).all()
    pictures = x.astype(np.float32).reshape(200, 7, 1)
    assert (select_queries(pictures, 4, features=Identity()) == select_queries(pictures, 4)).all()


def test_one_outlier_does_not_drown_the_rest_in_rounding() -> None:
    x, y = blobs()
    x = np.concatenate([x, np.full((1, 8), 1e7)])
    assert len(set(y[select_queries(x, 9, "k-centre")[1:] % len(y)])) >= 7
    assert len(set(np.append(y, 8)[select_queries(x, 9)])) == 9


def test_a_strategy_of_ones_own_is_called_and_checked() -> None:
    x, _ = blobs()
    own = f"{__name__}:own_choice"
    assert list(select_queries(x, 3, own, asked=[len(x) - 1])) == [len(x) - 4, len(x) - 3, len(x) - 2]
    with pytest.raises(StudentError, match=r"must return 3 row numbers, int\[3\], got int64 of shape \(2,\)"):
        select_queries(x, 3, own, seed=1)
    with pytest.raises(StudentError, match="got float64"):
        select_queries(x, 3, own, seed=2)
    with pytest.raises(StudentError, match="distinct rows"):
        select_queries(x, 3, own, seed=3)
    with pytest.raises(StudentError, match="not asked before"):
        select_queries(x, 3, own, asked=[0], seed=4)
    with pytest.raises(ReferenceNotFound, match="own_choice"):
        select_queries(x, 3, f"{__name__}:own_choise")


def test_what_is_refused() -> None:
    x, _ = blobs()
    with pytest.raises(
        StudentError, match=r"no query strategy 'medoid' \(did you mean 'medoids'\?\) It must be medoids, random"
    ):
        select_queries(x, 3, "medoid")
    with pytest.raises(StudentError, match=r"n must be at most 1070, .* got 1071"):
        select_queries(x, 1071, asked=[0, 0, 1])
    with pytest.raises(ParameterError, match="n must be a whole number of at least 1, got 0"):
        select_queries(x, 0)
    with pytest.raises(ParameterError, match="x_public: x must be finite"):
        select_queries(np.full((3, 2), np.nan), 1)
    with pytest.raises(ParameterError, match="features: x must be finite"):
        select_queries(x, 1, features=np.full((len(x), 2), np.inf))
    with pytest.raises(StudentError, match="a row for each of 1072 public records, got 5"):
        select_queries(x, 1, features=x[:5])
    with pytest.raises(StudentError, match="too large to compute distances"):
        select_queries(np.array([[1.7e308], [1.7e308], [-1.7e308]]), 1)
    with pytest.raises(StudentError, match=r"asked must be rows 0\.\.1071 .* got -1 to 4"):
        select_queries(x, 1, asked=[-1, 4])
    with pytest.raises(StudentError, match="asked must be row numbers"):
        select_queries(x, 1, asked=[0.5])
    with pytest.raises(StudentError, match="needs student="):
        select_queries(x, 1, "uncertainty")
    with pytest.raises(StudentError, match="is not fitted"):
        select_queries(x, 1, "uncertainty", student=Fence())
