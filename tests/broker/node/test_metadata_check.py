"""Damaged metadata is found wherever the damage is: every bit of a small log, and of a snapshot."""

from __future__ import annotations

import pytest

from penstock.broker.node.metadata_check import (
    DamagedMetadata,
    Recorded,
    check_metadata,
    check_snapshot,
    parse_snapshot_name,
    snapshot_name,
)
from penstock.broker.node.snapshot_files import encode_snapshot
from penstock.raft.control import leader_change_batch
from penstock.raft.messages import LogPoint, ReplicaKey, Voter
from penstock.raft.voters import VoterSet
from penstock.records.batch import read_header, stamp
from penstock.records.record import Record, build_batch
from penstock.storage.memory import MemoryFiles
from penstock.wire.metadata_records import TopicRecord, encode_metadata_record

PATH = "/data/topics/__cluster_metadata/partition-0"
STARTS = (0, 2, 4)
VOTERS = VoterSet([Voter(ReplicaKey(1, bytes(range(16))))])


def batch(offset: int, epoch: int) -> bytes:
    """The first batch of an epoch, at each offset in `STARTS`, or one with a topic."""
    if offset in STARTS:
        change = leader_change_batch(1, epoch, VOTERS, [1], 1)
        stamp(change, 0, offset, epoch)
        return bytes(change)
    record = TopicRecord(name=f"topic-{offset}", topic_id=bytes([offset]) * 16)
    value = Record(offset, 1, None, encode_metadata_record(record))
    return build_batch([value], base_offset=offset, leader_epoch=epoch)


def disk(*segments: list[tuple[int, int]]) -> MemoryFiles:
    """A log with a batch per (offset, epoch)."""
    files = MemoryFiles()
    files.makedirs(PATH)
    for batches in segments:
        write(files, batches[0][0], b"".join(batch(*each) for each in batches))
    return files


def write(files: MemoryFiles, base: int, content: bytes) -> None:
    files.write_atomic(f"{PATH}/{base:020d}.log", content)


CLEAN = Recorded(durable=5, clean=True)
CRASHED = Recorded(durable=5, clean=False)


@pytest.mark.parametrize("known", [CLEAN, CRASHED])
def test_every_flipped_bit_of_a_durable_log_is_found(known: Recorded) -> None:
    segments = [(0, 1), (1, 1), (2, 2)], [(3, 2), (4, 4)]
    files = disk(*segments)
    check_metadata(files, PATH, known)
    for batches in segments:
        name = f"{PATH}/{batches[0][0]:020d}.log"
        sound = files.read(name)
        for bit in range(8 * len(sound)):
            damaged = bytearray(sound)
            damaged[bit // 8] ^= 1 << bit % 8
            files.write_atomic(name, bytes(damaged))
            with pytest.raises(DamagedMetadata):
                check_metadata(files, PATH, known)
        files.write_atomic(name, sound)


def test_a_torn_batch_above_the_durable_end_is_no_damage() -> None:
    files = disk([(n, 1) for n in range(6)])
    name = f"{PATH}/{0:020d}.log"
    files.write_atomic(name, files.read(name)[:-7])
    check_metadata(files, PATH, CRASHED)
    with pytest.raises(DamagedMetadata, match="ends within a batch"):
        check_metadata(files, PATH, CLEAN)


def test_missing_offsets_are_damage() -> None:
    with pytest.raises(DamagedMetadata, match="offsets below 5 were durable"):
        check_metadata(disk([(0, 1), (1, 1)]), PATH, CRASHED)
    with pytest.raises(DamagedMetadata, match="starts at offset 3"):
        check_metadata(disk([(0, 1), (1, 1)], [(3, 1), (4, 1)]), PATH, CLEAN)
    with pytest.raises(DamagedMetadata, match="offsets 0 to 2 are missing"):
        check_metadata(disk([(3, 1), (4, 1)]), PATH, CLEAN)
    with pytest.raises(DamagedMetadata, match="offsets below 5 were durable"):
        check_metadata(disk(), PATH, CRASHED)
    check_metadata(disk(), PATH, Recorded(0, clean=False))


def test_the_message_names_the_file_the_byte_and_the_offset() -> None:
    files = disk([(0, 1), (1, 1), (2, 1), (3, 1), (4, 1)])
    name = f"{PATH}/{0:020d}.log"
    damaged = bytearray(files.read(name))
    at = len(batch(0, 1)) + 30
    damaged[at] ^= 1
    files.write_atomic(name, bytes(damaged))
    with pytest.raises(DamagedMetadata) as caught:
        check_metadata(files, PATH, CLEAN)
    assert str(caught.value) == (
        f"{name} is damaged at byte {len(batch(0, 1))}, offset 1: the checksum of the batch does not match"
    )


# -- snapshots

POINT = LogPoint(epoch=3, offset=7)


def snapshot() -> bytes:
    records = [TopicRecord(name="orders", topic_id=bytes(15) + b"\x01")]
    return encode_snapshot(records, VOTERS, 1, POINT)


def test_every_flipped_bit_of_a_snapshot_is_found() -> None:
    sound = snapshot()
    check_snapshot(sound, POINT, "s")
    for bit in range(8 * len(sound)):
        damaged = bytearray(sound)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(DamagedMetadata):
            check_snapshot(bytes(damaged), POINT, "s")


def test_a_snapshot_that_is_not_whole_is_found() -> None:
    sound = snapshot()
    for size in range(len(sound)):
        with pytest.raises(DamagedMetadata):
            check_snapshot(sound[:size], POINT, "s")
    with pytest.raises(DamagedMetadata, match="footer"):
        check_snapshot(sound + sound, POINT, "s")


def test_a_snapshot_under_another_name_is_found() -> None:
    with pytest.raises(DamagedMetadata, match="it is the snapshot that ends at"):
        check_snapshot(snapshot(), LogPoint(3, 8), "s")


def test_a_snapshot_of_version_0_1_0_is_read() -> None:
    """Its header does not name its end, and each of its batches starts at offset 0."""
    parts, view, position = [], bytearray(snapshot()), 0
    while position < len(view):
        stamp(view, position, 0, -1)
        size = read_header(view, position).size
        parts.append(bytes(view[position : position + size]))
        position += size
    unnamed = encode_snapshot([], None, 1, LogPoint(-1, -1))
    header = bytearray(unnamed[: read_header(unnamed).size])
    stamp(header, 0, 0, -1)
    old = bytes(header) + b"".join(parts[1:])
    check_snapshot(old, POINT, "s")
    with pytest.raises(DamagedMetadata):
        check_snapshot(old[:-1], POINT, "s")


def test_a_log_must_go_on_from_its_snapshot() -> None:
    files = disk([(7, 3), (8, 3)])
    files.write_atomic(f"{PATH}/{snapshot_name(POINT)}", snapshot())
    check_metadata(files, PATH, Recorded(9, clean=True))
    files.remove(f"{PATH}/{snapshot_name(POINT)}")
    with pytest.raises(DamagedMetadata, match="offsets 0 to 6 are missing"):
        check_metadata(files, PATH, Recorded(9, clean=True))


def test_only_snapshots_are_named_like_snapshots() -> None:
    assert parse_snapshot_name(snapshot_name(POINT)) == POINT
    for name in (
        "00000000000000000007-0000000003.checkpoint.part",
        "7-3.checkpoint",
        "quorum-state",
        "-.log",
    ):
        assert parse_snapshot_name(name) is None
