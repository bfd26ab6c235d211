"""A console on a real port, in a thread, for browsers."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn

from penstock.console.web.app import ConsoleSettings, build_app
from penstock.model.addresses import parse_bootstrap

__all__ = ["serving"]


@contextmanager
def serving(settings: ConsoleSettings | str, port: int = 0) -> Iterator[str]:
    """The URL of a console for settings, or for the cluster at an address."""
    if isinstance(settings, str):
        settings = ConsoleSettings(bootstrap=parse_bootstrap(settings), timeout_s=10.0)
    app = build_app(settings)
    config = uvicorn.Config(
        app, log_config=None, log_level="critical", timeout_graceful_shutdown=1, proxy_headers=False
    )
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", port)) as listening:
        thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(10)
