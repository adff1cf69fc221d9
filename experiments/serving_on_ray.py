"""``pate serve --ray``: the same service as an actor on Ray, with HTTP replicas before it."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from pate.aggregators.service.app import HttpSettings, create_app
from pate.aggregators.service.front import Front
from pate.aggregators.service.logs import log, log_to_standard_error
from pate.aggregators.service.server import Listening
from pate.aggregators.service.tokens import Tokens
from pate.execution import OnRay
from pate.execution.ray_http import ray_serve, replicas_on_serve
from pate.execution.ray_service import Aggregator, Opening
from pate.experiments.serving import ServeOptions

if TYPE_CHECKING:
    from fastapi import FastAPI

_T = TypeVar("_T")


def serve_on_ray(
    options: ServeOptions,
    tokens: Callable[[], Tokens],
    settings: HttpSettings,
    listening: Listening,
    replicas: int = 1,
    address: str | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT; then take nothing new, answer what is due, and return.

    tokens: called when the service is open, since new ones are shown only once.
    """
    log_to_standard_error(listening.log_level)
    end = _End()
    try:
        # The signals are heard from here on: Ray, when it is started, takes them for itself.
        with service_on_ray(options, lambda: end.listen(tokens()), settings, listening, replicas, address) as url:
            log("listening", url=url)
            end.wait()
        log("stopped")
    finally:
        end.stop_listening()


@contextmanager
def service_on_ray(
    options: ServeOptions,
    tokens: Callable[[], Tokens],
    settings: HttpSettings,
    listening: Listening,
    replicas: int = 1,
    address: str | None = None,
) -> Iterator[str]:
    """The service inside the block; its address."""
    ray_serve()
    listening.open().close()  # says at once what Serve would say after a minute
    opening = Opening("pate.experiments.serving:open_service", (_from_anywhere(options), OnRay()))
    with Aggregator(opening, address):
        app = Opening("pate.experiments.serving_on_ray:replica_app", (tokens(), settings, listening.log_level))
        place = (listening.host, listening.port)
        with replicas_on_serve(app, *place, replicas, listening.tls_cert, listening.tls_key) as port:
            host = f"[{listening.host}]" if ":" in listening.host else listening.host
            yield f"{'http' if listening.tls_cert is None else 'https'}://{host}:{port}"


def replica_app(front: Front, tokens: Tokens, settings: HttpSettings, log_level: str) -> FastAPI:
    """What a replica runs. Of the tokens it holds hashes, of the service nothing."""
    log_to_standard_error(log_level)
    return create_app(front, tokens, settings)


def _from_anywhere(options: ServeOptions) -> ServeOptions:
    """With whole paths: the actor runs on this machine, but in a folder of Ray's choice."""
    return replace(
        options,
        ledger=options.ledger if "://" in options.ledger else os.path.realpath(options.ledger),
        votes=None if options.votes is None else os.path.realpath(options.votes),
        run=options.run if options.run is None or "://" in options.run else os.path.realpath(options.run),
    )


class _End:
    """SIGTERM or SIGINT: while the service starts they stop that, as Ctrl-C does; then :meth:`wait` returns."""

    def __init__(self) -> None:
        self._asked = threading.Event()
        self._waiting = False
        self._before: dict[int, Any] = {}

    def listen(self, value: _T) -> _T:
        self._before = {each: signal.signal(each, self._heard) for each in (signal.SIGTERM, signal.SIGINT)}
        return value

    def _heard(self, *_: object) -> None:
        self._asked.set()
        if not self._waiting:
            raise KeyboardInterrupt

    def wait(self) -> None:
        self._waiting = True
        self._asked.wait()

    def stop_listening(self) -> None:
        for each, handler in self._before.items():
            signal.signal(each, handler)
