"""The graph, spreading, and doubting answers that stand alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from student_cases import digits, released, rings

from pate.arrays import IntArray
from pate.features.kmeans import kmeans
from pate.student.base import Student
from pate.student.graph.neighbours import graph_of, nearest, unit_length
from pate.student.graph.spreading import Doubt, beliefs_about, class_scores, reach_of, territories
from pate.student.graph.spreading_student import Spreading


@settings(max_examples=50, deadline=None)
@given(arrays(np.float32, (12, 3), elements=st.floats(-5, 5, width=16)), st.integers(1, 6))
def test_neighbours_against_brute_force(points: np.ndarray, k: int) -> None:
    places, squared = nearest(points, points, k, own=True)
    exact = ((points[:, None].astype(np.float64) - points[None]) ** 2).sum(axis=2)
    np.fill_diagonal(exact, np.inf)
    np.testing.assert_allclose(squared, np.sort(exact, axis=1)[:, :k], atol=1e-4)  # float32 squares of up to 75
    np.testing.assert_allclose(np.take_along_axis(exact, places, axis=1), squared, atol=1e-4)


def test_the_graph_is_symmetric_and_does_not_grow() -> None:
    x, _ = rings(200)
    graph = graph_of(unit_length(x), 5)
    dense = graph.toarray()
    np.testing.assert_allclose(dense, dense.T, atol=1e-12)
    assert np.abs(np.linalg.eigvalsh(dense)).max() <= 1 + 1e-9
    assert (np.diag(dense) == 0).all()


def test_spreading_is_the_geometric_sum() -> None:
    """F = sum over t of (alpha S)^t Y, cut at 60 terms (Zhou et al. 2004, before the limit)."""
    x, _ = rings(80)
    graph = graph_of(x.astype(np.float32), 5)
    rows = np.array([3, 50])
    total, term = np.zeros((80, 2)), np.eye(80)[:, rows]
    for _ in range(61):
        total += term
        term = 0.9 * graph.toarray() @ term
    np.testing.assert_allclose(reach_of(graph, rows, 0.9), total, rtol=1e-10)


def test_territories_follow_the_records_not_the_number_of_answers() -> None:
    """A class with 9 in 10 of the records but 1 in 2 of the answers keeps its share."""
    random = np.random.default_rng(0)
    x = np.concatenate([random.normal(0, 1, (450, 2)), random.normal(6, 1, (50, 2))]).astype(np.float32)
    rows = np.array([0, 100, 200, 460, 470, 480])
    reach = reach_of(graph_of(x, 8), rows, 0.99)
    assert territories(reach)[:3].sum() == pytest.approx(0.9, abs=0.02)
    scores = class_scores(reach, np.eye(2)[[0, 0, 0, 1, 1, 1]])
    assert (scores.argmax(axis=1) == (np.arange(500) >= 450)).mean() > 0.99
    np.testing.assert_allclose(scores.sum(axis=1), 1)


def test_a_wrong_answer_is_doubted_and_a_lonely_class_is_believed() -> None:
    random = np.random.default_rng(1)
    x = np.concatenate([random.normal(place, 0.3, (60, 2)) for place in (0, 4, 8)]).astype(np.float32)
    rows = np.array([0, 10, 20, 30, 60, 70, 80, 90, 120])
    labels = np.array([0, 0, 0, 1, 1, 1, 1, 1, 2])  # the fourth is wrong; the last is alone in its class
    beliefs = beliefs_about(reach_of(graph_of(x, 6), rows, 0.99), rows, labels, 3, Doubt())
    np.testing.assert_allclose(beliefs.sum(axis=1), 1)
    assert beliefs[3].argmax() == 0
    assert beliefs[-1].tolist() == [0, 0, 1]
    assert (beliefs.argmax(axis=1)[[0, 1, 2, 4, 5, 6, 7]] == labels[[0, 1, 2, 4, 5, 6, 7]]).all()


def test_records_that_nothing_reaches_get_the_mean() -> None:
    x = np.concatenate([np.random.default_rng(0).normal(0, 0.1, (20, 2)), np.random.default_rng(1).normal(50, 0.1, (20, 2))])
    rows = np.array([0, 1, 2])
    scores = class_scores(reach_of(graph_of(x.astype(np.float32), 3), rows, 0.9), np.eye(2)[[0, 0, 1]])
    assert np.isfinite(scores).all()
    np.testing.assert_allclose(scores.sum(axis=1), 1)
    np.testing.assert_allclose(scores[20:], np.tile(scores[20], (20, 1)))


def test_spreading_beats_the_nearest_answer_on_rings_and_is_kept_in_a_file(tmp_path: Path) -> None:
    x, y = rings(500)
    asked = np.random.default_rng(0).choice(300, 10, replace=False)
    student = Spreading(unit=False, neighbours=6).fit(x[:300], released(y[asked], 2), asked)
    far = ((x[300:, None] - x[asked][None]) ** 2).sum(axis=2)
    alone = (y[asked][far.argmin(axis=1)] == y[300:]).mean()
    assert student.score(x[300:], y[300:]) > max(0.97, alone + 0.1)
    student.save(tmp_path / "rings.zip")
    again = Student.load(tmp_path / "rings.zip")
    np.testing.assert_array_equal(again.predict_proba(x[300:]), student.predict_proba(x[300:]))
    student.save(tmp_path / "twice.zip")
    assert (tmp_path / "twice.zip").read_bytes() == (tmp_path / "rings.zip").read_bytes()


def test_doubt_helps_on_digits_with_wrong_labels() -> None:
    """40 medoids of 1,200 digits, 4 answers wrong (10%), six fixed draws: doubting wins by 2 points in the mean, and costs
    nothing where all are right."""
    x, y = digits()
    public = slice(0, 1200)
    flat = x[public].reshape(1200, -1).astype(np.float64)
    centres = kmeans(flat, 40, 20, np.random.default_rng(0))
    asked = np.unique([((flat - centre) ** 2).sum(axis=1).argmin() for centre in centres])
    reach = reach_of(graph_of(unit_length(flat), 10), asked, 0.99)

    def score(labels: IntArray, wrong: float) -> float:
        beliefs = beliefs_about(reach, asked, labels, 10, Doubt(wrong))
        return float((class_scores(reach, beliefs).argmax(axis=1) == y[public]).mean())

    gains = []
    for seed in range(6):
        random = np.random.default_rng(seed)
        labels = y[asked].copy()
        wrong = random.choice(len(asked), 4, replace=False)
        labels[wrong] = (labels[wrong] + random.integers(1, 10, 4)) % 10
        gains.append(score(labels, 0.1) - score(labels, 0.0))
    assert np.mean(gains) > 0.02
    assert score(y[asked], 0.1) > score(y[asked], 0.0) - 0.005
