"""An open file with encrypted content; `files` describes what its reads return."""

from __future__ import annotations

import errno
from typing import Final, Protocol

from penstock.encryption.block_cache import BlockCache
from penstock.encryption.content import Content, Fetch, NotCached, Piece, is_whole
from penstock.encryption.damage import never_written, overwrite
from penstock.encryption.frames import BLOCK_BYTES, FIRST_BLOCK
from penstock.encryption.head import cut_position, encode_cut
from penstock.ports import Buffer, File

__all__ = ["EncryptedFile", "filled"]

_DAMAGED: Final = b"\xff"


class _Owner(Protocol):
    """What the files of one `EncryptedFiles` share."""

    cache: BlockCache

    def content_of(self, inner: File) -> tuple[Content | None, bool]: ...

    def new_content(self, path: str) -> tuple[Content, bytes]: ...

    def set_aside(self, path: str) -> File: ...

    def restore_header(self, content: Content, inner: File) -> None: ...

    def report(self, path: str, reason: str) -> None: ...


class EncryptedFile:
    """An open file with encrypted content."""

    __slots__ = ("_content", "_files", "_foreign", "_inner", "path")

    def __init__(self, files: _Owner, inner: File, content: Content | None, foreign: bool) -> None:
        """`content` is None if the file has none yet; `foreign` is true if it has bytes to be set aside."""
        self._files = files
        self._inner = inner
        self._content = content
        self._foreign = foreign
        self.path = inner.path

    def fileno(self) -> int:
        return -1

    def size(self) -> int:
        content = self._content
        return 0 if content is None or content.is_replaced else content.end

    def append(self, data: Buffer) -> None:
        if not data:
            return
        content, page = self._writable()
        tail = content.tail
        sealed, new_tail, starts = content.sealed(data)
        size = self._inner.size()
        if page:
            self._inner.append(page + sealed)
        elif size == tail:
            self._inner.append(sealed)
        elif size > tail:
            # A torn append of an earlier process, or frames that were truncated before a crash.
            self._inner.truncate(tail)
            self._inner.append(sealed)
        else:
            self._inner.pwrite(sealed, tail)
        content.appended(len(data), new_tail, starts)
        self._content = content
        self._files.cache.extend(content, tail, memoryview(data), starts)

    def pread(self, size: int, position: int) -> bytes:
        return self._read(self._inner.pread, size, position, verified=False)

    def pread_verified(self, size: int, position: int) -> bytes:
        return self._read(self._inner.pread, size, position, verified=True)

    def pread_cached(self, size: int, position: int) -> bytes | None:
        try:
            return self._read(self._fetch_cached, size, position, verified=False)
        except NotCached:
            return None

    def is_cached(self, position: int) -> bool:
        content = self._readable()
        if content is None or position >= content.end:
            return True
        try:
            block = content.locate(self._fetch_cached, position)
        except NotCached:
            return False
        return self._inner.is_cached(FIRST_BLOCK + block * BLOCK_BYTES)

    def _fetch_cached(self, size: int, position: int) -> bytes:
        data = self._inner.pread_cached(size, position)
        if data is None:
            raise NotCached
        return data

    def never_written(self, position: int, end: int) -> int | None:
        content = self._readable()
        return end if content is None else never_written(content, self._inner.pread, position, end)

    def pwrite(self, data: Buffer, position: int) -> None:
        content = self._readable()
        end = 0 if content is None else content.end
        if position > end:
            self.append(bytes(position - end))
            end = position
        inside = bytes(data[: end - position])
        if inside:
            assert content is not None
            self._files.restore_header(content, self._inner)
            try:
                overwrite(content, self._inner.pread, self._inner.pwrite, inside, position)
            finally:
                self._files.cache.forget(content)
        self.append(data[end - position :])

    def truncate(self, size: int) -> None:
        content = self._readable()
        if content is None or size > content.end:
            if size == 0 and (self._foreign or self._inner.size()):
                self._start_over()
            self.append(bytes(size - self.size()))
        elif size == 0:
            content.is_replaced = True
            self._files.cache.forget(content)
            self._content = None
            self._inner.truncate(0)
        elif size < content.end:
            cut = content.cut(self._inner.pread, size)
            self._inner.pwrite(encode_cut(content.keys, cut), cut_position(cut.generation))
            # From here on frames behind the cut do not count, whether or not the file becomes shorter.
            content.was_cut(cut)
            self._files.cache.forget(content)
            self._inner.truncate(cut.tail)

    def sync(self) -> None:
        self._inner.sync()

    def sync_volume(self) -> bool:
        return self._inner.sync_volume()

    def close(self) -> None:
        self._inner.close()

    def _readable(self) -> Content | None:
        content = self._content
        if content is None or content.is_replaced:
            # Another handle may have written the first content.
            if self._foreign:
                return None
            content, self._foreign = self._files.content_of(self._inner)
            self._content = content
        return content

    def _writable(self) -> tuple[Content, bytes]:
        """The content, and the header to write before it if the file has none."""
        content = self._readable()
        if content is not None:
            return content, b""
        if self._foreign or self._inner.size():
            self._start_over()
        return self._files.new_content(self.path)

    def _start_over(self) -> None:
        """Have an empty file. One that belongs elsewhere, or is damaged, is kept under another name."""
        if self._foreign:
            self._inner.close()
            self._inner = self._files.set_aside(self.path)
            self._foreign = False
        else:
            self._inner.truncate(0)

    def _read(self, fetch: Fetch, size: int, position: int, *, verified: bool) -> bytes:
        content = self._readable()
        if content is None:
            return b""
        generations, stop = content.generations, min(position + size, content.end)
        if position >= stop:
            return b""
        if stop - position < BLOCK_BYTES:
            found = self._files.cache.read(content, fetch, position, stop)
            if found is not None:
                return found
        pieces = content.read(fetch, position, stop)
        if is_whole(pieces, position, stop):
            return b"".join([piece.data for piece in pieces])
        if content.generations is not generations or content.end < stop or content.is_replaced:
            # It was truncated during the read.
            return self._read(fetch, size, position, verified=verified)
        reason = f"the content from {position} to {stop} is not authentic"
        self._files.report(self.path, reason)
        if verified:
            raise OSError(errno.EBADMSG, reason, self.path)
        return filled(pieces, position, stop)


def filled(pieces: list[Piece], position: int, stop: int) -> bytes:
    """Pieces of [position, stop), with bytes between them that cannot be taken for content."""
    data = bytearray(_DAMAGED * (stop - position))
    for piece in pieces:
        data[piece.start - position : piece.start - position + len(piece.data)] = piece.data
    return bytes(data)
