"""One raw connection to a broker: an operation's request out, its answer back."""

from __future__ import annotations

import struct
from random import Random
from typing import Final

from differential.normalise import CLOSED, SILENT, Closed
from differential.operations import Operation
from lab.raw_client import FrameClient
from penstock.model.errors import ProtocolError
from penstock.wire.messages import decode_response, encode_request
from penstock.wire.schema import Struct

__all__ = ["NOT_UTF8", "Connection", "cause_of", "mangled"]

_ANSWER_S: Final = 20.0
#: a mangled request may have a timeout of hours
_MANGLED_ANSWER_S: Final = 1.0
_SIZE: Final = struct.Struct(">i")
_CORRELATION_ID: Final = 1
#: the cause of a malformed request with a text that is not UTF-8
NOT_UTF8: Final = "a text is not UTF-8"


def mangled(frame: bytes, header_size: int, seed: int) -> bytes:
    """A request frame with some bytes of its body changed, cut off or added; the size in front is right."""
    random = Random(seed)
    body = bytearray(frame[header_size:])
    for _ in range(random.choice((1, 1, 2))):
        at = random.randrange(len(body) + 1)
        action = random.randrange(3)
        if action == 0 and at < len(body):
            body[at] ^= 1 << random.randrange(8)
        elif action == 1:
            del body[at:]
        else:
            body[at:at] = random.randbytes(random.randrange(1, 4))
    changed = frame[4:header_size] + bytes(body)
    return _SIZE.pack(len(changed)) + changed


def cause_of(operation: Operation, frame: bytes, header_size: int) -> str:
    """Why Penstock cannot decode a request; empty if it can."""
    try:
        operation.api.request_decoder(operation.version)(memoryview(frame), header_size)
    except ProtocolError as e:
        return NOT_UTF8 if isinstance(e.__cause__, UnicodeDecodeError) else str(e)
    return ""


class Connection:
    """Connects when it is needed, and again after the broker has closed."""

    def __init__(self, host: str, port: int, client_id: str = "differential") -> None:
        self._address = host, port
        self._client_id = client_id
        self._client: FrameClient | None = None

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def call(self, operation: Operation, request: Struct) -> Struct | str:
        """The response, or the broker's reaction without one."""
        api, version = operation.api, operation.version
        parts = encode_request(api, version, _CORRELATION_ID, self._client_id, request)
        frame = b"".join(bytes(part) for part in parts)  # type: ignore[arg-type]
        timeout_s = _ANSWER_S
        header_size = 14 + len(self._client_id) + (1 if version >= api.flexible_from else 0)
        if operation.mangle is not None:
            frame = mangled(frame, header_size, operation.mangle)
            timeout_s = _MANGLED_ANSWER_S
        try:
            answer = self._exchange(frame, timeout_s, operation.answered)
        except TimeoutError:
            self.close()
            return SILENT
        except ConnectionError:
            self.close()
            return CLOSED if operation.mangle is None else Closed(cause_of(operation, frame, header_size))
        if answer is None:
            return SILENT
        try:
            response: Struct = decode_response(api, version, memoryview(answer))
        except ProtocolError as e:
            self.close()
            return f"sent what is no response: {e}"
        return response

    def _exchange(self, frame: bytes, timeout_s: float, answered: bool) -> bytes | None:
        if self._client is None:
            self._client = FrameClient(self._address, _ANSWER_S)
        self._client.socket.settimeout(timeout_s)
        self._client.send(frame)
        return self._client.receive() if answered else None
