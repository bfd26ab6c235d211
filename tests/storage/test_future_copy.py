from __future__ import annotations

from errno import EIO, ENOSPC
from random import Random

import pytest

from penstock.model.ids import TopicId
from penstock.storage.folders import StoredPartition
from penstock.storage.future_copy import CopyFailed, FutureCopy, SourceFailed
from penstock.testing.disk import FaultyDisk
from tests.storage.logs import StillClock

SOURCE = "/a/topics/t/partition-0"
STORED = StoredPartition("t", 0, TopicId(bytes(15) + b"\1"))
COPY = "/b/future/AAAAAAAAAAAAAAAAAAAAAQ/partition-0"
NOW_MS = 1_700_000_000_000


class Source:
    """A folder that a test changes, and its copy."""

    def __init__(self) -> None:
        self.clock = StillClock(NOW_MS)
        self.disk = FaultyDisk(Random(0), self.clock)
        self.disk.makedirs(SOURCE)
        self.put("partition.metadata", b"identity")
        self.copy = FutureCopy(self.disk, SOURCE, "/b", STORED)
        self.copy.begin()

    def put(self, name: str, data: bytes) -> None:
        self.disk.write_atomic(f"{SOURCE}/{name}", data)

    def grow(self, name: str, data: bytes) -> None:
        file = self.disk.open(f"{SOURCE}/{name}", create=True)
        file.append(data)
        file.close()

    def copied(self, active: int | None = None, *, settled: bool = False) -> int:
        """The bytes that one pass copies."""
        return sum(self.copy.copy(self.clock.ms, 3, active, settled))

    def files(self) -> dict[str, bytes]:
        return {name: self.disk.read(f"{COPY}/{name}") for name in self.disk.listdir(COPY)}


def name(offset: int, suffix: str = ".log") -> str:
    return f"{offset:020d}{suffix}"


@pytest.fixture
def source() -> Source:
    return Source()


def test_a_pass_copies_all_files_but_the_last_segment(source: Source) -> None:
    source.put(name(0), b"0123456789")
    source.put(name(0, ".index"), b"index")
    source.put(name(7), b"grows")
    source.put("leader-epoch-checkpoint", b"epochs")
    source.put(name(0, ".log.deleted"), b"gone in a moment")
    source.disk.makedirs(f"{SOURCE}/cleaned")
    assert source.copied(active=7) == 21
    expected = {
        "partition.metadata": b"identity",
        name(0): b"0123456789",
        name(0, ".index"): b"index",
        "leader-epoch-checkpoint": b"epochs",
    }
    assert source.files() == expected
    assert (source.copy.size, source.copy.end_offset) == (21, 7)
    with pytest.raises(CopyFailed, match="does not have the files of"):
        source.copy.check_complete()
    source.copied(settled=True)
    source.copy.check_complete()
    assert source.files() == {**expected, name(7): b"grows"}


def test_a_file_that_has_changed_is_copied_again_and_one_that_is_gone_is_removed(source: Source) -> None:
    for offset in (0, 5, 9):
        source.put(name(offset), b"old")
    source.clock.ms += 10_000
    source.copied()
    source.disk.remove(f"{SOURCE}/{name(5)}")
    source.put(name(9), b"new")
    source.grow(name(0), b"er")
    assert source.copied() == 8
    assert source.files() == {"partition.metadata": b"identity", name(0): b"older", name(9): b"new"}
    assert source.copy.size == 8


def test_a_file_that_was_young_when_it_was_copied_is_copied_again_unless_nothing_rewrites_files(
    source: Source,
) -> None:
    source.put(name(0), b"old")
    source.copied()
    # In the same millisecond, with the same size: nothing tells the two apart.
    source.put(name(0), b"new")
    assert source.copied(settled=True) == 0
    assert source.copied() == 3
    assert source.files()[name(0)] == b"new"
    source.clock.ms += 10_000
    assert source.copied() == 3
    assert source.copied() == 0


def test_the_copy_is_on_the_disk_after_each_pass(source: Source) -> None:
    source.put(name(0), b"0123456789")
    source.copied()
    source.disk.restart()
    assert source.files() == {"partition.metadata": b"identity", name(0): b"0123456789"}


def test_a_copy_with_other_bytes_than_the_source_is_refused(source: Source) -> None:
    source.put(name(0), b"0123456789")
    steps = source.copy.copy(source.clock.ms, 100, None, False)
    assert next(steps) == 10
    source.disk.flip_bit(f"{COPY}/{name(0)}", 3, 0)
    with pytest.raises(CopyFailed, match="does not have the bytes that were written"):
        list(steps)
    assert source.copy.size == 0


def test_errors_name_the_side_that_has_failed(source: Source) -> None:
    source.put(name(0), b"0123456789")
    source.disk.capacity = source.disk.used()
    with pytest.raises(CopyFailed, match=f"cannot write {COPY}.*{ENOSPC}|No space"):
        source.copied()
    source.disk.capacity = None
    source.disk.read_error = EIO
    with pytest.raises(SourceFailed, match=f"cannot read {SOURCE}"):
        source.copied()
    source.disk.read_error = None
    source.disk.sync_error = EIO
    with pytest.raises(CopyFailed, match=f"cannot sync {COPY}"):
        source.copied()


def test_a_new_copy_starts_empty_and_a_discarded_one_is_gone(source: Source) -> None:
    source.put(name(0), b"0123456789")
    source.copied()
    again = FutureCopy(source.disk, SOURCE, "/b", STORED)
    again.begin()
    assert source.files() == {"partition.metadata": b"identity"}
    assert again.missing_bytes() == 10
    again.discard()
    assert source.disk.listdir(COPY.rpartition("/")[0]) == []
    assert source.disk.read(f"{SOURCE}/{name(0)}") == b"0123456789"
    again.discard()


def test_a_source_that_is_cut_while_it_is_copied_is_copied_again(source: Source) -> None:
    source.put(name(0), b"0123456789")
    steps = source.copy.copy(source.clock.ms, 3, None, False)
    assert next(steps) == 3
    file = source.disk.open(f"{SOURCE}/{name(0)}")
    file.truncate(4)
    file.close()
    list(steps)
    assert source.copied(settled=True) == 4
    assert source.files()[name(0)] == b"0123"
    source.copy.check_complete()


def test_a_small_file_of_the_whole_log_is_always_copied_again(source: Source) -> None:
    source.put("leader-epoch-checkpoint", b"1 10")
    source.copied()
    source.put("leader-epoch-checkpoint", b"1 20")
    source.copied(settled=True)
    assert source.files()["leader-epoch-checkpoint"] == b"1 20"


def test_a_segment_that_a_truncation_has_made_the_last_one_is_copied_again(source: Source) -> None:
    source.put(name(0), b"first")
    source.put(name(5), b"cut")
    source.copied()
    # In the same millisecond, with the same size.
    source.put(name(5), b"new")
    source.copied(active=5)
    assert name(5) not in source.files()
    source.copied(settled=True)
    assert source.files()[name(5)] == b"new"
    source.copy.check_complete()
