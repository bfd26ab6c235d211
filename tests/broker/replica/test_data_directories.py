"""Disks that are full, fail, or are several."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import AbstractContextManager

import pytest

from penstock.model.errors import ErrorCode
from penstock.ports import Files
from penstock.storage.ownership import DirectoryRefused
from penstock.wire.apis.fetch import FETCH
from tests.broker.disks import BrokerOnDisk, Disk, Volumes, on_disk
from tests.broker.log_dirs import log_dirs, placement
from tests.broker.raw import RawClient
from tests.broker.requests import (
    EARLIEST,
    Topic,
    append,
    batch_of,
    create_topic,
    fetch,
    fetch_request,
    list_offset,
    produce,
    read_all,
    request_topic,
    topic_exists,
    until,
    values_in,
    wanted,
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


def test_a_too_large_first_batch_of_a_later_partition_is_not_cut_when_read_from_disk(
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
    stored = {
        path
        for path, result in log_dirs(client).items()
        for topic_in in result.topics
        if topic_in.name == new.name
    }
    assert stored == {"/good"}


def test_acknowledged_records_return_with_their_disk(disks: tuple[Disk, Disk]) -> None:
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


def test_without_its_metadata_a_broker_changes_nothing_and_serves_its_replicas(
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


def mounted(disks: dict[str, Files], *paths: str) -> AbstractContextManager[BrokerOnDisk]:
    return on_disk(Volumes(**disks), ",".join(paths))


def test_partitions_of_an_unmounted_directory_wait_for_it_and_are_not_recreated() -> None:
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
