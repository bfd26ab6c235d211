"""DescribeLogDirs and AlterReplicaLogDirs."""

from __future__ import annotations

import errno
from collections.abc import Iterator

import pytest

from penstock.model.errors import ErrorCode
from penstock.wire.apis.alter_replica_log_dirs import (
    ALTER_REPLICA_LOG_DIRS,
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from penstock.wire.apis.describe_log_dirs import (
    DESCRIBE_LOG_DIRS,
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
)
from tests.broker.configs import set_config
from tests.broker.disks import BrokerOnDisk, Disk, Volumes, on_disk
from tests.broker.log_dirs import log_dirs, placement
from tests.broker.raw import RawClient
from tests.broker.requests import (
    Topic,
    append,
    batch_of,
    create_topic,
    every_version,
    fetch,
    produce,
    until,
)

STORAGE = ErrorCode.KAFKA_STORAGE_ERROR


@pytest.fixture
def disks() -> tuple[Disk, Disk]:
    return Disk(), Disk()


@pytest.fixture
def running(disks: tuple[Disk, Disk]) -> Iterator[BrokerOnDisk]:
    """A broker with two disks, `/good` first."""
    good, bad = disks
    with on_disk(
        Volumes(good=good, bad=bad),
        "/good,/bad",
        penstock_flush="group",
        auto_create_topics_enable="false",
    ) as started:
        yield started


@pytest.fixture
def client(running: BrokerOnDisk) -> Iterator[RawClient]:
    with RawClient(running.bootstrap) as connected:
        yield connected


@pytest.fixture
def topic(client: RawClient) -> Topic:
    """A topic of two partitions with a record each."""
    made = create_topic(client, partitions=2)
    for partition in (0, 1):
        append(client, made, b"before", partition=partition)
    return made


@pytest.mark.parametrize("version", every_version(DESCRIBE_LOG_DIRS))
def test_log_dirs_are_described(client: RawClient, topic: Topic, version: int) -> None:
    response = client.call(DESCRIBE_LOG_DIRS, version, DescribeLogDirsRequest(topics=None))

    assert [r.log_dir for r in response.results] == ["/good", "/bad"]
    for result in response.results:
        assert result.error_code == ErrorCode.NONE
        (found,) = [t for t in result.topics if t.name == topic.name]
        (partition,) = found.partitions
        assert partition.partition_size > 0
        assert (partition.offset_lag, partition.is_future_key) == (0, False)
        if version >= 4:
            assert 0 < result.usable_bytes <= result.total_bytes


@pytest.mark.parametrize("version", every_version(DESCRIBE_LOG_DIRS))
def test_only_the_requested_partitions_are_described(client: RawClient, topic: Topic, version: int) -> None:
    create_topic(client)
    requested = [
        DescribableLogDirTopic(topic=topic.name, partitions=[1]),
        DescribableLogDirTopic(topic="no-such-topic", partitions=[0]),
    ]

    response = client.call(DESCRIBE_LOG_DIRS, version, DescribeLogDirsRequest(topics=requested))

    found = [(t.name, p.partition_index) for r in response.results for t in r.topics for p in t.partitions]
    assert found == [(topic.name, 1)]


def test_a_request_without_topics_describes_directories_alone(client: RawClient, topic: Topic) -> None:
    response = client.call(DESCRIBE_LOG_DIRS, 5, DescribeLogDirsRequest(topics=[]))

    assert [(r.log_dir, r.topics) for r in response.results] == [("/good", []), ("/bad", [])]


def test_the_size_of_a_partition_is_that_of_its_segments(client: RawClient, topic: Topic) -> None:
    before = log_dirs(client)
    batch = batch_of([b"x" * 1000])
    produce(client, topic, batch, partition=0)
    after = log_dirs(client)

    grown = [
        p.partition_size - q.partition_size
        for path in before
        for s, t in zip(after[path].topics, before[path].topics, strict=True)
        for p, q in zip(s.partitions, t.partitions, strict=True)
    ]
    assert sorted(grown) == [0, len(batch)]


def wish(client: RawClient, path: str, topic: str, partition: int, version: int = 2) -> ErrorCode:
    """What the broker says to a replica of it in the directory `path`."""
    wanted = AlterReplicaLogDirTopic(name=topic, partitions=[partition])
    request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=path, topics=[wanted])])
    ((result,),) = [r.partitions for r in client.call(ALTER_REPLICA_LOG_DIRS, version, request).results]
    assert result.partition_index == partition
    return ErrorCode(result.error_code)


@pytest.mark.parametrize("version", every_version(ALTER_REPLICA_LOG_DIRS))
def test_a_replica_moves_to_another_directory(client: RawClient, topic: Topic, version: int) -> None:
    where = placement(client, topic)
    assert wish(client, "/good", topic.name, where["/good"], version) is ErrorCode.NONE
    assert placement(client, topic) == where
    assert wish(client, "/bad", topic.name, where["/good"], version) is ErrorCode.NONE
    until(lambda: len(log_dirs(client)["/bad"].topics[0].partitions) == 2)


def test_no_replica_moves_to_a_cordoned_directory(client: RawClient, topic: Topic) -> None:
    where = placement(client, topic)
    set_config(client, 4, "1", "cordoned.log.dirs", "/bad")
    assert wish(client, "/bad", topic.name, where["/good"]) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert wish(client, "/bad", "no-such-topic", 0) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert placement(client, topic) == where


def test_directories_and_replicas_that_are_not_here_are_not_found(client: RawClient, topic: Topic) -> None:
    assert wish(client, "/nowhere", topic.name, 0) is ErrorCode.LOG_DIR_NOT_FOUND
    assert wish(client, "/good", "no-such-topic", 0) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert wish(client, "/good", topic.name, 2) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_no_replica_is_in_a_directory_that_is_offline(
    client: RawClient, topic: Topic, disks: tuple[Disk, Disk]
) -> None:
    where = placement(client, topic)
    # What was appended last is answered from memory.
    append(client, topic, b"after", partition=where["/bad"])
    disks[1].read_error = errno.EIO
    assert fetch(client, topic, 0, partition=where["/bad"]).error_code == STORAGE
    assert wish(client, "/bad", topic.name, where["/bad"]) is STORAGE
    assert wish(client, "/good", topic.name, where["/bad"]) is STORAGE
