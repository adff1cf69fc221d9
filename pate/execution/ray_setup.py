"""What must be right before Ray starts or is connected to: its settings, its address, the workers' import path."""

from __future__ import annotations

import os
import secrets
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from pate.errors import ClusterError, ExecutionError


def prepare_environment(local: bool) -> None:
    """Settings that Ray reads when it starts; the user's own come first."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing about a private run is sent anywhere
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "1")  # a task that asked for no GPU sees none
    own = any(name in os.environ for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"))
    if local and not own and not _token_file_possible():
        os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)  # for this process and its children, never on disk


def send_token_if_there_is_one() -> None:
    """For clusters that want a token: Ray's clients send it in this mode only, which Ray reads when it is first imported."""
    if "RAY_AUTH_MODE" in os.environ:
        return
    named = os.environ.get("RAY_AUTH_TOKEN_PATH")
    with suppress(RuntimeError, OSError):
        if os.environ.get("RAY_AUTH_TOKEN") or Path(named or Path.home() / ".ray" / "auth_token").is_file():
            os.environ["RAY_AUTH_MODE"] = "token"


def check_reachable(address: str) -> None:
    """Ray itself tries a dead address for minutes before it says so."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit():
        return
    try:
        socket.create_connection((host, int(port)), timeout=5).close()
    except OSError as error:
        raise ClusterError(f"Ray at {address!r} cannot be reached: {error}. Is the cluster up, and the port open?") from error


def check_same_cluster(ray: Any, address: str | None) -> None:
    """A process has one connection: work meant for another cluster must not run on this one unnoticed."""
    here = ray.get_runtime_context().gcs_address
    if address is not None and address not in ("auto", "local", here) and not address.startswith("ray://"):
        raise ExecutionError(
            f"This process is connected to Ray at {here}, so it cannot use {address!r}. Close the other executor, or call "
            "ray.shutdown(), first."
        )


@contextmanager
def import_path_of_this_process(local: bool) -> Iterator[None]:
    """Workers started here find what this process finds, in the same order: a user's own module beside a script, say.

    On a cluster that is Ray's business: the job's working directory, or packages installed on every node.
    """
    before = os.environ.get("PYTHONPATH")
    if local:
        os.environ["PYTHONPATH"] = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
    try:
        yield
    finally:
        if before is None:
            os.environ.pop("PYTHONPATH", None)
        else:
            os.environ["PYTHONPATH"] = before


def _token_file_possible() -> bool:
    """Whether Ray can keep its authentication token where it wants to, in the home directory."""
    try:
        folder = Path.home() / ".ray"
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):
        return False
    return (folder / "auth_token").exists() or os.access(folder, os.W_OK)
