from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.errors import ProtocolError
from penstock.wire.slicing import TAGS_MAX
from penstock.wire.varint import encode_uvarint, read_uvarint, skip_tags


@given(st.integers(0, 2**31 - 1), st.binary(max_size=3))
def test_a_varint_is_read_back_and_has_no_byte_more_than_it_needs(value: int, behind: bytes) -> None:
    data = encode_uvarint(value)
    assert read_uvarint(data + behind, 0) == (value, len(data))
    assert len(data) == max(1, -(-value.bit_length() // 7))


@pytest.mark.parametrize("value", [127, 128, 2**14 - 1, 2**14, 2**21 - 1, 2**21, 2**28 - 1, 2**28, 2**31 - 1])
def test_a_varint_that_ends_early_is_an_index_error(value: int) -> None:
    data = encode_uvarint(value)
    for end in range(len(data)):
        with pytest.raises(IndexError):
            read_uvarint(data[:end], 0)


@pytest.mark.parametrize("data", [b"\x80\x80\x80\x80\x08", b"\xff\xff\xff\xff\xff", b"\x80" * 5 + b"\x01"])
def test_a_varint_beyond_31_bits_is_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError, match="varint"):
        read_uvarint(data, 0)


@given(st.lists(st.binary(max_size=20), max_size=5))
def test_tagged_fields_are_skipped(fields: list[bytes]) -> None:
    data = encode_uvarint(len(fields))
    for tag, content in enumerate(fields):
        data += encode_uvarint(tag) + encode_uvarint(len(content)) + content
    assert skip_tags(data + b"rest", 0) == len(data)


def test_tagged_fields_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ProtocolError, match="past the end"):
        skip_tags(b"\x01\x00\x05abcd", 0)
    with pytest.raises(ProtocolError, match="tagged fields in one structure"):
        skip_tags(encode_uvarint(TAGS_MAX + 1) + bytes(3 * TAGS_MAX), 0)
