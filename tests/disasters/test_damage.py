from __future__ import annotations

from pathlib import Path

import pytest

from disasters.contents import records_of
from disasters.damage import (
    append_garbage,
    batches,
    cut_batches,
    cut_tail,
    flip_bit,
    remove_files,
    remove_segment,
    segments,
    set_base_offset,
    set_epoch,
    set_magic,
    swap,
    zero_tail,
)
from penstock.records.batch import NO_EPOCH
from penstock.records.record import Record, build_batch


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    """Three segments of two batches of one record each."""
    folder = tmp_path / "partition-0"
    folder.mkdir()
    for base in (0, 2, 4):
        batches = [_batch(offset) for offset in (base, base + 1)]
        (folder / f"{base:020}.log").write_bytes(b"".join(batches))
        (folder / f"{base:020}.index").write_bytes(bytes(8))
    return folder


def _batch(offset: int) -> bytes:
    batch = bytearray(build_batch([Record(offset, 0, None, f"value {offset}".encode())]))
    batch[12:16] = NO_EPOCH.to_bytes(4, "big", signed=True)
    return bytes(batch)


def test_reads_every_record_of_a_partition(partition: Path) -> None:
    assert records_of(partition) == {offset: f"value {offset}".encode() for offset in range(6)}


def test_reads_nothing_where_there_is_no_folder(tmp_path: Path) -> None:
    assert records_of(tmp_path / "missing") == {}


def test_removes_a_segment_with_its_indexes(partition: Path) -> None:
    remove_segment(segments(partition)[1])
    assert sorted(records_of(partition)) == [0, 1, 4, 5]
    assert len(list(partition.iterdir())) == 4


def test_a_cut_tail_takes_the_last_batch(partition: Path) -> None:
    assert cut_tail(partition, 10) == 10
    assert sorted(records_of(partition)) == [0, 1, 2, 3, 4]


def test_cuts_the_segment_before_an_empty_one(partition: Path) -> None:
    (partition / f"{6:020}.log").touch()
    assert cut_tail(partition, 10) == 10
    assert max(records_of(partition)) == 4


def test_a_zeroed_tail_and_garbage_hide_no_earlier_batch(partition: Path) -> None:
    zero_tail(partition, 10)
    append_garbage(partition, 100)
    assert sorted(records_of(partition)) == [0, 1, 2, 3, 4]


def test_a_flipped_bit_takes_one_batch(partition: Path) -> None:
    first = segments(partition)[0]
    flip_bit(first, first.stat().st_size - 3)
    assert sorted(records_of(partition)) == [0, 2, 3, 4, 5]


def test_flips_one_bit_only(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(bytes(3))
    flip_bit(file, 1)
    assert sum(byte.bit_count() for byte in file.read_bytes()) == 1


def test_swaps_two_folders(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    one.mkdir()
    other.mkdir()
    (one / "a").touch()
    (other / "b").touch()
    swap(one, other)
    assert (one / "b").exists()
    assert (other / "a").exists()
    assert len(list(tmp_path.iterdir())) == 2


def test_changes_the_fields_that_no_checksum_covers(partition: Path) -> None:
    first = segments(partition)[0]
    position, header = batches(first)[1]
    set_epoch(first, position, 7)
    set_base_offset(first, position, 201)
    changed = batches(first)[1][1]
    assert (changed.leader_epoch, changed.base_offset, changed.crc) == (7, 201, header.crc)
    set_magic(first, position, 3)
    assert sorted(records_of(partition)) == [0, 2, 3, 4, 5]


def test_cuts_whole_batches_across_segments(partition: Path) -> None:
    cut_batches(partition, 3)
    assert sorted(records_of(partition)) == [0, 1, 2]
    assert len(segments(partition)) == 2
    with pytest.raises(AssertionError):
        cut_batches(partition, 3)


def test_removes_files_by_pattern(partition: Path) -> None:
    assert remove_files([partition], "*.index", "*.missing") == 3
    assert len(segments(partition)) == 3
