"""A client without a library: requests on one socket, so that a measured time is the broker's."""

from __future__ import annotations

import socket
from collections import deque
from typing import Any, Final, cast

from lab.server import HOST
from penstock.wire.api import Api, RequestT, ResponseT
from penstock.wire.conversation import Conversation

__all__ = ["RawClient"]

_READ_BYTES: Final = 1 << 20


class RawClient:
    """One connection to the broker at `port`."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection((HOST, port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._conversation = Conversation("bench", max_in_flight=1 << 20)
        self._answers: deque[Any] = deque()

    def send(self, api: Api[RequestT, Any], version: int, request: RequestT) -> None:
        _, parts = self._conversation.request(api, request, version=version)
        self.socket.sendall(b"".join(cast("list[bytes]", parts)))

    def receive(self) -> Any:
        while not self._answers:
            data = self.socket.recv(_READ_BYTES)
            if not data:
                raise ConnectionResetError("the broker closed the connection")
            self._answers.extend(response.message for response in self._conversation.receive(data))
        return self._answers.popleft()

    def call(self, api: Api[RequestT, ResponseT], version: int, request: RequestT) -> ResponseT:
        self.send(api, version, request)
        return cast("ResponseT", self.receive())
