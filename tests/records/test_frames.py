"""Compressed frames are recognised by their first bytes, and say how large their content is."""

from __future__ import annotations

import gzip

import lz4.frame
import pytest
import snappy
import zstandard

from penstock.model.errors import CorruptMessage
from penstock.records.codecs import Codec, compress, unpack
from penstock.records.frames import check_frame

DATA = b"some records " * 5000


@pytest.mark.parametrize(
    ("codec", "frame", "declared"),
    [
        (Codec.GZIP, gzip.compress(DATA), len(DATA)),
        (Codec.SNAPPY, compress(Codec.SNAPPY, DATA), len(DATA)),
        (Codec.SNAPPY, snappy.compress(DATA), len(DATA)),
        (Codec.LZ4, compress(Codec.LZ4, DATA), None),
        (Codec.LZ4, lz4.frame.compress(DATA, store_size=True, block_linked=False), len(DATA)),
        (Codec.ZSTD, zstandard.ZstdCompressor().compress(DATA), len(DATA)),
        (Codec.ZSTD, zstandard.ZstdCompressor().compress(DATA[:100]), 100),
        (Codec.ZSTD, zstandard.ZstdCompressor().compress(DATA[:300]), 300),
        (Codec.ZSTD, zstandard.ZstdCompressor(write_content_size=False).compress(DATA), None),
    ],
)
def test_a_frame_declares_its_size(codec: Codec, frame: bytes, declared: int | None) -> None:
    assert check_frame(codec, memoryview(frame)) == declared
    output, size = unpack(codec, frame, 1 << 20, declared)
    assert DATA.startswith(bytes(output[:size]))
    assert declared in (None, size)


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec])
def test_bytes_that_are_no_frame_of_the_codec_are_refused(codec: Codec) -> None:
    others = [compress(other, DATA) for other in Codec if other is not codec]
    for data in (b"", b"\xff" * 40, *others):
        with pytest.raises(CorruptMessage):
            # Any bytes may be the length of raw snappy; its content never fits.
            declared = check_frame(codec, data)
            assert codec is Codec.SNAPPY
            unpack(codec, data, 1 << 30, declared)


def test_a_zstd_dictionary_is_refused() -> None:
    frame = bytearray(zstandard.ZstdCompressor().compress(DATA))
    frame[4] |= 1
    with pytest.raises(CorruptMessage, match="dictionary"):
        check_frame(Codec.ZSTD, frame)


def test_a_declared_size_is_not_trusted_with_memory() -> None:
    frame = bytearray(zstandard.ZstdCompressor().compress(2 * DATA))
    assert frame[4] >> 6 == 2, "four bytes of size"
    at = 5 if frame[4] & 0x20 else 6
    frame[at : at + 4] = (1 << 30).to_bytes(4, "little")
    declared = check_frame(Codec.ZSTD, frame)
    assert declared == 1 << 30
    with pytest.raises(CorruptMessage):
        unpack(Codec.ZSTD, frame, 1 << 31, declared)
