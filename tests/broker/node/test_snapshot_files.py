"""Snapshots on disk: they appear under their name only when they are complete."""

from __future__ import annotations

import pytest

from penstock.broker.node.snapshot_files import SnapshotFiles, encode_snapshot
from penstock.model.errors import CorruptMessage
from penstock.raft.messages import Endpoint, LogPoint, ReplicaKey, Voter
from penstock.raft.voters import VoterSet
from penstock.storage.memory import MemoryFiles
from penstock.wire.metadata_records import FeatureLevelRecord, TopicRecord

POINT = LogPoint(2, 7)
RECORDS = [
    FeatureLevelRecord(name="metadata.version", feature_level=25),
    TopicRecord(name="t", topic_id=b"\1" * 16),
]
VOTERS = VoterSet([Voter(ReplicaKey(1, b"\2" * 16), (Endpoint("X", "host", 9),))])


@pytest.fixture
def files() -> MemoryFiles:
    files = MemoryFiles()
    files.makedirs("/log")
    return files


def test_a_stored_snapshot_has_its_records_and_voters(files: MemoryFiles) -> None:
    snapshots = SnapshotFiles(files, "/log")
    snapshots.store(POINT, encode_snapshot(RECORDS, VOTERS, 1, POINT))
    assert SnapshotFiles(files, "/log").found() == [POINT]
    assert list(snapshots.records(POINT)) == RECORDS
    assert snapshots.voters(POINT) == VOTERS


def test_without_voters_the_config_has_them(files: MemoryFiles) -> None:
    snapshots = SnapshotFiles(files, "/log")
    snapshots.store(POINT, encode_snapshot(RECORDS, None, 1, POINT))
    assert snapshots.voters(POINT) is None


def test_a_snapshot_that_is_received_in_parts_appears_when_it_is_complete(files: MemoryFiles) -> None:
    snapshots = SnapshotFiles(files, "/log")
    content = encode_snapshot(RECORDS, VOTERS, 1, POINT)
    snapshots.write_part(POINT, 0, content[:10])
    assert snapshots.found() == []
    snapshots.write_part(POINT, 10, content[10:])
    snapshots.complete(POINT)
    assert snapshots.found() == [POINT]
    assert snapshots.read(POINT, 0, 1 << 20) == (len(content), content)
    assert snapshots.read(POINT, 10, 4) == (len(content), content[10:14])


def test_a_damaged_snapshot_of_the_leader_is_not_installed(files: MemoryFiles) -> None:
    snapshots = SnapshotFiles(files, "/log")
    snapshots.write_part(POINT, 0, encode_snapshot(RECORDS, VOTERS, 1, POINT)[:-1])
    with pytest.raises(CorruptMessage, match="damaged on the way"):
        snapshots.complete(POINT)
    assert snapshots.found() == []


def test_only_older_snapshots_are_removed(files: MemoryFiles) -> None:
    snapshots = SnapshotFiles(files, "/log")
    for offset in (3, 7, 9):
        point = LogPoint(2, offset)
        snapshots.store(point, encode_snapshot(RECORDS, None, 1, point))
    snapshots.remove_before(POINT)
    assert sorted(point.offset for point in snapshots.found()) == [7, 9]


def test_a_missing_snapshot_is_none(files: MemoryFiles) -> None:
    assert SnapshotFiles(files, "/log").read(POINT, 0, 10) is None
