"""Batches whose base offset or magic byte is damaged, which no checksum covers, are never served."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from struct import Struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.ids import TopicId
from penstock.records.record import iter_batches, iter_records
from penstock.storage.chain import CheckedRanges
from penstock.storage.config import LogConfig
from penstock.storage.directory import DataDirectory, StoredPartition
from penstock.storage.log import Log
from penstock.storage.memory import MemoryFiles
from penstock.storage.scan import ColdPages, CorruptLog
from penstock.storage.scrub import Piece, describe_as_is, note_damage, scrub
from penstock.testing.disk import FaultyDisk
from tests.storage.logs import CLOCK, Tokens, batch, flush

CONFIG = LogConfig(segment_bytes=4000, index_interval_bytes=300)
BATCHES = 60
COUNT = 3
END = BATCHES * COUNT
_LONG = Struct(">q")
PATH = "/data/topics/t/partition-0"


def opened(files: MemoryFiles) -> DataDirectory:
    files.makedirs("/data")
    directory = DataDirectory.open(files, "/data", cluster_id=None, node_id=0, rng=Tokens())
    if not directory.partitions():
        directory.create_partitions([StoredPartition("t", 0, TopicId(bytes(range(16))))])
    return directory


def written(files: MemoryFiles, *, clean: bool) -> None:
    """A log of several segments, each with several index entries; closed."""
    directory = opened(files)
    log = directory.open_log("t", 0, CONFIG, CLOCK)
    for nth in range(BATCHES):
        log.append(batch(COUNT, value=b"%06d" % nth), 0)
    log.advance_high_watermark(END)
    if clean:
        directory.close()
    else:
        flush(log)
        directory.checkpoint().write()


def reopened(files: MemoryFiles, config: LogConfig = CONFIG) -> Log:
    log = opened(files).open_log("t", 0, config, CLOCK)
    log.advance_high_watermark(log.end_offset)
    return log


def place(files: MemoryFiles, nth: int) -> tuple[str, int, int]:
    """File, position and base offset of a batch."""
    for name in sorted(files.listdir(PATH)):
        if name.endswith(".log"):
            for position, header in iter_batches(files.read(f"{PATH}/{name}")):
                if header.base_offset == nth * COUNT:
                    return f"{PATH}/{name}", position, header.base_offset
    raise AssertionError(f"no batch {nth}")


def shift(files: MemoryFiles, nth: int, by: int) -> None:
    path, position, base = place(files, nth)
    files.open(path).pwrite(_LONG.pack(max(base + by, 0)), position)


def served_from(log: Log, offset: int) -> list[tuple[int, bytes]]:
    """(offset, value) of the records that one read serves from `offset` on."""
    found = log.read(offset, 1500, upper=log.end_offset)
    assert found is not None
    data = found.read()
    return [
        (record.offset, record.value or b"")
        for position, header in iter_batches(data)
        for record in iter_records(data[position : position + header.size])
        if record.offset >= offset
    ]


def check_served(log: Log, damaged: int) -> None:
    """Every read gets the records from its offset on, without a gap, or an error from the damage on."""
    refused = set()
    for offset in range(END):
        try:
            found = served_from(log, offset)
        except CorruptLog:
            refused.add(offset)
            continue
        assert [each for each, _ in found] == list(range(offset, offset + len(found)))
        assert all(value == b"%06d" % (each // COUNT) for each, value in found)
        assert damaged not in {each // COUNT for each, _ in found}
    assert refused >= set(range(damaged * COUNT, damaged * COUNT + COUNT))
    # Only offsets that the index cannot tell from the damaged ones are refused with them.
    assert len(refused) < END // 3


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("by", [200, 1, -64])
@pytest.mark.parametrize("nth", [0, 1, 8, 20, 57, 59])
def test_a_batch_with_another_base_offset_is_not_served(nth: int, by: int, clean: bool) -> None:
    if nth * COUNT + by < 0:
        by = 8
    files = MemoryFiles()
    written(files, clean=clean)
    shift(files, nth, by)
    log = reopened(files)
    assert log.end_offset >= END
    check_served(log, nth)


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("nth", [0, 8, 20, 59])
def test_a_batch_with_another_magic_byte_is_not_served(nth: int, clean: bool) -> None:
    files = MemoryFiles()
    written(files, clean=clean)
    path, position, _ = place(files, nth)
    files.open(path).pwrite(b"\x12", position + 16)
    check_served(reopened(files), nth)


@pytest.mark.parametrize("nth", [0, 1, 8, 20, 30])
def test_a_read_has_the_segment_checked_and_the_damage_is_found(nth: int) -> None:
    files = MemoryFiles()
    written(files, clean=True)
    shift(files, nth, 200)
    log = reopened(files)
    with pytest.raises(CorruptLog):
        served_from(log, nth * COUNT)
    (base_offset,) = log.segments.broken
    segment = log.segments.holding(base_offset)
    sealed = describe_as_is(log, segment)
    assert sealed is not None
    (damage,) = scrub(files, sealed, Piece(0, 0), segment.size).damage
    assert (damage.first_offset, damage.next_offset) == (nth * COUNT, (nth + 1) * COUNT)
    note_damage(log, segment, damage)
    # The records around it are served.
    for offset in range(END):
        if offset // COUNT != nth:
            assert served_from(log, offset)[0][0] == offset


def test_a_sound_log_is_served_whole_and_checked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    files = MemoryFiles()
    written(files, clean=True)
    log = reopened(files)
    for offset in (END - 1, 0, 50, 17, *range(END)):
        assert served_from(log, offset)[0][0] == offset
    for segment in log.segments:
        assert segment.checked is not None
        assert segment.checked.end(0) == (segment.size, log.end_offset) or segment is not log.segments.active

    def refuse(*_: object) -> bytes:
        raise AssertionError("checked again")

    monkeypatch.setattr("penstock.storage.chain._read", refuse)
    for offset in range(END):
        assert served_from(log, offset)[0][0] == offset


def test_bytes_that_this_process_has_written_are_not_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.storage.store.sound_end", lambda *_: pytest.fail("checked"))
    log = opened(MemoryFiles()).open_log("t", 0, CONFIG, CLOCK)
    for nth in range(BATCHES):
        log.append(batch(COUNT, value=b"%06d" % nth), 0)
    for offset in range(END):
        assert served_from(log, offset)[0][0] == offset


@pytest.mark.parametrize("compact", [True, False])
def test_gaps_of_a_compacted_segment_are_served(compact: bool) -> None:
    """Also of one that was compacted before its topic ceased to be."""
    files = MemoryFiles()
    source = opened(MemoryFiles()).open_log("t", 0, CONFIG, CLOCK)
    directory = opened(files)
    log = directory.open_log("t", 0, CONFIG, CLOCK)
    for nth in range(BATCHES):
        source.append(batch(COUNT, value=b"%06d" % nth), 0)
        found = source.read(nth * COUNT, 1, upper=END)
        if nth % 3 == 0 and found is not None:
            log.append_replicated(found.read())
    directory.close()
    log = reopened(files, replace(CONFIG, cleanup_policy=frozenset({"compact" if compact else "delete"})))
    offsets = []
    offset = 0
    while offset < log.end_offset:
        found_records = served_from(log, offset)
        offsets += [each for each, _ in found_records]
        offset = found_records[-1][0] + 1
    assert offsets == [each for each in range(log.end_offset) if each // COUNT % 3 == 0]


def test_cold_pages_are_warmed_in_one_step() -> None:
    disk = FaultyDisk(Random(0))
    disk.makedirs("/data")
    written(disk, clean=True)
    log = reopened(disk)
    disk.evict()
    trips = 0
    while True:
        try:
            found = log.read(0, 1 << 20, upper=END, cached_only=True)
            break
        except ColdPages as cold:
            cold.warm()
            trips += 1
    assert found is not None
    assert trips < 6


def test_a_read_of_many_batches_ends_where_the_check_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """The event loop is not held up: the rest is for the next read."""
    monkeypatch.setattr("penstock.storage.chain._HEADERS_MAX", 5)
    files = MemoryFiles()
    written(files, clean=True)
    log = reopened(files)
    offset = 0
    while offset < END:
        found = served_from(log, offset)
        assert len(found) <= 7 * COUNT
        offset = found[-1][0] + 1


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(1, 10)), max_size=30))
def test_checked_ranges_are_those_that_were_added(added: list[tuple[int, int]]) -> None:
    ranges, expected = CheckedRanges(), set()
    for start, size in added:
        ranges.add(start, start + size, start + size)
        expected |= set(range(start, start + size))
    for position in range(60):
        end = position
        while end in expected:
            end += 1
        assert ranges.end(position) == (None if end == position else (end, end))
