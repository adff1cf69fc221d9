"""The private choice of the regularisation: disjoint parts, one change one model, the larger of both costs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("sklearn", reason="sklearn is not installed (extra 'train')")

from erm_oracles import toy

from pate.digests import keyed_place
from pate.errors import ParameterError
from pate.experiments.baselines.erm.estimators import PrivateLogisticRegression
from pate.experiments.baselines.erm.mechanisms import GaussianPerturbation
from pate.experiments.baselines.erm.tuning import PrivateTuning, own_epsilon
from pate.mechanisms.exponential import ExponentialMechanism


def test_tuning_learns_each_candidate_and_chooses_on_parts_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """A person replaced changes the one model whose part the person is in, or the choice, and nothing else."""
    seen: list[Any] = []
    kept = ExponentialMechanism.choose
    monkeypatch.setattr(ExponentialMechanism, "choose", lambda own, *rest: (seen.append((own, rest[0])), kept(own, *rest))[1])
    released: list[list[np.ndarray]] = []
    release = GaussianPerturbation.release

    def watched(self: Any, *rest: Any) -> np.ndarray:
        found = release(self, *rest)
        released[-1].append(found)
        return found

    monkeypatch.setattr(GaussianPerturbation, "release", watched)
    x, y = toy(300)
    part = keyed_place(np.arange(300), "pate.erm", 3)
    model = PrivateTuning(PrivateLogisticRegression("gaussian", 1.0, 1e-5, records=300, random_state=3), (0.01, 0.1))
    for person in [None, *(int(np.flatnonzero(part == place)[0]) for place in range(3))]:
        other = x.copy()
        if person is not None:
            other[person] = -50
        released.append([])
        model.fit(other, y)
    assert sorted(np.bincount(part)) != [0, 0, 300]
    for place in range(2):
        same = [np.array_equal(a, b) for a, b in zip(released[0], released[place + 1], strict=True)]
        assert same == [place != 0, place != 1]
    assert all(np.array_equal(a, b) for a, b in zip(released[0], released[3], strict=True))
    assert np.abs(seen[0][1] - seen[3][1]).max() <= seen[0][0].sensitivity
    assert model.task_.records == 100


def test_tuning_keeps_a_person_in_one_part() -> None:
    """Ids of records in place of persons would spread a person over several models, each at the full cost."""
    x, y = toy(300)
    users = np.arange(300) // 3
    model = PrivateTuning(PrivateLogisticRegression(random_state=0), (0.01, 0.1))
    with pytest.raises(ParameterError, match="the same for all records of one"):
        model.fit(x, y, units=users, ids=np.arange(300))
    with pytest.raises(ParameterError, match="each of the 300 records, got 299"):
        model.fit(x, y, ids=np.arange(299))
    same = [model.fit(x, y, units=users, **more).best_.weights_ for more in ({}, {"ids": users})]
    assert np.array_equal(*same)
    assert model.fit(x, y, units=users, ids=[f"person {user}" for user in users]).task_.records == 33


def test_tuning_costs_one_model_or_the_choice_whichever_is_more() -> None:
    x, y = toy(300)
    for method in ("output", "gaussian"):
        model = PrivateTuning(PrivateLogisticRegression(method, 0.7, 1e-5, random_state=0), (0.01, 0.1)).fit(x, y)
        assert np.allclose(model.curve.values, model.mechanism_.curve.values), "the choice costs no more, at any order"
        assert model.epsilon_at(1e-5) == pytest.approx(0.7, abs=1e-6)
        assert model.choice_epsilon_ == own_epsilon(model.mechanism_)
    dear = PrivateTuning(PrivateLogisticRegression("output", 0.7, random_state=0), (0.01, 0.1), choice_epsilon=2.0).fit(x, y)
    assert dear.epsilon_at(1e-5) == 2.0
    assert (dear.curve.values > dear.mechanism_.curve.values).all()


def test_tuning_finds_the_candidate_that_is_no_nonsense() -> None:
    x, y = toy(6000)
    model = PrivateTuning(PrivateLogisticRegression(epsilon=1.0, data_norm=5.0, random_state=1), (1e-3, 1e4)).fit(x, y)
    assert model.regularisation_ == 1e-3
    assert model.best_.get_params()["regularisation"] == "auto", "the estimator itself is not changed"


def test_tuning_needs_candidates() -> None:
    with pytest.raises(ParameterError, match="two or more, got 1"):
        PrivateTuning(candidates=(0.1,)).fit(*toy(50))


def test_tuning_refuses_a_delta_that_means_nothing() -> None:
    with pytest.raises(ParameterError, match="below 1/50"):
        PrivateTuning(PrivateLogisticRegression("gaussian", delta=0.5)).fit(*toy(50))
