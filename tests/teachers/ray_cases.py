"""Data and clusters that the tests of teachers on Ray share."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from pate.teachers import Ensemble, Partition, PrivateData

N_TEACHERS = 24
N_CLASSES = 3


def private_data(n: int = 24 * 30) -> PrivateData:
    rng = np.random.default_rng(0)
    y = rng.integers(0, N_CLASSES, size=n)
    x = (rng.normal(size=(n, 12)) + 0.6 * y[:, None]).astype(np.float32)
    return PrivateData(x, y, ids=[f"patient-{i}" for i in range(n)], name="ward")


def split() -> Partition:
    return Partition.by_hash(private_data(), N_TEACHERS, salt="2026")


QUERIES = (np.random.default_rng(1).normal(size=(50, 12)) + 0.6 * (np.arange(50)[:, None] % 3)).astype(np.float32)


def train(run: Path, model: Any, **options: Any) -> Ensemble:
    return Ensemble.train(split(), model, run, **({"n_classes": N_CLASSES, "show": "none"} | options))


def wait_until(condition: Callable[[], bool], what: str, seconds: float = 120.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"waited {seconds:g} s in vain for {what}"
        time.sleep(0.05)


def finished_teachers(run: Path) -> set[int]:
    return {int(path.stem) for path in (run / "records").glob("[0-9]*.json")}


@contextmanager
def cluster_of(*nodes: dict[str, Any]) -> Iterator[Any]:
    """A cluster of several nodes on this machine; the first is the head, to which the driver is attached."""
    import ray
    from ray.cluster_utils import Cluster

    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(sys.path)  # workers find the tests' own modules
    cluster = Cluster(initialize_head=True, head_node_args={"include_dashboard": False, **nodes[0]})
    try:
        for node in nodes[1:]:
            cluster.add_node(**node)
        cluster.wait_for_nodes()
        yield cluster
    finally:
        ray.shutdown()
        cluster.shutdown()
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before


def kill_node(cluster: Any, node: Any) -> None:
    """As a power cut would: its processes get no chance to say goodbye. They are awaited here, so that none is left behind."""
    processes = [each.process for group in node.all_processes.values() for each in group]
    cluster.remove_node(node, allow_graceful=False)
    for process in processes:
        process.wait()
