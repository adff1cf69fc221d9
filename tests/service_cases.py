"""A real service on 127.0.0.1, in a thread of the test's own process."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn

from pate.aggregators.service.app import HttpSettings, create_app
from pate.aggregators.service.desk import Service
from pate.aggregators.service.front import LocalFront
from pate.aggregators.service.tokens import Client, Tokens, token_hash

TOKENS = {name: f"pate_canary_token_of_{name}" for name in ("ann", "bob")}


@contextmanager
def serving(service: Service, settings: HttpSettings | None = None) -> Iterator[str]:
    """The address of a server before ``service``, which is closed at the end."""
    tokens = Tokens(Client(name, "analyst", token_hash(token)) for name, token in TOKENS.items())
    with socket.create_server(("127.0.0.1", 0)) as listener:
        app = create_app(LocalFront(service), tokens, settings or HttpSettings())
        server = uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False, lifespan="off", ws="none"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(30)
            service.close()
