"""Compression of a batch's records, as every Kafka client reads it.

Two formats need care. Snappy: Java writes xerial's framing (a 16-byte header, then blocks of raw snappy, each
behind its length), librdkafka writes one raw block; every client reads the framing, so that is what we write,
and we read both. LZ4: the standard frame, but with independent blocks, because Java cannot read linked ones.

`cramjam` releases the interpreter for most of its work: two threads took as long as one, or up to 1.6 times
as long (gzip, lz4), and a third waited for milliseconds; ADR 4 has the numbers. So compression that the
broker must do runs in a worker thread, not in a subprocess.
"""

from __future__ import annotations

import zlib
from struct import Struct
from types import ModuleType
from typing import Final

import cramjam

from penstock.model.errors import CorruptMessage, RecordListTooLarge
from penstock.ports import Buffer
from penstock.records.codec import Codec
from penstock.records.frames import XERIAL_MAGIC, snappy_blocks

__all__ = ["DECOMPRESSED_BYTES_MAX", "Codec", "compress", "decompress", "unpack"]

#: The limit of the decompressed size of a batch, unless the caller gives one: it bounds the memory for a
#: hostile batch.
DECOMPRESSED_BYTES_MAX: Final = 256 * 1024 * 1024

_XERIAL_HEADER: Final = XERIAL_MAGIC + bytes((0, 0, 0, 1, 0, 0, 0, 1))
_XERIAL_BLOCK_BYTES: Final = 32 * 1024
_BLOCK_LENGTH: Final = Struct(">i")
_GUESS_BYTES_MIN: Final = 64 * 1024
#: zlib takes twice the memory of what it returns
_ZLIB_BYTES_MAX: Final = 4 << 20
#: a window of 32 KB, and gzip's header and trailer
_GZIP_WINDOW: Final = zlib.MAX_WBITS | 16
#: the best of the codecs, near enough; a frame that declares more gets its buffer in steps
_RATIO_MAX: Final = 1024
#: How Rust's standard library words "the output slice is full": the one failure that is cured by more room.
_OUTPUT_FULL: Final = "failed to write whole buffer"


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
    """Decompress `data`. Raises RecordListTooLarge beyond `limit` bytes, CorruptMessage if it is invalid."""
    if codec is Codec.NONE:
        if len(data) > limit:
            raise _too_large(codec, limit)
        return bytes(data)
    output, size = unpack(codec, data, limit)
    return bytes(memoryview(output)[:size])


def unpack(
    codec: Codec,
    data: Buffer,
    limit: int = DECOMPRESSED_BYTES_MAX,
    expected: int | None = None,
    buffer: bytearray | None = None,
) -> tuple[bytes | bytearray, int]:
    """A buffer that begins with what compressed `data` holds, and how many bytes that is; errors as above.

    `expected` is the size that the frame declares, if it does. It is not trusted with memory: the first
    buffer is no larger than the usual codecs could fill. `buffer` is used if it is large enough: fresh memory
    costs as much as a fast codec.
    """
    try:
        if codec is Codec.SNAPPY:
            return _unpack_snappy(data, limit, buffer or bytearray())
        if codec is Codec.GZIP and expected is not None and expected <= min(limit, _ZLIB_BYTES_MAX):
            output = _unpack_gzip(data, expected)
            if output is not None:
                return output, len(output)
        return _unpack_growing(codec, data, limit, expected, buffer or bytearray())
    except (cramjam.DecompressionError, zlib.error) as e:
        raise CorruptMessage(f"the records cannot be decompressed with {codec.label}: {e}") from e


def _too_large(codec: Codec, limit: int) -> RecordListTooLarge:
    return RecordListTooLarge(f"a batch in {codec.label} decompresses to more than {limit} bytes")


def _unpack_gzip(data: Buffer, size: int) -> bytes | None:
    """The content of a stream with one member of `size` bytes, by zlib, which is a fifth faster than cramjam.

    None for other streams. One byte more than `size` shows that there is more.
    """
    member = zlib.decompressobj(_GZIP_WINDOW)
    output = member.decompress(data, size + 1)
    return output if member.eof and not member.unused_data else None


def _unpack_growing(
    codec: Codec, data: Buffer, limit: int, expected: int | None, output: bytearray
) -> tuple[bytearray, int]:
    """Unpack into a bounded buffer, four times larger at each try: streams need not say how long they are."""
    module = _MODULE[codec]
    size = max(_GUESS_BYTES_MIN, 4 * len(data))
    if expected is not None:
        size = min(expected, max(size, _RATIO_MAX * len(data)))
    size = min(limit, max(size, len(output)))
    while True:
        if len(output) < size:
            output = bytearray(size)
        try:
            return output, module.decompress_into(data, memoryview(output)[:size])
        except cramjam.DecompressionError as e:
            if _OUTPUT_FULL not in str(e):
                raise
        if size >= limit:
            # The error may live as long as a cycle of references: it must not keep the buffer.
            output = bytearray()
            raise _too_large(codec, limit)
        size = min(limit, max(_GUESS_BYTES_MIN, 4 * size))


def _xerial_compress(data: Buffer) -> bytes:
    view = memoryview(data)
    parts = [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
        parts += (_BLOCK_LENGTH.pack(len(block)), block)
    return b"".join(parts)


def _unpack_snappy(data: Buffer, limit: int, output: bytearray) -> tuple[bytearray, int]:
    blocks = list(snappy_blocks(data))
    total = sum(size for _, size in blocks)
    if total > limit:
        raise _too_large(Codec.SNAPPY, limit)
    if len(output) < total:
        output = bytearray(total)
    view, position = memoryview(output), 0
    for block, size in blocks:
        position += cramjam.snappy.decompress_raw_into(block, view[position : position + size])
    return output, position
