"""Ranges of an encrypted file that cannot be authenticated: which were never written, and how to repair one.

A range was never written if a sector of it has only zeros, or if the file ends within it: a power loss leaves
that behind the last sync, and no ciphertext looks like it. Frames of a generation that the header does not
know were not synced either. Everything else is damage.

A repair replaces the damaged frames by new ones in the same bytes of the file. Frames that are authentic and
have the right content are not written. So a crash during a repair costs nothing that could be read before.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from itertools import takewhile
from typing import Final, NamedTuple, TypeAlias

from penstock.encryption.content import Content, Fetch, is_next
from penstock.encryption.frames import (
    BLOCK_BYTES,
    FIRST_BLOCK,
    OVERHEAD,
    Frame,
    block_end,
    parse_frame,
)

__all__ = ["never_written", "overwrite"]

Write: TypeAlias = Callable[[bytes, int], None]
_SECTOR_BYTES: Final = 512
_NEVER_WRITTEN: Final = bytes(_SECTOR_BYTES)


class _Region(NamedTuple):
    """A part of the file, [at, end), for the content [start, stop). `content` is None if it is damaged.

    `generation` is that of the frame, or of the frame before the damage.
    """

    generation: int
    at: int
    end: int
    start: int
    stop: int
    frame: Frame | None
    content: bytes | None


def _regions(content: Content, fetch: Fetch, position: int) -> Iterator[_Region]:
    """The frames from the block of `position` on, and the damaged regions between them."""
    block = content.locate(fetch, position, verified=True)
    while block and content.start_of(fetch, block, verified=True) is None:
        block -= 1
    at = FIRST_BLOCK + block * BLOCK_BYTES
    # Content begins with the first block; any other one was chosen because its first frame is authentic.
    last = None if block else _Region(0, at, at, 0, 0, None, None)
    while at < content.tail:
        data = fetch(min(BLOCK_BYTES, content.tail - at), at)
        for frame, plain in content.authentic(data, at):
            stop = content.generations.stop_of(frame)
            plain = plain[: stop - frame.start]
            region = _Region(frame.generation, *frame[:2], frame.start, stop, frame, plain)
            if last is not None:
                yield from _between(_certain(content, last, frame), region)
            last = region
        at += BLOCK_BYTES
    if last is not None:
        yield from _between(
            last, _Region(0, content.tail, content.tail, content.end, content.end, None, None)
        )


def _certain(content: Content, last: _Region, following: Frame) -> _Region:
    """`last`, or nothing in its place if only a lost frame says how much of it was truncated."""
    frame = last.frame
    if frame is None or not content.may_be_hidden(frame) or is_next(frame, following):
        return last
    return _Region(frame.generation, frame.at, frame.at, frame.start, frame.start, None, None)


def _between(last: _Region, following: _Region) -> Iterator[_Region]:
    """`last`, up to where `following` begins, and the damage between the two."""
    if last.content is not None:
        stop = min(last.stop, following.start)
        yield last._replace(stop=stop, content=last.content[: stop - last.start])
    start = min(last.stop, following.start)
    if following.start > start:
        yield _Region(last.generation, last.end, following.at, start, following.start, None, None)


def never_written(content: Content, fetch: Fetch, position: int, end: int) -> int:
    """The first position of the content from `position` on that was never written; `end` if there is none."""
    for region in _regions(content, fetch, position):
        if region.start >= end:
            break
        if region.stop > position and region.content is None and _is_unwritten(content, fetch, region):
            return max(position, region.start)
    return end


def _is_unwritten(content: Content, fetch: Fetch, region: _Region) -> bool:
    at = region.at
    while at < region.end:
        data = fetch(min(block_end(at), region.end) - at, at)
        frame = parse_frame(data, 0, at)
        if frame is not None and content.generations.is_unknown(frame):
            return True
        begin = 0
        for end in range(_SECTOR_BYTES - at % _SECTOR_BYTES, len(data) + _SECTOR_BYTES, _SECTOR_BYTES):
            sector = data[begin:end]
            if len(sector) >= OVERHEAD and sector == _NEVER_WRITTEN[: len(sector)]:
                return True
            begin = end
        at = block_end(at)
    return region.at == region.end


def overwrite(content: Content, fetch: Fetch, write: Write, data: bytes, position: int) -> None:
    """Replace content by `data`, which must lie within it. OSError if it leaves a part of a frame unknown.

    A damaged region is written when all of its content is known: the caller may come with it in pieces.
    """
    stop = position + len(data)
    for region in list(takewhile(lambda region: region.start < stop, _regions(content, fetch, position))):
        if region.stop <= position:
            continue
        low, high = max(position, region.start), min(stop, region.stop)
        piece = data[low - position : high - position]
        if region.content is None:
            whole = _gathered(content, region, low, piece)
            if whole is not None:
                _replace(content, write, region, whole)
        elif region.content[low - region.start : high - region.start] != piece:
            assert region.frame is not None
            plain = region.content[: low - region.start] + piece + region.content[high - region.start :]
            # What a truncation has hidden keeps its length.
            hidden = bytes(region.frame.stop - region.frame.start - len(plain))
            frame = region.frame
            write(content.keys.seal(frame.at, frame.generation, frame.start, plain + hidden), frame.at)


def _gathered(content: Content, region: _Region, start: int, piece: bytes) -> bytes | None:
    """All content of a damaged region, once the last piece of it is there."""
    begin, known = content.pending or (region.start, b"")
    if begin != region.start or begin + len(known) != start:
        begin, known = region.start, b""
    if start != begin + len(known):
        raise OSError(
            errno.EBADMSG, f"the encrypted content from {region.start} to {region.stop} is damaged as a whole"
        )
    known += piece
    content.pending = None if len(known) == region.stop - region.start else (begin, known)
    return known if content.pending is None else None


def _replace(content: Content, write: Write, region: _Region, plain: bytes) -> None:
    """Write `plain` as frames into the bytes of a damaged region.

    Frames of the latest generation begin where it begins, so a region around that position has two parts.
    """
    _, begin, end = content.generations
    split = min(max(end - region.start, 0), len(plain)) if region.at < begin else 0
    middle = min(max(begin, region.at), region.end)
    older, at = _filled(content, region, middle, plain[:split])
    newer, at = _appended(content, region._replace(at=at, start=region.start + split), plain[split:])
    sealed = older + newer
    if region.at + len(sealed) > region.end:
        raise OSError(errno.EBADMSG, f"no room to repair the content from {region.start} to {region.stop}")
    write(sealed.ljust(region.end - region.at, b"\0"), region.at)
    content.was_repaired(region.at, region.end, at)


def _filled(content: Content, region: _Region, end: int, plain: bytes) -> tuple[bytes, int]:
    """Frames of an older generation that take all bytes of the file up to `end`, which is returned.

    How much of such a frame counts, the next frame says. So each one has to follow the one before, and has
    content behind `plain` that does not count.
    """
    rest, at, start = plain, region.at, region.start
    parts: list[bytes] = []
    while at < end:
        limit = min(block_end(at), end)
        room = limit - at - OVERHEAD
        if room <= 0 or not rest:
            parts.append(bytes(limit - at))
        else:
            blocks_behind = (end - limit + BLOCK_BYTES - OVERHEAD - 1) // BLOCK_BYTES
            size = min(room, max(1, len(rest) - blocks_behind))
            piece, rest = rest[:size], rest[size:]
            parts.append(content.keys.seal(at, region.generation, start, piece.ljust(room, b"\0")))
            start += size
        at = limit
    if rest:
        raise OSError(errno.EBADMSG, f"no room to repair the content from {region.start} to {region.stop}")
    return b"".join(parts), at


def _appended(content: Content, region: _Region, plain: bytes) -> tuple[bytes, int]:
    """Frames of the latest generation, and the position behind them."""
    at, start, rest = region.at, region.start, memoryview(plain)
    is_followed = region.end < block_end(at) and region.end != content.tail
    # As many frames as there were, so that the next one follows; all but the last of them have one byte.
    short = (region.end - at - len(plain)) // OVERHEAD - 1 if is_followed else 0
    parts: list[bytes] = []
    while rest:
        room = block_end(at) - at - OVERHEAD
        if room <= 0:
            parts.append(bytes(room + OVERHEAD))
            at += room + OVERHEAD
            continue
        size = 1 if short > 0 else room
        short -= 1
        piece, rest = rest[:size], rest[size:]
        parts.append(content.keys.seal(at, content.generations.latest, start, piece))
        at, start = at + len(piece) + OVERHEAD, start + len(piece)
    return b"".join(parts), at
