"""Queries and responses of DNS, for tests."""

from __future__ import annotations

import socket
import struct

__all__ = ["query", "read"]


def query(name: str, kind: int = 1) -> bytes:
    labels = b"".join(bytes([len(each)]) + each.encode() for each in name.split("."))
    return struct.pack(">6H", 77, 0x0100, 1, 0, 0, 0) + labels + b"\0" + struct.pack(">2H", kind, 1)


def read(response: bytes | None) -> tuple[int, list[str]]:
    """The code of a response, and its addresses."""
    assert response is not None
    number, flags, questions, answers, *_ = struct.unpack_from(">6H", response)
    assert (number, questions, flags & 0x8000) == (77, 1, 0x8000)
    at = len(response) - 16 * answers
    return flags & 0xF, [
        socket.inet_ntoa(response[at + 16 * n + 12 : at + 16 * n + 16]) for n in range(answers)
    ]
