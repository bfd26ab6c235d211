"""The asking side of a connection, without the connection: bytes in, responses out.

A broker answers the requests of a connection in their order, so whoever asks keeps a queue of what it awaits:
an answer out of order, or one nobody asked for, ends the conversation. Clients, brokers that talk to brokers
and tests drive the same code over whatever carries the bytes.
"""

from __future__ import annotations

import struct
from collections import deque
from typing import Any, NamedTuple

from penstock.model.errors import ProtocolError, UnsupportedVersion
from penstock.ports import Buffer
from penstock.wire.api import Api, RequestT
from penstock.wire.apis.api_versions import ApiVersionsResponse
from penstock.wire.compiler import Part
from penstock.wire.messages import decode_response, encode_request, response_correlation_id
from penstock.wire.schema import Struct

__all__ = ["Conversation", "FrameSplitter", "Response", "common_version"]

_SIZE = struct.Struct(">i")
#: As large as a response may be; a broker's fetch limit is half of it.
_MAX_FRAME_BYTES = 100 * 1024 * 1024
_INT32_MAX = 0x7FFFFFFF


class FrameSplitter:
    """Cuts a stream of bytes into frames. Holds at most one incomplete frame, of `max_bytes` at the most."""

    def __init__(self, max_bytes: int = _MAX_FRAME_BYTES) -> None:
        self._max_bytes = max_bytes
        self._pending = bytearray()

    def feed(self, data: Buffer) -> list[memoryview]:
        """The frames that `data` completes, without their sizes."""
        self._pending += data
        frames = []
        start = 0
        while len(self._pending) - start >= _SIZE.size:
            (size,) = _SIZE.unpack_from(self._pending, start)
            if not 0 <= size <= self._max_bytes:
                raise ProtocolError(f"frame of {size} bytes")
            end = start + _SIZE.size + size
            if end > len(self._pending):
                break
            frames.append(memoryview(bytes(self._pending[start + _SIZE.size : end])))
            start = end
        del self._pending[:start]
        return frames


class Response(NamedTuple):
    """An answer, and which request it answers."""

    correlation_id: int
    message: Struct


class Conversation:
    """Numbers requests, and reads the answers to them."""

    def __init__(self, client_id: str | None, max_response_bytes: int = _MAX_FRAME_BYTES) -> None:
        self._client_id = client_id
        self._frames = FrameSplitter(max_response_bytes)
        self._last_correlation_id = 0
        self._awaited: deque[tuple[int, Api[Any, Any], int]] = deque()

    @property
    def in_flight(self) -> int:
        """How many requests await their answers; the caller decides how many are too many."""
        return len(self._awaited)

    def ask(
        self, api: Api[RequestT, Any], version: int, message: RequestT, *, answered: bool = True
    ) -> tuple[int, list[Part]]:
        """A correlation id and what to send; not `answered` only for Produce with acks=0."""
        correlation_id = self._last_correlation_id = self._last_correlation_id % _INT32_MAX + 1
        parts = encode_request(api, version, correlation_id, self._client_id, message)
        if answered:
            self._awaited.append((correlation_id, api, version))
        return correlation_id, parts

    def receive(self, data: Buffer) -> list[Response]:
        """The answers that `data` completes, in the order of their requests."""
        return [self._answer(frame) for frame in self._frames.feed(data)]

    def _answer(self, frame: memoryview) -> Response:
        correlation_id = response_correlation_id(frame)
        awaited, api, version = self._awaited.popleft() if self._awaited else (None, None, 0)
        if api is None or awaited != correlation_id:
            raise ProtocolError(f"response {correlation_id} where {awaited} was awaited")
        return Response(correlation_id, decode_response(api, version, frame))


def common_version(api: Api[Any, Any], theirs: ApiVersionsResponse) -> int:
    """The highest version that we have tables for and a peer serves; UnsupportedVersion if there is none."""
    for served in theirs.api_keys:
        if served.api_key == api.key:
            version = min(api.max_version, served.max_version)
            if version >= max(api.min_supported, served.min_version):
                return version
            raise UnsupportedVersion(
                f"{api.name}: the peer serves {served.min_version} to {served.max_version}, "
                f"we speak {api.min_supported} to {api.max_version}"
            )
    raise UnsupportedVersion(f"the peer does not serve {api.name}")
