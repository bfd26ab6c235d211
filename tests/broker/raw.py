"""A client that sends requests as given: any API at any version, over a blocking socket."""

from __future__ import annotations

import socket
from collections import deque
from types import TracebackType
from typing import Any, cast

from penstock.wire.api import Api, RequestT, ResponseT
from penstock.wire.conversation import Conversation
from penstock.wire.schema import Struct

__all__ = ["RawClient"]

_READ_BYTES = 1 << 16
#: no limit of ours: it is the broker that is tested
_IN_FLIGHT_MAX = 1 << 20


class RawClient:
    """One connection. Requests may be pipelined: `send` several, then `receive` their answers in order.

    An answer that takes longer than `timeout_s` is a failure; fetches that are to be answered "at once" wait
    for longer than that.
    """

    def __init__(self, address: str, client_id: str | None = "raw", timeout_s: float = 25.0) -> None:
        host, _, port = address.rpartition(":")
        self.address = address
        self.client_id = client_id
        self.socket = socket.create_connection((host, int(port)), timeout_s)
        self._conversation = Conversation(client_id, max_in_flight=_IN_FLIGHT_MAX)
        self._answers: deque[Struct] = deque()

    def __enter__(self) -> RawClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    def another(self) -> RawClient:
        """A second connection to the same broker."""
        return RawClient(self.address)

    def call(self, api: Api[RequestT, ResponseT], version: int, request: RequestT) -> ResponseT:
        self.send(api, version, request)
        return cast(ResponseT, self.receive())

    def send(
        self, api: Api[RequestT, Any], version: int, request: RequestT, *, answered: bool = True
    ) -> None:
        _, parts = self._conversation.request(api, request, version=version, answered=answered)
        self.socket.sendall(b"".join(cast(list[bytes], parts)))

    def receive(self) -> Struct:
        """The next answer; ConnectionError if the broker closes instead."""
        while not self._answers:
            data = self.socket.recv(_READ_BYTES)
            if not data:
                raise ConnectionResetError("the broker closed the connection")
            self._answers.extend(response.message for response in self._conversation.receive(data))
        return self._answers.popleft()

    def is_closed(self) -> bool:
        """Whether the broker closes the connection (waits for it) instead of sending anything."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True
