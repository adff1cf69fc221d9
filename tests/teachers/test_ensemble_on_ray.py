"""The same votes, bit by bit, from one process, Ray with one and two workers, and a cluster of three nodes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ray_cases import QUERIES, cluster_of, train
from small_teachers import MeanTeachers

from pate.execution import Executor, OnRay, Serial
from pate.teachers.sklearn_teachers import SklearnTeachers

FAMILIES: dict[str, Any] = {
    "logistic": "logistic",
    "ridge": "ridge",
    "mlp": "mlp",
    "scikit-learn": SklearnTeachers("sklearn.linear_model.LogisticRegression"),
    "own": MeanTeachers(),
}


def everything(executor: Executor, folder: Path) -> dict[str, tuple[Any, ...]]:
    """For every family: votes, counts, and the checksums of the models."""
    results = {}
    for name, model in FAMILIES.items():
        ensemble = train(folder / name, model, executor=executor)
        results[name] = (
            ensemble.predict(QUERIES, executor=executor),
            ensemble.vote(QUERIES, executor=executor).counts,
            [record.model for record in ensemble.records] if name != "scikit-learn" else [],
        )
    return results


def agree(found: dict[str, tuple[Any, ...]], expected: dict[str, tuple[Any, ...]]) -> None:
    for name, (predictions, counts, models) in expected.items():
        np.testing.assert_array_equal(found[name][0], predictions, err_msg=name)
        np.testing.assert_array_equal(found[name][1], counts, err_msg=name)
        assert found[name][2] == models, name


@pytest.fixture(scope="module")
def serial(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Any, ...]]:
    return everything(Serial(), tmp_path_factory.mktemp("serial"))


def test_the_votes_differ_between_teachers(serial: dict[str, tuple[Any, ...]]) -> None:
    for name, (predictions, counts, _) in serial.items():
        assert len(np.unique(predictions, axis=0)) > 1, name
        assert (counts.sum(axis=1) == len(predictions)).all()


@pytest.mark.parametrize("workers", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_ray_on_this_machine_gives_the_same_bits(workers: int, serial: dict[str, tuple[Any, ...]], tmp_path: Path) -> None:
    with OnRay(workers=workers) as executor:
        agree(everything(executor, tmp_path), serial)


def test_a_cluster_of_three_nodes_gives_the_same_bits(serial: dict[str, tuple[Any, ...]], tmp_path: Path) -> None:
    with cluster_of({"num_cpus": 1}, {"num_cpus": 1}, {"num_cpus": 1}) as cluster:
        agree(everything(OnRay(cluster.address), tmp_path), serial)
