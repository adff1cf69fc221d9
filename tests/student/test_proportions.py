"""Learning from how labels are shared out over cells."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

from pate.errors import ParameterError, StudentError
from pate.release import ABSTAIN, Electorate, Release
from pate.student import Student, student
from pate.student.proportions import Cells, Proportions, cell_loss

SIGMA = 3.0


def _world(seed: int = 0, n: int = 2000) -> tuple[np.ndarray, np.ndarray]:
    """Two classes that a line through the cells tells apart, not a cell."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 2)).astype(np.float32)
    return x, (x[:, 0] + 0.3 * x[:, 1] > 0).astype(np.int64)


def _histogram(x: np.ndarray, y: np.ndarray, centres: np.ndarray, sigma: float, seed: int = 1, votes: int = 1) -> Release:
    """What 'noisy-histogram' would release of votes on the nearest centres."""
    cells = ((x[:, None] - centres[None]) ** 2).sum(axis=2).argsort(axis=1)[:, :votes]
    counts = np.zeros((len(centres), 2))
    np.add.at(counts, (cells.ravel(), y.repeat(votes)), 1)
    noisy = counts + np.random.default_rng(seed).normal(0, sigma, counts.shape)
    mechanism = {"aggregator": "noisy-histogram", "sigma": sigma}
    return Release(noisy.argmax(axis=1), Electorate(len(x), 2, votes), mechanism, "simulation", noisy)


def test_it_tells_records_of_one_cell_apart() -> None:
    """Eight large cells, most of them of both classes: a cell's winner is right for far fewer than the model."""
    public, truth = _world(0)
    private, labels = _world(1, 5000)
    rows = np.random.default_rng(2).choice(len(public), 8, replace=False)
    release = _histogram(private, labels, public[rows], SIGMA)
    learner = Proportions(features="identity").fit(public, release, rows, show="none")
    by_cell = release.labels[((public[:, None] - public[rows][None]) ** 2).sum(axis=2).argmin(axis=1)]
    assert learner.score(public, truth) > 0.97
    assert learner.score(public, truth) > (by_cell == truth).mean() + 0.05


def test_winners_alone_are_learnt_from_too_and_abstentions_skipped() -> None:
    public, truth = _world(0)
    rows = np.arange(40)
    labels = truth[rows].copy()
    labels[:3] = ABSTAIN
    release = Release(labels, Electorate(5000, 2, 1), {"aggregator": "gnmax", "sigma": 3.0}, "simulation")
    assert Proportions(features="identity").fit(public, release, rows, show="none").score(public, truth) > 0.9


@pytest.mark.parametrize("winners", [False, True])
def test_the_gradient_is_the_loss_s_own(winners: bool) -> None:
    rng = np.random.default_rng(3)
    means = rng.dirichlet(np.ones(3), size=4)
    counts = np.eye(3)[[0, 1, 2, 0]] if winners else rng.normal(5, 3, size=(4, 3))
    variance = None if winners else rng.uniform(1, 5, size=4)
    cells = Cells(sparse.csr_array(np.ones((4, 20))), counts, np.full(4, 15.0), variance)
    _, slope = cell_loss(cells, means)
    step = 1e-6
    for place in ((0, 0), (2, 2), (3, 1)):
        moved = means.copy()
        moved[place] += step
        found = (cell_loss(cells, moved)[0] - cell_loss(cells, means)[0]) / step
        assert found == pytest.approx(slope[place], rel=1e-3, abs=1e-4)


def test_overlapping_cells_of_several_votes_are_understood() -> None:
    """Each record votes on its three nearest of 30 queries: told so, the student is right; told of one, its cells are wrong."""
    public, truth = _world(0)
    private, labels = _world(1, 5000)
    rows = np.random.default_rng(2).choice(len(public), 30, replace=False)
    release = _histogram(private, labels, public[rows], SIGMA, votes=3)
    told, untold = (Proportions(features="identity", votes=votes).fit(public, release, rows, show="none") for votes in (3, 1))
    assert told.score(public, truth) > 0.97
    assert told.record["history"][-1]["loss"] < untold.record["history"][-1]["loss"]


def test_more_votes_than_queries_are_refused() -> None:
    public, truth = _world(0, 50)
    release = _histogram(public, truth, public[:4], SIGMA)
    with pytest.raises(StudentError, match="at most the number of queries, 4, got 5"):
        Proportions(features="identity", votes=5).fit(public, release, np.arange(4), show="none")


def test_it_is_kept_in_a_file(tmp_path: Path) -> None:
    public, _ = _world(0, 300)
    private, labels = _world(1, 500)
    rows = np.arange(10)
    learner = Proportions(features="standardise", cells="identity")
    learner.fit(public, _histogram(private, labels, public[rows], SIGMA), rows, show="none")
    learner.save(tmp_path / "student.zip")
    again = Student.load(tmp_path / "student.zip")
    np.testing.assert_array_equal(again.predict_proba(public), learner.predict_proba(public))


def test_votes_of_all_teachers_on_all_queries_are_refused() -> None:
    public, truth = _world(0, 50)
    release = Release(truth, Electorate(250, 2), {"aggregator": "gnmax", "sigma": 3.0}, "simulation")
    with pytest.raises(StudentError, match="learns from partial votes"):
        Proportions(features="identity").fit(public, release, show="none")
    with pytest.raises(ParameterError, match="ridge"):
        student("proportions", ridge=-1.0)
