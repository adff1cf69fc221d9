"""One process that listens: a socket, uvicorn, logs, and an end that answers what is due."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import signal
import socket
import ssl
import sys
from dataclasses import dataclass
from pathlib import Path

from pate.aggregators.service.app import HttpSettings, create_app
from pate.aggregators.service.front import Front
from pate.aggregators.service.logs import LEVELS, log, log_to_standard_error
from pate.aggregators.service.token_file import Known
from pate.errors import ExecutionError, ParameterError
from pate.extras import require

require("uvicorn", "serve")

import uvicorn  # noqa: E402
from uvicorn.protocols.http.h11_impl import H11Protocol  # noqa: E402

_BACKLOG = 2048
_HEAD_SECONDS = 20.0  # in which a request's head must have come; uvicorn itself would wait for ever
_LAST_SECONDS = 30  # for requests that are due when the end is asked for
_SWITCH_SECONDS = 0.0002  # a thread that comes back from the disk or a socket waits so long for the interpreter; usual is 0.005


@dataclass(frozen=True)
class Listening:
    """Where to listen, and whether with TLS. Without it, only for this machine, unless ``insecure`` says otherwise."""

    host: str = "127.0.0.1"
    port: int = 8080
    tls_cert: Path | None = None
    tls_key: Path | None = None
    insecure: bool = False
    log_level: str = "info"

    def __post_init__(self) -> None:
        if self.log_level not in LEVELS:
            raise ParameterError(f"--log-level must be one of {', '.join(LEVELS)}, got {self.log_level!r}.")
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ParameterError("TLS needs both --tls-cert and --tls-key.")
        if self.tls_cert is not None and self.tls_key is not None:
            try:
                ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(self.tls_cert, self.tls_key, password="")
            except (OSError, ssl.SSLError, ValueError) as error:
                raise ParameterError(
                    f"--tls-cert {self.tls_cert} and --tls-key {self.tls_key} must be a certificate and its key without a "
                    f"password, PEM ({error})."
                ) from None
        elif not self.insecure and not _is_loopback(self.host):
            raise ParameterError(
                f"--host {self.host} can be reached from elsewhere, where tokens and answers would travel in the clear. Give "
                "--tls-cert and --tls-key, or --insecure if something before it encrypts."
            )

    def open(self) -> socket.socket:
        """Take the place. Who connects waits until the server runs."""
        try:
            family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
            return socket.create_server((self.host, self.port), family=family, backlog=_BACKLOG)
        except OSError as error:
            raise ExecutionError(
                f"Cannot listen on {self.host} port {self.port} ({error.strerror}). Choose another --host or --port."
            ) from None

    def url(self, listener: socket.socket) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'http' if self.tls_cert is None else 'https'}://{host}:{listener.getsockname()[1]}"


class Punctual(H11Protocol):
    """Hangs up on who connects and says nothing, or says it byte by byte. How long a body may take, HttpSettings says."""

    _late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait_for_head()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def _wait_for_head(self) -> None:
        """From the first byte that is due to the last; after a response, uvicorn's own limit runs until the next first byte."""
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop_waiting()
        elif self._late is None:
            self._late = self.loop.call_later(_HEAD_SECONDS, self.transport.close)

    def _stop_waiting(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None


def run_server(front: Front, tokens: Known, settings: HttpSettings, listening: Listening, listener: socket.socket) -> None:
    """Serve until SIGTERM or SIGINT; then take nothing new, answer what is due, and return."""
    log_to_standard_error(listening.log_level)
    config = uvicorn.Config(
        create_app(front, tokens, settings),
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,  # nothing here asks where a request came from
        http=Punctual,  # h11 bounds the size of headers, before anybody has shown a token; httptools does not
        ws="none",
        lifespan="off",
        backlog=_BACKLOG,
        timeout_graceful_shutdown=_LAST_SECONDS,
        ssl_certfile=listening.tls_cert,
        ssl_keyfile=listening.tls_key,
    )
    # uvicorn raises the signal once more after its own end: it must not end the process before the service is closed.
    switch = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_SECONDS)
    before = {each: signal.signal(each, _heard) for each in (signal.SIGTERM, signal.SIGINT)}
    log("listening", url=listening.url(listener))
    try:
        uvicorn.Server(config).run(sockets=[listener])
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
        sys.setswitchinterval(switch)
        log("stopped", logging.INFO)


def _heard(number: int, frame: object) -> None:
    pass


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
