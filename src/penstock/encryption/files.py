"""A `Files` that encrypts and authenticates: all content below it is ciphertext, bound to its place.

Positions and sizes are those of the content, so storage does not notice. `sendfile` is not possible: `fileno`
is -1, and ranges are read and decrypted. An append is one append of the file below. Content and header are
synced together, because they are one file.

A read never returns content that is not authentic. `pread` has bytes of 0xff in its place: no batch, entry or
checkpoint can be read there, so storage finds the damage and treats it as any other. `pread_verified` raises.

A file that has no authentic header for its place, because it is another one or is damaged, is empty. The
first write sets it aside, with the suffix `.unreadable`. A file whose first sync a crash has prevented is
empty, too, and is written anew.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from threading import Lock
from typing import Any, Final
from weakref import WeakValueDictionary

from penstock.encryption import MAGIC, META, PLAIN, VERSION
from penstock.encryption.block_cache import BlockCache
from penstock.encryption.content import Content, Fetch, is_whole
from penstock.encryption.frames import FRAME_HEAD, FrameKeys
from penstock.encryption.head import (
    COPIES_AT,
    HEADER_BYTES,
    decode_heads,
    new_header,
    read_cut,
    renewed_header,
    unwrapped,
    version_in,
)
from penstock.encryption.keys import KeyRing
from penstock.encryption.open_file import EncryptedFile, filled
from penstock.encryption.places import PARTITION_METADATA, TOPIC_METADATA, Places
from penstock.encryption.version1 import Version1File, encode_version1, read_version1
from penstock.ports import Buffer, File, Files, Space

__all__ = ["UNREADABLE", "EncryptedFiles"]

UNREADABLE: Final = ".unreadable"
_IDENTITIES: Final = frozenset({META, PARTITION_METADATA, TOPIC_METADATA})

#: called with a path and a reason when content is not authentic, from any thread
Report = Callable[[str, str], None]


class EncryptedFiles:
    """Encrypts the content of files of another `Files`. Names, sizes and times stay visible.

    Why it has more than 25 methods: it implements `Files`, and gives its open files what they share.
    """

    def __init__(
        self,
        inner: Files,
        ring: KeyRing,
        token: Callable[[int], bytes] = secrets.token_bytes,
        *,
        accepts: frozenset[int] = frozenset({VERSION}),
        report: Report = lambda path, reason: None,
        is_bound: bool = True,
    ) -> None:
        """`token` returns random bytes. `accepts` are the versions of files that are read, PLAIN included.

        Without `is_bound`, files of other places are reported and read: for commands that an operator with
        the keys uses on copies.
        """
        self.inner = inner
        self.ring = ring
        self.token = token
        self.accepts = accepts
        self.damage = report
        self.is_bound = is_bound
        self.cache = BlockCache()
        self.places = Places(self.read)
        self._lock = Lock()
        self._contents: WeakValueDictionary[tuple[str, bytes], Content] = WeakValueDictionary()

    def __reduce__(self) -> tuple[Any, ...]:
        # For a worker process: it has random numbers of its own.
        return _unpickled, (self.inner, self.ring, self.accepts)

    def over(self, inner: Files) -> EncryptedFiles:
        """The same keys over another `Files`."""
        return EncryptedFiles(inner, self.ring, self.token, accepts=self.accepts, report=self.damage)

    # -- for open files

    def report(self, path: str, reason: str) -> None:
        """Content is not authentic, for this reason."""
        self.damage(path, reason)

    def new_content(self, path: str) -> tuple[Content, bytes]:
        """Content with a new key for the file at `path`, and the header to write before it."""
        keys, page = new_header(self.ring, self.places.of(path), self.token)
        return self._shared(path, page, Content(keys)), page

    def content_of(self, inner: File) -> tuple[Content | None, bool]:
        """The content of a file; None if it has no header. Then also whether it has anything to keep.

        MissingKey if the key is not in the ring.
        """
        page = inner.pread(HEADER_BYTES, 0)
        keys = self._keys(page, inner.path)
        if keys is not None:
            known = self._known(inner.path, page)
            return known or self._shared(
                inner.path, page, _loaded(keys, page, inner.size(), inner.pread)
            ), False
        return None, not _is_torn(page)

    def _keys(self, page: bytes, path: str, known: FrameKeys | None = None) -> FrameKeys | None:
        """The keys of a file of the current version; None if its header is not authentic for its place.

        With `known`, also None if its keys are other ones.
        """
        found = unwrapped(decode_heads(page), self.ring, path)
        if found is None:
            if not _is_torn(page):
                self.report(path, "it has no authentic header")
            return None
        secret, place = found
        expected = self.places.of(path)
        if place != expected:
            self.report(path, f"it is the file {place.decode(errors='replace')}")
            if self.is_bound:
                return None
        if known is not None and known.secret != secret:
            return None
        return FrameKeys(secret, place, self.token)

    def _known(self, path: str, page: bytes) -> Content | None:
        with self._lock:
            known = self._contents.get((path, _identity(page)))
        return None if known is None or known.is_replaced else known

    def _shared(self, path: str, page: bytes, content: Content) -> Content:
        """The one content of a file in this process."""
        with self._lock:
            self._contents[path, _identity(page)] = content
        return content

    def restore_header(self, content: Content, inner: File) -> None:
        """Write the header of an open file again, if another file was copied over it."""
        if self._keys(inner.pread(HEADER_BYTES, 0), inner.path, content.keys) is None:
            page = renewed_header(self.ring, content.keys, content.last_cut, self.token)
            inner.pwrite(page, 0)
            with self._lock:
                self._contents[inner.path, _identity(page)] = content

    def stored_position(self, path: str, position: int) -> int:
        """Where the file below has the byte at a position of the content; for tests that damage it."""
        file = self.inner.open(path)
        try:
            content, _ = self.content_of(file)
            assert content is not None
            (piece,) = content.read(file.pread, position, position + 1)
        finally:
            file.close()
        return piece.frame.at + FRAME_HEAD + position - piece.frame.start

    def set_aside(self, path: str) -> File:
        """Give the file at `path` another name, durably, and create an empty one."""
        number, aside = 0, path + UNREADABLE
        while self.inner.exists(aside):
            number += 1
            aside = f"{path}{UNREADABLE}.{number}"
        self.inner.rename(path, aside)
        file = self.inner.open(path, create=True)
        self.inner.sync_dir(path.rpartition("/")[0])
        self.report(path, f"it was moved to {aside}")
        return file

    # -- Files

    def open(self, path: str, *, create: bool = False) -> File:
        self._expect_change(path, create)
        inner = self.inner.open(path, create=create)
        try:
            if not inner.size():
                return EncryptedFile(self, inner, None, False)
            version = version_in(inner.pread(HEADER_BYTES, 0), path)
            if version != VERSION and version in self.accepts:
                return inner if version == PLAIN else Version1File(self, inner)
            return EncryptedFile(self, inner, *self.content_of(inner))
        except BaseException:
            inner.close()
            raise

    def size(self, path: str) -> int:
        if not self.inner.size(path):
            return 0
        file = self.open(path)
        try:
            return file.size()
        finally:
            file.close()

    def takes_appends(self, path: str) -> bool:
        if 1 not in self.accepts or not self.inner.exists(path):
            return True
        file = self.inner.open(path)
        try:
            return version_in(file.pread(HEADER_BYTES, 0), path) != 1
        finally:
            file.close()

    def read(self, path: str) -> bytes:
        data = self.inner.read(path)
        version = version_in(data[:HEADER_BYTES], path)
        if version != VERSION and version in self.accepts:
            return data if version == PLAIN else read_version1(data, self.ring, path)
        if not data:
            return b""

        def fetch(size: int, position: int) -> bytes:
            return data[position : position + size]

        page = data[:HEADER_BYTES]
        keys = self._keys(page, path)
        if keys is None:
            return b""
        content = _loaded(keys, page, len(data), fetch)
        pieces = content.read(fetch, 0, content.end)
        if is_whole(pieces, 0, content.end):
            return b"".join([piece.data for piece in pieces])
        self.report(path, "its content is not authentic")
        return filled(pieces, 0, content.end)

    def write_atomic(self, path: str, data: Buffer) -> None:
        if 1 in self.accepts and PLAIN not in self.accepts and path.endswith(f"/{META}"):
            # The directory still has files of version 1: its header says so.
            encoded = encode_version1(self.ring, self.token, data)
        else:
            keys, page = new_header(self.ring, self.places.of(path), self.token)
            encoded = page + Content(keys).sealed(data)[0]
        self.inner.write_atomic(path, encoded)
        self._expect_change(path, True)

    def _expect_change(self, path: str, changes: bool) -> None:
        """Forget the places that depend on a file, if it may change."""
        folder, _, name = path.rpartition("/")
        if changes and name in _IDENTITIES:
            self.places.forget(folder)

    def rename(self, old: str, new: str) -> None:
        self.inner.rename(old, new)
        for path in (old, new):
            self.places.forget(path)
            self._expect_change(path, True)

    def remove(self, path: str) -> None:
        self.inner.remove(path)
        self._expect_change(path, True)

    def rmtree(self, path: str) -> None:
        self.inner.rmtree(path)
        self.places.forget(path)

    def exists(self, path: str) -> bool:
        return self.inner.exists(path)

    def is_dir(self, path: str) -> bool:
        return self.inner.is_dir(path)

    def listdir(self, path: str) -> list[str]:
        return self.inner.listdir(path)

    def makedirs(self, path: str) -> None:
        self.inner.makedirs(path)

    def sync_dir(self, path: str) -> None:
        self.inner.sync_dir(path)

    def modified_ms(self, path: str) -> int:
        return self.inner.modified_ms(path)

    def lock(self, path: str) -> File:
        """The file has no content."""
        return self.inner.lock(path)

    def space(self, path: str) -> Space:
        return self.inner.space(path)


def _loaded(keys: FrameKeys, page: bytes, size: int, fetch: Fetch) -> Content:
    return Content.load(keys, read_cut(keys, page), size, fetch)


def _is_torn(page: bytes) -> bool:
    """Returns true if a crash before the first sync of a file may have left `page`."""
    return not any(page) or (len(page) < HEADER_BYTES and MAGIC.startswith(page[: len(MAGIC)]))


def _identity(page: bytes) -> bytes:
    """Bytes of a header that no two files have in common."""
    return page[: COPIES_AT[1] // 4]


def _unpickled(inner: Files, ring: KeyRing, accepts: frozenset[int]) -> EncryptedFiles:
    return EncryptedFiles(inner, ring, accepts=accepts)
