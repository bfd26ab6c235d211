"""The content of one encrypted file: finds, reads, appends and truncates it.

Positions of the content and of the file differ by the overhead of frames. The first frame of each block has
the position of its content, so a position is found by a search over the blocks, most often with one guess. No
table is stored or kept, except for the blocks that were looked at.

`fetch` reads bytes of the file. It raises `NotCached` where a read would wait for the disk and must not.
Nothing here returns content that is not authentic.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable
from itertools import chain
from typing import Final, NamedTuple, TypeAlias

from penstock.encryption.frames import (
    BLOCK_BYTES,
    CAPACITY,
    FIRST_BLOCK,
    FRAME_HEAD,
    OVERHEAD,
    Frame,
    FrameKeys,
    Generations,
    block_end,
    parse_frame,
    walk_frames,
)
from penstock.encryption.head import Cut
from penstock.encryption.search import FrameSearch

__all__ = ["Content", "Fetch", "NotCached", "Piece", "is_next", "is_whole"]

Fetch: TypeAlias = Callable[[int, int], bytes]
#: blocks that are read at once: bounds the memory of one read
_BLOCKS_AT_ONCE: Final = 33
#: less than this is not begun at the end of a block, if it is not enough
_SMALL_ROOM: Final = 512
#: so that a file has fewer than 2^32 frames
_TAIL_MAX: Final = 1 << 37
_GENERATION_MAX: Final = (1 << 24) - 1
#: so that a file can be truncated 65,000 times at least
_GENERATION_STEPS: Final = 128


class NotCached(Exception):
    """A read would have to wait for the disk."""


class Piece(NamedTuple):
    """Authentic content from `start` on, and its frame."""

    start: int
    data: bytes
    frame: Frame


class Content:
    """Where the content of a file ends, and how to reach it. Shared by all handles of a file in a process."""

    __slots__ = ("__weakref__", "_starts", "end", "generations", "is_replaced", "keys", "pending", "tail")

    def __init__(self, keys: FrameKeys) -> None:
        self.keys = keys
        self.generations = Generations(0, FIRST_BLOCK, 0)
        #: bytes of the content
        self.end = 0
        #: the position of the file behind the last frame
        self.tail = FIRST_BLOCK
        #: true once the file has another key: a truncation to nothing
        self.is_replaced = False
        #: the position of the content at the start of blocks, as far as they were looked at
        self._starts: dict[int, int] = {0: 0}
        #: content that will replace a damaged range once all of it is there: its position, and the bytes
        self.pending: tuple[int, bytes] | None = None

    @classmethod
    def load(cls, keys: FrameKeys, cut: Cut, size: int, fetch: Fetch) -> Content:
        """The content of a file of `size` bytes whose last truncation is `cut`."""
        content = cls(keys)
        content.generations = Generations(cut.generation, cut.tail, cut.end)
        last = content._last_frame(size, fetch)
        if last is not None:
            content.end, content.tail = content.generations.stop_of(last), last.end
        if cut.generation and content.tail <= cut.tail <= size:
            # Nothing was appended since the truncation.
            content.end, content.tail = cut.end, cut.tail
        return content

    def _last_frame(self, size: int, fetch: Fetch) -> Frame | None:
        """The last frame by the headers, or a later one that is authentic."""
        block = (size - FIRST_BLOCK - 1) // BLOCK_BYTES
        while block >= 0:
            at = FIRST_BLOCK + block * BLOCK_BYTES
            data = fetch(min(BLOCK_BYTES, size - at), at)
            frames = self.frames(data, at)
            if frames:
                last = frames[-1]
                if self.keys.open(last, data, last.at - at) is None:
                    # A damaged length may hide the frames behind: the next append would remove them.
                    found = self.authentic(data, at)
                    last = max(last, found[-1][0]) if found else last
                return last
            block -= 1
        return None

    # -- finding

    def frames(self, data: bytes | memoryview, at: int) -> list[Frame]:
        """The frames of one block by their headers. Behind a damaged header, those that are authentic."""
        frames, position = walk_frames(data, at, self.generations)
        search = FrameSearch(self.keys, self.generations, data, at)
        while position + OVERHEAD < at + len(data):
            for frame in search.authentic(position):
                # Positions never fall, so frames that claim to begin later have damaged headers.
                while frames and frames[-1].start > frame.start:
                    if self.keys.open(frames[-1], data, frames[-1].at - at) is not None:
                        break
                    frames.pop()
                else:
                    break
            else:
                break
            more, position = walk_frames(data[frame.at - at :], frame.at, self.generations)
            frames += more
        return frames

    def authentic(self, data: bytes | memoryview, at: int) -> list[tuple[Frame, bytes]]:
        """The authentic frames of one block with their content, also those that a damaged length hides."""
        search = FrameSearch(self.keys, self.generations, data, at)
        found: list[tuple[Frame, bytes]] = []
        ahead = self.frames(data, at)[::-1]
        while ahead:
            frame = ahead.pop()
            content = self.keys.open(frame, data, frame.at - at)
            if content is not None:
                # The generation of a frame never falls: earlier ones were truncated there.
                if not found or found[-1][0].generation <= frame.generation:
                    found.append((frame, content))
                continue
            hidden: list[Frame] = []
            position = frame.at + 1
            while (first := next(search.authentic(position, frame.end), None)) is not None:
                frames, position = walk_frames(data[first.at - at :], first.at, self.generations)
                hidden += frames
            while ahead and ahead[-1].at < position:
                ahead.pop()
            ahead += hidden[::-1]
        return found

    @property
    def blocks(self) -> int:
        return -(-(self.tail - FIRST_BLOCK) // BLOCK_BYTES)

    def locate(self, fetch: Fetch, position: int, verified: bool = False) -> int:
        """The last block whose content begins at or before `position`.

        With `verified`, headers that are not authentic do not count. Why: a damaged one must not hide others.
        """
        low, high = min(position // CAPACITY, self.blocks - 1), self.blocks
        guess = low + 1
        while high - low > 1:
            # The nearest blocks count if the header of this one is damaged. Why not all: a read that meets
            # one damaged header would read the whole file.
            for probe in chain(range(guess, low, -1), range(guess + 1, high)):
                start = self.start_of(fetch, probe, verified)
                if start is not None:
                    break
            else:
                break
            if start <= position:
                low = probe
            else:
                high = probe
            guess = (low + high) // 2
        return max(low, 0)

    def start_of(self, fetch: Fetch, block: int, verified: bool = False) -> int | None:
        """The position of the content of a block; None if its first header is damaged."""
        start = None if verified else self._starts.get(block)
        if start is None:
            at = FIRST_BLOCK + block * BLOCK_BYTES
            size = min(BLOCK_BYTES, self.tail - at) if verified else FRAME_HEAD
            data = fetch(size, at)
            frame = parse_frame(data, 0, at)
            if frame is None or not self.generations.allow(frame):
                return None
            if verified and self.keys.open(frame, data) is None:
                return None
            start = self._starts[block] = frame.start
        return start

    # -- reading

    def read(self, fetch: Fetch, position: int, stop: int) -> list[Piece]:
        """The authentic pieces of [position, stop), in order and without overlap."""
        pieces = self._read(fetch, position, stop, verified=False)
        if not is_whole(pieces, position, stop):
            pieces = self._read(fetch, position, stop, verified=True)
        return pieces

    def _read(self, fetch: Fetch, position: int, stop: int, verified: bool) -> list[Piece]:
        found: list[Piece] = []
        block, reached = self.locate(fetch, position, verified), position
        while (at := FIRST_BLOCK + block * BLOCK_BYTES) < self.tail:
            if reached >= stop and not self._may_be_hidden(found):
                break
            count = min(max(stop - reached, 0) // CAPACITY + 1, _BLOCKS_AT_ONCE)
            data = memoryview(fetch(min(count * BLOCK_BYTES, self.tail - at), at))
            if not data:
                break
            for begin in range(0, len(data), BLOCK_BYTES):
                part = data[begin : begin + BLOCK_BYTES]
                if self._add(found, part, at + begin, position, stop, verified):
                    return _within(found, position, stop)
                block += 1
            if found:
                reached = found[-1].start + len(found[-1].data)
        if found and self._may_be_hidden(found):
            found.pop()
        return _within(found, position, stop)

    def _add(
        self, found: list[Piece], data: memoryview, at: int, position: int, stop: int, verified: bool
    ) -> bool:
        """Add the pieces of one block; returns true if the block reaches beyond `stop`."""
        latest = self.generations.latest
        authentic = dict(self.authentic(data, at)) if verified else None
        for frame in self.frames(data, at) if authentic is None else authentic:
            if frame.stop <= position:
                continue
            if frame.start >= stop and not self._may_be_hidden(found):
                return True
            content = self.keys.open(frame, data, frame.at - at) if authentic is None else authentic[frame]
            if content is None:
                continue
            if found and (found[-1].frame.end != frame.at or found[-1].frame.stop != frame.start):
                self._follow(found, frame)
            if frame.start >= stop:
                return True
            if frame.generation != latest:
                content = content[: self.generations.stop_of(frame) - frame.start]
            found.append(Piece(frame.start, content, frame))
        return False

    def _may_be_hidden(self, found: list[Piece]) -> bool:
        """Returns true if a truncation may have ended within the last frame: the next one has to be seen."""
        return bool(found) and self.may_be_hidden(found[-1].frame)

    def may_be_hidden(self, frame: Frame) -> bool:
        """Returns true if a truncation may have ended within a frame, so that only the next one says where.

        The header has the end of the last truncation only.
        """
        return frame.generation < self.generations.latest and frame.end != self.generations.begin

    def _follow(self, found: list[Piece], frame: Frame) -> None:
        """Take back what `frame` hides of the last piece; all of it if a frame between the two is lost."""
        start, content, last = found[-1]
        if start + len(content) == frame.start and last.end == frame.at:
            return
        if self.may_be_hidden(last) and not is_next(last, frame):
            found.pop()
        elif start + len(content) > frame.start:
            found[-1] = Piece(start, content[: frame.start - start], last)

    # -- writing

    def sealed(self, data: bytes | bytearray | memoryview) -> tuple[bytes, int, dict[int, int]]:
        """The bytes to write at `tail` for an append, the new tail, and the blocks that begin in it."""
        parts: list[bytes] = []
        starts: dict[int, int] = {}
        at, start, rest = self.tail, self.end, memoryview(data)
        if at + len(rest) > _TAIL_MAX:
            raise OSError(errno.EFBIG, "an encrypted file cannot become that large")
        while rest:
            room = block_end(at) - at - OVERHEAD
            if room < _SMALL_ROOM and room < len(rest):
                parts.append(bytes(room + OVERHEAD))
                at += room + OVERHEAD
                continue
            piece, rest = rest[:room], rest[room:]
            if not (at - FIRST_BLOCK) % BLOCK_BYTES:
                starts[(at - FIRST_BLOCK) // BLOCK_BYTES] = start
            parts += self.keys.seal_parts(at, self.generations.latest, start, piece)
            at += len(piece) + OVERHEAD
            start += len(piece)
        return b"".join(parts), at, starts

    def appended(self, size: int, tail: int, starts: dict[int, int]) -> None:
        """The bytes of `sealed`, for `size` bytes of content, are written."""
        self._starts.update(starts)
        self.tail = tail
        self.end += size

    def cut(self, fetch: Fetch, size: int) -> Cut:
        """The truncation to `size` bytes of content, which must be fewer than there are."""
        # An odd step: the header has two places that are written in turn. Why random: if an attacker brings
        # back the header from before a truncation, the next one seldom has the number of the lost one again.
        generation = self.generations.latest + 1 + 2 * (self.keys.random_byte() % _GENERATION_STEPS)
        if generation > _GENERATION_MAX:
            raise OSError(errno.EFBIG, "an encrypted file cannot be truncated that often")
        return Cut(generation, size, self._tail_of(fetch, size))

    def _tail_of(self, fetch: Fetch, size: int) -> int:
        """The position behind the frame that has the last of `size` bytes.

        If that one is damaged, the position of the next frame: it may be repaired.
        """
        block = self.locate(fetch, size - 1, verified=True)
        last: Frame | None = None
        while (at := FIRST_BLOCK + block * BLOCK_BYTES) < self.tail:
            for frame in self.frames(fetch(min(BLOCK_BYTES, self.tail - at), at), at):
                if frame.start >= size:
                    return frame.at if last is None or last.stop < size else last.end
                last = frame
            block += 1
        return self.tail if last is None or last.stop < size else last.end

    @property
    def last_cut(self) -> Cut:
        """The last truncation; its generation is 0 if there was none."""
        latest, begin, end = self.generations
        return Cut(latest, end, begin)

    def was_cut(self, cut: Cut) -> None:
        """The truncation is written."""
        self.generations = Generations(cut.generation, cut.tail, cut.end)
        self.end, self.tail = cut.end, cut.tail
        blocks = self.blocks
        self._starts = {block: start for block, start in self._starts.items() if block < blocks}
        self.pending = None

    def was_repaired(self, at: int, end: int, new_end: int) -> None:
        """New frames take [at, new_end) of the file, in the place of damaged ones that took [at, end)."""
        if end == self.tail:
            self.tail = new_end
        first, last = (at - FIRST_BLOCK) // BLOCK_BYTES, (end - 1 - FIRST_BLOCK) // BLOCK_BYTES
        for block in range(max(first, 1), last + 1):
            self._starts.pop(block, None)


def is_next(frame: Frame, following: Frame) -> bool:
    """Returns true if no frame was between the two."""
    end = block_end(frame.at)
    is_last = end - frame.end < _SMALL_ROOM + OVERHEAD
    return following.at == frame.end or (is_last and following.at == end)


def is_whole(pieces: Iterable[Piece], position: int, stop: int) -> bool:
    """Returns true if `pieces` cover [position, stop)."""
    for piece in pieces:
        if piece.start != position:
            return False
        position += len(piece.data)
    return position == stop


def _within(pieces: list[Piece], position: int, stop: int) -> list[Piece]:
    """The parts of `pieces` within [position, stop)."""
    while pieces and pieces[-1].start >= stop:
        pieces.pop()
    if pieces and pieces[-1].start + len(pieces[-1].data) > stop:
        start, data, frame = pieces[-1]
        pieces[-1] = Piece(start, data[: stop - start], frame)
    while pieces and pieces[0].start < position:
        start, data, frame = pieces[0]
        if start + len(data) > position:
            pieces[0] = Piece(position, data[position - start :], frame)
        else:
            del pieces[0]
    return pieces
