"""Ports for servers that are killed and started again on the same one."""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from itertools import count

_WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
_NEXT = count(20_000 + 1_000 * (_WORKER % 10) + os.getpid() % 900)


def free_port() -> int:
    """One that nobody listens on, below those that a system gives to whoever asks for any (from 32768 on Linux): so nobody is
    given it while its server is down. Never the same twice in a process, and others in each process of pytest-xdist.
    """
    for port in _NEXT:
        with suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError("endless")
