"""The estimators: scikit-learn's own checks, declared bounds, the ledger before the noise."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("sklearn", reason="sklearn is not installed (extra 'train')")

from erm_oracles import neighbours, toy
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

from pate.errors import BudgetExceeded, DataError, NoiseError, ParameterError
from pate.experiments.baselines.erm.estimators import PrivateHuberSVM, PrivateLinearClassifier, PrivateLogisticRegression
from pate.experiments.baselines.erm.paying import within
from pate.experiments.baselines.erm.random_features import RandomFeatures
from pate.experiments.baselines.erm.rows import Bound, people_of
from pate.experiments.baselines.erm.tuning import PrivateTuning
from pate.ledger import Budget, Ledger
from pate.noise import SimulatedNoise
from pate.privacy.curve import DEFAULT_ORDERS, RdpCurve
from pate.sampling import Words

LOUD = {"epsilon": 1e5, "random_state": 0}  # the checks want accuracy on a few hundred records


@parametrize_with_checks(
    [
        PrivateLogisticRegression(**LOUD),
        PrivateHuberSVM(method="output", **LOUD),
        PrivateTuning(PrivateLogisticRegression(**LOUD), (1e-3, 1e-2)),
        RandomFeatures(),
    ]
)
def test_scikit_learns_own_checks(estimator: Any, check: Any) -> None:
    check(estimator)


@pytest.mark.parametrize("kind", [PrivateLogisticRegression, PrivateHuberSVM])
@pytest.mark.parametrize("method", ["output", "objective", "gaussian"])
def test_with_much_epsilon_it_is_the_plain_model(kind: type[PrivateLinearClassifier], method: str) -> None:
    x, y = toy()
    model = kind(method, epsilon=1e4, delta=1e-5, data_norm=10.0, regularisation=1e-4, random_state=0).fit(x, y)
    plain = LogisticRegression(C=10.0).fit(x, y)
    assert abs(model.score(x, y) - plain.score(x, y)) < 0.01
    assert (model.predict(x) == plain.predict(x)).mean() > 0.97
    assert np.allclose(model.decision_function(x), x @ model.coef_[0] + model.intercept_[0])
    assert np.allclose(model.predict_proba(x).sum(axis=1), 1)


def test_without_noise_the_weights_are_those_of_scikit_learn() -> None:
    """Logistic regression, no intercept, nothing cut: regularisation r of the mean and norm is C = 1/(n r norm^2)."""
    x, y = toy(500)
    norm = 10.0
    model = PrivateLogisticRegression("output", 1e12, None, 0.01, norm, fit_intercept=False, random_state=0).fit(x, y)
    plain = LogisticRegression(C=1 / (500 * 0.01 * norm**2), fit_intercept=False, tol=1e-10, max_iter=1000).fit(x, y)
    assert np.allclose(model.coef_, plain.coef_, rtol=1e-4)


def test_a_record_is_cut_by_itself_and_its_row_is_never_longer_than_one() -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(200, 7)) * 10.0 ** rng.integers(-8, 200, (200, 1))
    for intercept in (True, False):
        bound = Bound(2.0, intercept)
        rows = bound.rows(x)
        exact = [math.sqrt(math.fsum(float(v) ** 2 for v in row)) for row in rows]
        assert max(exact) <= 1
        assert np.array_equal(rows[17:18], bound.rows(x[17:18])), "whoever else is there"
    short = rng.normal(size=(5, 7)) / 10
    assert np.allclose(Bound(2.0, False).rows(short), short / 2)
    with pytest.raises(DataError, match="data_norm = 2"):
        Bound(2.0, refuse=True).rows(x)
    with pytest.raises(DataError, match="data_norm"):
        PrivateLogisticRegression(out_of_bounds="refuse", random_state=0).fit(*toy(50))


def test_a_persons_records_weigh_one_in_all() -> None:
    people = people_of(np.ones((5, 1)), np.ones(5, dtype=bool), np.array(["a", "b", "a", "a", "b"]))
    assert people.count == 2
    assert math.fsum(people.weights[[0, 2, 3]]) <= 1
    assert people.weights.sum() == pytest.approx(2)


def ledgers(folder: Path, epsilon: float = 1.0, order: float | None = None) -> Ledger:
    return Ledger.open(folder / "ledger.db", "toy", Budget(epsilon, 1e-5, order))


class Watched(SimulatedNoise):
    """Says at every draw how many charges the ledger holds."""

    def __init__(self, ledger: Ledger) -> None:
        super().__init__(0)
        self.ledger, self.seen = ledger, list[int]()

    def words(self, size: int) -> Words:
        self.seen.append(sum(entry.kind == "charge" for entry in self.ledger.entries()))
        return super().words(size)


@pytest.mark.parametrize("method", ["output", "objective", "gaussian"])
@pytest.mark.parametrize("tuned", [False, True])
def test_the_ledger_is_charged_before_noise_is_drawn(tmp_path: Path, method: str, tuned: bool) -> None:
    x, y = toy(400)
    model: Any = PrivateLogisticRegression(method, epsilon=None, delta=1e-5)
    if tuned:
        model = PrivateTuning(model, (0.01, 0.1))
    with ledgers(tmp_path) as ledger:
        noise = Watched(ledger)
        model.fit(x, y, ledger=ledger, noise=noise)
        assert noise.seen
        assert set(noise.seen) == {1}
        (entry,) = (entry for entry in ledger.entries() if entry.kind == "charge")
        assert entry.cost is not None
        curve = model.curve if tuned else model.mechanism_.curve
        assert (entry.cost.values >= curve.values).all()
        assert entry.memo["mode"] == "simulation"
        drawn = len(noise.seen)
        with pytest.raises(BudgetExceeded):
            model.fit(x, y, ledger=ledger, noise=noise, key="another")
        assert len(noise.seen) == drawn, "nothing is drawn that is not paid for"
        model.fit(x, y, ledger=ledger, noise=Watched(ledger))
        assert len(ledger.entries()) == 2, "a simulation repeats itself, and pays once"


@pytest.mark.parametrize("tuned", [False, True])
def test_a_declared_number_that_is_far_off_is_refused_before_anything_is_paid(tmp_path: Path, tuned: bool) -> None:
    x, y = toy(400)
    model: Any = PrivateLogisticRegression(records=90)
    if tuned:
        model = PrivateTuning(model, (0.01, 0.1))
    with ledgers(tmp_path, 3.0) as ledger:
        with pytest.raises(DataError, match="at least a quarter"):
            model.fit(x, y, ledger=ledger)
        assert [entry.kind for entry in ledger.entries()] == ["open"]


def test_a_release_pays_each_time(tmp_path: Path) -> None:
    x, y = toy(400)
    with ledgers(tmp_path, 3.0) as ledger:
        for _ in range(2):
            model = PrivateLogisticRegression(epsilon=0.1).fit(x, y, ledger=ledger)
            assert model.mode_ == "release"
        keys = [entry.key for entry in ledger.entries() if entry.kind == "charge"]
    assert keys == ["erm, try 1", "erm, try 2"]


@pytest.mark.parametrize("tuned", [False, True])
def test_a_refused_fit_leaves_nothing_of_an_earlier_one(tmp_path: Path, tuned: bool) -> None:
    """Else the epsilon of the refused fit would stand beside weights that cost more."""
    x, y = toy(400)
    model: Any = PrivateLogisticRegression(epsilon=5.0, classes=(0, 1))
    if tuned:
        model = PrivateTuning(model, (0.01, 0.1))
    model.fit(x, y)
    model.set_params(**{"estimator__epsilon" if tuned else "epsilon": 0.5})
    with ledgers(tmp_path, 0.1) as ledger:
        for _ in range(2):
            with pytest.raises(BudgetExceeded):
                model.fit(x, y, ledger=ledger)
            assert not {"coef_", "weights_", "best_"} & set(vars(model))
            for use in (model.predict, model.predict_proba, model.decision_function):
                with pytest.raises(NotFittedError):
                    use(x)
            model = clone(model)  # never fitted at all


@pytest.mark.parametrize("order", [None, 1024.0])
@pytest.mark.parametrize("method", ["output", "gaussian"])
def test_a_budget_is_used_and_not_overdrawn(method: str, order: float | None) -> None:
    budget = Budget(0.5, 1e-5, order)
    found = within(method, budget)
    assert budget.queries_affordable(found.curve) == 1
    louder = within(method, Budget(0.5, 1e-5, order)).curve.values * (1 + 1e-4)
    assert budget.queries_affordable(RdpCurve(DEFAULT_ORDERS, louder)) == 0, "hardly anything is left over"


def test_random_features_have_length_one_and_make_a_circle_learnable() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(4000, 2))
    y = (np.linalg.norm(x, axis=1) > 1.2).astype(int)
    features = RandomFeatures(100, gamma=0.5).fit(x)
    assert np.allclose(np.linalg.norm(features.transform(1e3 * x), axis=1), 1, atol=1e-12)
    assert np.array_equal(features.transform(x), RandomFeatures(100, gamma=0.5).fit(x[:3] + 9).transform(x)), "of no data"
    linear = PrivateLogisticRegression(epsilon=2.0, data_norm=4.0, random_state=0).fit(x, y)
    kernel = make_pipeline(RandomFeatures(100, gamma=0.5), PrivateLogisticRegression(epsilon=2.0, random_state=0)).fit(x, y)
    assert linear.score(x, y) < 0.65 < 0.85 < kernel.score(x, y)
    with pytest.raises(ParameterError, match="even"):
        RandomFeatures(7).fit(x)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"epsilon": None}, "None with a ledger"),
        ({"data_norm": 0.0}, "data_norm"),
        ({"regularisation": -1.0}, "regularisation"),
        ({"delta": 0.5, "method": "gaussian"}, "below 1/50"),
        ({"classes": (0, 1, 2)}, "two classes, got 3 classes"),
        ({"classes": (0, 2)}, "found another one"),
        ({"out_of_bounds": "scale"}, '"cut" or "refuse"'),
        ({"random_state": -1}, "random_state"),
        ({"records": 0}, "records"),
        ({"weight_norm": 0.0}, "weight_norm"),
    ],
)
def test_wrong_parameters_are_told_when_it_is_fitted(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(ParameterError, match=told):
        PrivateLogisticRegression(**{"random_state": 0, **changes}).fit(*toy(50))


def test_a_fork_cannot_draw_the_same_noise() -> None:
    noise = SimulatedNoise(0)
    noise._pid = -1
    with pytest.raises(NoiseError, match="fork"):
        PrivateLogisticRegression().fit(*toy(50), noise=noise)


def pairs() -> Iterator[tuple[Any, Any]]:
    rng = np.random.default_rng(2)
    for _ in range(5):
        yield neighbours(rng, 12, 2)


def test_what_is_published_of_a_task_is_the_same_for_neighbours() -> None:
    """Regularisation, noise and bounds come from declared numbers; only the weights come from data."""
    for pair in pairs():
        facts = []
        for data in pair:
            model = PrivateLogisticRegression(random_state=0, classes=(-1, 1)).fit(data.rows, data.signs.astype(int))
            facts.append((model.memo(), model.task_))
        assert facts[0] == facts[1]
