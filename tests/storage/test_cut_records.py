"""Committed records behind bytes that were never written: recovery cuts them off, and keeps their bytes."""

from __future__ import annotations

import errno

import pytest

from penstock.model.errors import StorageError
from penstock.model.ids import TopicId
from penstock.ports import Buffer
from penstock.storage.config import LogConfig
from penstock.storage.cut_records import CUT
from penstock.storage.directory import DataDirectory, StoredPartition
from penstock.storage.log import Log
from penstock.storage.memory import Inode, MemoryFiles
from penstock.storage.segment_files import LOG, file_name
from tests.storage.logs import CLOCK, PATH, Tokens, idempotent, open_log, records

SEGMENT_BYTES = 8000


def written(files: MemoryFiles) -> Log:
    """Batches of about 1700 bytes, four in a segment, none of them known to be on the disk."""
    log = open_log(files, segment_bytes=SEGMENT_BYTES)
    append(log, 9)
    assert [segment.base_offset for segment in log.segments] == [0, 4, 8]
    return log


def append(log: Log, count: int) -> None:
    for i in range(count):
        log.append(idempotent(i, 1, value=bytes(range(1, 201)) * 8 + b"%d" % i), 0)


def zero(files: MemoryFiles, log: Log, offset: int) -> None:
    """Make a sector within the batch at `offset` one that was never written."""
    segment = log.segments.holding(offset)
    files.open(segment.path(LOG)).pwrite(bytes(512), segment.find(offset) // 512 * 512 + 512)


def recovered(files: MemoryFiles, high_watermark: int) -> Log:
    return open_log(files, segment_bytes=SEGMENT_BYTES, high_watermark=high_watermark)


def kept(files: MemoryFiles) -> list[str]:
    return [name for name in files.listdir(PATH) if CUT in name]


def cut(offset: int, number: int = 1) -> str:
    return f"{file_name(offset)}{LOG}{CUT}.{number}"


def test_committed_batches_behind_a_hole_are_kept_and_can_be_read() -> None:
    files = MemoryFiles()
    log = written(files)
    zero(files, log, 1)
    again = recovered(files, 9)
    assert (again.end_offset, again.recovery.corruption) == (1, [])
    assert kept(files) == [cut(2), cut(4), cut(8)]
    assert again.recovery.kept == [f"{PATH}/{name}" for name in kept(files)]
    other = MemoryFiles()
    other.makedirs(PATH)
    for name in kept(files):
        other.write_atomic(f"{PATH}/{name.partition(CUT)[0]}", files.read(f"{PATH}/{name}"))
    assert [record.offset for record in records(open_log(other))] == [*range(2, 9)]


def test_the_log_goes_on_beside_the_kept_files_and_later_ones_replace_none() -> None:
    files = MemoryFiles()
    zero(files, written(files), 1)
    log = recovered(files, 9)
    for offset in range(1, 4):
        log.append(idempotent(offset, 1, value=bytes(range(1, 201)) * 8), 0)
    assert [record.offset for record in records(log)] == [0, 1, 2, 3]
    zero(files, log, 1)
    again = recovered(files, 4)
    assert again.end_offset == 1
    assert kept(files) == [cut(2), cut(2, 2), cut(4), cut(8)]
    assert recovered(files, 4).recovery.kept == []


@pytest.mark.parametrize(
    ("high_watermark", "names"),
    [
        pytest.param(0, [], id="nothing recorded"),
        pytest.param(1, [], id="the hole is above"),
        pytest.param(2, [], id="nothing behind the hole is committed"),
        pytest.param(3, [cut(2)], id="in the same segment"),
        pytest.param(5, [cut(2), cut(4)], id="in the next segment"),
    ],
)
def test_only_committed_records_are_kept(high_watermark: int, names: list[str]) -> None:
    files = MemoryFiles()
    log = written(files)
    zero(files, log, 1)
    again = recovered(files, high_watermark)
    assert (again.end_offset, kept(files)) == (1, names)
    assert [segment.base_offset for segment in again.segments] == [0]


def test_a_torn_tail_has_nothing_to_keep() -> None:
    files = MemoryFiles()
    log = written(files)
    segment = log.segments.active
    files.open(segment.path(LOG)).truncate(segment.size - 1)
    assert (recovered(files, 9).end_offset, kept(files)) == (8, [])


class FullDisk(MemoryFiles):
    """A disk without space for new bytes from some moment on."""

    is_full = False

    def write(self, inode: Inode, data: Buffer, position: int) -> None:
        if self.is_full:
            raise OSError(errno.ENOSPC, "No space left on device")
        super().write(inode, data, position)


def test_without_space_for_the_copy_nothing_is_cut() -> None:
    files = FullDisk()
    log = written(files)
    zero(files, log, 1)
    before = files.size(f"{PATH}/{file_name(0)}{LOG}")
    files.is_full = True
    with pytest.raises(StorageError):
        recovered(files, 9)
    assert files.size(f"{PATH}/{file_name(0)}{LOG}") == before
    assert kept(files) == []
    files.is_full = False
    assert recovered(files, 9).recovery.kept


def test_the_checkpointed_high_watermark_counts() -> None:
    files = MemoryFiles()
    config = LogConfig(segment_bytes=SEGMENT_BYTES)
    directory = DataDirectory.open(files, "/data", cluster_id="c", node_id=1, rng=Tokens())
    directory.create_partitions([StoredPartition("t", 0, TopicId(bytes(16)))])
    log = directory.open_log("t", 0, config, CLOCK)
    append(log, 4)
    log.advance_high_watermark(4)
    directory.keep_high_watermark("t", 0)
    checkpoint = directory.checkpoint_high_watermarks()
    assert checkpoint is not None
    checkpoint.write()
    directory.close(clean=False)
    zero(files, log, 1)
    directory = DataDirectory.open(files, "/data", cluster_id="c", node_id=1, rng=Tokens())
    again = directory.open_log("t", 0, config, CLOCK)
    assert (again.end_offset, again.high_watermark) == (1, 1)
    assert kept(files) == [cut(2)]
