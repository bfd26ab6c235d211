from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.errors import CorruptMessage
from penstock.records.varint import LONG_BYTES_MAX, decode_varint, encode_varint

LONGS = st.integers(-(2**63), 2**63 - 1)


@given(value=LONGS, before=st.binary(max_size=3), behind=st.binary(max_size=3))
def test_round_trip(value: int, before: bytes, behind: bytes) -> None:
    encoded = encode_varint(value)
    decoded = decode_varint(before + encoded + behind, len(before), LONG_BYTES_MAX)
    assert decoded == (value, len(before) + len(encoded))


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (0, "00"),
        (-1, "01"),
        (1, "02"),
        (63, "7e"),
        (-64, "7f"),
        (64, "8001"),
        (8191, "fe7f"),
        (8192, "808001"),
        (2**31 - 1, "feffffff0f"),
        (-(2**63), "ffffffffffffffffff01"),
    ],
)
def test_encoding_is_protocol_buffers_zigzag(value: int, encoded: str) -> None:
    assert encode_varint(value).hex() == encoded


def test_a_varint_that_is_too_long_is_corrupt() -> None:
    assert decode_varint(b"\xff\xff\xff\xff\x0f", 0)[1] == 5
    with pytest.raises(CorruptMessage):
        decode_varint(b"\xff" * 5 + b"\x01", 0)
    with pytest.raises(CorruptMessage):
        decode_varint(b"\xff" * 10 + b"\x01", 0, LONG_BYTES_MAX)


@given(value=LONGS)
def test_a_varint_that_is_cut_is_an_index_error(value: int) -> None:
    with pytest.raises(IndexError):
        decode_varint(encode_varint(value)[:-1], 0, LONG_BYTES_MAX)
