"""Partition folders at a start: unknown, misplaced, without an identity."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

from penstock.broker.replica.stored_partitions import WantedLog, place_logs
from penstock.metadata.image import TopicImage
from penstock.model.ids import TopicId, format_topic_id
from penstock.ports import File
from penstock.storage.checkpoint import format_fields
from penstock.storage.config import LogConfig
from penstock.storage.directory import DataDirectory
from penstock.storage.memory import MemoryFiles
from penstock.testing import broker
from tests.broker.disks import on_disk
from tests.broker.events import Events
from tests.broker.raw import RawClient
from tests.broker.requests import (
    append,
    create_topic,
    delete_before,
    delete_topic,
    read_all,
)
from tests.storage.directories import RNG


def test_files_of_a_topic_that_is_not_known_are_set_aside(tmp_path: Path, events: Events) -> None:
    with broker(data=tmp_path) as running, RawClient(running.bootstrap) as client:
        topic = create_topic(client, partitions=2)
        append(client, topic, b"x")
    shutil.copytree(tmp_path / "topics" / topic.name, tmp_path / "topics" / "stray")
    for metadata in (tmp_path / "topics" / "stray").rglob("*.metadata"):
        lines = metadata.read_text().partition("crc32c")[0]
        other = lines.replace(format_topic_id(topic.id), "another" + 15 * "A")
        metadata.write_bytes(format_fields(other.encode()))
    files = sorted(path.name for path in (tmp_path / "topics" / "stray" / "partition-0").iterdir())

    with broker(data=tmp_path) as running, RawClient(running.bootstrap) as client:
        assert [r.value for r in read_all(client, topic)] == [b"x"]
    assert not (tmp_path / "topics" / "stray").exists()
    (entry,) = (tmp_path / "quarantine").iterdir()
    assert sorted(path.name for path in (entry / "data" / "partition-0").iterdir()) == files
    ((level, fields),) = events.of("partitions_quarantined")
    assert level == "warning"
    assert (fields["topic"], fields["partitions"], fields["path"]) == ("stray", [0, 1], str(entry))


def test_a_partition_that_is_not_assigned_here_is_set_aside(tmp_path: Path) -> None:
    with broker(data=tmp_path) as running, RawClient(running.bootstrap) as client:
        topic = create_topic(client)
        append(client, topic, b"x")
    folder = tmp_path / "topics" / topic.name
    shutil.copytree(folder / "partition-0", folder / "partition-7")

    with broker(data=tmp_path) as running, RawClient(running.bootstrap) as client:
        assert [r.value for r in read_all(client, topic)] == [b"x"]
    assert not (folder / "partition-7").exists()
    (entry,) = (tmp_path / "quarantine").iterdir()
    assert (entry / "data" / "partition-7").is_dir()


def test_a_partition_that_lost_its_topics_id_keeps_its_records(tmp_path: Path) -> None:
    with broker(data=tmp_path) as running, RawClient(running.bootstrap) as client:
        topic = create_topic(client)
        append(client, topic, b"x")
    (tmp_path / "topics" / topic.name / "topic.metadata").unlink()

    with broker(data=tmp_path) as running, RawClient(running.bootstrap) as client:
        assert [r.value for r in read_all(client, topic)] == [b"x"]


def test_damaged_checkpoints_are_reported_and_never_applied(tmp_path: Path, events: Events) -> None:
    """Two partitions: with the identity of the other one, or its epochs, each would be served wrongly."""
    with broker(data=tmp_path) as running, RawClient(running.bootstrap) as client:
        topic = create_topic(client, partitions=2)
        for partition in range(2):
            append(client, topic, b"%d" % partition, partition=partition)
    damaged = [
        *(tmp_path / "topics").rglob("*.metadata"),
        *(tmp_path / "topics").rglob("leader-epoch-checkpoint"),
        *tmp_path.glob("*-offset-checkpoint"),
    ]
    for path in damaged:
        content = bytearray(path.read_bytes())
        # Of an identity that is the partition: before the line with the checksum.
        content[content.find(b"crc32c: ") - 2] ^= 1
        path.write_bytes(content)

    for _ in range(2):
        with broker(data=tmp_path) as running, RawClient(running.bootstrap) as client:
            for partition in range(2):
                found = read_all(client, topic, partition=partition)
                assert [record.value for record in found] == [b"%d" % partition]
    reported = [fields["path"] for level, fields in events.of("checkpoint_damaged") if level == "warning"]
    assert sorted(reported) == sorted(map(str, damaged)), "once each: they are written again"
    assert not (tmp_path / "quarantine").exists()
    assert not events.of("replica_unclean")


class _Unidentified(MemoryFiles):
    """A disk on which no identity of a partition can be written."""

    refuses = False

    def open(self, path: str, *, create: bool = False) -> File:
        if self.refuses and create and path.endswith("partition.metadata"):
            raise OSError(errno.EACCES, os.strerror(errno.EACCES))
        return super().open(path, create=create)


def test_a_folder_whose_identity_cannot_be_written_is_used_and_identified_later(events: Events) -> None:
    files = _Unidentified()
    with on_disk(files) as running, RawClient(running.bootstrap) as client:
        topic = create_topic(client, "t")
        append(client, topic, b"kept")
    identity = "/disk/topics/t/partition-0/partition.metadata"
    files.remove(identity)
    files.refuses = True
    with on_disk(files) as running, RawClient(running.bootstrap) as client:
        assert [r.value for r in read_all(client, topic)] == [b"kept"]
    ((level, fields),) = events.of("partition_not_identified")
    assert (level, fields["topic"], fields["partition"]) == ("warning", "t", 0)
    files.refuses = False
    with on_disk(files):
        pass
    assert files.exists(identity)
    assert len(events.of("partition_not_identified")) == 1


def test_the_log_start_of_a_deleted_topic_does_not_hide_the_records_of_its_successor(tmp_path: Path) -> None:
    starts = tmp_path / "log-start-offset-checkpoint"
    with broker(data=tmp_path) as running, RawClient(running.bootstrap) as client:
        topic = create_topic(client)
        for nth in range(5):
            append(client, topic, b"old %d" % nth)
        assert delete_before(client, topic, 5).low_watermark == 5
    older = starts.read_bytes()
    values = [b"new %d" % nth for nth in range(5)]
    with broker(data=tmp_path) as running, RawClient(running.bootstrap) as client:
        delete_topic(client, topic)
        topic = create_topic(client, topic.name)
        for value in values:
            append(client, topic, value)
    starts.write_bytes(older)

    with broker(data=tmp_path) as running, RawClient(running.bootstrap) as client:
        assert [record.value for record in read_all(client, topic)] == values


def test_a_chosen_directory_that_gets_no_new_replicas_any_more_is_not_used() -> None:
    files = MemoryFiles()
    cordoned, other = (
        DataDirectory.open(files, path, cluster_id="c", node_id=1, rng=RNG) for path in ("/a", "/b")
    )
    topic = TopicImage("t", TopicId(bytes(16)))
    wanted = [WantedLog(topic, index, LogConfig()) for index in range(3)]
    counts, preferred = {other: 7}, {("t", 0): cordoned}
    assert place_logs(counts, wanted, preferred) == {other: wanted}
    assert (counts, preferred) == ({other: 10}, {})
    assert place_logs({cordoned: 9, other: 0}, wanted[:1], {("t", 0): cordoned}) == {cordoned: wanted[:1]}
