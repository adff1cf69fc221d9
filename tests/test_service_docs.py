"""The pages about the service stay true: their options exist, their codes and metrics are the service's, their commands run."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from doc_pages import DOCS, ROOT, RUN_ALL, blocks, check_options, run, save_named
from typer.main import get_command

from pate.cli import app

for package in ("fastapi", "uvicorn", "prometheus_client", "httpx"):
    pytest.importorskip(package, reason=f"{package} is not installed (extras 'serve' and 'client')")

SERVICE, THREATS = DOCS / "service.md", DOCS / "threat-model.md"
ADDRESS = "http://127.0.0.1:8080"


def _options(command: Any) -> set[str]:
    own = {option for parameter in command.params for option in parameter.opts}
    return own.union(*(_options(each) for each in getattr(command, "commands", {}).values()))


@pytest.mark.parametrize("page", [SERVICE, THREATS], ids=lambda page: page.stem)
def test_every_option_named_exists(page: Path) -> None:
    check_options(page)
    commands = get_command(app).commands  # type: ignore[attr-defined]
    known = set[str]().union(*(_options(commands[name]) for name in ("serve", "token", "query", "ledger")))
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    named = {option for code in re.findall(r"`([^`]+)`", text) for option in re.findall(r"(?<!\S)--[a-z-]+", code)}
    assert named
    assert named <= known


def test_the_codes_are_those_of_the_service() -> None:
    from pate.aggregators.service.problems import KINDS

    table = {}
    for codes, statuses in re.findall(r"^\| (`[a-z-]+`(?:, `[a-z-]+`)*) \| ([\d, ]+) \|", SERVICE.read_text(), re.MULTILINE):
        names, numbers = re.findall(r"[a-z-]+", codes), [int(each) for each in statuses.split(",")]
        table |= dict(zip(names, numbers * (len(names) if len(numbers) == 1 else 1), strict=True))
    assert len(table) == 9
    assert table == {code: KINDS[code].status for code in table}


def test_the_metrics_named_exist() -> None:
    from pate.aggregators.service.metrics import Metrics

    text = Metrics().text(None, ready=True, waiting=0).decode()
    named = set(re.findall(r"`(pate_[a-z_]+)`", SERVICE.read_text()))
    assert {"pate_ready", "pate_query_seconds"} <= named
    assert all(name in text for name in named)


def test_every_path_named_exists() -> None:
    for page in (SERVICE, THREATS):
        for name in re.findall(r"`((?:pate|service)/[a-z_/]+\.py)`", page.read_text()):
            assert (ROOT / name.replace("service/", "aggregators/service/")).is_file()


def _lines(*, serve: bool) -> list[list[str]]:
    """The commands of the console blocks, those that start a service or the others, but for Ray, which has its own tests."""
    text = "".join(blocks(SERVICE, "console")).splitlines()
    words = [shlex.split(line, comments=True)[1:] for line in text if line.startswith("$ ")]
    return [each for each in words if "--ray" not in each and (each[:2] == ["pate", "serve"]) == serve]


@contextmanager
def _service(folder: Path, words: list[str]) -> Iterator[tuple[str, dict[str, str]]]:
    """Its address and its new tokens. Ends as an operator would end it."""
    process = subprocess.Popen(
        [sys.executable, "-c", "from pate.cli import main; main()", *words, "--port", "0"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        said = json.loads(process.stderr.readline())
        assert said["event"] == "listening"
        printed = [process.stdout.readline().split() for _ in range(3)]
        yield said["url"], {line[0]: line[1] for line in printed if line[0] in ("owner", "analyst")}
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)
        assert process.returncode == 0
    finally:
        process.kill()
        process.communicate()


def _pate(folder: Path, words: list[list[str]]) -> str:
    done = run(folder, "-c", RUN_ALL, json.dumps(words))
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_quick_start_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_named(SERVICE, tmp_path)
    (start,) = _lines(serve=True)
    others = _lines(serve=False)
    assert [each[0] for each in others if each[0] != "pate"] == ["python", "export", "mv"]
    made = run(tmp_path, *others[0][1:])
    assert made.returncode == 0, made.stderr
    with _service(tmp_path, start[1:]) as (url, tokens):
        monkeypatch.setenv("PATE_TOKEN", tokens["analyst"])
        running = [each[1:] for each in others[1 : [each[0] for each in others].index("mv")] if each[0] == "pate"]
        said = _pate(tmp_path, [[word.replace(ADDRESS, url) for word in words] for words in running])
        (curl,) = blocks(SERVICE, "sh")
        body = re.findall(r"-d '(.*)'", curl)[0].encode()
        headers = {"Authorization": f"Bearer {tokens['analyst']}", "Content-Type": "application/json"}
        with urllib.request.urlopen(urllib.request.Request(f"{url}/v1/queries", body, headers)) as answer:
            assert list(json.load(answer)) == ["answers"]
        with urllib.request.urlopen(f"{url}/owner") as page:
            assert page.status == 200
    assert "is sound" in said
    # The last backup has all but the question of curl, and the head file knows it.
    moved = others[[each[0] for each in others].index("mv")]
    shutil.move(tmp_path / moved[1], tmp_path / moved[2])
    restore = others[-1][1:]
    refused = run(tmp_path, "-c", RUN_ALL, json.dumps([restore]))
    assert refused.returncode != 0
    assert "forgets what was spent since" in refused.stderr
    assert "verified" in _pate(tmp_path, [[*restore, "--i-know-what-was-spent-since-is-forgotten"]])
