"""Clients without a library, over a blocking socket: any request at any version, and any bytes."""

from __future__ import annotations

import socket
import ssl
from collections import deque
from typing import Any, Final, Self, cast

from penstock.wire.api import Api, RequestT, ResponseT
from penstock.wire.conversation import Conversation
from penstock.wire.schema import Struct

__all__ = ["FrameClient", "RawClient"]

_READ_BYTES: Final = 1 << 20
_SIZE_BYTES: Final = 4
#: no limit of a client: it is the broker that is tested
_IN_FLIGHT_MAX: Final = 1 << 20


class _Connected:
    """A connection without the delay of small segments, which a measurement would contain."""

    def __init__(self, address: tuple[str, int], timeout_s: float) -> None:
        self.socket = socket.create_connection(address, timeout_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()


class RawClient(_Connected):
    """One connection. Requests may be pipelined: `send` several, then `receive` their responses in order.

    A response that takes longer than `timeout_s` is a failure; fetches that are to be answered "at once" wait
    for longer than that.
    """

    def __init__(self, address: str, client_id: str | None = "raw", timeout_s: float = 25.0) -> None:
        host, _, port = address.rpartition(":")
        self.address = address
        self.client_id = client_id
        super().__init__((host, int(port)), timeout_s)
        self._conversation = Conversation(client_id, max_in_flight=_IN_FLIGHT_MAX)
        self._responses: deque[Struct] = deque()

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

    def receive(self) -> Any:
        """The next response; ConnectionResetError if the broker closes the connection instead."""
        while not self._responses:
            data = self.socket.recv(_READ_BYTES)
            if not data:
                raise ConnectionResetError("the broker closed the connection")
            self._responses.extend(response.message for response in self._conversation.receive(data))
        return self._responses.popleft()

    def is_closed(self) -> bool:
        """Whether the broker closes the connection (waits for it) instead of sending anything."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True


class FrameClient(_Connected):
    """One connection that sends bytes as given, and receives whole frames."""

    def __init__(
        self, address: tuple[str, int], timeout_s: float, context: ssl.SSLContext | None = None
    ) -> None:
        """With `context`, over TLS."""
        super().__init__(address, timeout_s)
        if context is not None:
            self.socket = context.wrap_socket(self.socket, server_hostname=address[0])
        self._file = self.socket.makefile("rb")

    def close(self) -> None:
        self._file.close()
        super().close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def receive(self) -> bytes:
        """The next frame, without its size; ConnectionResetError if the broker closes instead."""
        size = self._read(_SIZE_BYTES)
        return self._read(int.from_bytes(size, "big"))

    def exchange(self, frame: bytes) -> bytes:
        """The response to a frame."""
        self.send(frame)
        return self.receive()

    def _read(self, size: int) -> bytes:
        data = self._file.read(size)
        if len(data) < size:
            raise ConnectionResetError("the broker closed the connection")
        return data
