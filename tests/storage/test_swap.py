from __future__ import annotations

import contextlib

import pytest

from penstock.ports import Buffer, File
from penstock.records.record import Record
from penstock.storage.cleaner import KEY_BYTES, measure, plan
from penstock.storage.compaction import CompactionResult, compact
from penstock.storage.log import Log
from penstock.storage.memory import Directory, Inode, MemoryFiles
from penstock.storage.swap import CLEANED, finish_interrupted_swaps
from tests.storage.compacted import COMPACT, PATH, CompactedLog, latest


class Crash(BaseException):
    """The process is gone."""


class CrashingFiles(MemoryFiles):
    """Crashes before change number `crash_at`, counted from when it is set; removes trees file by file."""

    def __init__(self) -> None:
        super().__init__()
        self.changes = 0
        self.crash_at: int | None = None

    def crash(self, at: int) -> None:
        self.changes, self.crash_at = 0, at

    def _change(self) -> None:
        if self.crash_at is not None and self.changes >= self.crash_at:
            raise Crash
        self.changes += 1

    def write(self, inode: Inode, data: Buffer, position: int) -> None:
        self._change()
        super().write(inode, data, position)

    def cut(self, inode: Inode, size: int) -> None:
        self._change()
        super().cut(inode, size)

    def open(self, path: str, *, create: bool = False) -> File:
        if create and not self.exists(path):
            self._change()
        return super().open(path, create=create)

    def makedirs(self, path: str) -> None:
        if not self.is_dir(path):
            self._change()
        super().makedirs(path)

    def rename(self, old: str, new: str) -> None:
        self._change()
        super().rename(old, new)

    def remove(self, path: str) -> None:
        self._change()
        super().remove(path)

    def rmtree(self, path: str) -> None:
        for name in self.listdir(path):
            self.remove(f"{path}/{name}")
        self._change()
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


def crash_points() -> int:
    files = CrashingFiles()
    topic, _ = filled(files)
    files.crash(10**9)
    swap(topic)
    return files.changes


POINTS = crash_points()


@pytest.mark.parametrize("again", [None, 1, 4])
@pytest.mark.parametrize("point", range(POINTS))
def test_a_crash_at_any_step_leaves_the_old_log_or_the_new_one(point: int, again: int | None) -> None:
    """`again`: opening crashes too, at its change number `again`."""
    files = CrashingFiles()
    topic, records = filled(files)
    before = topic.records()
    files.crash(point)
    with pytest.raises(Crash):
        swap(topic)
    if again is not None:
        files.crash(again)
        with contextlib.suppress(Crash):
            finish_interrupted_swaps(files, PATH)
    files.crash_at = None
    topic.reopen(clean=False)
    after = topic.records()
    assert after in (before, [record for record in records if record.offset in (1, 4, 5, 7, 8)])
    assert latest(r for r in after if r.value != b"aborted") == latest(records)
    assert topic.log.end_offset == 9
    assert topic.log.aborted_transactions(0, 9) == [(5, 2)]
    assert [name for name in files.listdir(PATH) if files.is_dir(f"{PATH}/{name}")] == []


def test_there_are_crashes_before_and_after_the_decision() -> None:
    outcomes = []
    for point in range(POINTS):
        files = CrashingFiles()
        topic, _ = filled(files)
        before = topic.records()
        files.crash(point)
        with pytest.raises(Crash):
            swap(topic)
        files.crash_at = None
        topic.reopen(clean=False)
        outcomes.append(topic.records() == before)
    decided = outcomes.index(False)
    assert outcomes == [True] * decided + [False] * (POINTS - decided)
    assert 10 < decided < POINTS - 10


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


def test_an_old_transaction_index_does_not_outlive_its_transactions() -> None:
    topic, _ = filled(MemoryFiles())
    topic.log.producers.states.clear()
    swap(topic)
    assert f"{0:020d}.txnindex" in topic.files.listdir(PATH)
    topic.log.roll()
    swap(topic)
    assert f"{0:020d}.txnindex" not in topic.files.listdir(PATH)


def test_who_reads_the_old_segments_may_finish() -> None:
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
    assert isinstance(files.root["data"], Directory)
    assert files.is_dir(f"{PATH}/{CLEANED}")
    Log.open(files, PATH, COMPACT, topic.clock, clean=False)
    assert not files.exists(f"{PATH}/{CLEANED}")
