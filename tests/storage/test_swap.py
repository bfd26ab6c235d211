from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from errno import EIO, EMFILE
from random import Random

import pytest

from penstock.model.errors import StorageError
from penstock.records.record import Record
from penstock.storage.checkpoint import parse_checkpoint
from penstock.storage.cleaner import KEY_BYTES, measure, plan
from penstock.storage.compaction import CompactionResult, compact
from penstock.storage.log import Log
from penstock.storage.memory import MemoryFiles
from penstock.storage.swap import CLEANED, Swap, finish_interrupted_swaps
from penstock.testing.disk import FaultyDisk, PowerLoss
from tests.storage.compacted import COMPACT, PATH, CompactedLog
from tests.storage.earlier_releases import of_version_0


class SlowRemoval(FaultyDisk):
    """Removes trees file by file, as an operating system does."""

    def rmtree(self, path: str) -> None:
        for name in self.listdir(path):
            self.remove(f"{path}/{name}")
        super().rmtree(path)


def filled(files: MemoryFiles) -> tuple[CompactedLog, list[Record]]:
    """A log of several segments, an aborted transaction among them, ready to be compacted."""
    topic = CompactedLog(files=files)
    records = topic.put((b"a", b"1"), (b"b", b"1"))
    topic.log.roll()
    topic.put((b"b", b"aborted"), producer_id=5, sequence=0, transactional=True)
    topic.end(5, committed=False)
    topic.log.roll()
    records += topic.put((b"a", b"2"), (b"c", None), (b"d", b"1"))
    topic.log.roll()
    records += topic.put((b"d", b"2"), (b"e", b"1"))
    topic.log.roll()
    flushed = topic.log.flush_plan()
    flushed.sync()
    topic.log.flushed(flushed)
    return topic, records


def swap(topic: CompactedLog) -> CompactionResult:
    """What `clean` does, over files that are not copied."""
    files, log = topic.files, topic.log
    result = compact(files, plan(measure(log, None, topic.clock.ms), topic.clock.ms, 100 * KEY_BYTES))
    bases = [source.base_offset for source in result.replaced]
    exchange = log.swap(bases)
    exchange.commit()
    log.replace_segments(exchange, bases, result.segments)
    exchange.finish()
    return result


def changes_of_a_swap() -> int:
    disk = SlowRemoval(Random(0))
    topic, _ = filled(disk)
    before = disk.changes
    swap(topic)
    return disk.changes - before


POINTS = range(1, changes_of_a_swap() + 1)


def crashed(disk: FaultyDisk, point: int, power_loss: bool) -> tuple[CompactedLog, list[Record]]:
    """A log whose machine went down at change number `point` of a swap, and started again."""
    topic, records = filled(disk)
    disk.crash_at = disk.changes + point
    with pytest.raises(PowerLoss):
        swap(topic)
    disk.restart(power_loss=power_loss)
    return topic, records


@pytest.mark.parametrize("again", [None, 1, 4])
@pytest.mark.parametrize("seed", [None, 1, 2])
@pytest.mark.parametrize("point", POINTS)
def test_a_crash_at_any_step_leaves_the_old_log_or_the_new_one(
    point: int, seed: int | None, again: int | None
) -> None:
    """`seed`: the power goes, too. `again`: opening the log crashes as well, at its change number `again`."""
    disk = SlowRemoval(Random(seed))
    topic, records = crashed(disk, point, seed is not None)
    if again is not None:
        disk.crash_at = disk.changes + again
        with suppress(PowerLoss):
            finish_interrupted_swaps(disk, PATH)
        disk.restart(power_loss=seed is not None)
    topic.reopen(clean=False)
    survivors = topic.records()
    committed = [record for record in survivors if record.value != b"aborted"]
    assert committed in (records, [record for record in records if record.offset in (1, 4, 5, 7, 8)])
    assert topic.log.end_offset == 9
    assert topic.log.recovery.corruption == []
    assert topic.log.aborted_transactions(0, 9) == [(5, 2)]
    assert [name for name in disk.listdir(PATH) if disk.is_dir(f"{PATH}/{name}")] == []


def test_the_swap_is_decided_at_one_moment() -> None:
    is_old = []
    for point in POINTS:
        topic, _ = crashed(SlowRemoval(Random(0)), point, power_loss=False)
        topic.reopen(clean=False)
        is_old.append(b"aborted" in [record.value for record in topic.records()])
    decided = is_old.index(False)
    assert is_old == [True] * decided + [False] * (len(POINTS) - decided)
    assert 10 < decided < len(POINTS) - 10


@pytest.mark.parametrize("failing", ["commit", "finish"])
def test_a_sync_that_fails_takes_the_directory_offline(failing: str) -> None:
    disk = FaultyDisk(Random(0))
    topic, _ = filled(disk)
    result = compact(disk, plan(measure(topic.log, None, topic.clock.ms), topic.clock.ms, 100 * KEY_BYTES))
    bases = [source.base_offset for source in result.replaced]
    exchange = topic.log.swap(bases)
    if failing == "finish":
        exchange.commit()
        topic.log.replace_segments(exchange, bases, result.segments)
    disk.sync_error = EIO
    with pytest.raises(StorageError, match="cannot sync"):
        getattr(exchange, failing)()
    with pytest.raises(StorageError, match="offline"):
        topic.log.read(0, 1, upper=9)


def test_a_full_disk_stops_compaction_and_nothing_else() -> None:
    disk = FaultyDisk(Random(0))
    topic, _ = filled(disk)
    before = topic.records()
    disk.capacity = disk.used() + 300
    with pytest.raises(OSError, match="No space"):
        compact(disk, plan(measure(topic.log, None, topic.clock.ms), topic.clock.ms, 100 * KEY_BYTES))
    assert not disk.exists(f"{PATH}/{CLEANED}")
    assert topic.records() == before


def test_a_swap_leaves_nothing_of_the_old_segments() -> None:
    topic, _ = filled(MemoryFiles())
    result = swap(topic)
    assert [source.base_offset for source in result.segments] == [0]
    names = topic.files.listdir(PATH)
    assert [name for name in names if name.endswith(".log")] == [f"{0:020d}.log", f"{9:020d}.log"]
    assert [name for name in names if name.endswith(".txnindex")] == [f"{0:020d}.txnindex"]
    assert [name for name in names if name.endswith(".snapshot")] == [f"{9:020d}.snapshot"]
    topic.reopen()
    assert topic.log.end_offset == 9


def test_the_snapshot_at_the_start_of_a_new_segment_stays() -> None:
    topic, _ = filled(MemoryFiles())
    topic.log.reconfigure(replace(COMPACT, segment_bytes=1))
    result = swap(topic)
    assert [source.base_offset for source in result.segments] == [0, 2, 4, 7]
    snapshots = [name for name in topic.files.listdir(PATH) if name.endswith(".snapshot")]
    assert snapshots == [f"{offset:020d}.snapshot" for offset in (2, 4, 7, 9)]


def test_an_old_transaction_index_does_not_outlive_its_transactions() -> None:
    topic, _ = filled(MemoryFiles())
    topic.log.producers.states.clear()
    swap(topic)
    assert f"{0:020d}.txnindex" in topic.files.listdir(PATH)
    topic.log.roll()
    swap(topic)
    assert f"{0:020d}.txnindex" not in topic.files.listdir(PATH)


def test_readers_of_the_old_segments_may_finish() -> None:
    topic, _ = filled(MemoryFiles())
    found = topic.log.read(0, 10**6, upper=9)
    assert found is not None
    content = found.read()
    swap(topic)
    assert found.read() == content


def test_results_that_were_not_committed_are_removed_when_the_log_is_opened() -> None:
    files = MemoryFiles()
    topic, _ = filled(files)
    compact(files, plan(measure(topic.log, None, topic.clock.ms), topic.clock.ms, 100 * KEY_BYTES))
    assert files.is_dir(f"{PATH}/{CLEANED}")
    Log.open(files, PATH, COMPACT, topic.clock, clean=False)
    assert not files.exists(f"{PATH}/{CLEANED}")


def compacted(topic: CompactedLog) -> tuple[Swap, list[int], CompactionResult]:
    """A swap that can be committed, the segments that it replaces, and the new ones."""
    files, log = topic.files, topic.log
    result = compact(files, plan(measure(log, None, topic.clock.ms), topic.clock.ms, 100 * KEY_BYTES))
    bases = [source.base_offset for source in result.replaced]
    return log.swap(bases), bases, result


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("point", range(1, 13))
def test_a_crash_while_a_swap_is_abandoned_leaves_the_old_log_or_the_new_one(point: int, seed: int) -> None:
    disk = SlowRemoval(Random(seed))
    topic, records = filled(disk)
    exchange, _, _ = compacted(topic)
    exchange.commit()
    disk.crash_at = disk.changes + point
    try:
        exchange.abandon()
    except PowerLoss:
        pass
    else:
        disk.power_off()
    disk.restart(power_loss=True)
    topic.reopen(clean=False)
    committed = [record for record in topic.records() if record.value != b"aborted"]
    assert committed in (records, [record for record in records if record.offset in (1, 4, 5, 7, 8)])
    assert topic.log.recovery.corruption == []


def test_without_a_descriptor_a_swap_is_undone_and_can_be_repeated() -> None:
    disk = FaultyDisk(Random(0))
    topic, _ = filled(disk)
    before = topic.records()
    exchange, _, _ = compacted(topic)
    disk.sync_error = EMFILE
    with pytest.raises(StorageError, match="cannot sync"):
        exchange.commit()
    disk.sync_error = None
    assert not disk.exists(f"{PATH}/swap")
    assert topic.records() == before
    swap(topic)
    assert [record.offset for record in topic.records()] == [1, 4, 5, 7, 8]


def test_without_a_descriptor_a_swap_is_finished_later() -> None:
    disk = FaultyDisk(Random(0))
    topic, _ = filled(disk)
    exchange, bases, result = compacted(topic)
    exchange.commit()
    topic.log.replace_segments(exchange, bases, result.segments)
    disk.sync_error = EMFILE
    with pytest.raises(StorageError, match="cannot sync"):
        exchange.finish()
    disk.sync_error = None
    exchange.finish()
    assert not disk.exists(f"{PATH}/swap")
    assert [record.offset for record in topic.records()] == [1, 4, 5, 7, 8]


def test_a_swap_whose_files_are_not_moved_is_not_removed_by_the_next_one() -> None:
    topic, _ = filled(MemoryFiles())
    first, _, _ = compacted(topic)
    first.commit()
    names = topic.files.listdir(f"{PATH}/swap")
    second, _, _ = compacted(topic)
    with pytest.raises(StorageError, match="cannot swap segments"):
        second.commit()
    assert topic.files.listdir(f"{PATH}/swap") == names


def test_moving_the_files_of_a_swap_needs_no_descriptor(monkeypatch: pytest.MonkeyPatch) -> None:
    topic, _ = filled(MemoryFiles())
    exchange, bases, result = compacted(topic)
    exchange.commit()

    def exhausted(*_: object, **__: object) -> None:
        raise OSError(EMFILE, "too many open files")

    with monkeypatch.context() as patched:
        for name in ("open", "read", "listdir", "sync_dir", "write_atomic", "rmtree"):
            patched.setattr(MemoryFiles, name, exhausted)
        topic.log.replace_segments(exchange, bases, result.segments)
    exchange.finish()
    assert [record.offset for record in topic.records()] == [1, 4, 5, 7, 8]


@pytest.mark.parametrize("kind", ["torn", "flipped", "foreign"])
def test_a_damaged_manifest_of_a_swap_concerns_its_log_alone_and_removes_nothing(kind: str) -> None:
    files = MemoryFiles()
    topic, _ = filled(files)
    exchange, _, _ = compacted(topic)
    exchange.commit()
    path = f"{PATH}/swap/replaced"
    manifest = files.read(path)
    damaged = {
        "torn": manifest[:-3],
        # The segment at offset 9 is not replaced.
        "flipped": manifest.replace(f"{7:020d}.log".encode(), f"{9:020d}.log".encode()),
        "foreign": of_version_0(["../partition-1"]),
    }[kind]
    assert damaged != manifest
    files.write_atomic(path, damaged)
    before = [files.listdir(PATH), files.listdir(f"{PATH}/swap")]
    with pytest.raises(StorageError, match=r"swap/replaced, .* is damaged"):
        topic.reopen(clean=False)
    assert [files.listdir(PATH), files.listdir(f"{PATH}/swap")] == before
    files.write_atomic(path, manifest)
    topic.reopen(clean=False)
    assert [record.offset for record in topic.records()] == [1, 4, 5, 7, 8]


def test_a_manifest_of_a_release_without_checksums_is_read() -> None:
    files = MemoryFiles()
    topic, _ = filled(files)
    exchange, _, _ = compacted(topic)
    exchange.commit()
    path = f"{PATH}/swap/replaced"
    files.write_atomic(path, of_version_0(parse_checkpoint(files.read(path))))
    topic.reopen(clean=False)
    assert [record.offset for record in topic.records()] == [1, 4, 5, 7, 8]
