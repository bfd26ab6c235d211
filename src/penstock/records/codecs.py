"""Compression of a batch's records, as every Kafka client reads it.

Two formats need care. Snappy: Java writes xerial's framing (a 16-byte header, then blocks of raw snappy, each
behind its length), librdkafka writes one raw block; every client reads the framing, so that is what we write,
and we read both. LZ4: the standard frame, but with independent blocks, because Java cannot read linked ones.

`cramjam` releases the interpreter for most of its work: two threads took as long as one, or up to 1.6 times
as long (gzip, lz4), and a third waited for milliseconds; ADR 4 has the numbers. So compression that the
broker must do runs in a worker thread, not in a subprocess.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from struct import Struct, error
from types import ModuleType
from typing import Final

import cramjam

from penstock.model.errors import CorruptMessage, RecordListTooLarge
from penstock.ports import Buffer

__all__ = ["DECOMPRESSED_BYTES_MAX", "Codec", "check_lz4_frame", "compress", "decompress"]

#: What one batch may unpack to unless the caller says otherwise: the most memory that a hostile batch costs.
DECOMPRESSED_BYTES_MAX: Final = 256 * 1024 * 1024

_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + bytes((0, 0, 0, 1, 0, 0, 0, 1))
_XERIAL_BLOCK_BYTES: Final = 32 * 1024
_BLOCK_LENGTH: Final = Struct(">i")
_GUESS_BYTES_MIN: Final = 64 * 1024
_LZ4_MAGIC: Final = b"\x04\x22\x4d\x18"
#: magic, flags, block descriptor, checksum of the header
_LZ4_HEADER_BYTES_MIN: Final = 7
_LZ4_VERSION: Final = 1
_LZ4_INDEPENDENT: Final = 0x20
#: a reserved bit and, in later versions of the format, that of a dictionary's id
_LZ4_RESERVED: Final = 0x03
_LZ4_BLOCK_RESERVED: Final = 0x8F
#: 64 KiB
_LZ4_BLOCK_SIZE_MIN: Final = 4
#: How Rust's standard library words "the output slice is full": the one failure that is cured by more room.
_OUTPUT_FULL: Final = "failed to write whole buffer"


class Codec(IntEnum):
    """A batch's codec: the low three bits of its attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @property
    def label(self) -> str:
        """The value of `compression.type` that means this codec; on the command line, too."""
        return self.name.lower()

    @classmethod
    def from_label(cls, label: str) -> Codec:
        """The inverse of `label` ("uncompressed", as topics say, is "none"); ValueError on anything else."""
        if label == "uncompressed":
            return cls.NONE
        for codec in cls:
            if codec.label == label:
                return codec
        raise ValueError(f"{label!r} is not a codec: use {', '.join(codec.label for codec in cls)}")


#: Kafka's default levels, and the libraries' names for them: gzip's -1 is 6, LZ4's 9 is the fast compressor.
_KAFKA_DEFAULT_LEVEL: Final = {Codec.GZIP: -1, Codec.LZ4: 9, Codec.ZSTD: 3}
_DEFAULT_LEVEL: Final = {Codec.GZIP: 6, Codec.LZ4: 0, Codec.ZSTD: 3}
_MODULE: Final[dict[Codec, ModuleType]] = {
    Codec.GZIP: cramjam.gzip,
    Codec.LZ4: cramjam.lz4,
    Codec.ZSTD: cramjam.zstd,
}


def compress(codec: Codec, data: Buffer, level: int | None = None) -> bytes:
    """`data` in `codec`'s format; `level` as in `compression.<codec>.level`, None for Kafka's default."""
    if codec is Codec.NONE:
        return bytes(data)
    if codec is Codec.SNAPPY:
        return _xerial_compress(data)
    if level is None or level == _KAFKA_DEFAULT_LEVEL[codec]:
        level = _DEFAULT_LEVEL[codec]
    if codec is Codec.LZ4:
        frame = cramjam.lz4.Compressor(level=level, content_checksum=False, block_linked=False)
        frame.compress(data)
        return bytes(frame.finish())
    return bytes(_MODULE[codec].compress(data, level=level))


def decompress(codec: Codec, data: Buffer, limit: int = DECOMPRESSED_BYTES_MAX) -> bytes:
    """What `data` holds. RecordListTooLarge beyond `limit` bytes, CorruptMessage where it cannot be read."""
    if codec is Codec.NONE:
        if len(data) > limit:
            raise _too_large(codec, limit)
        return bytes(data)
    try:
        if codec is Codec.SNAPPY:
            return _snappy_decompress(data, limit)
        return _decompress_growing(codec, data, limit)
    except cramjam.DecompressionError as e:
        raise CorruptMessage(f"the records cannot be decompressed with {codec.label}: {e}") from e


def check_lz4_frame(data: Buffer) -> None:
    """Refuse a frame that Java's reader cannot read; CorruptMessage says why.

    It reads version 1 of the format with independent blocks, without a dictionary.
    """
    if len(data) < _LZ4_HEADER_BYTES_MIN or bytes(data[:4]) != _LZ4_MAGIC:
        raise CorruptMessage("the records are not an LZ4 frame")
    flags, descriptor = data[4], data[5]
    if flags >> 6 != _LZ4_VERSION or flags & _LZ4_RESERVED or descriptor & _LZ4_BLOCK_RESERVED:
        raise CorruptMessage(f"an LZ4 frame of another version, or with a dictionary (flags {flags:#04x})")
    if not flags & _LZ4_INDEPENDENT:
        raise CorruptMessage(
            "an LZ4 frame with linked blocks, which Java cannot read; use independent blocks"
        )
    if descriptor >> 4 < _LZ4_BLOCK_SIZE_MIN:
        raise CorruptMessage(f"an LZ4 frame with an unknown block size ({descriptor >> 4})")


def _too_large(codec: Codec, limit: int) -> RecordListTooLarge:
    return RecordListTooLarge(f"a batch in {codec.label} unpacks to more than {limit} bytes")


def _decompress_growing(codec: Codec, data: Buffer, limit: int) -> bytes:
    """Unpack into a bounded buffer, four times larger at each try: streams do not say how long they are."""
    module = _MODULE[codec]
    size = min(limit, max(_GUESS_BYTES_MIN, 4 * len(data)))
    while True:
        output = bytearray(size)
        try:
            written = module.decompress_into(data, output)
        except cramjam.DecompressionError as e:
            if _OUTPUT_FULL not in str(e):
                raise
        else:
            return bytes(memoryview(output)[:written])
        if size >= limit:
            raise _too_large(codec, limit)
        size = min(limit, 4 * size)


def _xerial_compress(data: Buffer) -> bytes:
    view = memoryview(data)
    parts = [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
        parts += (_BLOCK_LENGTH.pack(len(block)), block)
    return b"".join(parts)


def _snappy_decompress(data: Buffer, limit: int) -> bytes:
    view = memoryview(data)
    blocks = list(_xerial_blocks(view)) if bytes(view[:8]) == _XERIAL_MAGIC else [view]
    sizes = [cramjam.snappy.decompress_raw_len(block) for block in blocks]
    if sum(sizes) > limit:
        raise _too_large(Codec.SNAPPY, limit)
    return b"".join(
        bytes(cramjam.snappy.decompress_raw(block, output_len=size))
        for block, size in zip(blocks, sizes, strict=True)
    )


def _xerial_blocks(view: memoryview) -> Iterator[memoryview]:
    position = len(_XERIAL_HEADER)
    while position < len(view):
        try:
            (length,) = _BLOCK_LENGTH.unpack_from(view, position)
        except error as e:
            raise CorruptMessage("a snappy block's length is cut short") from e
        position += _BLOCK_LENGTH.size
        if not 0 <= length <= len(view) - position:
            raise CorruptMessage(f"a snappy block of {length} bytes where {len(view) - position} are left")
        yield view[position : position + length]
        position += length
