"""A damaged segment made anew: its own sound bytes, what another has between them, and its indexes."""

from __future__ import annotations

from itertools import count
from random import Random

import pytest

from penstock.records.record import iter_batches
from penstock.storage.compacted_repair import SegmentRewrite
from penstock.storage.log import Log
from penstock.storage.memory import MemoryFiles
from penstock.storage.segment_files import LOG
from penstock.testing.disk import FaultyDisk, PowerLoss
from tests.storage.compacted import CompactedLog
from tests.storage.logs import flush

VALUES = [b"%d" % i * 100 for i in range(8)]


def sealed(files: MemoryFiles | None = None) -> CompactedLog:
    """A segment with a batch per value, an aborted transaction behind them, and one more segment."""
    topic = CompactedLog(files=files)
    for i, value in enumerate(VALUES):
        topic.put((b"k%d" % i, value))
    topic.put((b"aborted", b"x"), producer_id=5, sequence=0, transactional=True)
    topic.end(5, committed=False)
    topic.log.roll()
    topic.put((b"last", b"1"))
    flush(topic.log)
    return topic


def content(log: Log) -> bytes:
    segment = log.segments.first
    return segment.open_file().pread(segment.size, 0)


def positions(log: Log) -> list[int]:
    return [position for position, _ in iter_batches(content(log))]


def renew(topic: CompactedLog, *damages: tuple[int, int, bytes]) -> None:
    """Have (position, end, what belongs there) of the first segment made sound."""
    log, segment, position = topic.log, topic.log.segments.first, 0
    rewrite = SegmentRewrite(topic.files, topic.path, segment)
    for start, end, batches in damages:
        rewrite.keep(position, start)
        mark = rewrite.size
        rewrite.add(b"what a replica gave before it failed")
        rewrite.rewind(mark)
        rewrite.add(batches)
        position = end
    rewrite.keep(position, segment.size)
    rewrite.finish(index_interval_bytes=100, now_ms=topic.clock.ms, next_offset=topic.log.end_offset)
    swap = log.swap([segment.base_offset])
    swap.commit()
    log.replace_segments(swap, [segment.base_offset], [(segment.base_offset, rewrite.size)])
    swap.finish()


@pytest.mark.parametrize("reopened", [False, True])
def test_all_ranges_are_replaced_and_the_rest_stays(reopened: bool) -> None:
    topic = sealed()
    at, healthy = positions(topic.log), content(topic.log)
    aborted = topic.log.aborted_transactions(0, topic.log.end_offset)
    file = topic.log.segments.first.open_file()
    file.pwrite(b"rot", at[1] + 70)
    file.pwrite(b"rot", at[4] + 70)
    # Of the first range another has all, of the second it has let go of a batch.
    renew(topic, (at[1], at[3], healthy[at[1] : at[3]]), (at[4], at[6], healthy[at[5] : at[6]]))
    if reopened:
        topic.reopen()
    assert content(topic.log) == healthy[: at[4]] + healthy[at[5] :]
    assert topic.log.segments.first.is_compacted
    assert [r.value for r in topic.records() if r.key != b"aborted"] == [*VALUES[:4], *VALUES[5:], b"1"]
    assert topic.log.aborted_transactions(0, topic.log.end_offset) == aborted
    for offset in (0, 4, 7):
        found = topic.log.read(offset, 1, upper=topic.log.end_offset)
        assert found is not None
        assert next(iter_batches(found.read()))[1].base_offset == (5 if offset == 4 else offset)


def test_nothing_may_be_left_of_a_segment() -> None:
    topic = sealed()
    renew(topic, (0, topic.log.segments.first.size, b""))
    topic.reopen()
    assert [r.value for r in topic.records()] == [b"1"]


@pytest.mark.parametrize("seed", range(3))
def test_a_power_loss_leaves_the_old_segment_or_the_new_one(seed: int) -> None:
    is_new = []
    for change in count(1):
        disk = FaultyDisk(Random(seed))
        topic = sealed(disk)
        at, healthy = positions(topic.log), content(topic.log)
        disk.flip_bit(topic.log.segments.first.path(LOG), at[2] + 70, 0)
        rotten = content(topic.log)
        disk.crash_at = disk.changes + change
        try:
            renew(topic, (at[2], at[3], healthy[at[2] : at[3]]))
        except PowerLoss:
            disk.restart()
        else:
            break
        topic.reopen(clean=False)
        assert content(topic.log) in (rotten, healthy)
        is_new.append(content(topic.log) == healthy)
    assert is_new == sorted(is_new)
    assert {*is_new} == {False, True}
