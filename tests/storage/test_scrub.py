"""Checking sealed segments: what is damaged is found wherever it is, and nothing else is."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.records.batch import LOG_OVERHEAD
from penstock.records.record import iter_batches
from penstock.storage.holes import holes
from penstock.storage.log import Log
from penstock.storage.memory import MemoryFiles
from penstock.storage.recovery_report import Corruption
from penstock.storage.scan import CorruptLog
from penstock.storage.scrub import (
    Piece,
    describe,
    note_damage,
    repair_target,
    repaired,
    scrub,
    sealed_segments,
)
from penstock.storage.segment_files import LOG
from tests.storage.logs import NOW_MS, PATH, batch, open_log, record_at_or_after, stored

BATCHES = 6
SEALED = f"{PATH}/{0:020d}{LOG}"


def written(files: MemoryFiles) -> Log:
    """A sealed segment with offsets 0 to 11, two in each batch, and a last one with 12 and 13."""
    log = open_log(files)
    for i in range(BATCHES):
        log.append(batch(2, value=b"value %d" % i), 0)
    log.roll()
    log.append(batch(2), 0)
    log.advance_high_watermark(log.end_offset)
    return log


def flip(files: MemoryFiles, position: int, bit: int = 0) -> None:
    file = files.open(SEALED)
    (byte,) = file.pread(1, position)
    file.pwrite(bytes([byte ^ 1 << bit]), position)


def damage_in(files: MemoryFiles, log: Log, piece_bytes: int = 1 << 20) -> list[Corruption]:
    """What scrubbing the sealed segment finds, piece by piece."""
    (segment,) = sealed_segments(log)
    sealed = describe(log, segment)
    assert sealed is not None
    found: list[Corruption] = []
    done = Piece(0, 0)
    while done.position < sealed.size:
        before, done = done, scrub(files, sealed, done, piece_bytes)
        assert done.position > before.position
        found += done.damage
    return found


def positions(log: Log) -> list[int]:
    """Of the sealed segment's batches, and its end."""
    size = log.segments.first.size
    return [at for at, _ in iter_batches(stored(log)) if at < size] + [size]


@given(st.integers(1, 1000))
def test_nothing_is_found_where_all_is_well(piece_bytes: int) -> None:
    files = MemoryFiles()
    assert damage_in(files, written(files), piece_bytes) == []


@given(st.data())
def test_any_flipped_bit_is_found_and_only_its_batch_is_damaged(data: st.DataObject) -> None:
    files = MemoryFiles()
    log = written(files)
    at = positions(log)
    nth = data.draw(st.integers(0, BATCHES - 1))
    within = data.draw(st.integers(0, at[nth + 1] - at[nth] - 1))
    # No checksum covers the leader epoch. An epoch beyond the log's newest is found, an older one is not.
    flip(files, at[nth] + within, data.draw(st.integers(0, 6 if within == 12 else 7)))
    expected = Corruption(SEALED, at[nth], at[nth + 1] - at[nth], 2 * nth, 2 * nth + 2)
    assert damage_in(files, log, data.draw(st.integers(1, 1000))) == [expected]


def test_a_file_that_has_become_shorter_is_damaged_to_its_end() -> None:
    files = MemoryFiles()
    log = written(files)
    at = positions(log)
    files.open(SEALED).truncate(at[4] + 5)
    assert damage_in(files, log) == [Corruption(SEALED, at[4], at[-1] - at[4], 8, 12)]


@pytest.mark.parametrize("nth", [0, 3])
def test_damage_before_a_hole_becomes_a_part_of_the_hole(nth: int) -> None:
    """The batches of another replica are larger than what is left of the range."""
    files = MemoryFiles()
    log = written(files)
    at = positions(log)
    log.close(clean=True)
    files.open(SEALED).truncate(at[nth + 1] + 5)
    flip(files, at[nth] + 70)
    log = open_log(files, clean=True)
    (hole,) = log.recovery.corruption
    assert hole == Corruption(SEALED, at[nth + 1], 0, 2 * nth + 2, 12)

    (damage,) = damage_in(files, log)
    noted = note_damage(log, log.segments.first, damage)
    assert noted == Corruption(SEALED, at[nth], 0, 2 * nth, 12)
    assert log.recovery.corruption == holes(log) == [noted]
    assert log.segments.size == sum(segment.size for segment in log.segments)
    assert log.segments.first.size == at[nth]
    behind = log.read(12, 1 << 20, upper=log.end_offset)
    assert behind is not None and behind.size == log.segments.active.size
    if nth:
        assert damage_in(files, log) == [noted], "a second round finds nothing else"


def test_damaged_batches_are_not_read_until_their_repair() -> None:
    files = MemoryFiles()
    log = written(files)
    before = stored(log)
    flip(files, positions(log)[2] + 70)
    (damage,) = damage_in(files, log)
    note_damage(log, log.segments.first, damage)
    assert sealed_segments(log) == []
    found = log.read(0, 1 << 20, upper=log.end_offset)
    assert found is not None
    assert found.read() == before[: damage.position]
    for offset in (4, 5):
        with pytest.raises(CorruptLog):
            log.read(offset, 1 << 20, upper=log.end_offset)
    behind = log.read(6, 1 << 20, upper=log.end_offset)
    assert behind is not None
    assert behind.position == damage.position + damage.size

    file = repair_target(log, damage)
    assert file is not None
    file.pwrite(before[damage.position : damage.position + damage.size], damage.position)
    repaired(log, damage)
    assert stored(log) == before
    assert damage_in(files, log) == []


@pytest.mark.parametrize("bit", range(8))
def test_a_repaired_batch_length_makes_the_whole_batch_readable(bit: int) -> None:
    """Reads before the repair follow the wrong length to a place within the batch, or behind it."""
    files = MemoryFiles()
    log = written(files)
    before, at = stored(log), positions(log)[2]
    log.close()
    flip(files, at + LOG_OVERHEAD - 1, bit)
    log = open_log(files, clean=True)
    log.advance_high_watermark(log.end_offset)
    for offset in (0, 4, 6):
        with suppress(CorruptLog):
            log.read(offset, 1 << 20, upper=log.end_offset)
    (damage,) = damage_in(files, log)
    note_damage(log, log.segments.first, damage)
    file = repair_target(log, damage)
    assert file is not None
    file.pwrite(before[damage.position : damage.position + damage.size], damage.position)
    repaired(log, damage)
    for nth in range(BATCHES):
        found = log.read(2 * nth, 1 << 20, upper=2 * BATCHES)
        assert found is not None
        assert found.read() == before[positions(log)[nth] : positions(log)[-1]]


@pytest.mark.parametrize("sealed", [True, False])
def test_repaired_batches_are_found_by_their_timestamp(sealed: bool) -> None:
    """Recovery has built the indexes without it, and behind it with smaller timestamps."""
    files = MemoryFiles()
    log = open_log(files, index_interval_bytes=1)
    late_ms = NOW_MS + 1000
    for i in range(BATCHES):
        log.append(batch(2, timestamp=late_ms if i == 2 else NOW_MS + i), 0)
    if sealed:
        log.roll()
        log.append(batch(2), 0)
    healthy = stored(log)
    flip(files, [at for at, _ in iter_batches(healthy)][2] + 70)
    log = open_log(files, recovery_point=2 * BATCHES, index_interval_bytes=1)
    log.advance_high_watermark(log.end_offset)
    (damage,) = log.recovery.corruption
    assert record_at_or_after(log, late_ms) is None

    file = repair_target(log, damage)
    assert file is not None
    file.pwrite(healthy[damage.position : damage.position + damage.size], damage.position)
    repaired(log, damage)
    for _ in range(2):
        assert log.segments.first.max_timestamp() == late_ms + 1
        for timestamp, offset in ((NOW_MS + 3, 4), (late_ms, 4), (late_ms + 1, 5)):
            found = record_at_or_after(log, timestamp)
            assert found is not None and found.offset == offset
        log.close()
        log = open_log(files, clean=True)


def test_uncommitted_and_deleted_ranges_are_not_repaired() -> None:
    files = MemoryFiles()
    log = written(files)
    log.high_watermark = 5
    flip(files, positions(log)[2] + 70)
    (damage,) = damage_in(files, log)
    note_damage(log, log.segments.first, damage)
    assert repair_target(log, damage) is None
    log.advance_high_watermark(6)
    assert repair_target(log, damage) is not None
    log.truncate_to(4)
    assert repair_target(log, damage) is None
    assert not log.recovery.corruption
    log.append(batch(9, value=b"something else"), 0)
    log.append(batch(1), 0)
    assert log.read(13, 1 << 20, upper=log.end_offset) is not None
