from __future__ import annotations

import contextlib
import gzip
import struct

import cramjam
import lz4.frame
import pytest
import snappy
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.errors import CorruptMessage, RecordListTooLarge
from penstock.records.codecs import Codec, compress, decompress

#: longer than an LZ4 block and several xerial blocks, and not all alike
LONG = b"".join(b"message %d of many, " % i for i in range(20_000))
COMPRESSED = [codec for codec in Codec if codec is not Codec.NONE]


@given(data=st.binary(max_size=2000), codec=st.sampled_from(Codec))
def test_round_trip(data: bytes, codec: Codec) -> None:
    assert decompress(codec, compress(codec, data), limit=2000) == data


@pytest.mark.parametrize("codec", Codec)
def test_round_trip_of_long_data(codec: Codec) -> None:
    assert decompress(codec, memoryview(compress(codec, LONG))) == LONG


def test_other_libraries_decompress_our_bytes() -> None:
    assert gzip.decompress(compress(Codec.GZIP, LONG)) == LONG
    assert lz4.frame.decompress(compress(Codec.LZ4, LONG)) == LONG
    assert zstandard.ZstdDecompressor().decompressobj().decompress(compress(Codec.ZSTD, LONG)) == LONG


def test_we_decompress_the_bytes_of_other_libraries() -> None:
    assert decompress(Codec.GZIP, gzip.compress(LONG)) == LONG
    assert decompress(Codec.GZIP, gzip.compress(LONG) + gzip.compress(b"more")) == LONG + b"more"
    assert decompress(Codec.LZ4, lz4.frame.compress(LONG, block_linked=True, store_size=True)) == LONG
    streamed = zstandard.ZstdCompressor().compressobj()
    assert decompress(Codec.ZSTD, streamed.compress(LONG) + streamed.flush()) == LONG


def test_lz4_blocks_are_independent_because_java_cannot_read_linked_ones() -> None:
    frame = compress(Codec.LZ4, LONG)
    assert frame[:4] == b"\x04\x22\x4d\x18"
    assert frame[4] & 0x20


def test_snappy_is_written_in_xerial_framing_of_32_kib_blocks() -> None:
    framed = compress(Codec.SNAPPY, LONG)
    assert framed[:16] == b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
    (length,) = struct.unpack_from(">i", framed, 16)
    assert snappy.decompress(framed[20 : 20 + length]) == LONG[: 32 * 1024]


def test_raw_snappy_as_librdkafka_writes_it_is_read() -> None:
    assert decompress(Codec.SNAPPY, snappy.compress(LONG)) == LONG


@pytest.mark.parametrize("codec", Codec)
def test_output_is_bounded_by_the_limit(codec: Codec) -> None:
    bomb = compress(codec, bytes(1_000_000))
    assert len(decompress(codec, bomb, limit=1_000_000)) == 1_000_000
    with pytest.raises(RecordListTooLarge):
        decompress(codec, bomb, limit=999_999)


def test_a_snappy_block_that_claims_gigabytes_is_refused_before_they_are_allocated() -> None:
    with pytest.raises(RecordListTooLarge):
        decompress(Codec.SNAPPY, b"\xff\xff\xff\xff\x0f" + b"x")


@pytest.mark.parametrize("codec", COMPRESSED)
def test_cut_data_is_corrupt(codec: Codec) -> None:
    data = compress(codec, LONG)
    for size in (1, 7, len(data) // 2, len(data) - 1):
        with pytest.raises(CorruptMessage):
            decompress(codec, data[:size])


@given(data=st.binary(max_size=200), codec=st.sampled_from(COMPRESSED))
def test_any_bytes_are_read_or_refused_in_our_own_words(data: bytes, codec: Codec) -> None:
    with contextlib.suppress(CorruptMessage, RecordListTooLarge):
        assert len(decompress(codec, data, limit=10_000)) <= 10_000


def test_a_snappy_stream_of_empty_blocks_is_refused() -> None:
    """200,000 of them in a megabyte took a second to read."""
    header, empty = compress(Codec.SNAPPY, b"")[:16], b"\0\0\0\x01\0"
    assert decompress(Codec.SNAPPY, header + 10 * empty) == b""
    with pytest.raises(CorruptMessage, match="too many blocks"):
        decompress(Codec.SNAPPY, header + 1000 * empty)
    # The blocks of an encoder that writes one for each short message.
    block = snappy.compress(bytes(range(80)))
    framed = header + 1000 * (len(block).to_bytes(4, "big") + block)
    assert len(decompress(Codec.SNAPPY, framed)) == 80_000


def test_snappy_streams_of_the_smallest_blocks_of_snappy_java_are_read() -> None:
    """1 KiB of one byte: no block of an encoder is smaller than that when it is compressed."""
    block = snappy.compress(bytes(1024))
    framed = compress(Codec.SNAPPY, b"")[:16] + 1000 * (len(block).to_bytes(4, "big") + block)
    assert len(decompress(Codec.SNAPPY, framed)) == 1_024_000


@given(damage=st.binary(min_size=1, max_size=40))
def test_damaged_xerial_framing_is_read_or_refused_in_our_own_words(damage: bytes) -> None:
    data = compress(Codec.SNAPPY, b"")[:16] + damage
    with contextlib.suppress(CorruptMessage, RecordListTooLarge):
        assert len(decompress(Codec.SNAPPY, data, limit=10_000)) <= 10_000


@pytest.mark.parametrize(("codec", "level"), [(Codec.GZIP, 1), (Codec.LZ4, 12), (Codec.ZSTD, 10)])
def test_levels_change_the_output(codec: Codec, level: int) -> None:
    assert compress(codec, LONG, level) != compress(codec, LONG)
    assert decompress(codec, compress(codec, LONG, level)) == LONG


@pytest.mark.parametrize(("codec", "level"), [(Codec.GZIP, -1), (Codec.LZ4, 9), (Codec.ZSTD, 3)])
def test_kafkas_default_levels_mean_the_default(codec: Codec, level: int) -> None:
    assert compress(codec, LONG, level) == compress(codec, LONG)


def test_a_full_output_is_still_worded_as_we_expect() -> None:
    """The only difference between "more room needed" and "corrupt"; a new cramjam must keep it."""
    for module in (cramjam.gzip, cramjam.lz4, cramjam.zstd):
        with pytest.raises(cramjam.DecompressionError, match="failed to write whole buffer"):
            module.decompress_into(bytes(module.compress(LONG)), bytearray(10))


def test_labels_are_the_values_of_compression_type() -> None:
    assert [codec.label for codec in Codec] == ["none", "gzip", "snappy", "lz4", "zstd"]
    assert [Codec.from_label(codec.label) for codec in Codec] == list(Codec)
    assert Codec.from_label("uncompressed") is Codec.NONE
    with pytest.raises(ValueError, match="'brotli' is not a codec: use none, gzip"):
        Codec.from_label("brotli")
