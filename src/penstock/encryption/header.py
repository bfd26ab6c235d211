"""The first page of an encrypted file: the wrapped key of the file, and the extents of its content.

    0    magic                                  8 bytes
    8    two slots: name of a key, nonce, wrapped key of the file      16 + 12 + 48 bytes each
    256  extents: start, nonce                  8 + 8 bytes each; a nonce of zeros ends the list

A slot of zeros is free. A new key goes into the free slot before the other one is freed, so a crash between
the two leaves a file that both keys open.

An extent begins wherever bytes are written that may replace others: at the first append of a process, after a
truncation, at an overwritten range. So no keystream is used for two contents, also if a crash has taken bytes
that were written before. Extents are sorted by their start, and the last one has no end.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from penstock.encryption import MAGIC
from penstock.encryption.keys import (
    KEY_BYTES,
    NAME_BYTES,
    NONCE_BYTES,
    WRAPPED_BYTES,
    KeyRing,
    Keystream,
    MissingKey,
)

__all__ = [
    "HEADER_BYTES",
    "Extent",
    "Header",
    "Slot",
    "decode_slots",
    "encode_slots",
    "new_header",
    "overlaid",
    "read_header",
    "unwrapped",
]

HEADER_BYTES: Final = 4096
SLOTS_AT: Final = len(MAGIC)
EXTENTS_AT: Final = 256
_SLOT: Final = struct.Struct(f">{NAME_BYTES}s{NONCE_BYTES}s{WRAPPED_BYTES}s")
_EXTENT: Final = struct.Struct(">Q8s")
EXTENT_NONCE_BYTES: Final = 8
EXTENTS_MAX: Final = (HEADER_BYTES - EXTENTS_AT) // _EXTENT.size
_NO_NONCE: Final = bytes(EXTENT_NONCE_BYTES)


class Slot(NamedTuple):
    """The key of a file, wrapped by the key `name`."""

    name: str
    nonce: bytes
    wrapped: bytes


class Extent(NamedTuple):
    """From `start` to the next extent, content is encrypted with the stream of `nonce`."""

    start: int
    nonce: bytes


class Header:
    """The header of one file, shared by all its open handles in a process.

    `extents` is replaced, never changed, so a reader in another thread has the old or the new one.
    """

    __slots__ = ("__weakref__", "end", "extents", "identity", "stream")

    def __init__(self, identity: bytes, stream: Keystream | None, extents: tuple[Extent, ...]) -> None:
        #: the encoded slots, which no two files have in common
        self.identity = identity
        #: None if the header is damaged: the content is lost
        self.stream = stream
        self.extents = extents
        #: where the last append of this process ended, if nothing has cut or overwritten the file since
        self.end: int | None = None

    def apply(self, position: int, data: bytes) -> bytes:
        """Decrypt content that was read at `position`."""
        stream, extents = self.stream, self.extents
        if stream is None or not extents:
            return data
        at = max(0, bisect_right(extents, position, key=_start) - 1)
        stop = position + len(data)
        if at + 1 == len(extents) or extents[at + 1].start >= stop:
            return stream.apply(extents[at].nonce, position, data)
        parts, view, begin = [], memoryview(data), position
        while begin < stop:
            end = min(stop, extents[at + 1].start) if at + 1 < len(extents) else stop
            parts.append(stream.apply(extents[at].nonce, begin, view[begin - position : end - position]))
            begin, at = end, at + 1
        return b"".join(parts)


def _start(extent: Extent) -> int:
    return extent.start


def new_header(ring: KeyRing, token: Callable[[int], bytes]) -> tuple[Header, bytes]:
    """The header of a new file with one extent, and its bytes."""
    secret, nonce = token(KEY_BYTES), token(NONCE_BYTES)
    slot = Slot(ring.current.name, nonce, ring.current.wrap(secret, nonce))
    slots = encode_slots([slot])
    header = Header(slots, Keystream(secret), (Extent(0, token(EXTENT_NONCE_BYTES)),))
    page = (MAGIC + slots).ljust(EXTENTS_AT, b"\0") + encode_extents(header.extents)
    return header, page


def read_header(page: bytes, ring: KeyRing, path: str) -> Header:
    """The header in the first page of a file. One that cannot be read has no stream: the content is lost.

    MissingKey if it is sound and none of its keys is in the ring.
    """
    slots = decode_slots(page)
    secret = unwrapped(slots, ring)
    if secret is not None:
        identity = page[SLOTS_AT : SLOTS_AT + 2 * _SLOT.size]
        return Header(identity, Keystream(secret), decode_extents(page))
    if slots and all(ring.get(slot.name) is None for slot in slots):
        raise MissingKey(
            f"{path} is encrypted with the key {slots[0].name}, which penstock.encryption.keys does not have"
        )
    return Header(b"", None, ())


def unwrapped(slots: Sequence[Slot], ring: KeyRing) -> bytes | None:
    """The key of a file; None if no key of the ring opens a slot."""
    for slot in slots:
        key = ring.get(slot.name)
        secret = None if key is None else key.unwrap(slot.wrapped, slot.nonce)
        if secret is not None:
            return secret
    return None


def decode_slots(page: bytes) -> list[Slot]:
    """The slots in use; none if the page is not that of an encrypted file."""
    if not page.startswith(MAGIC) or len(page) < EXTENTS_AT:
        return []
    found = []
    for number in range(2):
        name, nonce, wrapped = _SLOT.unpack_from(page, SLOTS_AT + number * _SLOT.size)
        if any(name):
            found.append(Slot(name.rstrip(b"\0").decode("ascii", "replace"), nonce, wrapped))
    return found


def encode_slots(slots: Sequence[Slot | None]) -> bytes:
    """Two slots; None is a free one."""
    parts = [
        bytes(_SLOT.size) if slot is None else _SLOT.pack(slot.name.encode(), slot.nonce, slot.wrapped)
        for slot in (*slots, None, None)[:2]
    ]
    return b"".join(parts)


def encode_extents(extents: Sequence[Extent]) -> bytes:
    table = b"".join(_EXTENT.pack(*extent) for extent in extents)
    return table.ljust(HEADER_BYTES - EXTENTS_AT, b"\0")


def decode_extents(page: bytes) -> tuple[Extent, ...]:
    found: list[Extent] = []
    for number in range(EXTENTS_MAX):
        extent = Extent(*_EXTENT.unpack_from(page, EXTENTS_AT + number * _EXTENT.size))
        # A start that is not sorted is damage: the content behind it cannot be read in any case.
        if extent.nonce == _NO_NONCE or (found and extent.start <= found[-1].start):
            break
        found.append(extent)
    return tuple(found)


def overlaid(extents: Sequence[Extent], start: int, stop: int | None, nonce: bytes) -> tuple[Extent, ...]:
    """The extents after a write of `start` to `stop` with a new nonce; None is the end of the file."""
    before = [extent for extent in extents if extent.start < start]
    after: list[Extent] = []
    if stop is not None:
        covering = [extent for extent in extents if extent.start <= stop]
        if covering:
            after = [Extent(stop, covering[-1].nonce)]
        after += [extent for extent in extents if extent.start > stop]
    return (*before, Extent(start, nonce), *after)
