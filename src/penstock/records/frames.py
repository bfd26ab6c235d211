"""The first bytes of compressed records: whether they are a frame of the codec, and its declared size.

Nothing is decompressed here. A frame that passes may still be damaged behind its header. A gzip trailer may
also declare less than the frame holds.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct, error
from typing import Final

import cramjam

from penstock.model.errors import CorruptMessage
from penstock.ports import Buffer
from penstock.records.codec import Codec

__all__ = ["XERIAL_HEADER_BYTES", "XERIAL_MAGIC", "check_frame", "snappy_blocks"]

XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
#: the magic, then the version and the lowest version that can read it
XERIAL_HEADER_BYTES: Final = 16
_BLOCK_LENGTH: Final = Struct(">i")

_GZIP_MAGIC: Final = b"\x1f\x8b\x08"
_GZIP_RESERVED: Final = 0xE0
#: header, an empty deflate stream, checksum and size
_GZIP_BYTES_MIN: Final = 20
_GZIP_SIZE: Final = Struct("<I")

_LZ4_MAGIC: Final = b"\x04\x22\x4d\x18"
#: magic, flags, block descriptor, checksum of the header
_LZ4_HEADER_BYTES_MIN: Final = 7
_LZ4_VERSION: Final = 1
_LZ4_INDEPENDENT: Final = 0x20
_LZ4_HAS_SIZE: Final = 0x08
_LZ4_SIZE: Final = Struct("<6xQ")
#: a reserved bit and, in later versions of the format, that of a dictionary's id
_LZ4_RESERVED: Final = 0x03
_LZ4_BLOCK_RESERVED: Final = 0x8F
#: 64 KiB
_LZ4_BLOCK_SIZE_MIN: Final = 4

#: Blocks of a stream: this many, and one for so many of its bytes. Encoders make blocks of 32 KiB, which take
#: more than a kilobyte, and of 1 KiB at the least: 54 bytes. Empty ones take five, and as long as others.
_XERIAL_BLOCKS_MIN: Final = 16
_XERIAL_BLOCK_BYTES_MIN: Final = 48

_ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"
_ZSTD_SINGLE_SEGMENT: Final = 0x20
_ZSTD_RESERVED: Final = 0x08
_ZSTD_DICTIONARY: Final = 0x03
#: by the upper two bits of the descriptor: how the content size is stored, and what is added to it
_ZSTD_SIZES: Final = ((Struct("<B"), 0), (Struct("<H"), 256), (Struct("<I"), 0), (Struct("<Q"), 0))


def check_frame(codec: Codec, data: Buffer) -> int | None:
    """The size that the frame declares for its content, if any; CorruptMessage if it is no frame of `codec`.

    Refuses what a Java consumer cannot read: dictionaries, and LZ4 frames with linked blocks.
    """
    try:
        if codec is Codec.LZ4:
            return _check_lz4(data)
        if codec is Codec.ZSTD:
            return _check_zstd(data)
        if codec is Codec.GZIP:
            return _check_gzip(data)
        if codec is Codec.SNAPPY:
            return sum(size for _, size in snappy_blocks(data))
    except (error, IndexError) as e:
        raise CorruptMessage(f"a frame of {codec.label} is cut short") from e
    return None


def snappy_blocks(data: Buffer) -> Iterator[tuple[memoryview, int]]:
    """The blocks of raw snappy in `data`, each with the size that it declares for its content."""
    view = memoryview(data)
    if not len(view):
        raise CorruptMessage("an empty payload is not snappy")
    try:
        if bytes(view[: len(XERIAL_MAGIC)]) != XERIAL_MAGIC:
            yield view, cramjam.snappy.decompress_raw_len(view)
            return
        for block in _xerial_blocks(view):
            yield block, cramjam.snappy.decompress_raw_len(block)
    except cramjam.DecompressionError as e:
        raise CorruptMessage(f"the records are not snappy: {e}") from e


def _xerial_blocks(view: memoryview) -> Iterator[memoryview]:
    position = XERIAL_HEADER_BYTES
    if len(view) < position:
        raise CorruptMessage("the header of a snappy frame is cut short")
    left = _XERIAL_BLOCKS_MIN + len(view) // _XERIAL_BLOCK_BYTES_MIN
    while position < len(view):
        if left == 0:
            raise CorruptMessage(f"{len(view)} bytes of snappy have too many blocks")
        left -= 1
        try:
            (length,) = _BLOCK_LENGTH.unpack_from(view, position)
        except error as e:
            raise CorruptMessage("a snappy block's length is cut short") from e
        position += _BLOCK_LENGTH.size
        if not 0 <= length <= len(view) - position:
            raise CorruptMessage(f"a snappy block of {length} bytes where {len(view) - position} are left")
        yield view[position : position + length]
        position += length


def _check_gzip(data: Buffer) -> int:
    if len(data) < _GZIP_BYTES_MIN or bytes(data[:3]) != _GZIP_MAGIC or data[3] & _GZIP_RESERVED:
        raise CorruptMessage("the records are not a gzip frame")
    size: int = _GZIP_SIZE.unpack_from(data, len(data) - _GZIP_SIZE.size)[0]
    return size


def _check_lz4(data: Buffer) -> int | None:
    """Java reads version 1 of the format with independent blocks, without a dictionary."""
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
    return int(_LZ4_SIZE.unpack_from(data)[0]) if flags & _LZ4_HAS_SIZE else None


def _check_zstd(data: Buffer) -> int | None:
    if bytes(data[:4]) != _ZSTD_MAGIC:
        raise CorruptMessage("the records are not a zstd frame")
    descriptor = data[4]
    if descriptor & _ZSTD_RESERVED or descriptor & _ZSTD_DICTIONARY:
        raise CorruptMessage(f"a zstd frame with a dictionary (descriptor {descriptor:#04x})")
    kind, single = descriptor >> 6, descriptor & _ZSTD_SINGLE_SEGMENT
    if not kind and not single:
        return None
    layout, added = _ZSTD_SIZES[kind]
    # A window descriptor of one byte precedes the size, unless the content is its own window.
    return int(layout.unpack_from(data, 5 if single else 6)[0]) + added
