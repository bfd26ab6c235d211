from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.archive.checking import check_segment
from penstock.archive.errors import ArchiveDamaged, ArchiveRefused
from penstock.archive.segment_object import (
    BLOCK_BYTES,
    FOOTER_BYTES,
    SECTIONS,
    block_checksums,
    check_blocks,
    parse_footer,
    parse_table,
)
from penstock.records.checksum import crc32c
from tests.archive.logs import OWNER, log_of, sealed


def test_an_object_starts_with_the_batches_unchanged() -> None:
    batches = log_of(5, 20)
    entry, data = sealed(batches, 5)
    log = b"".join(batches)
    assert data[: entry.log_size] == log
    table = parse_table(data, len(data), "it")
    assert (table.base_offset, table.next_offset, table.log_size) == (5, entry.next_offset, len(log))
    assert [section.name for section in table.sections] == list(SECTIONS)
    assert check_segment(data, entry, OWNER, None).log == log


def test_the_tail_alone_has_the_table() -> None:
    _, data = sealed(log_of(0, 50))
    size, _ = parse_footer(data, "it")
    tail = data[-size - FOOTER_BYTES :]
    assert parse_table(tail, len(data), "it") == parse_table(data, len(data), "it")
    with pytest.raises(ArchiveDamaged, match="too few"):
        parse_table(tail[1:], len(data), "it")


@given(st.data())
def test_every_changed_bit_is_found(data: st.DataObject) -> None:
    entry, content = sealed(log_of(0, 10))
    at = data.draw(st.integers(0, len(content) - 1))
    bit = data.draw(st.integers(0, 7))
    damaged = content[:at] + bytes([content[at] ^ 1 << bit]) + content[at + 1 :]
    with pytest.raises(ArchiveDamaged):
        check_segment(damaged, entry, OWNER, None)


@given(st.data())
def test_behind_the_batches_every_changed_bit_is_found_without_a_manifest(data: st.DataObject) -> None:
    """Footer, table and sections have checksums of their own."""
    from penstock.archive.checking import sections_of

    entry, content = sealed(log_of(0, 10))
    at = data.draw(st.integers(entry.log_size, len(content) - 1))
    damaged = content[:at] + bytes([content[at] ^ 1 << data.draw(st.integers(0, 7))]) + content[at + 1 :]
    with pytest.raises((ArchiveDamaged, ArchiveRefused)):
        sections_of(memoryview(damaged), parse_table(damaged, len(damaged), "it"), "it")


def test_a_newer_version_is_refused_with_one_line() -> None:
    _, data = sealed(log_of(0, 3))
    footer = bytearray(data[-FOOTER_BYTES:])
    footer[8:10] = (2).to_bytes(2, "big")
    footer[20:] = crc32c(footer[:20]).to_bytes(4, "big")
    with pytest.raises(
        ArchiveRefused, match=r"^it has version 2 of the segment format, this .* reads 1: upgrade"
    ):
        parse_table(data[:-FOOTER_BYTES] + footer, len(data), "it")


def test_ranges_are_verified_by_blocks() -> None:
    log = bytes(range(256)) * (BLOCK_BYTES // 128) + b"rest"
    blocks = block_checksums(log)
    assert len(blocks) == 4 * 3
    check_blocks(log[BLOCK_BYTES:], BLOCK_BYTES, blocks, BLOCK_BYTES, "it")
    for wrong in (b"x" + log[BLOCK_BYTES + 1 :], log[BLOCK_BYTES:-1], log[BLOCK_BYTES:] + b"x"):
        with pytest.raises(ArchiveDamaged):
            check_blocks(wrong, BLOCK_BYTES, blocks, BLOCK_BYTES, "it")
