"""Files of others in a data directory: they are left alone, and harm at most the partition they are in."""

from __future__ import annotations

import asyncio
import errno
import os
from pathlib import Path

import pytest

from penstock.broker.base.system_ports import OsFiles
from penstock.model.errors import ErrorCode
from penstock.testing import broker
from tests.broker.disks import BrokerOnDisk, Disk, on_disk
from tests.broker.events import Events
from tests.broker.raw import RawClient
from tests.broker.requests import Topic, append, create_topic, fetch, read_all


def two_topics(data: Path) -> tuple[Topic, Topic]:
    with broker(data=data) as running, RawClient(running.bootstrap) as client:
        topics = create_topic(client, "a", partitions=2), create_topic(client, "b")
        append(client, topics[0], b"a0")
        append(client, topics[0], b"a1", partition=1)
        append(client, topics[1], b"b0")
    return topics


def complete(client: RawClient, topics: tuple[Topic, Topic]) -> bool:
    a, b = topics
    found = [read_all(client, a), read_all(client, a, partition=1), read_all(client, b)]
    return [[r.value for r in records] for records in found] == [[b"a0"], [b"a1"], [b"b0"]]


def reopen(running: BrokerOnDisk) -> None:
    """Have the broker try its refused partitions now."""
    asyncio.run_coroutine_threadsafe(running.broker.stages.storage.partitions.reopen(), running._loop).result(
        60
    )


FOREIGN = [
    ".DS_Store",
    "lost+found/",
    "Ünïcode/partition-0/",
    "not a topic!/",
    "a/.DS_Store",
    "a/partition-x/",
    "a/partition-01/",
    "a/partition-99999999999/",
    "a/partition-\u0663/",
    "a/notes.txt",
]


def test_foreign_files_among_topics_are_ignored_with_one_line(tmp_path: Path, events: Events) -> None:
    topics = two_topics(tmp_path)
    for name in FOREIGN:
        path = tmp_path / "topics" / name
        if name.endswith("/"):
            path.mkdir(parents=True)
        else:
            path.write_bytes(b"?")
    (tmp_path / "topics" / "dangling").symlink_to(tmp_path / "nowhere")

    with broker(data=tmp_path) as running, RawClient(running.bootstrap) as client:
        assert complete(client, topics)
    ((level, fields),) = events.of("foreign_files_ignored")
    # An empty folder with a topic's name is one without partitions; "lost+found" and the others are no names.
    assert (level, fields["count"]) == ("warning", len(FOREIGN) + 1)
    assert all((tmp_path / "topics" / name).exists() for name in FOREIGN)
    assert not (tmp_path / "quarantine").exists()
    assert not events.of("replica_unclean")


@pytest.mark.parametrize(
    "name",
    ["99.log", "x.log", "99.index", "x.snapshot", "backup.timeindex", "x.log.deleted", "９" * 20 + ".log"],
)
def test_foreign_files_in_a_partition_are_ignored_with_one_line(
    tmp_path: Path, events: Events, name: str
) -> None:
    topics = two_topics(tmp_path)
    path = tmp_path / "topics" / "a" / "partition-0" / name
    path.write_bytes(b"?")
    with broker(data=tmp_path) as running, RawClient(running.bootstrap) as client:
        assert complete(client, topics)
    ((_, fields),) = events.of("foreign_files_ignored")
    assert fields["names"] == [name]
    assert path.read_bytes() == b"?"
    assert not events.of("replica_unclean")


@pytest.mark.parametrize("kind", ["dangling", "loop", "file"])
def test_a_foreign_entry_in_place_of_a_folder_takes_one_partition_offline(
    tmp_path: Path, events: Events, kind: str
) -> None:
    topics = two_topics(tmp_path)
    place = tmp_path / "topics" / "a" / "partition-1"
    place.rename(tmp_path / "elsewhere")
    if kind == "file":
        place.write_bytes(b"?")
    else:
        place.symlink_to(place if kind == "loop" else tmp_path / "nowhere")

    with on_disk(OsFiles(), str(tmp_path)) as running, RawClient(running.bootstrap) as client:
        assert [r.value for r in read_all(client, topics[0])] == [b"a0"]
        assert append(client, topics[1], b"b1") == 1
        assert fetch(client, topics[0], 0, partition=1).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        for _ in range(3):
            reopen(running)
        assert len(events.of("partition_offline")) == 1
        assert [fields["partition"] for _, fields in events.of("replica_unclean")] == [1]

        place.unlink()
        (tmp_path / "elsewhere").rename(place)
        reopen(running)
        assert [r.value for r in read_all(client, topics[0], partition=1)] == [b"a1"]


def test_a_partition_that_may_not_be_read_is_offline_alone(events: Events) -> None:
    class Forbidding(Disk):
        forbidden = "nothing"

        def listdir(self, path: str) -> list[str]:
            if path.endswith(self.forbidden):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
            return super().listdir(path)

    disk = Forbidding()
    with on_disk(disk) as running, RawClient(running.bootstrap) as client:
        topic = create_topic(client, "a", partitions=2)
        append(client, topic, b"a0")
        append(client, topic, b"a1", partition=1)
    disk.forbidden = "/a/partition-1"
    with on_disk(disk) as running, RawClient(running.bootstrap) as client:
        assert [r.value for r in read_all(client, topic)] == [b"a0"]
        assert fetch(client, topic, 0, partition=1).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert len(events.of("partition_offline")) == 1
