"""Partition folders name their partition, so that one which was moved by hand is known for what it is."""

from __future__ import annotations

from random import Random

import pytest

from penstock.model.ids import NO_TOPIC_ID, TopicId, TopicPartition, format_topic_id
from penstock.ports import Files
from penstock.storage.checkpoint import format_fields
from penstock.storage.config import LogConfig
from penstock.storage.directory import DataDirectory, StoredPartition
from penstock.storage.folders import Identity, PartitionFolder
from penstock.storage.memory import MemoryFiles
from penstock.testing.disk import FaultyDisk, PowerLoss
from tests.storage.logs import CLOCK, Tokens, batch, flush, records

ID, OTHER = TopicId(b"a" * 16), TopicId(b"b" * 16)
CONFIG = LogConfig()


def opened(files: Files) -> DataDirectory:
    return DataDirectory.open(files, "/data", cluster_id="c", node_id=1, rng=Tokens(), clock=CLOCK)


def written(files: Files, *stored: StoredPartition) -> DataDirectory:
    """Partitions with as many records as their index says, plus one."""
    directory = opened(files)
    directory.create_partitions(stored)
    for topic, index, _ in stored:
        log = directory.open_log(topic, index, CONFIG, CLOCK)
        log.append(batch(index + 1), 0)
        flush(log)
    return directory


def swap(files: Files, one: str, other: str) -> None:
    files.rename(f"/data/topics/{one}", "/data/topics/aside")
    files.rename(f"/data/topics/{other}", f"/data/topics/{one}")
    files.rename("/data/topics/aside", f"/data/topics/{other}")


def test_a_folder_names_its_topic_id_and_its_partition() -> None:
    files = MemoryFiles()
    directory = written(files, StoredPartition("a", 3, ID))
    assert files.read("/data/topics/a/partition-3/partition.metadata") == format_fields(
        f"version: 0\ntopic_id: {format_topic_id(ID)}\npartition: 3\n".encode()
    )
    files.rename("/data/topics/a/partition-3", "/data/topics/a/partition-4")
    assert directory.folders.identified() == [PartitionFolder("a", 4, ID, Identity(ID, 3))]


@pytest.mark.parametrize(
    "content",
    [
        None,
        b"",
        b"\0" * 60,
        b"\xff\xfe",
        b"version: 0\ntopic_id: " + format_topic_id(ID).encode() + b"\n",
        b"version: 0\ntopic_id: " + format_topic_id(ID).encode() + b"\npartition: 1",
        b"version: 1\ntopic_id: " + format_topic_id(ID).encode() + b"\npartition: 1\n",
        b"version: 0\ntopic_id: ?\npartition: 1\n",
        b"version: 0\ntopic_id: " + format_topic_id(ID).encode() + b"\npartition: x\n",
    ],
)
def test_a_folder_with_a_missing_or_damaged_identity_is_unidentified(content: bytes | None) -> None:
    """Release 0.1.0 wrote none; Kafka's own file has no partition; a power loss may tear it."""
    files = MemoryFiles()
    directory = written(files, StoredPartition("a", 3, ID))
    path = "/data/topics/a/partition-3/partition.metadata"
    files.remove(path)
    if content is not None:
        files.write_atomic(path, content)
    assert directory.folders.identified() == [PartitionFolder("a", 3, ID, None)]


def test_identities_of_earlier_releases_have_no_checksum() -> None:
    files = MemoryFiles()
    directory = written(files, StoredPartition("a", 3, ID))
    for partition in (3, 4):
        content = f"version: 0\ntopic_id: {format_topic_id(ID)}\npartition: {partition}\n"
        files.write_atomic("/data/topics/a/partition-3/partition.metadata", content.encode())
        assert directory.folders.identified() == [PartitionFolder("a", 3, ID, Identity(ID, partition))]
    content = f"version: 0\ntopic_id: {format_topic_id(OTHER)}\n"
    files.write_atomic("/data/topics/a/topic.metadata", content.encode())
    assert [found.topic_id for found in directory.partitions()] == [OTHER]
    assert not directory.folders.damaged


def test_a_flipped_bit_makes_no_other_identity() -> None:
    """Without a checksum, the folder would be moved to another partition's place, or set aside."""
    files = MemoryFiles()
    directory = written(files, StoredPartition("a", 3, ID))
    for name, clean in (
        ("partition-3/partition.metadata", PartitionFolder("a", 3, ID, None)),
        ("topic.metadata", PartitionFolder("a", 3, NO_TOPIC_ID, Identity(ID, 3))),
    ):
        path = f"/data/topics/a/{name}"
        content = files.read(path)
        for position in range(len(content)):
            damaged = bytearray(content)
            damaged[position] ^= 1
            files.write_atomic(path, bytes(damaged))
            directory.folders.damaged.clear()
            assert directory.folders.identified() == [clean]
            assert set(directory.folders.damaged) == {path}
        files.write_atomic(path, content)


def test_a_first_flush_makes_the_identity_durable() -> None:
    for seed in range(30):
        disk = FaultyDisk(Random(seed), CLOCK)
        disk.makedirs("/data")
        disk.sync_dir("/")
        written(disk, StoredPartition("a", 1, ID))
        disk.restart()
        assert opened(disk).folders.identified() == [PartitionFolder("a", 1, ID, Identity(ID, 1))]


def _true_places(directory: DataDirectory) -> list[tuple[PartitionFolder, StoredPartition]]:
    names, moves = {ID: "a", OTHER: "b"}, []
    for folder in directory.folders.identified():
        assert folder.identity is not None
        topic_id, index = folder.identity
        if (names[topic_id], index) != folder[:2]:
            moves.append((folder, StoredPartition(names[topic_id], index, topic_id)))
    return moves


def test_swapped_folders_are_put_back_and_are_unclean() -> None:
    files = MemoryFiles()
    stored = [StoredPartition("a", 0, ID), StoredPartition("a", 1, ID), StoredPartition("b", 2, OTHER)]
    written(files, *stored).close()
    swap(files, "a/partition-0", "a/partition-1")
    swap(files, "a/partition-1", "b/partition-2")
    directory = opened(files)
    moves = _true_places(directory)
    assert len(moves) == 3

    assert directory.put_back(moves) == []

    assert directory.partitions() == stored
    assert directory.quarantine.entries() == []
    for topic, index, _ in stored:
        log = directory.open_log(topic, index, CONFIG, CLOCK)
        assert len(records(log)) == index + 1
        assert not log.recovery.clean
        assert "was found at" in directory.shutdown.unclean[TopicPartition(topic, index)]


def test_swapped_topics_get_their_ids_back() -> None:
    files = MemoryFiles()
    stored = [StoredPartition("a", 0, ID), StoredPartition("b", 0, OTHER)]
    written(files, *stored).close()
    swap(files, "a", "b")
    directory = opened(files)
    assert [found.topic_id for found in directory.partitions()] == [OTHER, ID]
    directory.put_back(_true_places(directory))
    assert directory.partitions() == stored


def test_a_folder_whose_place_is_taken_stays_in_the_quarantine() -> None:
    files = MemoryFiles()
    directory = written(files, StoredPartition("a", 0, ID), StoredPartition("a", 1, ID))
    files.write_atomic("/data/topics/a/partition-1/partition.metadata", b"")
    folder = PartitionFolder("a", 0, ID, Identity(ID, 1))
    (entry,) = directory.put_back([(folder, StoredPartition("a", 1, ID))])
    assert directory.quarantine.held(entry) == [0]
    assert directory.partitions() == [StoredPartition("a", 1, ID)]


def test_a_power_loss_while_folders_are_put_back_loses_none() -> None:
    for crash in range(1, 60):
        disk = FaultyDisk(Random(crash), CLOCK)
        disk.makedirs("/data")
        disk.sync_dir("/")
        stored = [StoredPartition("a", 0, ID), StoredPartition("a", 1, ID)]
        written(disk, *stored).close()
        swap(disk, "a/partition-0", "a/partition-1")
        disk.sync_dir("/data/topics/a")
        disk.sync_dir("/data/topics")
        directory = opened(disk)
        disk.crash_at = disk.changes + crash
        try:
            directory.put_back(_true_places(directory))
        except PowerLoss:
            pass
        else:
            disk.power_off()
        disk.restart()
        directory = opened(disk)
        identities = {folder.identity for folder in directory.folders.identified()}
        for entry in directory.quarantine.entries():
            for index in directory.quarantine.held(entry):
                path = f"{directory.quarantine.entry_path(entry.name)}/data/partition-{index}"
                assert disk.exists(f"{path}/00000000000000000000.log")
                identities.add(Identity(ID, 1 - index))
        assert identities == {Identity(ID, 0), Identity(ID, 1)}, crash


def test_a_topic_folder_without_partitions_and_id_is_kept_by_name() -> None:
    files = MemoryFiles()
    directory = written(files, StoredPartition("a", 0, ID))
    files.remove("/data/topics/a/topic.metadata")
    assert directory.folders.identified() == [PartitionFolder("a", 0, NO_TOPIC_ID, Identity(ID, 0))]
    directory.folders.keep_topic("a", ID)
    assert directory.folders.identified() == [PartitionFolder("a", 0, ID, Identity(ID, 0))]
