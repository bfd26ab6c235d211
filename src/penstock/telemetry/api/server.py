"""The API as a server of its own, until a signal ends it."""

from __future__ import annotations

import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from ssl import TLSVersion
from typing import Final

import uvicorn
from fastapi import FastAPI

__all__ = ["serve"]

#: how long answers that are under way at the end may take
_GRACE_S: Final = 5


def serve(app: FastAPI, listening: socket.socket, certificate: str | None = None) -> None:
    """Answer requests until SIGINT or SIGTERM.

    `certificate` is a PEM file with a private key and its certificates, for TLS. OSError if it is invalid.
    """
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=_GRACE_S,
        ssl_certfile=certificate,
        ssl_keyfile=certificate,
    )
    config.load()
    if config.ssl is not None:
        config.ssl.minimum_version = TLSVersion.TLSv1_2
    with _quiet_end():
        uvicorn.Server(config).run(sockets=[listening])


@contextmanager
def _quiet_end() -> Iterator[None]:
    """Uvicorn ends in order, and then raises the signal once more: here that was the end, not a failure."""
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, lambda *_: None) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
