"""Opening a log that was not closed, and one whose bytes are not what they were."""

from __future__ import annotations

from itertools import product
from random import Random
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from penstock.records.record import iter_batches
from penstock.storage.log import Log
from penstock.storage.memory import Inode, MemoryFiles
from penstock.storage.scan import ColdPages, CorruptLog
from penstock.testing.disk import FaultyDisk
from tests.amounts import amount
from tests.storage.logs import (
    NOW_MS,
    PATH,
    batch,
    flush,
    idempotent,
    open_log,
    record_at_or_after,
    records,
    stored,
)

FIRST = f"{PATH}/{0:020d}"


def written(files: MemoryFiles, batches: int, **settings: Any) -> Log:
    log = open_log(files, **settings)
    for i in range(batches):
        log.append(idempotent(2 * i, 2, timestamp=NOW_MS + i), 0)
    return log


def positions(log: Log) -> list[int]:
    return [position for position, _ in iter_batches(stored(log))]


@pytest.mark.parametrize("cut", [1, 20, 61, 75])
def test_a_torn_tail_is_cut(cut: int) -> None:
    files = MemoryFiles()
    log = written(files, 5)
    files.open(FIRST + ".log").truncate(log.size - cut)
    again = open_log(files)
    assert (again.end_offset, again.recovery.bytes_cut) == (8, log.size // 5 - cut)
    assert not again.recovery.corruption
    assert again.producers.states[7].last_sequence == 7
    assert again.append(idempotent(8, 2), 0).base_offset == 8
    assert len(records(again)) == 10


@pytest.mark.parametrize("garbage", [b"\x00" * 5000, b"\xff" * 300, b"half a header"])
def test_garbage_behind_the_last_batch_is_cut(garbage: bytes) -> None:
    files = MemoryFiles()
    log = written(files, 3)
    files.open(FIRST + ".log").append(garbage)
    again = open_log(files, recovery_point=6)
    assert (again.end_offset, again.size) == (6, log.size)
    assert again.recovery.bytes_cut == len(garbage)


def test_a_segment_that_ends_early_ends_the_log_even_where_it_ends_with_a_whole_batch() -> None:
    """The segment behind it was written later but reached the disk earlier."""
    files = MemoryFiles()
    log = written(files, 9, segment_bytes=300)
    first, second, *_ = log.segments
    files.open(first.path(".log")).truncate(positions(log)[1])
    again = open_log(files, recovery_point=0)
    assert again.end_offset == 2
    assert [s.base_offset for s in again.segments] == [0]
    assert not files.exists(second.path(".log"))
    assert not again.recovery.corruption


def test_a_compacted_segment_may_end_early() -> None:
    files = MemoryFiles()
    log = written(files, 9, segment_bytes=300)
    first = log.segments.first
    files.open(first.path(".log")).truncate(positions(log)[1])
    first.mark_compacted()
    again = open_log(files, recovery_point=0)
    assert again.end_offset == 18
    assert [r.offset for r in records(again)] == [0, 1, *range(list(log.segments)[1].base_offset, 18)]


# -- above the recovery point: what a crash leaves out, and what rots


SEGMENT_BYTES = 4000


def large(files: MemoryFiles) -> Log:
    """Batches of about 1700 bytes, two in a segment, none of them known to be on the disk."""
    log = open_log(files, segment_bytes=SEGMENT_BYTES)
    for i in range(9):
        log.append(idempotent(i, 1, value=bytes(range(1, 201)) * 8 + b"%d" % i), 0)
    assert [segment.base_offset for segment in log.segments] == [0, 2, 4, 6, 8]
    return log


def rot(files: MemoryFiles, path: str, position: int, bits: int = 4) -> None:
    file = files.open(path)
    file.pwrite(bytes([file.pread(1, position)[0] ^ bits]), position)


class CountingFiles(MemoryFiles):
    """Knows how much was read."""

    bytes_read = 0

    def read_content(self, inode: Inode, size: int, position: int) -> bytes:
        data = super().read_content(inode, size, position)
        self.bytes_read += len(data)
        return data


@pytest.mark.parametrize(
    ("number", "at"), [*product([0, 1, 3], [0, 8, 16, 23, 40, 70]), *product([4], [0, 8, 16, 40, 70])]
)
def test_a_damaged_batch_before_sound_ones_is_reported_and_nothing_is_dropped(number: int, at: int) -> None:
    files = MemoryFiles()
    log = written(files, 6)
    rot(files, FIRST + ".log", positions(log)[number] + at)
    again = open_log(files, recovery_point=0)
    (damage,) = again.recovery.corruption
    assert (damage.first_offset, damage.next_offset) == (2 * number, 2 * number + 2)
    assert (again.end_offset, again.size, again.recovery.bytes_cut) == (12, log.size, 0)
    with pytest.raises(CorruptLog):
        again.read(2 * number + 1, 10_000, upper=12)
    assert again.append(idempotent(12), 0).base_offset == 12


@pytest.mark.parametrize("number", range(8))
def test_damage_in_a_sealed_segment_ends_no_log(number: int) -> None:
    """Neither in the last batch of a segment, where only the next segment shows that the log continues."""
    files = MemoryFiles()
    log = large(files)
    segment = log.segments.holding(number)
    rot(files, segment.path(".log"), segment.find(number) + 300)
    again = open_log(files, recovery_point=0, segment_bytes=SEGMENT_BYTES)
    (damage,) = again.recovery.corruption
    assert (damage.first_offset, damage.next_offset) == (number, number + 1)
    assert (again.end_offset, again.recovery.segments_dropped) == (9, 0)
    assert again.producers.states[7].last_sequence == 8


def test_a_torn_last_batch_of_the_log_is_removed() -> None:
    files = MemoryFiles()
    log = large(files)
    rot(files, log.segments.active.path(".log"), 300)
    again = open_log(files, recovery_point=0, segment_bytes=SEGMENT_BYTES)
    assert (again.end_offset, again.recovery.corruption) == (8, [])


@pytest.mark.parametrize("number", range(4))
def test_an_unwritten_hole_ends_the_log_before_any_later_bytes(number: int) -> None:
    """A disk writes in any order: what is behind a hole was as little acknowledged as what is in it."""
    files = MemoryFiles()
    log = large(files)
    segment = log.segments.holding(number)
    hole = segment.find(number) // 512 * 512 + 512
    files.open(segment.path(".log")).pwrite(bytes(512), hole)
    again = open_log(files, recovery_point=0, segment_bytes=SEGMENT_BYTES)
    assert (again.end_offset, again.recovery.corruption) == (number, [])
    assert again.segments.active.base_offset == segment.base_offset


@pytest.mark.parametrize("keep", [1, 100, 1650])
def test_a_segment_that_was_cut_within_a_batch_ends_the_log(keep: int) -> None:
    files = MemoryFiles()
    log = large(files)
    first = log.segments.first
    files.open(first.path(".log")).truncate(first.find(1) + keep)
    again = open_log(files, recovery_point=0, segment_bytes=SEGMENT_BYTES)
    assert (again.end_offset, again.recovery.corruption) == (1, [])


def test_a_damaged_batch_still_has_its_producer_and_its_epoch() -> None:
    files = MemoryFiles()
    log = open_log(files)
    log.append(idempotent(0), 0)
    log.append(idempotent(0, producer_id=8), 3)
    log.append(idempotent(1), 3)
    rot(files, FIRST + ".log", positions(log)[1] + 65)
    again = open_log(files, recovery_point=0)
    assert len(again.recovery.corruption) == 1
    assert (again.leader_epochs.epochs, again.leader_epochs.starts) == ([0, 3], [0, 1])
    assert again.producers.states[8].last_sequence == 0


def test_a_damaged_leader_epoch_is_ignored() -> None:
    files = MemoryFiles()
    log = written(files, 3)
    second = positions(log)[1]
    rot(files, FIRST + ".log", second + 15)
    rot(files, FIRST + ".log", second + 65)
    assert open_log(files, recovery_point=0).leader_epochs.epochs == [0]


@pytest.mark.parametrize("at", [8, 16, 70])
@pytest.mark.parametrize("offset", [2, 3])
def test_a_log_can_be_cut_where_it_is_damaged(offset: int, at: int) -> None:
    """As a follower outside of the ISR does."""
    files = MemoryFiles()
    second = positions(written(files, 6))[1]
    rot(files, FIRST + ".log", second + at)
    again = open_log(files, recovery_point=0)
    again.truncate_to(offset)
    assert (again.end_offset, again.size, again.recovery.corruption) == (2, second, [])
    assert again.append(idempotent(2), 0).base_offset == 2


@pytest.mark.parametrize("at", [8, 16, 70])
@pytest.mark.parametrize(("offset", "end"), [(4, 4), (8, 8), (9, 8), (11, 10)])
def test_a_log_can_be_truncated_behind_damage(offset: int, end: int, at: int) -> None:
    files = MemoryFiles()
    log = written(files, 6)
    starts = positions(log)
    rot(files, FIRST + ".log", starts[1] + at)
    again = open_log(files, recovery_point=0)
    again.truncate_to(offset)
    assert (again.end_offset, again.size) == (end, starts[end // 2])
    assert [(d.first_offset, d.next_offset) for d in again.recovery.corruption] == [(2, 4)]
    assert again.append(batch(1), 0).base_offset == end


def test_values_that_look_like_a_batch_are_not_read_to_their_end() -> None:
    """Records full of small numbers have thousands of places that look like the start of one."""
    files = CountingFiles()
    log = open_log(files)
    numbers = b"".join(number.to_bytes(8, "little") for number in range(1, 4000))
    for _ in range(6):
        log.append(batch(1, value=numbers), 0)
    rot(files, FIRST + ".log", positions(log)[1] + 100)
    files.bytes_read = 0
    again = open_log(files, recovery_point=0)
    assert [(d.first_offset, d.next_offset) for d in again.recovery.corruption] == [(1, 2)]
    assert files.bytes_read < 10 * again.size


def test_zeros_that_end_a_segment_are_no_sector_that_was_never_written() -> None:
    """A record's last byte is its number of headers."""
    files = MemoryFiles()
    log = open_log(files)
    log.append(batch(1), 0)
    missing = 512 + 1 - (log.size + len(batch(1, value=b"v" * 200))) % 512
    log.append(batch(1, value=b"v" * (200 + missing)), 0)
    assert log.size % 512 == 1
    second = positions(log)[1]
    log.roll()
    log.append(batch(1), 0)
    rot(files, FIRST + ".log", second + 70)
    again = open_log(files, recovery_point=0)
    assert (again.end_offset, again.recovery.segments_dropped) == (3, 0)
    assert [(d.first_offset, d.next_offset) for d in again.recovery.corruption] == [(1, 2)]


def test_damage_that_the_logs_start_has_passed_is_given_up() -> None:
    files = MemoryFiles()
    rot(files, FIRST + ".log", positions(written(files, 6))[1] + 70)
    again = open_log(files, recovery_point=0)
    again.advance_high_watermark(again.end_offset)
    again.delete_records(3)
    assert again.recovery.corruption, "half of it is still there"
    again.delete_records(4)
    assert again.recovery.corruption == []


def test_a_transaction_that_damage_has_begun_is_ignored() -> None:
    files = MemoryFiles()
    second = positions(written(files, 3))[1]
    rot(files, FIRST + ".log", second + 22, 0x10)
    again = open_log(files, recovery_point=0)
    again.advance_high_watermark(again.end_offset)
    assert again.last_stable_offset == again.end_offset


def test_a_sealed_segment_of_one_damaged_batch_is_opened() -> None:
    files = MemoryFiles()
    log = open_log(files)
    for i in range(3):
        log.append(idempotent(i), 0)
        log.roll()
    rot(files, list(log.segments)[1].path(".log"), 65)
    again = open_log(files, recovery_point=0)
    assert [(d.first_offset, d.next_offset) for d in again.recovery.corruption] == [(1, 2)]
    again.close()
    assert open_log(files, clean=True).end_offset == 3


# -- damage below the recovery point


@pytest.mark.parametrize("at", [0, 8, 16, 23, 40, 70])
def test_damage_below_the_recovery_point_is_reported_and_nothing_is_dropped(at: int) -> None:
    files = MemoryFiles()
    log = written(files, 6)
    flush(log)
    size, (_, second, third, *_) = log.size, positions(log)
    whole = stored(log)
    files.open(FIRST + ".log").pwrite(bytes([whole[second + at] ^ 0xFF]), second + at)
    again = open_log(files, recovery_point=12)
    (damage,) = again.recovery.corruption
    assert (damage.position, damage.first_offset, damage.next_offset) == (second, 2, 4)
    assert (again.end_offset, again.size, files.size(FIRST + ".log")) == (12, size, size)
    before = again.read(0, 10_000, upper=12)
    assert before is not None
    assert before.read() == whole[:second]
    for offset in (2, 3):
        with pytest.raises(CorruptLog, match="offsets 2 to 3"):
            again.read(offset, 10_000, upper=12)
    behind = again.read(4, 10_000, upper=12)
    assert behind is not None
    assert behind.read() == whole[third:]
    assert again.append(idempotent(12), 0).base_offset == 12


def test_damage_up_to_the_end_is_kept_and_the_log_continues_behind_it() -> None:
    files = MemoryFiles()
    log = written(files, 4)
    flush(log)
    size, last = log.size, positions(log)[3]
    files.open(FIRST + ".log").pwrite(b"\x00" * (size - last), last)
    again = open_log(files, recovery_point=8)
    (damage,) = again.recovery.corruption
    assert (damage.first_offset, damage.next_offset) == (6, 8)
    assert again.end_offset == 8
    assert files.size(FIRST + ".log") == size
    assert again.append(batch(), 0).base_offset == 8
    with pytest.raises(CorruptLog):
        again.read(6, 100, upper=9)
    behind = again.read(8, 100, upper=9)
    assert behind is not None


def test_records_that_are_missing_below_the_recovery_point_are_reported() -> None:
    files = MemoryFiles()
    log = written(files, 4)
    flush(log)
    files.open(FIRST + ".log").truncate(positions(log)[2])
    again = open_log(files, recovery_point=8)
    (damage,) = again.recovery.corruption
    assert (damage.first_offset, damage.next_offset, damage.size) == (4, 8, 0)
    assert again.append(batch(), 0).base_offset == 8


def test_a_segment_that_is_missing_below_the_recovery_point_is_reported() -> None:
    files = MemoryFiles()
    log = written(files, 9, segment_bytes=300)
    flush(log)
    for suffix in (".log", ".index", ".timeindex"):
        files.remove(list(log.segments)[-2].path(suffix))
    again = open_log(files, recovery_point=log.segments.active.base_offset - 2)
    missing = list(log.segments)[-2].base_offset
    assert again.end_offset == 18
    assert [(d.first_offset, d.next_offset) for d in again.recovery.corruption] in (
        [],
        [(missing, log.segments.active.base_offset)],
    )


@settings(max_examples=amount(150), deadline=None)
@given(st.integers(0, 2**31), st.integers(1, 4))
@example(965850, 4)  # the first batch's base offset, and the second batch's records
def test_no_flipped_bit_goes_unnoticed(seed: int, flips: int) -> None:
    """Whatever rots, what is read is what was written, or an error; and nothing that is sound is lost."""
    rng = Random(seed)
    disk = FaultyDisk(rng)
    log = written(disk, 8, segment_bytes=10_000)
    flush(log)
    whole = stored(log)
    starts = positions(log)
    damaged = set()
    for _ in range(flips):
        position = rng.randrange(len(whole))
        disk.flip_bit(FIRST + ".log", position, rng.randrange(8))
        damaged.add(sum(start <= position for start in starts) - 1)
    again = open_log(disk, recovery_point=16)
    assert again.end_offset == 16
    for number, start in enumerate(starts):
        end = starts[number + 1] if number + 1 < len(starts) else len(whole)
        try:
            found = again.read(2 * number, 1, upper=16)
        except CorruptLog:
            # A sound batch between two damaged ones is not believed.
            assert number in damaged or {number - 1, number + 1} <= damaged
        else:
            assert found is not None
            data = found.read()
            stamp_only = number in damaged and data[16:] == whole[start + 16 : end]
            assert data == whole[start:end] or stamp_only


# -- indexes


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("damage", ["missing", "torn", "zeros", "another's"])
def test_a_sealed_segments_index_is_rebuilt_when_it_cannot_be_trusted(suffix: str, damage: str) -> None:
    files = MemoryFiles()
    log = written(files, 30, segment_bytes=1000, index_interval_bytes=100)
    log.close()
    path = log.segments.first.path(suffix)
    if damage == "missing":
        files.remove(path)
    elif damage == "torn":
        files.open(path).append(b"xyz")
    elif damage == "zeros":
        files.open(path).pwrite(bytes(files.size(path)), 0)
    else:
        other = list(log.segments)[2].path(suffix)
        files.write_atomic(path, files.read(other)[: files.size(path) // 2] + b"\x01")
    again = open_log(files, clean=True, segment_bytes=1000, index_interval_bytes=100)
    assert [record.offset for record in records(again)] == list(range(60))
    for i in range(30):
        found = record_at_or_after(again, NOW_MS + i)
        assert found is not None
        assert found.timestamp >= NOW_MS + i


def test_indexes_that_are_rebuilt_know_the_largest_timestamp() -> None:
    files = MemoryFiles()
    log = open_log(files)
    log.append(batch(1, timestamp=NOW_MS + 5), 0)
    log.append(batch(1), 0)
    log.roll()
    log.append(batch(1), 0)
    log.close()
    for suffix in (".index", ".timeindex"):
        files.remove(FIRST + suffix)
    again = open_log(files, clean=True)
    assert again.segments.first.max_timestamp() == NOW_MS + 5
    found = record_at_or_after(again, NOW_MS + 5)
    assert found is not None
    assert (found.timestamp, found.offset) == (NOW_MS + 5, 0)


@pytest.mark.parametrize("damaged", [False, True])
def test_truncated_batches_do_not_return_behind_their_replacement(damaged: bool) -> None:
    """The disk has the new bytes and the old size, with what was behind; perhaps not to the byte."""
    files = MemoryFiles()
    log = open_log(files)
    for _ in range(4):
        log.append(batch(), 1)
    old, places = stored(log), positions(log)
    log.truncate_to(1)
    log.append(batch(), 2)
    new = stored(log)
    if damaged:
        new += bytes([old[len(new)] ^ 1]) + old[len(new) + 1 : len(new) + 30] + b"\xff" * 20
    files.write_atomic(FIRST + ".log", new + old[len(new) :])
    again = open_log(files, recovery_point=1)
    assert (again.end_offset, again.size) == (2, places[2])
    assert not again.recovery.corruption
    assert again.leader_epochs.epochs == [1, 2]


def test_epochs_that_fall_below_the_recovery_point_are_no_reason_to_cut() -> None:
    files = MemoryFiles()
    log = open_log(files)
    log.append(batch(), 1)
    log.append(batch(), 2)
    content = bytearray(stored(log))
    content[12:16] = (5).to_bytes(4, "big")
    files.write_atomic(FIRST + ".log", bytes(content))
    assert len(records(open_log(files, recovery_point=2))) == 2


@pytest.mark.parametrize("content", [None, b"nonsense"])
def test_a_log_that_was_closed_well_finds_its_lost_epochs_in_its_batches(content: bytes | None) -> None:
    """Without them it could not find the point of divergence from another log."""
    files = MemoryFiles()
    log = open_log(files)
    for epoch in (1, 1, 4):
        log.append(batch(), epoch)
        log.roll()
    log.close()
    path = f"{PATH}/leader-epoch-checkpoint"
    files.remove(path)
    if content is not None:
        files.write_atomic(path, content)
    again = open_log(files, clean=True)
    assert (again.leader_epochs.epochs, again.leader_epochs.starts) == ([1, 4], [0, 2])
    again.close()
    assert open_log(files, clean=True).leader_epochs.epochs == [1, 4]


def test_a_damaged_epoch_checkpoint_is_rebuilt_from_the_scanned_batches() -> None:
    files = MemoryFiles()
    log = open_log(files)
    for epoch in range(3):
        log.append(batch(), epoch)
    flush(log)
    files.write_atomic(f"{PATH}/leader-epoch-checkpoint", b"nonsense")
    assert open_log(files, recovery_point=3).leader_epochs.epochs == [0, 1, 2]


def test_a_log_whose_start_was_moved_beyond_its_end_starts_there() -> None:
    files = MemoryFiles()
    written(files, 2).close()
    log = open_log(files, clean=True, log_start_offset=50)
    assert (log.log_start_offset, log.end_offset) == (50, 50)
    assert log.append(batch(), 0).base_offset == 50


def test_only_segments_behind_the_recovery_point_are_scanned() -> None:
    files = MemoryFiles()
    log = written(files, 40, segment_bytes=500)
    flush(log)
    again = open_log(files, recovery_point=log.recovery_point)
    assert len(log.segments) > 5
    assert again.recovery.segments_walked == 1
    again = open_log(files, recovery_point=log.segments.active.base_offset)
    assert again.recovery.segments_walked == 2


# -- without waiting for the disk


def test_cold_pages_are_read_in_a_worker_and_the_read_is_repeated() -> None:
    disk = FaultyDisk(Random(0))
    log = written(disk, 40, segment_bytes=500, index_interval_bytes=100)
    log.close()
    cold = open_log(disk, clean=True)
    disk.evict()
    warmed = 0
    while True:
        try:
            found = cold.read(3, 100, upper=80, cached_only=True)
            break
        except ColdPages as pages:
            pages.warm()
            warmed += 1
    assert found is not None
    assert warmed >= 1
    disk.evict()
    with pytest.raises(ColdPages):
        record_at_or_after(cold, NOW_MS + 20, cached_only=True)
    assert record_at_or_after(cold, NOW_MS + 20) is not None


def test_batches_from_before_an_open_may_be_cold() -> None:
    """Also its newest bytes: this process has not written them."""
    disk = FaultyDisk(Random(0))
    written(disk, 3).close()
    reopened = open_log(disk, clean=True)
    while True:
        try:
            # Once the index is there, only the batches themselves can be cold.
            assert reopened.read(4, 1000, upper=6, cached_only=True) is not None
            break
        except ColdPages as pages:
            pages.warm()
    disk.evict()
    with pytest.raises(ColdPages):
        reopened.read(4, 1000, upper=6, cached_only=True)


def test_a_large_range_is_warmed_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    file = MemoryFiles().open("/large", create=True)
    file.append(bytes(5 << 19))
    read: list[tuple[int, int]] = []
    monkeypatch.setattr(type(file), "pread", lambda _, size, position: read.append((size, position)))

    ColdPages(file, 7, (5 << 19) - 7).warm()

    assert read == [(1 << 20, 7), (1 << 20, (1 << 20) + 7), ((1 << 19) - 7, (2 << 20) + 7)]


def without_indexes(disk: FaultyDisk) -> Log:
    log = written(disk, 150, segment_bytes=9000)
    assert len(log.segments) > 1
    log.close()
    reopened = open_log(disk, clean=True)
    for suffix in (".index", ".timeindex"):
        disk.remove(FIRST + suffix)
    reopened.segments.first.release()
    return reopened


def test_indexes_are_rebuilt_in_the_warm_step() -> None:
    log = without_indexes(FaultyDisk(Random(0)))

    with pytest.raises(ColdPages) as cold:
        log.read(7, 100, upper=80, cached_only=True)
    assert log.segments.first.index_entries == 0
    cold.value.warm()

    assert log.read(7, 100, upper=80, cached_only=True) is not None
    assert log.segments.first.index_entries > 0
    found = record_at_or_after(log, NOW_MS + 5, cached_only=True)
    assert found is not None and found.offset == 9


def test_a_segment_that_cannot_be_indexed_raises_after_the_warm_step() -> None:
    disk = FaultyDisk(Random(0))
    log = without_indexes(disk)
    disk.open(FIRST + ".log").pwrite(bytes(300), 200)

    with pytest.raises(ColdPages) as cold:
        log.read(7, 100, upper=80, cached_only=True)
    cold.value.warm()

    with pytest.raises(CorruptLog):
        log.read(7, 100, upper=80, cached_only=True)


@pytest.mark.parametrize("nth", [0, 2, 4])
@pytest.mark.parametrize("clean", [True, False])
def test_a_raised_epoch_in_the_middle_cuts_nothing_that_is_committed(nth: int, clean: bool) -> None:
    """Behind it the epoch falls. Batches that a truncation left behind look the same, above the watermark."""
    files = MemoryFiles()
    log = written(files, 6)
    content, at = bytearray(stored(log)), positions(log)[nth]
    log.close(clean=clean)
    content[at + 12 : at + 16] = (1).to_bytes(4, "big")
    files.write_atomic(FIRST + ".log", bytes(content))
    if clean:
        files.remove(f"{PATH}/leader-epoch-checkpoint")
    again = open_log(files, clean=clean, high_watermark=12)
    assert (again.end_offset, again.recovery.bytes_cut) == (12, 0)
    assert (again.leader_epochs.epochs, again.leader_epochs.starts) == ([0], [0])


def test_a_follower_does_not_keep_a_raised_epoch() -> None:
    source, log = open_log(), open_log()
    for _ in range(4):
        source.append(batch(), 0)
    content, places = bytearray(stored(source)), positions(source)
    content[places[2] + 12 : places[2] + 16] = (1).to_bytes(4, "big")
    log.append_replicated(content[: places[2]])
    log.append_replicated(content[places[2] : places[3]])
    assert log.leader_epochs.epochs == [0, 1]
    log.append_replicated(content[places[3] :])
    assert (log.leader_epochs.epochs, log.leader_epochs.starts) == ([0], [0])
