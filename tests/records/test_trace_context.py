"""The trace context of the first record of a batch, with any bytes and within limits."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.records.codec import Codec
from penstock.records.record import Record, build_batch
from penstock.records.trace_context import SEARCHED_BYTES_MAX, first_traceparent

PARENT = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def batch(*headers: tuple[str, bytes | None], value: bytes = b"v", codec: Codec = Codec.NONE) -> bytes:
    records = [Record(0, 1000, b"k", value, headers), Record(1, 1001, None, b"other", ())]
    return bytes(build_batch(records, codec=codec))


@pytest.mark.parametrize("codec", list(Codec))
def test_the_header_of_the_first_record_is_found(codec: Codec) -> None:
    made = batch(("a", b"1"), ("b", None), ("traceparent", PARENT), ("c", b"2"), codec=codec)
    assert first_traceparent(made) == PARENT
    assert first_traceparent(batch(("a", b"1"), codec=codec)) is None
    assert first_traceparent(batch(("traceparent", None), codec=codec)) is None


def test_only_the_first_bytes_of_a_batch_are_read() -> None:
    header = ("traceparent", PARENT)
    assert first_traceparent(batch(header, value=b"v" * 60_000)[:SEARCHED_BYTES_MAX]) == PARENT
    assert first_traceparent(batch(header, value=b"v" * 70_000)[:SEARCHED_BYTES_MAX]) is None
    many = [(str(number), b"x") for number in range(100)]
    assert first_traceparent(batch(*many, header)) is None
    assert first_traceparent(batch(("traceparent", b"x" * 300))) is None


def test_a_large_compressed_batch_is_not_decompressed() -> None:
    made = batch(("traceparent", PARENT), value=bytes(2 << 20), codec=Codec.ZSTD)
    assert len(made) < SEARCHED_BYTES_MAX
    assert first_traceparent(made) is None
    assert first_traceparent(made[:-1]) is None


@given(st.binary(max_size=300))
def test_any_bytes_are_read(data: bytes) -> None:
    made = bytearray(batch(("traceparent", PARENT)))
    made[61:] = data
    for found in (first_traceparent(data), first_traceparent(bytes(made))):
        assert found is None or found in data, "a header's value is a part of the bytes"
