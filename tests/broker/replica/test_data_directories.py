"""Disks that are full, fail, or are several."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import AbstractContextManager

import pytest

from penstock.model.errors import ErrorCode, StorageError
from penstock.ports import Files
from penstock.storage.ownership import DirectoryRefused
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
    DescribeLogDirsResult,
)
from penstock.wire.apis.fetch import FETCH
from tests.broker.disks import BrokerOnDisk, Disk, Volumes, on_disk
from tests.broker.raw import RawClient
from tests.broker.requests import (
    EARLIEST,
    Topic,
    append,
    batch_of,
    create_topic,
    delete_before,
    every_version,
    fetch,
    fetch_request,
    list_offset,
    new_producer_id,
    produce,
    read_all,
    request_topic,
    topic_exists,
    until,
    values_in,
    wanted,
)

POLICIES = pytest.mark.parametrize("policy", ["group", "interval", "os"])
STORAGE = ErrorCode.KAFKA_STORAGE_ERROR


def log_dirs(client: RawClient) -> dict[str, DescribeLogDirsResult]:
    response = client.call(DESCRIBE_LOG_DIRS, 5, DescribeLogDirsRequest(topics=None))
    assert response.error_code == ErrorCode.NONE
    return {result.log_dir: result for result in response.results}


# -- full


@POLICIES
def test_a_full_disk_refuses_writes_keeps_reads_and_recovers(policy: str) -> None:
    disk = Disk()
    with on_disk(disk, penstock_flush=policy) as running, RawClient(running.bootstrap) as client:
        topic = create_topic(client)
        append(client, topic, b"before")
        disk.capacity = disk.used() + 10

        for _ in range(3):
            refused = produce(client, topic, batch_of([b"too much"]))
            assert (refused.error_code, refused.base_offset) == (STORAGE, -1)
        assert values_in(fetch(client, topic, 0)) == [b"before"]
        assert list_offset(client, topic, EARLIEST).offset == 0
        described = log_dirs(client)["/disk"]
        assert (described.error_code, described.is_full) == (ErrorCode.NONE, True)

        disk.capacity = None
        running.look_for_room()
        assert not log_dirs(client)["/disk"].is_full
        assert append(client, topic, b"after") == 1
        assert [r.value for r in read_all(client, topic)] == [b"before", b"after"]

    with on_disk(disk) as running, RawClient(running.bootstrap) as client:
        assert [r.value for r in read_all(client, topic)] == [b"before", b"after"]


def test_an_idempotent_producer_goes_on_where_a_full_disk_stopped_it() -> None:
    disk = Disk()
    with on_disk(disk, penstock_flush="group") as running, RawClient(running.bootstrap) as client:
        topic = create_topic(client)
        producer_id = new_producer_id(client)

        def send(sequence: int) -> int:
            value = [b"%d" % sequence]
            batch = batch_of(value, producer_id=producer_id, producer_epoch=0, base_sequence=sequence)
            return produce(client, topic, batch).error_code

        assert send(0) == ErrorCode.NONE
        disk.capacity = disk.used() + 10
        assert [send(1), send(2), send(1)] == [STORAGE, STORAGE, STORAGE]
        disk.capacity = None
        running.look_for_room()
        assert [send(1), send(2), send(1)] == [ErrorCode.NONE] * 3
        assert [r.value for r in read_all(client, topic)] == [b"0", b"1", b"2"]


def test_a_flush_that_finds_no_space_is_made_up_for() -> None:
    """A flush writes a small file behind the first batch: that fails, and the batch is in the log.

    The next one has the room that was kept for such files.
    """
    disk = Disk()
    with (
        on_disk(disk, penstock_flush="group", penstock_flush_interval_ms="10") as running,
        RawClient(running.bootstrap) as client,
    ):
        topic = create_topic(client)
        batch = batch_of([b"x"], producer_id=new_producer_id(client), producer_epoch=0, base_sequence=0)
        disk.capacity = disk.used() + len(batch) + 5
        assert produce(client, topic, batch).error_code == STORAGE

        assert values_in(fetch(client, topic, 0, max_wait_ms=5000)) == [b"x"]
        disk.capacity = None
        running.look_for_room()
        repeated = produce(client, topic, batch)
        assert (repeated.error_code, repeated.base_offset) == (ErrorCode.NONE, 0)


def test_a_topic_that_a_full_disk_has_no_room_for_is_not_created() -> None:
    disk = Disk()
    with on_disk(disk) as running, RawClient(running.bootstrap) as client:
        disk.remove("/disk/reserve")
        disk.capacity = disk.used() + 10
        assert request_topic(client, "wished-for").error_code == STORAGE
        assert not topic_exists(client, "wished-for")

        disk.capacity = None
        topic = create_topic(client, "wished-for")
        running.look_for_room()
        append(client, topic, b"x")


def test_topics_change_on_a_full_disk_as_long_as_its_reserve_lasts() -> None:
    disk = Disk()
    with on_disk(disk) as running, RawClient(running.bootstrap) as client:
        disk.capacity = disk.used() + 10
        topic = create_topic(client)
        assert produce(client, topic, batch_of([b"x"])).error_code == STORAGE


def test_a_broker_that_cannot_begin_for_lack_of_room_says_so() -> None:
    disk = Disk()
    with on_disk(disk):
        pass
    disk.remove("/disk/reserve")
    disk.capacity = disk.used() + 10
    with pytest.raises(StorageError, match="No space left"), on_disk(disk):
        pass


def test_a_topic_whose_partitions_found_no_room_opens_when_there_is_some() -> None:
    data, metadata = Disk(), Disk()
    with (
        on_disk(Volumes(metadata=metadata, data=data), "/metadata,/data") as running,
        RawClient(running.bootstrap) as client,
    ):
        data.capacity = data.used()
        result = request_topic(client, "squeezed", partitions=2)
        assert result.error_code == ErrorCode.NONE
        topic = Topic("squeezed", result.topic_id)  # type: ignore[arg-type]
        codes = {produce(client, topic, batch_of([b"x"]), partition=p).error_code for p in (0, 1)}
        assert codes == {ErrorCode.NONE, STORAGE}

        data.capacity = None
        until(lambda: not produce(client, topic, batch_of([b"x"]), partition=0).error_code)
        until(lambda: not produce(client, topic, batch_of([b"x"]), partition=1).error_code)
        expected = {p: len(read_all(client, topic, partition=p)) for p in (0, 1)}

    with (
        on_disk(Volumes(metadata=metadata, data=data), "/metadata,/data") as running,
        RawClient(running.bootstrap) as client,
    ):
        assert {p: len(read_all(client, topic, partition=p)) for p in (0, 1)} == expected


def test_records_are_not_deleted_where_a_full_disk_cannot_remember_it() -> None:
    disk = Disk()
    with on_disk(disk) as running, RawClient(running.bootstrap) as client:
        topic = create_topic(client)
        append(client, topic, b"0", b"1")
        disk.capacity = disk.used()
        assert delete_before(client, topic, 1).error_code == STORAGE
        disk.capacity = None
        assert delete_before(client, topic, 1).low_watermark == 1


# -- failing


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


def placement(client: RawClient, topic: Topic) -> dict[str, int]:
    """The partition in each directory."""
    found = {}
    for path, result in log_dirs(client).items():
        for stored in result.topics:
            if stored.name == topic.name:
                (found[path],) = [p.partition_index for p in stored.partitions]
    return found


def test_partitions_are_spread_over_the_directories(client: RawClient, topic: Topic) -> None:
    assert set(placement(client, topic)) == {"/good", "/bad"}


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_a_failed_sync_takes_its_directory_offline_and_no_other(
    client: RawClient, topic: Topic, disks: tuple[Disk, Disk], code: int
) -> None:
    where = placement(client, topic)
    _, bad = disks
    bad.sync_error = code

    failed = produce(client, topic, batch_of([b"lost?"]), partition=where["/bad"])
    fine = produce(client, topic, batch_of([b"kept"]), partition=where["/good"])

    assert (failed.error_code, fine.error_code) == (STORAGE, ErrorCode.NONE)
    bad.sync_error = None
    # Never again: the kernel may have dropped what it could not write.
    assert produce(client, topic, batch_of([b"x"]), partition=where["/bad"]).error_code == STORAGE
    assert fetch(client, topic, 0, partition=where["/bad"]).error_code == STORAGE
    assert list_offset(client, topic, EARLIEST, partition=where["/bad"]).error_code == STORAGE
    assert values_in(fetch(client, topic, 0, partition=where["/good"])) == [b"before", b"kept"]
    offline = log_dirs(client)
    assert {path: d.error_code for path, d in offline.items()} == {"/good": 0, "/bad": STORAGE}


def test_a_failed_read_takes_its_directory_offline(
    client: RawClient, topic: Topic, disks: tuple[Disk, Disk]
) -> None:
    where = placement(client, topic)
    # What was appended last is answered from memory.
    append(client, topic, b"after", partition=where["/bad"])
    disks[1].read_error = errno.EIO

    failed = fetch(client, topic, 0, partition=where["/bad"])

    assert failed.error_code == STORAGE
    disks[1].read_error = None
    assert produce(client, topic, batch_of([b"x"]), partition=where["/bad"]).error_code == STORAGE
    assert values_in(fetch(client, topic, 0, partition=where["/good"])) == [b"before"]


@pytest.mark.parametrize("version", [4, 5, 6])
def test_old_clients_get_an_error_code_of_a_failed_disk_that_they_know(
    client: RawClient, topic: Topic, disks: tuple[Disk, Disk], version: int
) -> None:
    where = placement(client, topic)
    append(client, topic, b"after", partition=where["/bad"])
    disks[1].read_error = errno.EIO

    failed = fetch(client, topic, 0, partition=where["/bad"], version=version)

    assert failed.error_code == (STORAGE if version >= 6 else ErrorCode.NOT_LEADER_OR_FOLLOWER)


@pytest.mark.parametrize("size", [10, 100_000])
def test_a_failed_read_from_a_cold_disk_takes_its_directory_offline(
    client: RawClient, topic: Topic, disks: tuple[Disk, Disk], size: int
) -> None:
    where = placement(client, topic)
    append(client, topic, b"x" * size, partition=where["/bad"])
    disks[1].evict()
    disks[1].read_error = errno.EIO

    requested = list_offset(client, topic, 0, partition=where["/bad"])
    failed = fetch(client, topic, 1, partition=where["/bad"], max_wait_ms=30_000)

    assert requested.error_code == failed.error_code == STORAGE


@pytest.mark.parametrize("size", [10, 100_000])
def test_records_that_are_on_the_disk_alone_are_not_waited_for(
    client: RawClient, topic: Topic, disks: tuple[Disk, Disk], size: int
) -> None:
    append(client, topic, b"x" * size)
    for disk in disks:
        disk.evict()

    assert values_in(fetch(client, topic, 1, max_wait_ms=30_000)) == [b"x" * size]
    for disk in disks:
        disk.evict()
    assert list_offset(client, topic, 0).offset == 0


def test_a_later_partition_whose_first_batch_is_too_large_is_not_cut_where_it_comes_from_the_disk(
    client: RawClient, disks: tuple[Disk, Disk]
) -> None:
    topic = create_topic(client, partitions=3)
    for partition in range(3):
        for _ in range(2):
            append(client, topic, b"x" * 3000, partition=partition)
    for disk in disks:
        disk.evict()
    named = [wanted(0, partition, 1000) for partition in range(3)]
    request = fetch_request([(topic, named)], version=FETCH.max_version, max_wait_ms=30_000)

    (answers,) = [t.partitions for t in client.call(FETCH, FETCH.max_version, request).responses]

    assert values_in(answers[0]) == [b"x" * 3000]
    assert [bool(answer.records) for answer in answers[1:]] == [False, False]


def test_new_topics_go_where_the_disk_is_sound(
    client: RawClient, topic: Topic, disks: tuple[Disk, Disk]
) -> None:
    where = placement(client, topic)
    disks[1].sync_error = errno.EIO
    produce(client, topic, batch_of([b"x"]), partition=where["/bad"])

    new = create_topic(client, partitions=4)

    for partition in range(4):
        append(client, new, b"x", partition=partition)


def test_what_was_acknowledged_is_there_again_when_the_disk_is(disks: tuple[Disk, Disk]) -> None:
    good, bad = disks
    volumes = Volumes(good=good, bad=bad)
    with (
        on_disk(volumes, "/good,/bad", penstock_flush="group") as running,
        RawClient(running.bootstrap) as client,
    ):
        topic = create_topic(client, partitions=2)
        for partition in (0, 1):
            append(client, topic, b"kept", partition=partition)
        bad.sync_error = errno.EIO
        for partition in (0, 1):
            produce(client, topic, batch_of([b"perhaps"]), partition=partition)
    bad.sync_error = None

    with on_disk(volumes, "/good,/bad") as running, RawClient(running.bootstrap) as client:
        for partition in (0, 1):
            assert read_all(client, topic, partition=partition)[0].value == b"kept"
            append(client, topic, b"more", partition=partition)


def test_with_an_interval_a_failed_sync_is_noticed_by_itself() -> None:
    disk = Disk()
    with (
        on_disk(disk, penstock_flush="interval", penstock_flush_interval_ms="5") as running,
        RawClient(running.bootstrap) as client,
    ):
        topic = create_topic(client)
        disk.sync_error = errno.EIO
        append(client, topic, b"x")

        until(lambda: produce(client, topic, batch_of([b"y"])).error_code != ErrorCode.NONE)
        assert fetch(client, topic, 0).error_code == STORAGE


def test_without_its_metadata_a_broker_changes_nothing_and_serves_what_it_has(
    client: RawClient, topic: Topic, disks: tuple[Disk, Disk]
) -> None:
    """The metadata log lives in the first directory."""
    where = placement(client, topic)
    disks[0].sync_error = errno.EIO

    assert request_topic(client, "new").error_code == STORAGE
    assert request_topic(client, "new").error_code == STORAGE

    assert not topic_exists(client, "new")
    append(client, topic, b"x", partition=where["/bad"])
    assert len(read_all(client, topic, partition=where["/bad"])) == 2


# -- missing


def mounted(disks: dict[str, Files], *paths: str) -> AbstractContextManager[BrokerOnDisk]:
    return on_disk(Volumes(**disks), ",".join(paths))


def test_a_directory_that_is_not_mounted_is_not_made_anew_and_its_partitions_wait_for_it() -> None:
    a, b = Disk(), Disk()
    with mounted({"a": a, "b": b}, "/a", "/b") as running, RawClient(running.bootstrap) as client:
        topic = create_topic(client, partitions=2)
        where = placement(client, topic)
        for partition in (0, 1):
            append(client, topic, b"kept", partition=partition)

    bare = Disk()
    with mounted({"a": a, "b": bare}, "/a", "/b") as running, RawClient(running.bootstrap) as client:
        assert fetch(client, topic, 0, partition=where["/b"]).error_code == STORAGE
        assert produce(client, topic, batch_of([b"x"]), partition=where["/b"]).error_code == STORAGE
        assert values_in(fetch(client, topic, 0, partition=where["/a"])) == [b"kept"]
        assert {path: d.error_code for path, d in log_dirs(client).items()} == {"/a": 0, "/b": STORAGE}
        new = create_topic(client, partitions=2)
        for partition in (0, 1):
            append(client, new, b"new", partition=partition)
    assert not bare.exists("/b")

    with mounted({"a": a, "b": b}, "/a", "/b") as running, RawClient(running.bootstrap) as client:
        for partition in (0, 1):
            assert [r.value for r in read_all(client, topic, partition=partition)] == [b"kept"]
            assert [r.value for r in read_all(client, new, partition=partition)] == [b"new"]


def test_a_directory_that_is_no_longer_named_is_missed() -> None:
    disks: dict[str, Files] = {"a": Disk(), "b": Disk()}
    with mounted(disks, "/a", "/b") as running, RawClient(running.bootstrap) as client:
        topic = create_topic(client, partitions=2)
        where = placement(client, topic)
    with mounted(disks, "/a") as running, RawClient(running.bootstrap) as client:
        assert produce(client, topic, batch_of([b"x"]), partition=where["/b"]).error_code == STORAGE


def test_a_new_directory_joins_the_others() -> None:
    disks: dict[str, Files] = {"a": Disk(), "b": Disk()}
    with mounted(disks, "/a") as running, RawClient(running.bootstrap) as client:
        topic = create_topic(client)
        append(client, topic, b"kept")
    # Even before them: the cluster's id and its metadata are where they were.
    with mounted(disks, "/b", "/a") as running, RawClient(running.bootstrap) as client:
        assert [r.value for r in read_all(client, topic)] == [b"kept"]
        assert "/b" in placement(client, create_topic(client))
    with pytest.raises(DirectoryRefused, match="metadata"), mounted(disks, "/b"):
        pass


# -- DescribeLogDirs


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


# -- AlterReplicaLogDirs


def wish(client: RawClient, path: str, topic: str, partition: int, version: int = 2) -> ErrorCode:
    """What the broker says to a replica of it in the directory `path`."""
    wanted = AlterReplicaLogDirTopic(name=topic, partitions=[partition])
    request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=path, topics=[wanted])])
    ((result,),) = [r.partitions for r in client.call(ALTER_REPLICA_LOG_DIRS, version, request).results]
    assert result.partition_index == partition
    return ErrorCode(result.error_code)


@pytest.mark.parametrize("version", every_version(ALTER_REPLICA_LOG_DIRS))
def test_a_replica_stays_in_its_directory(client: RawClient, topic: Topic, version: int) -> None:
    where = placement(client, topic)
    assert wish(client, "/good", topic.name, where["/good"], version) is ErrorCode.NONE
    moved = wish(client, "/good", topic.name, where["/bad"], version)
    assert moved is ErrorCode.INVALID_REPLICA_ASSIGNMENT
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


def test_a_broker_that_finds_two_copies_of_a_replica_does_not_choose_one() -> None:
    """One was left behind by a disk that failed, and has come back; it may lack what was acknowledged."""
    a, b = Disk(), Disk()
    with mounted({"a": a, "b": b}, "/a", "/b") as running, RawClient(running.bootstrap) as client:
        topic = create_topic(client)
        append(client, topic, b"kept")
    assert a.is_dir(f"/a/topics/{topic.name}/partition-0")
    b.makedirs(f"/b/topics/{topic.name}/partition-0")
    b.write_atomic(f"/b/topics/{topic.name}/topic.metadata", a.read(f"/a/topics/{topic.name}/topic.metadata"))
    with (
        pytest.raises(DirectoryRefused, match="are the same replica"),
        mounted({"a": a, "b": b}, "/a", "/b"),
    ):
        pass
