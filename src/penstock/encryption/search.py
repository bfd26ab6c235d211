"""Finds the frames of a block that damaged headers hide.

A header with a wrong length leads into the middle of another frame, or over several. Frames are found there
by the zeros that each header has, and count only if they are authentic.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from penstock.encryption.frames import Frame, FrameKeys, Generations, parse_frame

__all__ = ["FrameSearch"]

#: where a header may be: a length, and a generation and a position whose first bytes are zeros
_CANDIDATE: Final = re.compile(rb"(?=(?!\0\0)..\0...\0\0)", re.DOTALL)
_CANDIDATE_BYTES: Final = 8
#: bytes that are decrypted in vain in one block, and what each attempt counts besides: bounds the time for a
#: block that was made to look like many frames
_WASTED_BYTES_MAX: Final = 2 << 20
_ATTEMPT_BYTES: Final = 8 << 10


class FrameSearch:
    """A search in one block. All calls share a limit on attempts that fail."""

    __slots__ = ("_at", "_data", "_generations", "_keys", "_wasted")

    def __init__(self, keys: FrameKeys, generations: Generations, data: bytes | memoryview, at: int) -> None:
        """`data` is a block, which begins at the position `at` of the file."""
        self._keys = keys
        self._generations = generations
        self._data = data
        self._at = at
        self._wasted = 0

    def authentic(self, start: int, stop: int | None = None) -> Iterator[Frame]:
        """Authentic frames that begin in [start, stop) of the file, or from `start` on without `stop`."""
        rest = self._data[start - self._at :]
        for frame in _candidates(rest, start, self._generations, stop):
            if self._wasted >= _WASTED_BYTES_MAX:
                return
            if self._keys.open(frame, rest, frame.at - start) is None:
                self._wasted += _ATTEMPT_BYTES + frame.end - frame.at
            else:
                yield frame


def _candidates(
    data: bytes | memoryview, at: int, generations: Generations, stop: int | None = None
) -> Iterator[Frame]:
    """Frames that may begin anywhere in `data`, a part of a block, behind a header that is damaged.

    With `stop`, only those that begin before that position of the file.
    """
    limit = at + len(data)
    end = len(data) if stop is None else min(len(data), stop - at + _CANDIDATE_BYTES - 1)
    for match in _CANDIDATE.finditer(data, 0, end):
        frame = parse_frame(data, match.start(), at + match.start())
        if frame is not None and frame.end <= limit and generations.allow(frame):
            yield frame
