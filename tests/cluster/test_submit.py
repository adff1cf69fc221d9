"""Runs as Ray jobs, for real: a head with its job server, the command in processes of its own."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from pate.experiments.recipes.reading import check_recipe
from pate.experiments.results import Result

for package in ("sklearn", "matplotlib", "jinja2"):
    pytest.importorskip(package, reason=f"{package} is not installed (extras 'train' and 'plot')")

CLUSTER = Path(__file__).parents[2] / "experiments" / "cluster"


def pate(environment: dict[str, str], *words: object, timeout: float = 150) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pate.cli", *map(str, words)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=timeout)


def test_a_run_goes_out_and_its_results_come_back(head: str, away: dict[str, str], tmp_path: Path) -> None:
    """The same figures as here; a second job of the same name is not sent; the log can be read, without the parcel in it."""
    sent = pate(away, "submit", "digits", "--address", head, "--submission-id", "first", "--out", tmp_path / "back")
    assert sent.returncode == 0, sent.stderr
    assert "[9/9] report: done" in sent.stderr, "the log was followed"
    (folder,) = (tmp_path / "back").iterdir()
    here = pate(away, "run", "digits", "--serial", "--json")
    own, other = Result.model_validate(json.loads(here.stdout)["result"]), Result.read(folder)
    assert (own.evaluation, own.privacy, own.label_noise) == (other.evaluation, other.privacy, other.label_noise)
    assert (folder / "report.html").exists(), "public data: all of it travels"
    again = pate(away, "submit", "digits", "--address", head, "--submission-id", "first")
    assert again.returncode == 6
    assert "is there already" in again.stderr
    log = pate(away, "jobs", "logs", "first", "--address", head)
    assert "[9/9] report" in log.stdout
    assert max(map(len, log.stdout.splitlines())) < 1000
    assert "first" in pate(away, "jobs", "list", "--address", head).stdout
    status = json.loads(pate(away, "jobs", "status", "first", "--address", head, "--json").stdout)
    assert (status["status"], status["exit_code"]) == ("SUCCEEDED", 0)


@pytest.mark.slow
def test_a_job_outlives_its_submitter_and_can_be_stopped(head: str, away: dict[str, str], tmp_path: Path) -> None:
    words = ["submit", "digits", "--address", head, "--set", "aggregator.sigma=9.0", "--submission-id", "orphan"]
    with subprocess.Popen([sys.executable, "-m", "pate.cli", *words], env=away, stderr=subprocess.PIPE, text=True) as client:
        assert client.stderr is not None
        for line in client.stderr:
            if line.startswith("Job orphan"):
                break
        client.send_signal(signal.SIGKILL)
    (tmp_path / "pipeline_cases_cluster.py").write_text(
        "import time\nclass Slow:\n    def fit(self, x, y): time.sleep(60)\n    def predict(self, x): return [0] * len(x)\n"
    )
    recipe = tmp_path / "slow.toml"
    recipe.write_text(_slow_recipe())
    stopped = {**away, "PYTHONPATH": f"{away['PYTHONPATH']}:{tmp_path}"}
    sent = pate(stopped, "submit", recipe, "--address", head, "--upload", "pipeline_cases_cluster.py", "--no-wait")
    assert sent.returncode == 0, sent.stderr
    name = sent.stdout.strip()
    _wait_for(lambda: "[4/9]" in pate(away, "jobs", "logs", name, "--address", head).stdout)
    assert "STOPPED" in pate(away, "jobs", "stop", name, "--address", head).stdout
    assert pate(away, "jobs", "results", name, "--address", head).returncode == 1, "it was stopped"
    followed = pate(away, "jobs", "logs", "orphan", "--follow", "--address", head)
    assert followed.returncode == 0, followed.stderr
    back = pate(away, "jobs", "results", "orphan", "--address", head, "--out", tmp_path / "later")
    assert back.returncode == 0, back.stderr
    assert Result.read(next((tmp_path / "later").iterdir())).privacy.mechanism["sigma"] == 9.0


def test_a_job_that_fails_ends_as_it_would_here(head: str, away: dict[str, str], tmp_path: Path) -> None:
    refused = pate(away, "submit", "digits", "--address", head, "--set", "aggregator.sigma=3.0")
    assert refused.returncode == 3, refused.stderr
    assert "does not cover" in refused.stderr


def test_what_cannot_be_reached_or_found_is_one_line(head: str, away: dict[str, str]) -> None:
    dead = pate(away, "submit", "digits", "--address", "http://127.0.0.1:1")
    assert (dead.returncode, dead.stderr.count("\n")) == (6, 1)
    unknown = pate(away, "jobs", "status", "nobody", "--address", head)
    assert unknown.returncode == 6
    assert "there is no job 'nobody'" in unknown.stderr
    stranger = pate({**away, "RAY_AUTH_TOKEN": "guessed"}, "jobs", "list", "--address", head)
    assert stranger.returncode == 6
    assert "RAY_AUTH_TOKEN" in stranger.stderr
    nowhere = pate(away, "jobs", "list")
    assert nowhere.returncode == 2
    assert "--address" in nowhere.stderr


@pytest.mark.slow
def test_the_manifest_of_kuberay_is_sound_and_its_entrypoint_runs(head: str, away: dict[str, str]) -> None:
    documents = list(yaml.safe_load_all((CLUSTER / "kuberay-rayjob.yaml").read_text()))
    (job,) = [each for each in documents if each["kind"] == "RayJob"]
    assert job["apiVersion"] == "ray.io/v1"
    spec = job["spec"]
    assert spec["shutdownAfterJobFinishes"] is True
    assert yaml.safe_load(spec["runtimeEnvYAML"])["env_vars"]["RAY_USAGE_STATS_ENABLED"] == "0"
    groups = [spec["rayClusterSpec"]["headGroupSpec"], *spec["rayClusterSpec"]["workerGroupSpecs"]]
    for group in groups:
        pod = group["template"]["spec"]
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert all({"requests", "limits"} <= container["resources"].keys() for container in pod["containers"])
        assert {mount["name"] for mount in pod["containers"][0]["volumeMounts"]} <= {each["name"] for each in pod["volumes"]}
    assert any(each["kind"] == "NetworkPolicy" for each in documents)
    assert any(each["kind"] == "PersistentVolumeClaim" for each in documents)
    command = spec["entrypoint"].replace("/storage/runs", "runs")
    program = (
        "import sys; from pate.execution.jobs import JobServer; from pathlib import Path; import tempfile\n"
        "server = JobServer(sys.argv[1]); folder = Path(tempfile.mkdtemp())\n"
        "server.submit(sys.argv[2], 'manifest', folder, {'PYTHONPATH': sys.argv[3]}, [], 'digits')\n"
        "print(*server.follow('manifest'), sep='\\n'); print(server.job('manifest').status)\n"
    )
    words = [sys.executable, "-c", program, head, command, away["PYTHONPATH"]]
    ran = subprocess.run(words, env=away, capture_output=True, text=True, timeout=120)
    assert ran.stdout.strip().endswith("SUCCEEDED"), ran.stdout + ran.stderr


def test_the_description_for_ray_up_passes_rays_own_check() -> None:
    from ray.autoscaler._private.util import prepare_config, validate_config

    config = yaml.safe_load((CLUSTER / "ray-up.yaml").read_text())
    validate_config(prepare_config(config))
    assert config["provider"]["type"] == "local"
    start = " ".join(config["head_start_ray_commands"])
    assert "--dashboard-host=127.0.0.1" in start, "the dashboard runs anybody's code: not for the network"
    assert "RAY_AUTH_MODE=token" in start


def _wait_for(true: Callable[[], bool], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.5)


def _slow_recipe() -> str:
    from pate.experiments.recipes.reading import load_tables, recipe_text

    _, tables = load_tables("digits")
    tables |= {"title": "slow", "teachers": {"model": "sklearn", "count": 5, "estimator": "sklearn.svm:SVC", "features": False}}
    text = recipe_text(check_recipe(tables))
    return text.replace("sklearn.svm:SVC", "pipeline_cases_cluster:Slow")
