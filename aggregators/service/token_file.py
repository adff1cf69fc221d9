"""The tokens of a service that runs, as their file says now: whoever is removed there is refused within a second."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from pate.aggregators.service.logs import log
from pate.aggregators.service.tokens import Client, Tokens
from pate.errors import ParameterError

_LOOK_SECONDS = 0.5
_Stamp = tuple[int, int, int, int] | None


class Known(Protocol):
    """Who a token belongs to: :class:`Tokens`, which stay as they are, or :class:`TokenFile`."""

    def find(self, token: str) -> Client | None: ...


class TokenFile:
    """The clients in a file. While the file cannot be read, nobody is let in: it may have been changed to keep somebody out.

    changed: called with the clients whenever they were read, first by the constructor, which raises where they cannot be.
    """

    def __init__(self, path: Path, changed: Callable[[Tokens], None]) -> None:
        self._path = path
        self._changed = changed
        self._stamp = self._now()  # before the file is read: a change in between is seen at the next look
        self._tokens = Tokens.read(path)
        changed(self._tokens)
        self._looked = time.monotonic()

    def find(self, token: str) -> Client | None:
        if time.monotonic() - self._looked >= _LOOK_SECONDS:
            self._look()
        return self._tokens.find(token)

    def _look(self) -> None:
        self._looked = time.monotonic()
        stamp = self._now()
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            self._tokens = Tokens.read(self._path)
        except ParameterError:
            self._tokens = Tokens([])
            log("tokens unreadable", logging.ERROR, clients=0)
            return
        self._changed(self._tokens)
        log("tokens read", clients=len(self._tokens.clients))

    def _now(self) -> _Stamp:
        """What tells one state of the file from another; None where there is none."""
        try:
            found = os.stat(self._path)
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino, found.st_mode
