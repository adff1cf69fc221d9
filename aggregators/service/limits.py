"""How often each client may ask: a token bucket for everyone, in memory."""

from __future__ import annotations

import time
from collections.abc import Callable

from pate.errors import ParameterError


class RateLimiter:
    """Buckets that hold up to a second's worth of requests, at least one, and fill with time.

    clock: seconds that never go back.

    >>> limiter = RateLimiter(clock=lambda: 0.0)
    >>> [limiter.wait("ann", 2.0) for _ in range(3)]
    [0.0, 0.0, 0.5]
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._buckets: dict[str, tuple[float, float]] = {}  # client -> what is in it, and when that was known

    def wait(self, client: str, rate: float | None) -> float:
        """0 if the client may go on now, which is counted; else the seconds after which it may. rate: requests per second."""
        if rate is None:
            return 0.0
        if not rate > 0:
            raise ParameterError(f"A rate must be above 0 requests per second, got {rate}.")
        now, size = self._clock(), max(1.0, rate)
        level, since = self._buckets.get(client, (size, now))
        level = min(size, level + (now - since) * rate)
        if level < 1.0:
            self._buckets[client] = (level, now)
            return (1.0 - level) / rate
        self._buckets[client] = (level - 1.0, now)
        return 0.0
