"""Every executor keeps the same promises; Ray here is real, started once for the module."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pate.errors import ExecutionError, ParameterError
from pate.execution import Executor, Finished, Lost, OnRay, Placement, Serial, Task


@pytest.fixture(scope="module")
def on_ray() -> Iterator[OnRay]:
    with OnRay(workers=2, retries=1, patience=1.5) as executor:
        yield executor


@pytest.fixture(params=["serial", "ray"])
def executor(request: pytest.FixtureRequest) -> Executor:
    return Serial() if request.param == "serial" else request.getfixturevalue("on_ray")


def row(index: int, shared: Any) -> Any:
    return shared["table"][index].copy()


def tasks(count: int) -> list[Task[int]]:
    return [Task(100 + index, index) for index in range(count)]


TABLE = np.arange(60, dtype=np.int64).reshape(20, 3)


def test_every_task_finishes_once(executor: Executor) -> None:
    outcomes = list(executor.run(row, tasks(20), {"table": TABLE}))
    assert sorted(outcome.key for outcome in outcomes) == list(range(100, 120))
    for outcome in outcomes:
        assert isinstance(outcome, Finished)
        np.testing.assert_array_equal(outcome.value, TABLE[outcome.key - 100])


def test_totals_agree(executor: Executor) -> None:
    np.testing.assert_array_equal(executor.total(row, tasks(20), {"table": TABLE}), TABLE.sum(axis=0))
    np.testing.assert_array_equal(executor.total(row, tasks(1), {"table": TABLE}), TABLE[0])
    with pytest.raises(ExecutionError, match="at least one task"):
        executor.total(row, [], {"table": TABLE})


def test_what_a_task_raises_is_raised(executor: Executor) -> None:
    with pytest.raises(IndexError):
        list(executor.run(row, [Task(0, 99)], {"table": TABLE}))


def scribble(_: int, shared: Any) -> None:
    shared["table"][0] = 0


def test_shared_arrays_cannot_be_written(executor: Executor) -> None:
    before = TABLE.copy()
    with pytest.raises(ValueError, match="read-only"):
        list(executor.run(scribble, [Task(0, 0)], {"table": TABLE}))
    np.testing.assert_array_equal(TABLE, before)
    assert TABLE.flags.writeable


def threads(_: int, shared: Any) -> list[int]:
    import threadpoolctl

    np.ones((2, 2)) @ np.ones((2, 2))
    return [pool["num_threads"] for pool in threadpoolctl.threadpool_info()]


def test_numerical_libraries_run_on_one_thread(executor: Executor) -> None:
    (outcome,) = executor.run(threads, [Task(0, 0)], {})
    assert isinstance(outcome, Finished)
    assert set(outcome.value) == {1}


def test_tasks_are_made_as_they_are_needed(on_ray: OnRay) -> None:
    made = []

    def lazily() -> Iterator[Task[int]]:
        for task in tasks(20):
            made.append(task.key)
            yield task

    outcomes = on_ray.run(row, lazily(), {"table": TABLE})
    next(outcomes)
    assert len(made) <= 8  # two run, two wait, one has finished, and a little slack
    outcomes.close()


def die(marker: str, shared: Any) -> str:
    path = Path(marker)
    if path.name == "always" or not path.exists():
        path.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return "alive"


def test_a_killed_process_is_tried_again_and_then_lost(on_ray: OnRay, tmp_path: Path) -> None:
    jobs = [Task(0, str(tmp_path / "first time only")), Task(1, str(tmp_path / "always"))]
    outcomes = {outcome.key: outcome for outcome in on_ray.run(die, jobs, {})}
    assert outcomes[0] == Finished(0, "alive")
    assert outcomes[1] == Lost(1, "its process died 2 times, alone")


def test_a_task_is_not_blamed_for_what_killed_its_process(on_ray: OnRay, tmp_path: Path) -> None:
    """Three killers among twelve: Ray queues several tasks for one process, and all of them go down with it."""
    harmless = tmp_path / "here already"
    harmless.touch()
    jobs = [Task(key, str(tmp_path / "always" if key % 4 == 1 else harmless)) for key in range(12)]
    outcomes = {outcome.key: outcome for outcome in on_ray.run(die, jobs, {})}
    assert {key for key, outcome in outcomes.items() if isinstance(outcome, Lost)} == {1, 5, 9}


def test_a_sum_without_a_part_is_refused(on_ray: OnRay, tmp_path: Path) -> None:
    with pytest.raises(ExecutionError, match="would lack its part"):
        on_ray.total(die, [Task(0, str(tmp_path / "always"))], {})  # type: ignore[arg-type]


@pytest.mark.parametrize("placement", [Placement({"silo:north": 1.0}), Placement(labels={"silo": "north"})])
def test_no_node_with_the_data_is_reported(on_ray: OnRay, placement: Placement) -> None:
    (outcome,) = on_ray.run(row, [Task(7, 0, placement)], {"table": TABLE})
    assert isinstance(outcome, Lost)
    assert "no live node" in outcome.reason
    assert "north" in outcome.reason


def test_a_cluster_that_is_not_there_is_a_clear_error(tmp_path: Path) -> None:
    code = (
        "from pate.execution import OnRay, Task\n"
        "from pate.errors import ExecutionError\n"
        "try:\n    list(OnRay('127.0.0.1:1').run(len, [Task(0, 'a')], {}))\n"
        "except ExecutionError as error:\n    print(error)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=os.environ | {"RAY_AUTH_MODE": "disabled"}
    )
    assert "Ray at '127.0.0.1:1' cannot be reached" in done.stdout, done.stderr


def test_ray_starts_where_the_home_directory_cannot_be_written() -> None:
    code = (
        "from pate.execution import OnRay, Task\n"
        "with OnRay(workers=1) as executor:\n"
        "    print(list(executor.run(lambda text, shared: text.upper(), [Task(0, 'works')], {})))"
    )
    clean = {name: value for name, value in os.environ.items() if not name.startswith("RAY_AUTH")}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=clean | {"HOME": "/proc/no-home"})
    assert "WORKS" in done.stdout, done.stderr


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"workers": 0}, "workers"), ({"cpus": 0}, "cpus"), ({"gpus": -1}, "gpus"), ({"retries": -1}, "retries")],
)
def test_settings_are_checked(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        OnRay(**settings)


def meet(folder: str, shared: Any) -> int:
    """Waits for another process that does the same: however long its start takes."""
    (Path(folder) / str(os.getpid())).touch()
    end = time.monotonic() + 60
    while len(list(Path(folder).iterdir())) < 2 and time.monotonic() < end:
        time.sleep(0.05)
    return os.getpid()


def test_two_workers_work_at_once(on_ray: OnRay, tmp_path: Path) -> None:
    jobs = [Task(key, str(tmp_path)) for key in range(2)]
    found = {outcome.value for outcome in on_ray.run(meet, jobs, {}) if isinstance(outcome, Finished)}
    assert len(found) == 2
