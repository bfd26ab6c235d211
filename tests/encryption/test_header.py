"""The header page: extents after any writes, and slots."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.encryption.header import (
    EXTENTS_MAX,
    HEADER_BYTES,
    Extent,
    decode_extents,
    decode_slots,
    encode_extents,
    new_header,
    overlaid,
    read_header,
)
from penstock.encryption.keys import MissingKey, parse_keys
from tests.encryption.keyring import NEW, OTHER, RING


def token(size: int) -> bytes:
    return b"t" * size


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(1, 20), st.booleans()), max_size=12))
def test_extents_have_the_last_nonce_of_each_position(writes: list[tuple[int, int, bool]]) -> None:
    """Compared with one nonce per position."""
    extents: tuple[Extent, ...] = (Extent(0, b"00000000"),)
    model = [b"00000000"] * 100
    for number, (start, size, to_end) in enumerate(writes, 1):
        nonce = b"%08d" % number
        stop = None if to_end else start + size
        extents = overlaid(extents, start, stop, nonce)
        model[start:stop] = [nonce] * len(model[start:stop])
        assert list(extents) == sorted(extents) and len({e.start for e in extents}) == len(extents)
        found = [[e.nonce for e in extents if e.start <= position][-1] for position in range(100)]
        assert found == model
    if len(extents) <= EXTENTS_MAX:
        page = bytes(256) + encode_extents(extents)
        assert len(page) == HEADER_BYTES and decode_extents(page) == extents


def test_a_header_is_opened_by_its_key_alone() -> None:
    header, page = new_header(RING, token)
    assert len(page) == HEADER_BYTES
    assert [slot.name for slot in decode_slots(page)] == ["old"]
    assert read_header(page, RING, "f").extents == header.extents
    with pytest.raises(MissingKey, match="f is encrypted with the key old, which"):
        read_header(page, parse_keys(NEW), "f")
    assert read_header(page, parse_keys(OTHER), "f").stream is None


@pytest.mark.parametrize("page", [b"", bytes(HEADER_BYTES), b"x" * HEADER_BYTES])
def test_a_damaged_header_has_no_stream(page: bytes) -> None:
    header = read_header(page, RING, "f")
    assert header.stream is None and header.apply(0, b"as it is") == b"as it is"
