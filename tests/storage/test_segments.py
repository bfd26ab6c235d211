"""What sealed segments keep open, and for how long."""

from __future__ import annotations

import pytest

from penstock.records.record import Record, build_batch
from penstock.storage.memory import MemoryFiles
from penstock.storage.segment import Segment
from penstock.storage.segment_files import OFFSET_INDEX, file_name
from penstock.storage.segments import SegmentCache
from tests.storage.logs import PATH, batch, flush, open_log, records


def sealed(files: MemoryFiles, base_offset: int, entries: int = 4) -> Segment:
    segment = Segment.create(files, "/log", base_offset, 0)
    for number in range(entries):
        position = segment.append(b"x" * 100)
        segment.index(position, 100, base_offset + number, number, 0)
    segment.offsets()
    segment.indexes_saved = True
    return segment


def new_files() -> MemoryFiles:
    files = MemoryFiles()
    files.makedirs("/log")
    return files


def test_beyond_the_limit_the_file_used_longest_ago_is_closed_and_its_indexes_stay() -> None:
    files = new_files()
    cache = SegmentCache(open_max=2)
    first, second, third = (sealed(files, base) for base in (0, 100, 200))
    for segment in (first, second, first, third):
        cache.used(segment)
    assert (first.file is None, second.file is None, third.file is None) == (False, True, False)
    assert second.index_entries > 0
    assert len(cache) == 2


def test_indexes_are_dropped_by_their_size() -> None:
    files = new_files()
    first, second = sealed(files, 0), sealed(files, 100)
    cache = SegmentCache(index_entries_max=first.index_entries + second.index_entries - 1)
    cache.used(first)
    cache.used(second)
    assert first.index_entries == 0
    assert second.index_entries > 0
    assert first.file is not None


def test_a_segment_with_unsaved_indexes_keeps_them_in_memory() -> None:
    files = new_files()
    first, second = sealed(files, 0), sealed(files, 100)
    first.indexes_saved = False
    cache = SegmentCache(index_entries_max=1)
    cache.used(first)
    cache.used(second)
    assert first.index_entries > 0


def test_a_forgotten_segment_no_longer_counts() -> None:
    files = new_files()
    first, second = sealed(files, 0), sealed(files, 100)
    cache = SegmentCache(index_entries_max=first.index_entries + second.index_entries - 1)
    cache.used(first)
    cache.forget(first)
    cache.used(second)
    assert first.index_entries > 0
    assert len(cache) == 1


@pytest.mark.parametrize("base_offset", [0, 1 << 40])
def test_a_batch_whose_base_offset_is_damaged_is_not_indexed(base_offset: int) -> None:
    """Its checksum is still valid: it does not cover the base offset."""
    segment = Segment.create(new_files(), "/log", 100, 0)
    batch = bytearray(build_batch([Record(0, 7, None, b"a")]))
    batch[:8] = base_offset.to_bytes(8, "big")
    segment.append(batch)
    segment.rebuild_indexes()
    assert segment.max_timestamp() == -1


@pytest.mark.parametrize("byte", range(8))
def test_an_index_whose_last_entry_changed_is_rebuilt(byte: int) -> None:
    """The index is derived from the batches: whatever is wrong with it, they can be read."""
    files = MemoryFiles()
    log = open_log(files)
    for _ in range(8):
        log.append(batch(), 0)
    log.roll()
    log.append(batch(), 0)
    flush(log)
    log.close()
    index = files.open(f"{PATH}/{file_name(0)}{OFFSET_INDEX}")
    at = index.size() - 8 + byte
    index.pwrite(bytes([index.pread(1, at)[0] ^ 1]), at)
    reopened = open_log(files)
    reopened.advance_high_watermark(9)
    assert len(records(reopened)) == 9
