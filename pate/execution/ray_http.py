"""HTTP before an aggregator on Ray: stateless replicas on Ray Serve, each with its own copy of a web application."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pate.errors import ClusterError, MissingExtra
from pate.execution.ray_service import Opening, RayFront
from pate.extras import require

_APPLICATION = "pate"
_AT_ONCE = 1000  # requests in hand at a replica; Serve's own choice, 5, would keep them from being paid for together
_STOP_SECONDS = 30.0  # for answers that are due when it is told to stop


@contextmanager
def replicas_on_serve(
    app: Opening, host: str, port: int, replicas: int = 1, tls_cert: Path | None = None, tls_key: Path | None = None
) -> Iterator[int]:
    """Serve the web application that ``app`` makes of a RayFront, inside the block; the port it listens on.

    This process is connected to Ray, and an :class:`~pate.execution.ray_service.Aggregator` runs there.
    """
    serve = ray_serve()
    logging.getLogger("ray.serve").setLevel(logging.WARNING)
    ray = require("ray", "ray")
    if _runs_already(ray):
        raise ClusterError(
            "Ray Serve runs on this cluster already, with a port and applications of its own. Stop it with `serve shutdown`, "
            "or use another cluster."
        )
    port = port or _free_port(host)
    options: dict[str, Any] = {"host": host, "port": port}
    if tls_cert is not None and tls_key is not None:
        options |= {"ssl_certfile": os.path.realpath(tls_cert), "ssl_keyfile": os.path.realpath(tls_key)}

    def build() -> Any:  # in each replica
        return app(RayFront())

    deployment = serve.deployment(
        serve.ingress(build)(),
        name="front",
        num_replicas=replicas,
        max_ongoing_requests=_AT_ONCE,
        graceful_shutdown_timeout_s=_STOP_SECONDS,
        ray_actor_options={"num_cpus": 0},  # the cores are for teachers
        logging_config={"log_level": "WARNING", "enable_access_log": False},  # the application writes its own lines
    )
    try:
        serve.start(http_options=options, logging_config={"log_level": "WARNING", "enable_access_log": False})
        serve.run(deployment.bind(), name=_APPLICATION, route_prefix="/", blocking=False)
    except BaseException as error:
        serve.shutdown()
        if isinstance(error, RuntimeError | ray.exceptions.RayError):
            raise ClusterError(
                f"Ray Serve could not listen on {host}:{port} ({type(error).__name__}). Is the port in use? Its logs, under "
                "/tmp/ray/session_latest/logs/serve, say more."
            ) from error
        raise
    try:
        yield port
    finally:
        serve.shutdown()


def ray_serve() -> Any:
    """The module ``ray.serve``; MissingExtra where it, or what it needs beside Ray itself, is not installed."""
    try:
        return require("ray.serve", "ray-serve")
    except MissingExtra:
        raise
    except ImportError as error:
        raise MissingExtra(error.name or "ray.serve", "ray-serve") from None


def _runs_already(ray: Any) -> bool:
    try:
        ray.get_actor("SERVE_CONTROLLER_ACTOR", namespace="serve")
    except ValueError:
        return False
    return True


def _free_port(host: str) -> int:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as found:
        found.bind((host, 0))
        return int(found.getsockname()[1])
