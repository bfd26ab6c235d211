"""A syslog server on loopback: TCP or TLS, with the framing of RFC 5425."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from tests.secured import HOST


class SyslogServer:
    """Takes frames of RFC 5425: a number of octets, a space, and the message."""

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        self.messages: list[bytes] = []
        self.connections: list[socket.socket] = []
        self.certificates: list[Any] = []
        self._context = context
        self._listening = socket.create_server((HOST, 0))
        self.port = self._listening.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                plain, _ = self._listening.accept()
                threading.Thread(target=self._serve, args=(plain,), daemon=True).start()

    def _serve(self, plain: socket.socket) -> None:
        try:
            connected = plain if self._context is None else self._context.wrap_socket(plain, server_side=True)
        except OSError:
            return
        if isinstance(connected, ssl.SSLSocket):
            self.certificates.append(connected.getpeercert())
        self.connections.append(connected)
        with suppress(OSError, ValueError), connected.makefile("rb") as file:
            while True:
                digits = b""
                while (byte := file.read(1)) != b" ":
                    if not byte:
                        return
                    digits += byte
                self.messages.append(file.read(int(digits)))

    def break_connections(self) -> None:
        for connected in self.connections:
            with suppress(OSError):
                connected.shutdown(socket.SHUT_RDWR)
            connected.close()
        self.connections.clear()

    def close(self) -> None:
        self._listening.close()
        self.break_connections()

    @property
    def lines(self) -> list[bytes]:
        return [message[message.index(b" - {") + 3 :] for message in self.messages]


@contextmanager
def serving(context: ssl.SSLContext | None = None) -> Iterator[SyslogServer]:
    server = SyslogServer(context)
    try:
        yield server
    finally:
        server.close()
