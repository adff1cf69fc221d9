"""Ctrl-C while answers are being paid for: it waits until they are written, since the charge cannot be taken back."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

PATIENCE = 10.0
"""Seconds after the first Ctrl-C from which on another one stops at once: an aggregator may hang."""

_SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
_WAITS = (
    b"\npate: note: What is being paid for is finished first; then it stops. Asked again after 10 seconds it stops at once, "
    b"and the charge is lost.\n"
)
_LOST = b"\npate: note: Stopped between a charge and the writing of what it paid for: that is lost, and the charge stays.\n"


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Ctrl-C, SIGTERM and SIGHUP take effect at the end of the block. For short blocks, from a charge to its written answers.

    In threads other than the main one there is nothing to do: Python interrupts the main thread alone. Signals that are ignored
    stay ignored, and a handler of somebody else's is called at the end.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    waiting = _Waiting()
    try:
        waiting.begin()
        yield
    finally:
        waiting.end()


class _Waiting:
    """Handlers that remember."""

    def __init__(self) -> None:
        self.active = True
        self._before: dict[int, Any] = {}
        self._came: dict[int, float] = {}

    def begin(self) -> None:
        for number in _SIGNALS:
            handler = signal.getsignal(number)
            if handler in (signal.SIG_IGN, None) or _waits_already(handler):
                continue  # ignored, not Python's, or a block around this one waits already
            self._before[number] = handler
            signal.signal(number, self._remember)

    def end(self) -> None:
        """Put the handlers back, and let what came take effect."""
        self.active = False
        for number in sorted(self._before, key=_raises):
            signal.signal(number, self._before[number])
        for number in sorted(self._came, key=_raises):
            self._act(number, None)

    def _remember(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if number in self._came:
            if now - self._came[number] > PATIENCE:
                _tell(_LOST)
                signal.signal(number, self._before[number])
                del self._came[number]
                self._act(number, frame)
            return
        self._came[number] = now
        _tell(_WAITS)

    def _act(self, number: int, frame: FrameType | None) -> None:
        handler = self._before[number]
        if callable(handler):
            handler(number, frame)
        else:  # the system's own: to end this process
            signal.raise_signal(number)


def _waits_already(handler: object) -> bool:
    owner = getattr(handler, "__self__", None)
    return isinstance(owner, _Waiting) and owner.active


def _raises(number: int) -> bool:
    """Whether Python's own handler raises: last of all, for what comes after it is not done."""
    return number == signal.SIGINT


def _tell(line: bytes) -> None:
    """Past Python's own buffers, which the interrupted code may be writing to."""
    with suppress(OSError):
        os.write(2, line)
