"""Version 1 of the format, which is read and converted, and in which no content is written any more.

A file has a header page, and then as many bytes of ciphertext as it has content (AES-256 in counter mode). It
is not authenticated, and not bound to its place. docs/adr/0023-encryption-at-rest.md describes it. The first
page has the wrapped key of the file, and the extents of its content:

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

import errno
import struct
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol

from penstock.encryption import MAGIC as ANY_VERSION
from penstock.encryption.keys import (
    KEY_BYTES,
    NAME_BYTES,
    NONCE_BYTES,
    WRAPPED_BYTES,
    KeyRing,
    Keystream,
    MissingKey,
)
from penstock.ports import Buffer, File, Files

__all__ = [
    "HEADER_BYTES",
    "MAGIC",
    "Extent",
    "Header",
    "Slot",
    "Version1File",
    "decode_slots",
    "encode_slots",
    "encode_version1",
    "overlaid",
    "read_header",
    "read_version1",
    "unwrapped",
]

MAGIC: Final = ANY_VERSION + b"\x01"
HEADER_BYTES: Final = 4096
SLOTS_AT: Final = len(MAGIC)
EXTENTS_AT: Final = 256
_SLOT: Final = struct.Struct(f">{NAME_BYTES}s{NONCE_BYTES}s{WRAPPED_BYTES}s")
_EXTENT: Final = struct.Struct(">Q8s")
EXTENT_NONCE_BYTES: Final = 8
EXTENTS_MAX: Final = (HEADER_BYTES - EXTENTS_AT) // _EXTENT.size
#: a larger file is not converted by an append
_CONVERTED_MAX: Final = 1 << 20
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


class _Upgrade(Protocol):
    """What a file of version 1 needs to become one of the current version."""

    inner: Files
    ring: KeyRing
    token: Callable[[int], bytes]

    def open(self, path: str, *, create: bool = False) -> File: ...

    def write_atomic(self, path: str, data: Buffer) -> None: ...


class Version1File:
    """An open file of version 1. It is read, truncated and repaired as before, and takes no appends.

    A small one becomes a file of the current version when it is appended to. Storage begins a new segment
    instead of appending to one of version 1 (`Files.takes_appends`).
    """

    __slots__ = ("_files", "_header", "_inner", "_new", "path")

    def __init__(self, files: _Upgrade, inner: File) -> None:
        self._files = files
        self._inner = inner
        self._header = read_header(inner.pread(HEADER_BYTES, 0), files.ring, inner.path)
        #: the file of the current version that has replaced this one
        self._new: File | None = None
        self.path = inner.path

    def fileno(self) -> int:
        return -1

    def size(self) -> int:
        return self._new.size() if self._new else max(0, self._inner.size() - HEADER_BYTES)

    def append(self, data: Buffer) -> None:
        if data:
            self._replacement().append(data)

    def _replacement(self) -> File:
        if self._new is None:
            if self.size() > _CONVERTED_MAX:
                raise OSError(
                    errno.EROFS, "a file of version 1 of the encryption takes no appends", self.path
                )
            self._files.write_atomic(self.path, self.pread(self.size(), 0))
            self._new = self._files.open(self.path)
            self._inner.close()
        return self._new

    def pread(self, size: int, position: int) -> bytes:
        if self._new is not None:
            return self._new.pread(size, position)
        return self._header.apply(position, self._inner.pread(size, HEADER_BYTES + position))

    def is_cached(self, position: int) -> bool:
        if self._new is not None:
            return self._new.is_cached(position)
        return self._inner.is_cached(HEADER_BYTES + position)

    def pread_verified(self, size: int, position: int) -> bytes:
        return self.pread(size, position)

    def pread_cached(self, size: int, position: int) -> bytes | None:
        if self._new is not None:
            return self._new.pread_cached(size, position)
        data = self._inner.pread_cached(size, HEADER_BYTES + position)
        return None if data is None else self._header.apply(position, data)

    def never_written(self, position: int, end: int) -> int | None:
        return None if self._new is None else self._new.never_written(position, end)

    def pwrite(self, data: Buffer, position: int) -> None:
        if self._new is not None or self._header.stream is None or position + len(data) > self.size():
            self._replacement().pwrite(data, position)
            return
        header, end = self._header, position + len(data)
        stop = end if end < self.size() else None
        extents = overlaid(header.extents, position, stop, self._files.token(EXTENT_NONCE_BYTES))
        if len(extents) > EXTENTS_MAX:
            raise OSError(errno.EROFS, "a file of version 1 of the encryption is full", self.path)
        self._inner.pwrite(encode_extents(extents), EXTENTS_AT)
        header.extents = extents
        self._inner.pwrite(header.apply(position, bytes(data)), HEADER_BYTES + position)

    def truncate(self, size: int) -> None:
        if self._new is not None:
            self._new.truncate(size)
        elif size == 0:
            # The next content has another key, and is of the current version.
            self._inner.truncate(0)
            self._inner.close()
            self._new = self._files.open(self.path)
        elif size <= self.size():
            self._inner.truncate(HEADER_BYTES + size)
        else:
            self._replacement().truncate(size)

    def sync(self) -> None:
        (self._new or self._inner).sync()

    def sync_volume(self) -> bool:
        return (self._new or self._inner).sync_volume()

    def close(self) -> None:
        (self._new or self._inner).close()


def encode_version1(ring: KeyRing, token: Callable[[int], bytes], data: Buffer) -> bytes:
    """A whole file of version 1, with a new key: for the `meta.json` of a directory that has others."""
    secret, nonce = token(KEY_BYTES), token(NONCE_BYTES)
    slots = encode_slots([Slot(ring.current.name, nonce, ring.current.wrap(secret, nonce))])
    extents = (Extent(0, token(EXTENT_NONCE_BYTES)),)
    page = (MAGIC + slots).ljust(EXTENTS_AT, b"\0") + encode_extents(extents)
    return page + Header(slots, Keystream(secret), extents).apply(0, bytes(data))


def read_version1(data: bytes, ring: KeyRing, path: str) -> bytes:
    """The content of a whole file of version 1."""
    return read_header(data[:HEADER_BYTES], ring, path).apply(0, data[HEADER_BYTES:])
