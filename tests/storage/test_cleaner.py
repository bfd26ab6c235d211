from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import Awaitable, Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from random import Random
from typing import Any, TypeVar

import pytest

from penstock.broker.base.system_ports import OsFiles
from penstock.model.ids import TopicPartition
from penstock.storage.checkpoint import format_checked
from penstock.storage.cleaner import (
    CHECKPOINT_FILE,
    KEY_BYTES,
    Dirt,
    choose,
    clean,
    measure,
    plan,
    read_checkpoint,
    write_checkpoint,
)
from penstock.storage.index_files import OtherSegment
from penstock.storage.log import Log
from penstock.storage.memory import MemoryFiles
from penstock.storage.scan import ColdPages
from penstock.storage.sealing import read_seal
from penstock.storage.seals import NO_OWNER, LogOwner
from penstock.testing.disk import FaultyDisk
from tests.storage.compacted import COMPACT, PATH, CompactedLog, InlineWorkers

T = TypeVar("T")


def sealed(topic: CompactedLog, *keys: bytes, ms: int = 0) -> int:
    """Seal a segment with one record per key; returns its size."""
    topic.clock.ms += ms
    topic.put(*((key, b"value") for key in keys))
    size = topic.log.segments.active.size
    topic.log.roll()
    return size


def test_everything_below_the_active_segment_is_dirty_at_first() -> None:
    topic = CompactedLog()
    size = sealed(topic, b"a") + sealed(topic, b"b")
    topic.put((b"c", b"active"))
    dirt = measure(topic.log, None, topic.clock.ms)
    assert (dirt.first_dirty_offset, dirt.end_offset) == (0, 2)
    assert (dirt.clean_bytes, dirt.dirty_bytes, dirt.ratio) == (0, size, 1.0)
    assert dirt.due


def test_a_checkpoint_divides_clean_from_dirty() -> None:
    topic = CompactedLog()
    clean_bytes = sealed(topic, b"a", b"b", b"c")
    dirty_bytes = sealed(topic, b"d")
    dirt = measure(topic.log, 3, topic.clock.ms)
    assert (dirt.first_dirty_offset, dirt.clean_bytes, dirt.dirty_bytes) == (3, clean_bytes, dirty_bytes)
    assert dirt.ratio == pytest.approx(dirty_bytes / (clean_bytes + dirty_bytes))
    assert not measure(topic.log, 4, topic.clock.ms).due


@pytest.mark.parametrize("checkpoint", [-1, 4, 99])
def test_a_checkpoint_outside_of_the_log_is_ignored(checkpoint: int) -> None:
    topic = CompactedLog()
    sealed(topic, b"a", b"b", b"c")
    assert measure(topic.log, checkpoint, topic.clock.ms).first_dirty_offset == 0


def test_a_log_is_due_when_its_ratio_is_above_the_minimum() -> None:
    topic = CompactedLog()
    sealed(topic, b"a")
    sealed(topic, b"a")
    assert measure(topic.log, 1, topic.clock.ms).ratio == 0.5
    assert not measure(topic.log, 1, topic.clock.ms).due
    topic.log.reconfigure(replace(COMPACT, min_cleanable_dirty_ratio=0.49))
    assert measure(topic.log, 1, topic.clock.ms).due


def test_young_segments_wait_for_min_compaction_lag() -> None:
    topic = CompactedLog(replace(COMPACT, min_compaction_lag_ms=1000))
    sealed(topic, b"a")
    sealed(topic, b"b", ms=600)
    sealed(topic, b"c", ms=600)
    assert measure(topic.log, None, topic.clock.ms).end_offset == 1
    assert measure(topic.log, None, topic.clock.ms + 400).end_offset == 2
    assert measure(topic.log, None, topic.clock.ms + 1000).end_offset == 3


def test_max_compaction_lag_makes_a_log_due_at_any_ratio() -> None:
    topic = CompactedLog(replace(COMPACT, max_compaction_lag_ms=1000, min_cleanable_dirty_ratio=1.0))
    sealed(topic, b"a")
    assert not measure(topic.log, None, topic.clock.ms + 1000).due
    assert measure(topic.log, None, topic.clock.ms + 1001).due
    assert not measure(topic.log, 1, topic.clock.ms + 1001).due


def test_the_compaction_lag_is_that_of_the_oldest_dirty_record() -> None:
    topic = CompactedLog(replace(COMPACT, max_compaction_lag_ms=1000))
    began_ms = topic.clock.ms
    sealed(topic, b"a")
    topic.clock.ms = began_ms + 400
    sealed(topic, b"b")
    topic.clock.ms = began_ms + 1400
    assert measure(topic.log, None, topic.clock.ms).lag_ms == 1400
    assert measure(topic.log, 1, topic.clock.ms).lag_ms == 1000
    assert measure(topic.log, 2, topic.clock.ms).lag_ms == 0
    topic.log.reconfigure(COMPACT)
    assert measure(topic.log, None, topic.clock.ms).lag_ms == 0


def test_nothing_at_or_above_the_high_watermark_is_compacted() -> None:
    topic = CompactedLog()
    sealed(topic, b"a")
    committed = topic.log.high_watermark
    sealed(topic, b"b")
    log = Log.open(topic.files, PATH, COMPACT, topic.clock, clean=True)
    log.advance_high_watermark(committed)
    assert measure(log, None, topic.clock.ms).end_offset == 1


def test_the_dirtiest_compacted_log_that_is_due_is_chosen() -> None:
    logs = {name: CompactedLog() for name in ("clean", "half", "dirty")}
    for topic in logs.values():
        sealed(topic, b"a", b"b", b"c")
        sealed(topic, b"d", b"e", b"f", b"g")
    now_ms = logs["clean"].clock.ms
    partitions = [TopicPartition(name, 0) for name in logs]
    candidates = [(p, logs[p.topic].log) for p in partitions]
    checkpoints = {partitions[0]: 7, partitions[1]: 3}

    def chosen_now() -> tuple[TopicPartition, Dirt] | None:
        return choose((key, measure(log, checkpoints.get(key), now_ms)) for key, log in candidates)

    chosen = chosen_now()
    assert chosen is not None
    assert chosen[0].topic == "dirty"
    checkpoints[partitions[2]] = 7
    chosen = chosen_now()
    assert chosen is not None
    assert chosen[0].topic == "half"
    checkpoints[partitions[1]] = 7
    assert chosen_now() is None


def test_a_checkpoint_is_kafkas_text_with_a_checksum() -> None:
    files = MemoryFiles()
    files.makedirs(PATH)
    assert read_checkpoint(files, PATH) is None
    write_checkpoint(files, PATH, 2**40)
    assert files.read(f"{PATH}/{CHECKPOINT_FILE}") == format_checked(["1099511627776"])
    assert read_checkpoint(files, PATH) == 2**40
    files.write_atomic(f"{PATH}/{CHECKPOINT_FILE}", b"0\n1\n17\n")
    assert read_checkpoint(files, PATH) == 17, "earlier releases wrote no checksum"


@pytest.mark.parametrize(
    "content", [b"", b"0\n1\n", b"0\n1\nfive\n", b"0\n2\n5\n6\n", b"\xff", b"1\n1\n17\n00000000\n"]
)
def test_a_damaged_checkpoint_is_refused(content: bytes) -> None:
    files = MemoryFiles()
    files.makedirs(PATH)
    files.write_atomic(f"{PATH}/{CHECKPOINT_FILE}", content)
    with pytest.raises(ValueError):
        read_checkpoint(files, PATH)


class MeddlingWorkers(InlineWorkers):
    """Lets something happen to the log when the `meddle_at`-th piece of work is done."""

    def __init__(self, meddle: Callable[[], object], meddle_at: int) -> None:
        self._meddle = meddle
        self._left = meddle_at

    async def _then_meddle(self, work: Awaitable[T]) -> T:
        result = await work
        self._left -= 1
        if self._left == 0:
            self._meddle()
        return result

    def in_thread(self, function: Callable[..., T], *args: Any) -> Awaitable[T]:
        return self._then_meddle(super().in_thread(function, *args))

    def in_process(self, function: Callable[..., T], *args: Any) -> Awaitable[T]:
        return self._then_meddle(super().in_process(function, *args))


@pytest.mark.parametrize("meddle_at", [1, 2, 3])
def test_a_log_that_has_lost_segments_meanwhile_is_not_changed(meddle_at: int) -> None:
    topic = CompactedLog()
    for _ in range(3):
        sealed(topic, b"a", b"a")

    def lose_oldest() -> None:
        topic.log.segments.replace([topic.log.segments.first], [])

    planned = plan(measure(topic.log, None, topic.clock.ms), topic.clock.ms, 100 * KEY_BYTES)
    workers = MeddlingWorkers(lose_oldest, meddle_at)
    assert asyncio.run(clean(topic.log, planned, topic.files, workers)) is None
    assert [segment.base_offset for segment in topic.log.segments] == [2, 4, 6]
    assert not any(topic.files.is_dir(f"{PATH}/{name}") for name in topic.files.listdir(PATH))


def test_a_log_that_grew_meanwhile_is_swapped_all_the_same() -> None:
    topic = CompactedLog()
    sealed(topic, b"a", b"a")
    planned = plan(measure(topic.log, None, topic.clock.ms), topic.clock.ms, 100 * KEY_BYTES)
    workers = MeddlingWorkers(lambda: sealed(topic, b"a"), 1)
    assert asyncio.run(clean(topic.log, planned, topic.files, workers)) is not None
    assert [record.offset for record in topic.records()] == [1, 2]


def test_a_log_that_is_deleted_meanwhile_is_not_brought_back(tmp_path: Path) -> None:
    path = tmp_path / "partition-0"
    topic = CompactedLog(files=OsFiles(), path=str(path))
    sealed(topic, b"a", b"a")
    planned = plan(measure(topic.log, None, topic.clock.ms), topic.clock.ms, 100 * KEY_BYTES)
    OsFiles().rmtree(topic.path)
    assert asyncio.run(clean(topic.log, planned, topic.files, InlineWorkers())) is None
    assert not path.exists()


def test_compacted_segments_are_sealed() -> None:
    topic = CompactedLog()
    for nth in range(3):
        topic.put((b"a", b"%d" % nth), producer_id=1, sequence=nth, transactional=True)
        topic.end(1, committed=False)
        sealed(topic, b"b")
    topic.compact()
    compacted = topic.log.segments.first
    assert compacted.is_compacted
    assert compacted.expected_seal.is_known(compacted.size)
    seal = read_seal(topic.files, compacted, NO_OWNER)
    assert seal is not None
    assert seal.end_offset == topic.log.segments.active.base_offset
    survivors = topic.records()
    topic.reopen(clean=False)
    assert topic.records() == survivors


@pytest.mark.parametrize("suffixes", [(".log",), (".log", ".index", ".timeindex", ".seal")])
def test_records_of_another_log_are_not_compacted_into_this_one(suffixes: tuple[str, ...]) -> None:
    files = MemoryFiles()
    owners = [LogOwner("x" * 22, partition) for partition in range(2)]
    topics = [CompactedLog(files=files, path=f"{PATH}{owner.partition}", owner=owner) for owner in owners]
    for topic, key in zip(topics, (b"a", b"b"), strict=True):
        for _ in range(3):
            sealed(topic, key, key)
        topic.log.close()
    for suffix in suffixes:
        one, other = (f"{topic.path}/{2:020}{suffix}" for topic in topics)
        contents = files.read(one), files.read(other)
        files.write_atomic(one, contents[1])
        files.write_atomic(other, contents[0])
    log = Log.open(files, topics[0].path, COMPACT, topics[0].clock, clean=True, owner=owners[0])
    log.advance_high_watermark(log.end_offset)
    planned = plan(measure(log, None, 0), 0, 100 * KEY_BYTES)
    with pytest.raises(OtherSegment):
        asyncio.run(clean(log, planned, files, InlineWorkers()))


class ProcessWorkers:
    """Real processes and threads."""

    def __init__(self, pool: ProcessPoolExecutor) -> None:
        self._pool = pool

    def close(self) -> None:
        self._pool.shutdown()

    def in_thread(self, function: Callable[..., T], *args: Any) -> Awaitable[T]:
        return asyncio.to_thread(function, *args)

    def in_process(self, function: Callable[..., T], *args: Any) -> Awaitable[T]:
        return asyncio.get_running_loop().run_in_executor(self._pool, function, *args)


@pytest.mark.process
def test_compaction_in_another_process_over_real_files(tmp_path: Path) -> None:
    path = str(tmp_path / "partition-0")
    topic = CompactedLog(files=OsFiles(), path=path)
    for i in range(20):
        sealed(topic, b"a", b"b", b"only %d" % i)
    planned = plan(measure(topic.log, None, topic.clock.ms), topic.clock.ms, 100 * KEY_BYTES)
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        result = asyncio.run(clean(topic.log, planned, topic.files, ProcessWorkers(pool)))
    assert result is not None
    assert len(result.segments) == 1
    survivors = topic.records()
    assert [record.offset for record in survivors] == [*range(2, 57, 3), 57, 58, 59]
    topic.reopen(clean=False)
    assert topic.records() == survivors


def test_a_key_costs_no_more_memory_than_is_reckoned_with() -> None:
    """The dict grows in steps; the bound holds just behind one, where a key costs most."""
    count = 180_000
    tracemalloc.start()
    try:
        keys = {i.to_bytes(16, "big"): 2**40 + i for i in range(count)}
        assert tracemalloc.get_traced_memory()[1] / len(keys) < KEY_BYTES
    finally:
        tracemalloc.stop()


def test_dirty_logs_are_found_without_waiting_for_a_disk() -> None:
    disk = FaultyDisk(Random(0))
    config = replace(COMPACT, min_compaction_lag_ms=1, max_compaction_lag_ms=1000)
    topic = CompactedLog(config, disk)
    for name in (b"a", b"b"):
        topic.put((name, b"x"))
        topic.log.roll()
    topic.reopen()
    topic.clock.ms += 5000
    disk.evict()
    dirt, waits = None, 0
    while dirt is None:
        try:
            dirt = measure(topic.log, None, topic.clock.ms, cached_only=True)
        except ColdPages as cold:
            waits += 1
            cold.warm()
    assert waits > 1
    assert (dirt.overdue, dirt.end_offset) == (True, 2)


def test_a_log_that_is_no_longer_wanted_is_left_alone() -> None:
    topic = CompactedLog()
    sealed(topic, b"a", b"a")
    planned = plan(measure(topic.log, None, topic.clock.ms), topic.clock.ms, 100 * KEY_BYTES)
    before = topic.records()
    assert asyncio.run(clean(topic.log, planned, topic.files, InlineWorkers(), lambda: False)) is None
    assert topic.records() == before
