"""Moves of replicas between the data directories of a running broker (KIP-113)."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from penstock.model.errors import ErrorCode
from penstock.storage.folders import StoredPartition
from penstock.storage.future_copy import future_path
from penstock.wire.apis.alter_replica_log_dirs import (
    ALTER_REPLICA_LOG_DIRS,
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from penstock.wire.apis.describe_log_dirs import DescribeLogDirsResult
from tests.broker.configs import set_config
from tests.broker.disks import BrokerOnDisk, Disk, Volumes, on_disk
from tests.broker.log_dirs import log_dirs
from tests.broker.raw import RawClient
from tests.broker.requests import (
    Topic,
    append,
    batch_of,
    create_topic,
    delete_topic,
    new_producer_id,
    produce,
    read_all,
    until,
)

THROTTLE = "replica.alter.log.dirs.io.max.bytes.per.second"
BROKER = 4
LARGE = b"x" * 700_000


@pytest.fixture
def disks() -> tuple[Disk, Disk]:
    return Disk(), Disk()


@pytest.fixture
def running(disks: tuple[Disk, Disk]) -> Iterator[BrokerOnDisk]:
    with broker(disks) as started:
        yield started


@contextmanager
def broker(disks: tuple[Disk, Disk]) -> Iterator[BrokerOnDisk]:
    a, b = disks
    with on_disk(Volumes(a=a, b=b), "/a,/b", penstock_flush="group") as started:
        yield started


@pytest.fixture
def client(running: BrokerOnDisk) -> Iterator[RawClient]:
    with RawClient(running.bootstrap) as connected:
        yield connected


def move(client: RawClient, path: str, topic: Topic, partition: int = 0) -> ErrorCode:
    wanted = AlterReplicaLogDirTopic(name=topic.name, partitions=[partition])
    request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=path, topics=[wanted])])
    ((result,),) = [r.partitions for r in client.call(ALTER_REPLICA_LOG_DIRS, 2, request).results]
    return ErrorCode(result.error_code)


def places(client: RawClient, topic: Topic) -> dict[str, bool]:
    """The directories that have partition 0, and whether it is a future replica there."""
    return {
        path: partition.is_future_key
        for path, result in log_dirs(client).items()
        for each in result.topics
        if each.name == topic.name
        for partition in each.partitions
        if partition.partition_index == 0
    }


def elsewhere(client: RawClient, topic: Topic) -> str:
    """The directory that does not have partition 0."""
    return "/b" if places(client, topic) == {"/a": False} else "/a"


def hold(client: RawClient) -> None:
    """Have moves copy a byte per second behind their first slice, so that they do not end."""
    set_config(client, BROKER, "", THROTTLE, "1")


def release(client: RawClient) -> None:
    set_config(client, BROKER, "", THROTTLE, str(1 << 40))


def of_two_segments(client: RawClient) -> Topic:
    """A topic whose moves can be held: the last segment is copied at once."""
    topic = create_topic(client, configs={"segment.bytes": str(1 << 20)})
    for _ in range(2):
        append(client, topic, LARGE)
    return topic


def append_soon(client: RawClient, topic: Topic, batch: bytes) -> int:
    """Append as a producer does: with retries while the replica is out of service."""
    while True:
        answer = produce(client, topic, batch)
        if answer.error_code == ErrorCode.NONE:
            return answer.base_offset
        assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def values(client: RawClient, topic: Topic) -> list[bytes | None]:
    return [record.value for record in read_all(client, topic)]


def test_a_replica_moves_while_it_is_written_to(client: RawClient, disks: tuple[Disk, Disk]) -> None:
    topic = create_topic(client)
    sent = [b"%d" % number for number in range(10)]
    append(client, topic, *sent)
    target = elsewhere(client, topic)
    assert move(client, target, topic) is ErrorCode.NONE
    while places(client, topic) != {target: False}:
        value = b"%d" % len(sent)
        assert append_soon(client, topic, batch_of([value])) == len(sent)
        sent.append(value)
    append_soon(client, topic, batch_of([b"last"]))
    assert values(client, topic) == [*sent, b"last"]
    number, source = (0, "/a") if target == "/b" else (1, "/b")
    assert not disks[number].exists(f"{source}/topics/{topic.name}/partition-0")


def test_segments_are_moved_with_everything_beside_them(client: RawClient) -> None:
    topic = create_topic(client, configs={"segment.bytes": "1048576", "retention.ms": "-1"})
    for number in range(6):
        append(client, topic, b"%d" % number * 700_000)
    before = log_dirs(client)
    target = elsewhere(client, topic)
    move(client, target, topic)
    until(lambda: places(client, topic) == {target: False})
    assert [len(value or b"") for value in values(client, topic)] == [700_000] * 6
    assert _size(log_dirs(client), topic) == _size(before, topic)


def _size(found: dict[str, DescribeLogDirsResult], topic: Topic) -> int:
    return sum(
        partition.partition_size
        for result in found.values()
        for each in result.topics
        if each.name == topic.name
        for partition in each.partitions
    )


def test_a_producer_goes_on_without_duplicates_and_gaps(client: RawClient) -> None:
    topic, producer = create_topic(client), new_producer_id(client)

    def batch(sequence: int) -> bytes:
        return batch_of([b"%d" % sequence], producer_id=producer, producer_epoch=0, base_sequence=sequence)

    for sequence in range(3):
        produce(client, topic, batch(sequence))
    target = elsewhere(client, topic)
    move(client, target, topic)
    until(lambda: places(client, topic) == {target: False})
    assert append_soon(client, topic, batch(2)) == 2
    assert append_soon(client, topic, batch(3)) == 3
    assert values(client, topic) == [b"0", b"1", b"2", b"3"]


def test_a_future_replica_is_described_with_its_lag(client: RawClient) -> None:
    hold(client)
    topic = of_two_segments(client)
    source, target = next(iter(places(client, topic))), elsewhere(client, topic)
    assert move(client, target, topic) is ErrorCode.NONE
    assert places(client, topic) == {source: False, target: True}
    (future,) = [
        partition
        for each in log_dirs(client)[target].topics
        if each.name == topic.name
        for partition in each.partitions
    ]
    assert future.offset_lag == 2
    assert move(client, target, topic) is ErrorCode.NONE
    release(client)
    until(lambda: places(client, topic) == {target: False})


@pytest.mark.parametrize("how", ["another move", "deletion"])
def test_a_move_is_cancelled(client: RawClient, disks: tuple[Disk, Disk], how: str) -> None:
    hold(client)
    topic = of_two_segments(client)
    source, target = next(iter(places(client, topic))), elsewhere(client, topic)
    move(client, target, topic)
    copy = future_path(target, StoredPartition(topic.name, 0, topic.id))
    disk = disks[target == "/b"]
    assert disk.is_dir(copy)
    if how == "deletion":
        delete_topic(client, topic)
        until(lambda: not places(client, topic))
    else:
        assert move(client, source, topic) is ErrorCode.NONE
        assert places(client, topic) == {source: False}
        assert values(client, topic) == [LARGE, LARGE]
    until(lambda: not disk.is_dir(copy))


@pytest.mark.parametrize("power_loss", [False, True])
def test_a_move_goes_on_after_a_restart(disks: tuple[Disk, Disk], power_loss: bool) -> None:
    with broker(disks) as running, RawClient(running.bootstrap) as client:
        hold(client)
        topic = of_two_segments(client)
        source, target = next(iter(places(client, topic))), elsewhere(client, topic)
        move(client, target, topic)
    if power_loss:
        for disk in disks:
            disk.restart()
    with broker(disks) as running, RawClient(running.bootstrap) as client:
        assert places(client, topic) == {source: False, target: True}
        release(client)
        until(lambda: places(client, topic) == {target: False})
        assert values(client, topic) == [LARGE, LARGE]


def test_a_directory_without_room_ends_the_move(client: RawClient, disks: tuple[Disk, Disk]) -> None:
    topic = create_topic(client)
    append(client, topic, b"x" * 100_000)
    source, target = next(iter(places(client, topic))), elsewhere(client, topic)
    disk = disks[target == "/b"]
    disk.capacity = disk.used() + 50_000
    assert move(client, target, topic) is ErrorCode.NONE
    until(lambda: places(client, topic) == {source: False})
    until(lambda: not disk.is_dir(future_path(target, StoredPartition(topic.name, 0, topic.id))))
    assert log_dirs(client)[target].error_code == ErrorCode.NONE
    append(client, topic, b"y")
    assert values(client, topic) == [b"x" * 100_000, b"y"]


def test_a_disk_that_fails_leaves_the_replica_where_it_is(
    client: RawClient, disks: tuple[Disk, Disk]
) -> None:
    hold(client)
    topic = of_two_segments(client)
    source, target = next(iter(places(client, topic))), elsewhere(client, topic)
    move(client, target, topic)
    disks[target == "/b"].sync_error = errno.EIO
    release(client)
    until(lambda: target not in places(client, topic))
    assert append_soon(client, topic, batch_of([b"y"])) == 2
    assert places(client, topic) == {source: False}
    assert values(client, topic) == [LARGE, LARGE, b"y"]


def test_a_replica_that_is_yet_to_come_gets_the_directory(client: RawClient) -> None:
    topics = [create_topic(client) for _ in range(3)]
    for number, topic in enumerate(topics):
        unknown = Topic(f"later-{number}", topic.id)
        assert move(client, "/b", unknown) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    later = [create_topic(client, name=f"later-{number}") for number in range(3)]
    assert [places(client, topic) for topic in later] == [{"/b": False}] * 3
