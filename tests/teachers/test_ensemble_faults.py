"""Real faults on real Ray: processes and the driver are killed while teachers train. The votes stay the same."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from ray_cases import N_TEACHERS, QUERIES, finished_teachers, train, wait_until
from small_teachers import MeanTeachers

from pate.errors import TeacherError
from pate.execution import OnRay
from pate.teachers import Ensemble

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> NDArray[np.int8]:
    return train(tmp_path_factory.mktemp("undisturbed"), MeanTeachers()).predict(QUERIES)


@pytest.fixture(scope="module")
def two_workers() -> Iterator[OnRay]:
    with OnRay(workers=2, retries=1) as executor:
        yield executor


def trainings(log: Path) -> list[int]:
    return sorted(int(path.name.partition("-")[0]) for path in log.iterdir())


def test_killed_workers_cost_nothing(two_workers: OnRay, undisturbed: NDArray[np.int8], tmp_path: Path) -> None:
    markers, log = tmp_path / "markers", tmp_path / "log"
    markers.mkdir()
    log.mkdir()
    family = MeanTeachers(deadly=[5, 14], once=str(markers), trained_log=str(log))
    ensemble = train(tmp_path / "run", family, executor=two_workers)
    assert {path.name for path in markers.iterdir()} == {"died-5", "died-14"}  # they really died
    assert ensemble.failures == {}
    np.testing.assert_array_equal(ensemble.predict(QUERIES), undisturbed)
    # Teacher 4 was finished when its chunk died with teacher 5, so it was not trained again.
    assert trainings(log) == list(range(N_TEACHERS))


def test_a_teacher_that_always_kills_its_process_fails_alone(
    two_workers: OnRay, undisturbed: NDArray[np.int8], tmp_path: Path
) -> None:
    ensemble = train(tmp_path, MeanTeachers(deadly=[9]), executor=two_workers, default_vote=1)
    assert ensemble.failures == {9: "Lost"}
    assert "its process died 2 times, alone" in ensemble.records[9].error
    predictions = ensemble.predict(QUERIES, executor=two_workers)
    assert (predictions[9] == 1).all()
    others = np.arange(N_TEACHERS) != 9
    np.testing.assert_array_equal(predictions[others], undisturbed[others])


def test_a_raising_teacher_fails_alone(two_workers: OnRay, undisturbed: NDArray[np.int8], tmp_path: Path) -> None:
    ensemble = train(tmp_path, MeanTeachers(raising=[2]), executor=two_workers)
    assert ensemble.failures == {2: "ValueError"}
    others = np.arange(N_TEACHERS) != 2
    np.testing.assert_array_equal(ensemble.predict(QUERIES)[others], undisturbed[others])


@pytest.mark.slow
def test_too_many_deaths_stop_the_run(two_workers: OnRay, tmp_path: Path) -> None:
    with pytest.raises(TeacherError, match=r"2 of 24 teachers failed.*Lost"):
        train(tmp_path, MeanTeachers(deadly=[9, 10]), executor=two_workers)


def test_a_killed_driver_is_resumed(undisturbed: NDArray[np.int8], tmp_path: Path) -> None:
    run, log = tmp_path / "run", tmp_path / "log"
    log.mkdir()
    driver = subprocess.Popen([sys.executable, str(HERE / "driver_to_kill.py"), str(run), str(log)])
    wait_until(lambda: len(finished_teachers(run)) >= 4, "the first teachers")
    driver.send_signal(signal.SIGKILL)
    driver.wait()
    safe = finished_teachers(run)
    assert len(safe) < N_TEACHERS
    with pytest.raises(TeacherError, match="not finished"):
        Ensemble.open(run)
    with pytest.raises(TeacherError, match="holds a run already"):
        train(run, MeanTeachers(pause=0.4, trained_log=str(log), chunk=2))
    # A worker that outlives its driver for a moment finishes what it does: harmless, files are put in place whole.
    ensemble = train(run, MeanTeachers(pause=0.4, trained_log=str(log), chunk=2), resume=True)
    np.testing.assert_array_equal(ensemble.predict(QUERIES), undisturbed)
    counted = trainings(log)
    assert all(counted.count(teacher) == 1 for teacher in safe)  # never trained twice


@pytest.mark.slow
def test_an_out_of_memory_kill_fails_the_greedy_teacher_alone(undisturbed: NDArray[np.int8], tmp_path: Path) -> None:
    """Ray's own memory monitor, told to step in at 1.5 GiB above what the machine uses now."""
    memory = {line.partition(":")[0]: int(line.split()[1]) for line in Path("/proc/meminfo").read_text().splitlines()}
    used = 1 - memory["MemAvailable"] / memory["MemTotal"] + 1.5 * 2**20 / memory["MemTotal"]
    code = (
        "import sys, numpy as np\n"
        "from pathlib import Path\n"
        "from ray_cases import QUERIES, train\n"
        "from small_teachers import MeanTeachers\n"
        "from pate.execution import OnRay\n"
        "with OnRay(workers=2, retries=1) as ray:\n"
        "    ensemble = train(Path(sys.argv[1]), MeanTeachers(greedy=[7]), executor=ray)\n"
        "print(ensemble.records[7].error)\n"
        "np.save(sys.argv[2], ensemble.predict(QUERIES))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "run"), str(tmp_path / "votes.npy")],
        capture_output=True,
        text=True,
        env=os.environ
        | {"PYTHONPATH": str(HERE), "RAY_memory_usage_threshold": f"{used:.4f}", "RAY_memory_monitor_refresh_ms": "100"},
    )
    assert "Lost: its process was killed for want of memory 2 times, alone" in done.stdout, done.stderr
    others = np.arange(N_TEACHERS) != 7
    np.testing.assert_array_equal(np.load(tmp_path / "votes.npy")[others], undisturbed[others])


@pytest.mark.slow
def test_data_larger_than_the_object_store_are_trained_on(tmp_path: Path) -> None:
    code = (
        "import sys, numpy as np\n"
        "from pathlib import Path\n"
        "from small_teachers import MeanTeachers\n"
        "from pate.execution import OnRay\n"
        "from pate.teachers import Ensemble, Partition, PrivateData\n"
        "x = np.random.default_rng(0).normal(size=(30_000, 1_000)).astype(np.float32)\n"  # 120 MB
        "data = PrivateData(x, np.arange(30_000) % 2, ids=np.arange(30_000))\n"
        "parts = Partition.by_hash(data, 20, salt='s')\n"
        "with OnRay(workers=2, object_store=80_000_000) as ray:\n"
        "    ensemble = Ensemble.train(parts, MeanTeachers(), sys.argv[1], n_classes=2, executor=ray)\n"
        "    there = ensemble.predict(x[:50], executor=ray)\n"
        "here = Ensemble.train(parts, MeanTeachers(), sys.argv[2], n_classes=2).predict(x[:50])\n"
        "print('equal', (there == here).all())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "a"), str(tmp_path / "b")],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(HERE)},
    )
    assert "equal True" in done.stdout, done.stderr
