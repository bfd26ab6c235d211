"""The content of blocks that were read in small pieces: batch headers, and records at the end of a log.

A block of small frames takes a while to decrypt. A consumer at the end of a log would pay for all of them
with each fetch. So the blocks of small reads are kept, and appends extend the last one if it is kept.

Used from the event loop and from worker threads.
"""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock
from typing import Final

from penstock.encryption.content import Content, Fetch, is_whole
from penstock.encryption.frames import BLOCK_BYTES, FIRST_BLOCK

__all__ = ["BlockCache"]

#: 8 MiB
_BLOCKS_MAX: Final = 256


class BlockCache:
    """Authentic content of blocks, by file and block; the least recently added goes first."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._blocks: OrderedDict[tuple[int, int], tuple[Content, int, bytearray]] = OrderedDict()

    def read(self, content: Content, fetch: Fetch, position: int, stop: int) -> bytes | None:
        """The content [position, stop); None if a block of it is damaged, or has changed meanwhile."""
        block = content.locate(fetch, position)
        parts, at = [], position
        while at < stop:
            found = self._blocks.get((id(content), block))
            if found is None or found[0] is not content:
                found = self._load(content, fetch, block)
                if found is None:
                    return None
            _, start, data = found
            piece = bytes(data[at - start : stop - start]) if start <= at else b""
            if not piece:
                self._blocks.pop((id(content), block), None)
                return None
            parts.append(piece)
            at += len(piece)
            block += 1
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _load(self, content: Content, fetch: Fetch, block: int) -> tuple[Content, int, bytearray] | None:
        before = content.generations
        start = content.start_of(fetch, block)
        stop = content.start_of(fetch, block + 1) if block + 1 < content.blocks else content.end
        if start is None or stop is None:
            return None
        pieces = content.read(fetch, start, stop)
        if not is_whole(pieces, start, stop):
            return None
        data = bytearray().join([piece.data for piece in pieces])
        with self._lock:
            if content.generations is not before or content.is_replaced:
                # It was truncated during the read, and `forget` may have been called before this.
                return None
            return self._keep(content, block, start, data)

    def _keep(
        self, content: Content, block: int, start: int, data: bytearray
    ) -> tuple[Content, int, bytearray]:
        """Keep a block; the caller has the lock."""
        kept = content, start, data
        self._blocks[id(content), block] = kept
        if len(self._blocks) > _BLOCKS_MAX:
            self._blocks.popitem(last=False)
        return kept

    def extend(self, content: Content, tail: int, data: memoryview, starts: dict[int, int]) -> None:
        """An append has written `data` from the position `tail` of the file on; blocks begin at `starts`."""
        block = (tail - 1 - FIRST_BLOCK) // BLOCK_BYTES
        found = self._blocks.get((id(content), block))
        if found is None or found[0] is not content:
            return
        begin, kept = content.end - len(data), found[2]
        if found[1] + len(kept) != begin:
            self._blocks.pop((id(content), block), None)
            return
        bounds = [*starts.values(), content.end]
        kept += data[: bounds[0] - begin]
        with self._lock:
            for number, start, stop in zip(starts, bounds, bounds[1:], strict=False):
                self._keep(content, number, start, bytearray(data[start - begin : stop - begin]))

    def clear(self) -> None:
        with self._lock:
            self._blocks.clear()

    def forget(self, content: Content) -> None:
        """Forget the blocks of a file that was truncated or repaired."""
        with self._lock:
            for key in [key for key, kept in self._blocks.items() if kept[0] is content]:
                del self._blocks[key]
