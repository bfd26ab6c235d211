"""A `Files` that encrypts: all content below it is ciphertext, with a header page before it.

Positions and sizes are those of the content, so storage does not notice. `sendfile` is not possible: `fileno`
is -1, and ranges are read and decrypted. An append is one append of the file below. Content and header are
synced together, because they are one file.

A header that is damaged, as by a crash before the first sync, makes its content damaged: it is read as it is,
and checksums find that. The first write after that begins with a new header.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Callable
from threading import Lock
from typing import Any, Final
from weakref import WeakValueDictionary

from penstock.encryption.header import (
    EXTENT_NONCE_BYTES,
    EXTENTS_AT,
    EXTENTS_MAX,
    HEADER_BYTES,
    Header,
    encode_extents,
    new_header,
    overlaid,
    read_header,
)
from penstock.encryption.keys import KeyRing
from penstock.ports import Buffer, File, Files

__all__ = ["EncryptedFile", "EncryptedFiles"]

#: headers of files that are kept after the files are closed, so that another append needs no new extent
_KEPT: Final = 4096


class EncryptedFile:
    """An open file with encrypted content."""

    __slots__ = ("_files", "_header", "_inner", "path")

    def __init__(self, files: EncryptedFiles, inner: File, header: Header | None) -> None:
        """`header` is None if the file has none yet."""
        self._files = files
        self._inner = inner
        self._header = header
        self.path = inner.path

    def fileno(self) -> int:
        return -1

    def size(self) -> int:
        return max(0, self._inner.size() - HEADER_BYTES)

    def append(self, data: Buffer) -> None:
        header, position = self._writable(), self.size()
        if header.end != position:
            self._begin(header, position, None)
        assert header.stream is not None
        # Until the append is done: bytes of a failed one may be on the disk.
        header.end = None
        self._inner.append(header.stream.apply(header.extents[-1].nonce, position, data))
        header.end = position + len(data)

    def pread(self, size: int, position: int) -> bytes:
        return self._plain(self._inner.pread(size, HEADER_BYTES + position), position)

    def pread_cached(self, size: int, position: int) -> bytes | None:
        data = self._inner.pread_cached(size, HEADER_BYTES + position)
        return None if data is None else self._plain(data, position)

    def pwrite(self, data: Buffer, position: int) -> None:
        header, end = self._writable(), position + len(data)
        self._begin(header, position, end if end < self.size() else None)
        header.end = None
        # Not with the new nonce alone: a full table of extents has taken none.
        self._inner.pwrite(header.apply(position, bytes(data)), HEADER_BYTES + position)

    def truncate(self, size: int) -> None:
        if not size and not self._inner.size():
            return
        header = self._writable()
        header.end = None
        self._inner.truncate(HEADER_BYTES + size)

    def sync(self) -> None:
        self._inner.sync()

    def sync_volume(self) -> bool:
        return self._inner.sync_volume()

    def close(self) -> None:
        self._inner.close()

    def _plain(self, data: bytes, position: int) -> bytes:
        if not data:
            return data
        if self._header is None:
            # Another handle has written the first content.
            self._header = self._files.header_of(self._inner)
        return self._header.apply(position, data)

    def _writable(self) -> Header:
        """The header; a file without a sound one gets a new one."""
        header = self._header
        if header is not None and header.stream is not None:
            return header
        header, page = self._files.new_header()
        if self._inner.size() < HEADER_BYTES:
            self._inner.truncate(0)
            self._inner.append(page)
        else:
            self._inner.pwrite(page, 0)
        self._header = header
        return header

    def _begin(self, header: Header, start: int, stop: int | None) -> None:
        """Use a new nonce from `start` to `stop`, or to the end of the file."""
        extents = overlaid(header.extents, start, stop, self._files.token(EXTENT_NONCE_BYTES))
        if len(extents) > EXTENTS_MAX:
            self._files.full(self.path)
            return
        self._inner.pwrite(encode_extents(extents), EXTENTS_AT)
        header.extents = extents


class EncryptedFiles:
    """Encrypts the content of files of another `Files`. Names, sizes and times stay visible."""

    def __init__(
        self,
        inner: Files,
        ring: KeyRing,
        token: Callable[[int], bytes] = secrets.token_bytes,
        full: Callable[[str], None] = lambda path: None,
    ) -> None:
        """`token` returns random bytes. `full` is called if a file has no room for another extent."""
        self.inner = inner
        self.ring = ring
        self.token = token
        self.full = full
        self._lock = Lock()
        self._shared: WeakValueDictionary[bytes, Header] = WeakValueDictionary()
        self._kept: OrderedDict[bytes, Header] = OrderedDict()

    def __reduce__(self) -> tuple[Any, ...]:
        # For a worker process: it has headers and random numbers of its own.
        return EncryptedFiles, (self.inner, self.ring)

    def over(self, inner: Files) -> EncryptedFiles:
        """The same keys over another `Files`."""
        return EncryptedFiles(inner, self.ring, self.token, self.full)

    def new_header(self) -> tuple[Header, bytes]:
        header, page = new_header(self.ring, self.token)
        header.end = 0
        return self._remembered(header), page

    def _remembered(self, header: Header) -> Header:
        """The one header of a file in this process."""
        if header.stream is None:
            return header
        with self._lock:
            known = self._shared.setdefault(header.identity, header)
            self._kept[header.identity] = known
            self._kept.move_to_end(header.identity)
            if len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        return known

    def open(self, path: str, *, create: bool = False) -> File:
        inner = self.inner.open(path, create=create)
        try:
            header = self.header_of(inner) if inner.size() >= HEADER_BYTES else None
        except BaseException:
            inner.close()
            raise
        return EncryptedFile(self, inner, header)

    def header_of(self, inner: File) -> Header:
        """The header of an open file; MissingKey if its key is not in the ring."""
        return self._remembered(read_header(inner.pread(HEADER_BYTES, 0), self.ring, inner.path))

    def size(self, path: str) -> int:
        return max(0, self.inner.size(path) - HEADER_BYTES)

    def read(self, path: str) -> bytes:
        data = self.inner.read(path)
        if len(data) < HEADER_BYTES:
            return b""
        header = read_header(data[:HEADER_BYTES], self.ring, path)
        return header.apply(0, data[HEADER_BYTES:])

    def write_atomic(self, path: str, data: Buffer) -> None:
        header, page = new_header(self.ring, self.token)
        self.inner.write_atomic(path, page + header.apply(0, bytes(data)))

    def exists(self, path: str) -> bool:
        return self.inner.exists(path)

    def is_dir(self, path: str) -> bool:
        return self.inner.is_dir(path)

    def listdir(self, path: str) -> list[str]:
        return self.inner.listdir(path)

    def makedirs(self, path: str) -> None:
        self.inner.makedirs(path)

    def rename(self, old: str, new: str) -> None:
        self.inner.rename(old, new)

    def remove(self, path: str) -> None:
        self.inner.remove(path)

    def rmtree(self, path: str) -> None:
        self.inner.rmtree(path)

    def sync_dir(self, path: str) -> None:
        self.inner.sync_dir(path)

    def modified_ms(self, path: str) -> int:
        return self.inner.modified_ms(path)

    def lock(self, path: str) -> File:
        """The file has no content."""
        return self.inner.lock(path)

    def space(self, path: str) -> tuple[int, int]:
        return self.inner.space(path)
