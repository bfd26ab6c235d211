"""Frames: the pieces of content that are encrypted and authenticated, and the blocks that hold them.

Behind its header a file has blocks of 32 KiB. A block has frames, one behind the other from its start, and
zeros where no further frame fits. Each append writes one frame, or one per block that it reaches into:

    0   length of the content               2 bytes
    2   generation                          4 bytes
    6   position of the content             8 bytes
    14  nonce                               12 bytes
    26  ciphertext, and a tag of 16 bytes

The associated data of a frame is a digest of the file's place, the block number, the position in the block,
and the first three fields. The key is that of the file and generation (AES-256-GCM). The nonce is random.

Invariants: a frame is never changed in place, except by the repair of one that cannot be authenticated. The
positions of the content never fall from one frame to the next. A truncation begins a new generation. If it
ends within a frame, the next frame begins there, and hides the rest of the one before.
"""

from __future__ import annotations

import hmac
import struct
from collections.abc import Callable
from functools import cache
from hashlib import sha256
from typing import Any, Final, NamedTuple

__all__ = [
    "BLOCK_BYTES",
    "CAPACITY",
    "FIRST_BLOCK",
    "FRAME_HEAD",
    "OVERHEAD",
    "Frame",
    "FrameKeys",
    "Generations",
    "block_end",
    "parse_frame",
    "walk_frames",
]

BLOCK_BYTES: Final = 32 << 10
#: the header comes before the blocks
FIRST_BLOCK: Final = 4096
_HEAD: Final = struct.Struct(">HIQ12s")
FRAME_HEAD: Final = _HEAD.size
_TAG_BYTES: Final = 16
#: the bytes that a frame adds to its content
OVERHEAD: Final = FRAME_HEAD + _TAG_BYTES
#: the most content of a block
CAPACITY: Final = BLOCK_BYTES - OVERHEAD
_NONCE_BYTES: Final = 12
#: random bytes that are drawn at once: a system call per frame would cost as much as the cipher
_NONCES_DRAWN: Final = 128
_PLACE: Final = struct.Struct(">IH")
_BOUND: Final = _HEAD.size - _NONCE_BYTES
#: ciphers that a file keeps: each truncation begins a generation, and most files have one
_CIPHERS_MAX: Final = 16


class Frame(NamedTuple):
    """A frame by its header: `at` is its position in the file, [start, stop) that of its content."""

    at: int
    end: int
    generation: int
    start: int
    stop: int


def block_end(position: int) -> int:
    """The end of the block that has a position of the file."""
    return position + BLOCK_BYTES - (position - FIRST_BLOCK) % BLOCK_BYTES


def parse_frame(data: bytes | memoryview, offset: int, at: int) -> Frame | None:
    """The frame whose header is at `offset` of `data` and at `at` of the file; None if there is none."""
    if len(data) < offset + FRAME_HEAD:
        return None
    length, generation, start, _ = _HEAD.unpack_from(data, offset)
    end = at + OVERHEAD + length
    if not length or end > block_end(at) or start > (at - FIRST_BLOCK):
        return None
    return Frame(at, end, generation, start, start + length)


class Generations(NamedTuple):
    """The latest generation of a file, where its frames begin, and where the content before them ends."""

    latest: int
    begin: int
    end: int

    def stop_of(self, frame: Frame) -> int:
        """The end of the content of a frame that the last truncation has left."""
        return frame.stop if frame.generation == self.latest else min(frame.stop, self.end)

    def allow(self, frame: Frame) -> bool:
        """Returns true if a frame may be of its generation: the latest one begins at `begin`.

        Others were truncated, or not synced. A header that was rolled back leads to a second generation of
        the same number, which begins elsewhere.
        """
        if frame.at < self.begin:
            return frame.generation < self.latest
        return frame.generation == self.latest

    def is_unknown(self, frame: Frame) -> bool:
        """Returns true if a truncation that is not in the header, or was synced before it, had this frame."""
        return frame.generation > self.latest or (frame.generation < self.latest and frame.at >= self.begin)


def walk_frames(data: bytes | memoryview, at: int, generations: Generations) -> tuple[list[Frame], int]:
    """The frames that follow each other in a part of a block, by their headers, and the position behind them.

    `data` begins at `at`, where a frame begins.
    """
    frames: list[Frame] = []
    position, limit = at, min(block_end(at), at + len(data))
    latest, begin, _ = generations
    unpack, last = _HEAD.unpack_from, limit - OVERHEAD
    # `parse_frame` and `allow` in one loop: a block may have hundreds of small frames.
    before, start_min, start_max = 0, 0, position - FIRST_BLOCK
    while position < last:
        length, generation, start, _ = unpack(data, position - at)
        end, stop = position + OVERHEAD + length, start + length
        if not length or end > limit or not start_min <= start <= start_max or generation < before:
            break
        if generation >= latest if position < begin else generation != latest:
            break
        frames.append(Frame(position, end, generation, start, stop))
        position, before, start_min, start_max = end, generation, start, stop
    return frames, position


@cache
def _invalid_tag() -> type[Exception]:
    """The error of a tag that does not fit. The library is loaded only by brokers with keys."""
    from cryptography.exceptions import InvalidTag

    error: type[Exception] = InvalidTag
    return error


class FrameKeys:
    """Seals and opens the frames of one file.

    Invariant: no two frames have the same key and nonce. Each file has a random key, each generation one that
    is derived from it, and each frame a random nonce of 96 bits. A file has fewer than 2^32 frames in each
    generation (`Content`), so two equal nonces are less likely than 2^-32 even in the largest file.
    """

    __slots__ = ("_binding", "_ciphers", "_drawn", "_invalid", "_nonces", "_token", "place", "secret")

    def __init__(self, secret: bytes, place: bytes, token: Callable[[int], bytes]) -> None:
        self.secret = secret
        self.place = place
        self._binding = sha256(place).digest()
        self._token = token
        self._nonces = b""
        self._drawn = 1
        self._invalid = _invalid_tag()
        self._ciphers: dict[int, Any] = {}

    def seal(self, at: int, generation: int, start: int, content: bytes | memoryview) -> bytes:
        """The frame of `content`, which begins at `start`, for the position `at` of the file."""
        return b"".join(self.seal_parts(at, generation, start, content))

    def seal_parts(
        self, at: int, generation: int, start: int, content: bytes | memoryview
    ) -> tuple[bytes, bytes]:
        """As `seal`, in two parts: joining the frames of an append copies its bytes once."""
        nonce = self._nonce()
        head = _HEAD.pack(len(content), generation, start, nonce)
        cipher = self._ciphers.get(generation) or self._cipher(generation)
        return head, cipher.encrypt(nonce, content, self._associated(at, head))

    def open(self, frame: Frame, data: bytes | memoryview, offset: int = 0) -> bytes | None:
        """The content of a frame, which begins at `offset` of `data`; None if it is not authentic."""
        at, end, generation, _, _ = frame
        head = bytes(data[offset : offset + FRAME_HEAD])
        cipher = self._ciphers.get(generation) or self._cipher(generation)
        try:
            content: bytes = cipher.decrypt(
                head[_BOUND:], data[offset + FRAME_HEAD : offset + end - at], self._associated(at, head)
            )
        except self._invalid:
            return None
        return content

    def sign(self, label: bytes, data: bytes) -> bytes:
        """An authentication code of 32 bytes for a part of the header."""
        return hmac.digest(self.secret, label + self._binding + data, "sha256")

    def random_byte(self) -> int:
        return self._token(1)[0]

    def _associated(self, at: int, head: bytes) -> bytes:
        return self._binding + _PLACE.pack(*divmod(at - FIRST_BLOCK, BLOCK_BYTES)) + head[:_BOUND]

    def _nonce(self) -> bytes:
        nonces = self._nonces or self._token(_NONCE_BYTES * self._drawn)
        # Most files are written once: only the second nonce of a file is drawn together with others.
        self._drawn = _NONCES_DRAWN
        self._nonces = nonces[_NONCE_BYTES:]
        return nonces[:_NONCE_BYTES]

    def _cipher(self, generation: int) -> Any:
        cipher = self._ciphers.get(generation)
        if cipher is None:
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM

            key = hmac.digest(self.secret, b"frames" + generation.to_bytes(4, "big"), "sha256")
            if len(self._ciphers) >= _CIPHERS_MAX:
                self._ciphers.clear()
            cipher = self._ciphers[generation] = AESGCM(key)
        return cipher
