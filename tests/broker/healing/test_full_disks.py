"""A full disk of one broker: writes are refused, reads go on, and room ends it."""

from __future__ import annotations

import pytest

from penstock.model.errors import ErrorCode, StorageError
from tests.broker.disks import Disk, Volumes, on_disk
from tests.broker.log_dirs import log_dirs
from tests.broker.raw import RawClient
from tests.broker.requests import (
    EARLIEST,
    Topic,
    append,
    batch_of,
    create_topic,
    delete_before,
    fetch,
    list_offset,
    new_producer_id,
    produce,
    read_all,
    request_topic,
    topic_exists,
    until,
    values_in,
)

POLICIES = pytest.mark.parametrize("policy", ["group", "interval", "os"])
STORAGE = ErrorCode.KAFKA_STORAGE_ERROR


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


def test_an_idempotent_producer_continues_after_a_full_disk() -> None:
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


def test_a_broker_that_cannot_start_for_lack_of_space_logs_it() -> None:
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
