"""Clusters of several nodes on this machine: a node is killed while teachers train; a silo's teachers stay with its data."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import numpy as np
import pytest
from ray_cases import QUERIES, cluster_of, finished_teachers, kill_node, train, wait_until
from small_teachers import MeanTeachers

from pate.errors import TeacherError
from pate.execution import Finished, OnRay, Placement, Task
from pate.teachers import Ensemble, Partition, PrivateData


def test_a_killed_node_costs_nothing(tmp_path: Path) -> None:
    with cluster_of({"num_cpus": 1}, {"num_cpus": 1}) as cluster:
        doomed = cluster.add_node(num_cpus=1)
        cluster.wait_for_nodes()
        run = tmp_path / "run"
        killed = threading.Event()

        def kill_the_node() -> None:
            wait_until(lambda: len(finished_teachers(run)) >= 3, "the first teachers")
            kill_node(cluster, doomed)
            killed.set()

        killer = threading.Thread(target=kill_the_node)
        killer.start()
        ensemble = train(run, MeanTeachers(pause=0.5, chunk=2), executor=OnRay(cluster.address))
        killer.join()
        assert killed.is_set()
        assert ensemble.failures == {}
        undisturbed = train(tmp_path / "undisturbed", MeanTeachers())
        np.testing.assert_array_equal(ensemble.predict(QUERIES), undisturbed.predict(QUERIES))


def visible_gpus(_: None, shared: object) -> str:
    return os.environ["CUDA_VISIBLE_DEVICES"]


@pytest.mark.slow
def test_a_silo_is_trained_and_asked_where_its_data_lies(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    silos = np.repeat(["north", "south"], 60)
    data = PrivateData(rng.normal(size=(120, 3)), rng.integers(0, 2, 120), ids=np.arange(120))
    places = {"north": Placement({"silo:north": 0.01}), "south": Placement(labels={"silo": "south"})}
    parts = Partition.by_silo(data, silos, placements=places, teachers_per_silo=2)
    with cluster_of(
        {"num_cpus": 1, "num_gpus": 1},
        {"num_cpus": 1, "resources": {"silo:north": 1}},
        {"num_cpus": 1, "labels": {"silo": "south"}},
    ) as cluster:
        ray = OnRay(cluster.address, patience=5.0)
        ensemble = Ensemble.train(parts, MeanTeachers(), tmp_path / "run", n_classes=2, executor=ray)
        there = ensemble.predict(data.x[:20], executor=ray)
        (seen,) = OnRay(cluster.address, gpus=0.25).run(visible_gpus, [Task(0, None)], {})
        assert seen == Finished(0, "0")  # four such tasks share the one (made-up) GPU
        kill_node(cluster, cluster.list_all_nodes()[-1])
        with pytest.raises(TeacherError, match="no live node has what it needs"):
            ensemble.predict(data.x[:20], executor=ray)
    np.testing.assert_array_equal(there, ensemble.predict(data.x[:20]))
