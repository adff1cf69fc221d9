"""A real Ray head with its job server, for all tests of this folder."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from ports import free_port

pytest.importorskip("ray", reason="ray is not installed (extra 'ray')")

TOKEN = "a-token-for-the-tests-of-this-folder-and-nothing-else"


def _answers(url: str) -> bool:
    try:
        urllib.request.urlopen(url, timeout=5)
    except urllib.error.HTTPError as error:
        return error.code in (401, 403)  # it is up, and wants its token
    except OSError:
        return False
    return True


def _processes_of(folder: str) -> list[int]:
    """Those that name the head's own directory on their command line."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if folder.encode() in path.read_bytes():
                found.append(int(path.parent.name))
    return found


@pytest.fixture(scope="module")
def head() -> Iterator[str]:
    """The address of its job server. It wants a token; ended, with all that it started, at the end."""
    port = free_port()
    folder = tempfile.mkdtemp(prefix="ray")  # short: sockets have short names
    # The interpreter of the tests comes first, as on a cluster whose nodes have the packages.
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": TOKEN, "RAY_ADDRESS": ""}
    words = ["--port=0", "--dashboard-host=127.0.0.1", f"--dashboard-port={port}", f"--temp-dir={folder}", "--num-cpus=2"]
    ports = [f"--ray-client-server-port={free_port()}", f"--dashboard-agent-listen-port={free_port()}"]
    workers = ["--min-worker-port=0", "--max-worker-port=0", "--object-store-memory=200000000"]
    command = [str(Path(sys.executable).with_name("ray")), "start", "--head", *words, *ports, *workers]
    with open(f"{folder}/head.log", "w") as log:
        process = subprocess.Popen(
            [*command, "--disable-usage-stats", "--block"],
            env=environment,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and process.poll() is None:
            if _answers(f"http://127.0.0.1:{port}/api/jobs/"):
                break
            time.sleep(0.2)
        else:
            pytest.fail(f"Ray's head did not start: {Path(folder, 'head.log').read_text()[-2000:]}")
        yield f"http://127.0.0.1:{port}"
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for own in _processes_of(folder):  # what Ray put into sessions of its own
            with suppress(ProcessLookupError):
                os.kill(own, signal.SIGKILL)
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The environment of a submitter who has the token."""
    root = str(Path(__file__).parents[2])
    monkeypatch.chdir(tmp_path)
    return {
        **{key: value for key, value in os.environ.items() if not key.startswith("RAY_")},
        "RAY_AUTH_TOKEN": TOKEN,
        "PYTHONPATH": root,
        "COLUMNS": "200",
        "PATE_HOME": str(tmp_path / "home"),
    }
