"""``pate serve`` as a process of its own, and ``pate token``."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from browser import wait_for
from http_cases import bearer, clear_votes, ids_of

from pate.aggregators.service.server import Listening
from pate.errors import ExecutionError, ParameterError, TeacherError
from pate.experiments.serving import ServeOptions, open_service
from pate.experiments.vote_files import write_votes

ROOT = Path(__file__).parents[3]
PATE = [sys.executable, "-m", "pate.cli"]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "200"}


def run(folder: Path, *words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*PATE, *map(str, words)], cwd=folder, env=environment(), capture_output=True, text=True, timeout=60)


class Process:
    """A service that runs, its words on standard output, and its log."""

    def __init__(self, folder: Path, *words: object) -> None:
        self.log_file = folder / "log"
        self.out_file = folder / "out"
        with self.log_file.open("w") as log, self.out_file.open("w") as out:
            command = [*PATE, "serve", *map(str, words)]
            self.process = subprocess.Popen(command, cwd=folder, env=environment(), stdout=out, stderr=log)
        wait_for(lambda: self.process.poll() is not None or '"listening"' in self.log_file.read_text(), "the service", 60)
        assert self.process.poll() is None, self.log_file.read_text()

    @property
    def log(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log_file.read_text().splitlines()]

    @property
    def url(self) -> str:
        return str(next(line["url"] for line in self.log if line["event"] == "listening"))

    def ask(self, token: str, key: str, ids: list[int]) -> httpx.Response:
        body = {"key": key, "ids": ids}
        return httpx.post(f"{self.url}/v1/queries", json=body, headers=bearer(token), timeout=30)

    def end(self, how: int = signal.SIGTERM) -> int:
        self.process.send_signal(how)
        return self.process.wait(40)


@contextmanager
def serving(folder: Path, *words: object) -> Iterator[Process]:
    found = Process(folder, *words)
    try:
        yield found
    finally:
        if found.process.poll() is None:
            found.process.kill()
            found.process.wait()


@pytest.fixture
def words(tmp_path: Path) -> list[object]:
    write_votes(tmp_path / "votes.npz", clear_votes(), fingerprint="ward", unit="record")
    about = ["--votes", "votes.npz", "-a", "gnmax", "-s", "sigma=20", "--ledger", "ledger.db"]
    return [*about, "--budget-epsilon", 5, "--port", 0]


def test_a_service_is_started_asked_ended_and_started_again(tmp_path: Path, words: list[object]) -> None:
    with serving(tmp_path, *words, "--pad", 2.0) as first:
        owner, analyst = re.findall(r"^(?:owner|analyst) (pate_\S+)$", first.out_file.read_text(), re.MULTILINE)
        answers = ids_of(first.ask(analyst, "one", [7, 3, 11]))
        assert answers == [2, 3, 1]
        spent = httpx.get(f"{first.url}/v1/budget", headers=bearer(owner)).json()

        second = run(tmp_path, "serve", *words)
        assert second.returncode == 4
        assert second.stderr.startswith("pate: Another service answers")
        assert len(second.stderr.splitlines()) == 1
        assert second.stdout == ""

        # Who waits is answered: the padding keeps a request in hand while the end is asked for.
        found: list[httpx.Response] = []
        late = threading.Thread(target=lambda: found.append(first.ask(analyst, "late", [20])))
        late.start()
        wait_for(lambda: sum(line["event"] == "request" for line in first.log) >= 2, "the requests before")
        threading.Event().wait(1.0)  # on a busy machine it takes a while to set out
        assert first.end() == 0
        late.join(30)
        assert ids_of(found[0]) == [0]
        log = first.log
    assert log[-1]["event"] == "stopped"
    for line in log:
        assert {"time", "level", "event"} <= line.keys()
    requests = [line for line in log if line["event"] == "request"]
    assert {"id", "status", "milliseconds", "route", "client"} <= requests[0].keys()
    text = json.dumps(log)
    assert not any(secret in text for secret in (owner, analyst, "[7, 3", "ids", "label", "uvicorn"))

    with serving(tmp_path, *words) as again:
        assert again.out_file.read_text() == ""  # tokens are shown once
        assert ids_of(again.ask(analyst, "one", [7, 3, 11])) == answers
        assert ids_of(again.ask(analyst, "late", [20])) == [0]
        assert again.ask(analyst, "one", [7, 3, 12]).status_code == 409
        after = httpx.get(f"{again.url}/v1/budget", headers=bearer(owner)).json()
        assert after["answered"] == spent["answered"] + 1
        verified = httpx.post(f"{again.url}/v1/owner/verify", headers=bearer(owner)).json()
        assert (verified["answers"], verified["open_reservations"]) == (4, 0)
        assert again.end(signal.SIGINT) == 0


def test_tokens_and_their_limits_from_the_command_line(tmp_path: Path, words: list[object]) -> None:
    added = run(tmp_path, "token", "add", "ann", "--tokens", "tokens.json", "--quota", 2, "--rate", 50)
    assert added.returncode == 0, added.stderr
    token = added.stdout.strip()
    assert run(tmp_path, "token", "add", "bob", "--tokens", "tokens.json", "--owner").returncode == 0
    assert run(tmp_path, "token", "remove", "bob", "--tokens", "tokens.json").returncode == 0
    renewed = run(tmp_path, "token", "renew", "ann", "--tokens", "tokens.json").stdout.strip()
    listed = run(tmp_path, "token", "list", "--tokens", "tokens.json", "--json")
    assert json.loads(listed.stdout) == [{"client": "ann", "role": "analyst", "quota": 2, "rate": 50.0}]
    assert "ann" in run(tmp_path, "token", "list", "--tokens", "tokens.json").stdout
    with serving(tmp_path, *words, "--tokens", "tokens.json") as service:
        assert service.out_file.read_text() == ""
        assert service.ask(token, "a", [1]).status_code == 401
        assert service.ask(renewed, "a", [1, 2]).status_code == 200
        assert service.ask(renewed, "b", [3]).json()["type"] == "urn:pate:problem:quota-exhausted"
        # Without a restart: another client, with a quota of its own, and none for whoever is removed.
        carl = run(tmp_path, "token", "add", "carl", "--tokens", "tokens.json", "--quota", 1).stdout.strip()
        wait_for(lambda: service.ask(carl, "c", [3]).status_code == 200, "carl to be known", 10)
        assert service.ask(carl, "d", [4]).json()["type"] == "urn:pate:problem:quota-exhausted"
        assert run(tmp_path, "token", "remove", "ann", "--tokens", "tokens.json").returncode == 0
        wait_for(lambda: service.ask(renewed, "a", [1, 2]).status_code == 401, "ann to be refused", 10)
        assert service.end() == 0


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl, which makes the certificate, is not on the PATH")
def test_tls(tmp_path: Path, words: list[object]) -> None:
    make = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext subjectAltName=IP:127.0.0.1"
    subprocess.run([*make.split(), "-keyout", "key.pem", "-out", "cert.pem"], cwd=tmp_path, check=True, capture_output=True)
    with serving(tmp_path, *words, "--tls-cert", "cert.pem", "--tls-key", "key.pem") as service:
        assert service.url.startswith("https://")
        trusting = ssl.create_default_context(cafile=str(tmp_path / "cert.pem"))
        assert httpx.get(f"{service.url}/healthz", verify=trusting).json() == {"status": "ok"}
        with pytest.raises(httpx.HTTPError):
            httpx.get(f"{service.url.replace('https', 'http')}/healthz")
        assert service.end() == 0


@pytest.mark.parametrize(
    ("change", "told", "code"),
    [
        (["--host", "0.0.0.0"], "--insecure", 2),
        (["--tls-cert", "votes.npz"], "both --tls-cert and --tls-key", 2),
        (["--tls-cert", "votes.npz", "--tls-key", "votes.npz"], "PEM", 2),
        (["--tokens", "none.json"], "pate token add", 2),
        (["--run", "here"], "either", 2),
        (["--shape", "2,2"], "--shape belongs to --run", 2),
        (["--fingerprint", "other"], "Leave the option out", 2),
        (["--log-level", "loud"], "debug, info", 2),
        (["-s", "no=1"], "unknown parameter", 2),
        (["--ledger", "no/such/folder/ledger.db"], "No such file", 1),
    ],
)
def test_what_cannot_be_served_is_one_line(
    tmp_path: Path,
    words: list[object],
    change: list[str],
    told: str,
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from pate.cli import main

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["pate", "serve", *map(str, words), *change])
    monkeypatch.setattr("warnings.showwarning", lambda *_: None)
    with pytest.raises(SystemExit) as ended:
        main()
    said = capsys.readouterr()
    assert (ended.value.code, said.out) == (code, "")
    assert told in said.err
    assert len(said.err.splitlines()) == 1
    assert not Path("ledger.db.tokens.json").exists()


def test_where_a_service_may_listen(tmp_path: Path) -> None:
    for host in ("127.0.0.1", "localhost", "::1", "127.9.9.9"):
        Listening(host)
    Listening("0.0.0.0", insecure=True)
    for host in ("0.0.0.0", "::", "192.168.1.1", "service.example"):
        with pytest.raises(ParameterError, match="--insecure"):
            Listening(host)
    with Listening(port=0).open() as taken:
        port = taken.getsockname()[1]
        assert Listening(port=port).url(taken) == f"http://127.0.0.1:{port}"
        with pytest.raises(ExecutionError, match="Choose another"):
            Listening(port=port).open()


def test_votes_without_a_fingerprint_need_one(tmp_path: Path) -> None:
    np.savez(tmp_path / "votes.npz", counts=clear_votes().counts)
    options = {"votes": str(tmp_path / "votes.npz"), "settings": {"sigma": 20}, "budget_epsilon": 1.0}
    with pytest.raises(ParameterError, match="--fingerprint"):
        open_service(ServeOptions("gnmax", str(tmp_path / "ledger.db"), **options))  # type: ignore[arg-type]
    named = ServeOptions("gnmax", str(tmp_path / "ledger.db"), fingerprint="ward", unit="user", **options)  # type: ignore[arg-type]
    with open_service(named) as service:
        assert (service.ledger.fingerprint, service.ledger.unit) == ("ward", "user")


def test_teachers_of_a_run_are_asked_live(tmp_path: Path) -> None:
    pytest.importorskip("sklearn", reason="scikit-learn is not installed (extra 'train')")
    from pate.teachers import Ensemble, Partition, PrivateData

    rng = np.random.default_rng(0)
    y = np.arange(200) % 2
    x = (rng.normal(size=(200, 3)) + 6 * y[:, None]).astype(np.float32)
    parts = Partition.by_hash(PrivateData(x, y, np.arange(200), name="ward"), 20, salt="s")
    ensemble = Ensemble.train(parts, "ridge", tmp_path / "run", n_classes=2, show="none")
    given: dict[str, Any] = {"run": str(tmp_path / "run"), "settings": {"sigma": 1}, "budget_epsilon": 100.0}
    with pytest.raises(ParameterError, match="learned from records of shape \\(3,\\), but --shape"):
        open_service(ServeOptions("gnmax", str(tmp_path / "ledger.db"), shape=(1, 3), **given))
    manifest = tmp_path / "run" / "partition.json"
    stated = manifest.read_text()
    manifest.write_text(json.dumps({**json.loads(stated), "record_shape": None}))  # as of parts of one's own
    with pytest.raises(ParameterError, match="give the shape of one record with --shape"):
        open_service(ServeOptions("gnmax", str(tmp_path / "ledger.db"), **given))
    with open_service(ServeOptions("gnmax", str(tmp_path / "ledger.db"), shape=(3,), **given)) as service:
        assert service.ask("ann", "before", [[0.0, 0.0, 0.0]]) == [0]
    manifest.write_text(stated)
    with open_service(ServeOptions("gnmax", str(tmp_path / "ledger.db"), **given)) as service:
        assert service.ask("ann", "a", [[0.0, 0.0, 0.0], [6.0, 6.0, 6.0]]) == [0, 1]
        assert service.ledger.fingerprint == ensemble.fingerprint


def test_a_question_that_teachers_cannot_bear_is_answered_and_paid_for(tmp_path: Path) -> None:
    """Which teachers cannot depends on their records: an error would tell it, without noise and unpaid."""
    pytest.importorskip("sklearn", reason="scikit-learn is not installed (extra 'train')")
    from pate.teachers import Ensemble, Partition, PrivateData
    from pate.teachers.sklearn_teachers import SklearnTeachers

    rng = np.random.default_rng(0)
    y = np.arange(200) % 2
    x = np.stack([rng.normal(size=200) + 6 * y, 0.5 * rng.normal(size=200)], axis=1).astype(np.float32)
    steps = [["sklearn.preprocessing.StandardScaler", {}], ["sklearn.linear_model.LogisticRegression", {}]]
    parts = Partition.by_hash(PrivateData(x, y, np.arange(200), name="ward"), 10, salt="s")
    Ensemble.train(parts, SklearnTeachers({"pipeline": steps}), tmp_path / "run", n_classes=2, show="none")
    too_much_for_some, too_much_for_all = [6.0, 1.8e38], [6.0, 3e38]
    with pytest.raises(TeacherError, match="None of 10 teachers could vote"):
        Ensemble.open(tmp_path / "run").vote(np.array([too_much_for_all], dtype=np.float32))
    options = ServeOptions(
        "gnmax", str(tmp_path / "ledger.db"), run=str(tmp_path / "run"), settings={"sigma": 1}, budget_epsilon=100.0
    )
    with open_service(options) as service:
        assert len(service.ask("ann", "some", [too_much_for_some])) == 1
        assert service.ask("ann", "all", [too_much_for_all]) == [0]  # the default of all
        # Beside it, other questions are answered as ever.
        others = [[6.0, 0.1 * number] for number in range(5)]
        assert service.ask("ann", "together", [*others[:2], [6.0, 3.1e38], *others[2:]])[:2] == [1, 1]
        assert service.ask("bob", "again", others) == [1] * 5
        assert [entry.memo["queries"] for entry in service.ledger.entries() if entry.kind == "reserve"] == [1, 1, 6]
