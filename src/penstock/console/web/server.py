"""The console as a server of its own, until a signal ends it."""

from __future__ import annotations

import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from ssl import TLSVersion
from types import FrameType
from typing import Final

import uvicorn
from starlette.applications import Starlette

__all__ = ["serve"]

_GRACE_S: Final = 3


class _Server(uvicorn.Server):
    """Ends event streams at once: the server would wait for them until its grace period is over."""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.config.app.state.closing.close()  # type: ignore[union-attr]
        super().handle_exit(sig, frame)


def serve(app: Starlette, listening: socket.socket, certificate: str | None = None) -> None:
    """Answer requests until SIGINT or SIGTERM. `certificate` is a PEM file with key and certificates."""
    config = uvicorn.Config(
        app,
        log_config=None,
        log_level="critical",
        access_log=False,
        server_header=False,
        # Uvicorn would believe X-Forwarded-For of any process on this machine.
        proxy_headers=False,
        timeout_graceful_shutdown=_GRACE_S,
        ssl_certfile=certificate,
        ssl_keyfile=certificate,
    )
    config.load()
    if config.ssl is not None:
        config.ssl.minimum_version = TLSVersion.TLSv1_2
    with _quiet_end():
        _Server(config).run(sockets=[listening])


@contextmanager
def _quiet_end() -> Iterator[None]:
    """Uvicorn ends in order and then raises the signal once more, which is no failure here."""
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, lambda *_: None) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
