"""The little of DER (X.690) that certificates and revocation lists need. ValueError for malformed bytes."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["SEQUENCE", "certificate_fields", "element", "elements", "time_of"]

SEQUENCE: Final = 0x30
_VERSION: Final = 0xA0
_UTC_TIME: Final = 0x17


def certificate_fields(certificate: bytes) -> list[tuple[int, bytes]]:
    """The fields of the signed part of a certificate, without the version."""
    _, content, _ = element(certificate, 0)
    _, to_be_signed, _ = element(content, 0)
    return [each for each in elements(to_be_signed) if each[0] != _VERSION]


def time_of(tag: int, content: bytes) -> float:
    """A UTCTime or GeneralizedTime, in seconds since 1970."""
    text = content.decode("ascii", "replace")
    if tag == _UTC_TIME:
        # RFC 5280: two digits of a year from 1950 to 2049
        text = ("19" if text >= "50" else "20") + text
    if re.fullmatch(r"[0-9]{14}Z", text, re.ASCII) is None:
        raise ValueError("the time is malformed")
    from datetime import UTC, datetime  # only a broker with TLS needs it

    parts = [int(text[:4]), *(int(text[at : at + 2]) for at in range(4, 14, 2))]
    return datetime(parts[0], parts[1], parts[2], parts[3], parts[4], parts[5], tzinfo=UTC).timestamp()


def elements(content: bytes) -> list[tuple[int, bytes]]:
    found, position = [], 0
    while position < len(content):
        tag, value, position = element(content, position)
        found.append((tag, value))
    return found


def element(data: bytes, position: int) -> tuple[int, bytes, int]:
    """Tag and content of the element at `position`, and the position behind it; ValueError if cut short."""
    if position + 2 > len(data):
        raise ValueError("the bytes are cut short")
    tag, length = data[position], data[position + 1]
    position += 2
    if length & 0x80:
        size = length & 0x7F
        length = int.from_bytes(data[position : position + size], "big")
        position += size
    if position + length > len(data):
        raise ValueError("the bytes are cut short")
    return tag, data[position : position + length], position + length
