"""Retention as the running broker applies it: by age, by size, and what it leaves alone."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.broker.replica.partition import Partition
from penstock.model.errors import ErrorCode
from penstock.testing import broker
from tests.broker.configs import TOPIC, set_config
from tests.broker.disks import Disk, Volumes, on_disk
from tests.broker.raw import RawClient
from tests.broker.requests import (
    EARLIEST,
    LATEST,
    Topic,
    append,
    batch_of,
    create_topic,
    delete_before,
    fetch,
    list_offset,
    now_ms,
    produce,
    read_all,
    record,
    until,
)

BUSY = {"log.retention.check.interval.ms": "5", "log.segment.delete.delay.ms": "0"}
HOUR_MS = 3_600_000
SMALL_SEGMENTS = {"internal.segment.bytes": "500"}


@pytest.fixture
def client() -> Iterator[RawClient]:
    """A broker that looks for old segments all the time."""
    with broker(config=BUSY) as running, RawClient(running.bootstrap) as connected:
        yield connected


def fill(client: RawClient, topic: Topic, count: int, timestamp: int | None = None) -> None:
    """Batches of one record, two to a small segment."""
    for i in range(count):
        at = now_ms() if timestamp is None else timestamp
        answer = produce(client, topic, batch_of([record(b"%d" % i * 100, key=b"k%d" % i, timestamp=at)]))
        assert answer.error_code == ErrorCode.NONE


def start_of(client: RawClient, topic: Topic) -> int:
    return list_offset(client, topic, EARLIEST).offset


def passes(client: RawClient) -> None:
    """Return when retention has been applied to everything at least once from now on."""
    witness = create_topic(client, configs={"retention.ms": "1000"})
    fill(client, witness, 1, timestamp=now_ms() - HOUR_MS)
    until(lambda: start_of(client, witness) == 1)


def test_records_that_are_too_old_go(client: RawClient) -> None:
    topic = create_topic(client, configs={"retention.ms": "1000000", **SMALL_SEGMENTS})
    fill(client, topic, 10, timestamp=now_ms() - HOUR_MS)
    fill(client, topic, 4)

    # Whole segments go: the last old record may share one with the first young one.
    until(lambda: start_of(client, topic) >= 8)
    passes(client)  # or a segment of which half was written then may go now

    start = start_of(client, topic)
    assert start <= 10
    assert list_offset(client, topic, LATEST).offset == 14
    assert fetch(client, topic, 0).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert len(read_all(client, topic, start)) == 14 - start


def test_the_active_segment_is_deleted_when_all_of_it_is_too_old(client: RawClient) -> None:
    topic = create_topic(client, configs={"retention.ms": "1000"})
    fill(client, topic, 3, timestamp=now_ms() - HOUR_MS)

    until(lambda: start_of(client, topic) == 3)

    assert append(client, topic, b"goes on") == 3
    assert [r.value for r in read_all(client, topic, 3)] == [b"goes on"]


def test_a_log_that_is_too_large_loses_its_oldest_segments(client: RawClient) -> None:
    topic = create_topic(client, configs={"retention.bytes": "1500", "retention.ms": "-1", **SMALL_SEGMENTS})
    fill(client, topic, 20)

    until(lambda: start_of(client, topic) >= 10)

    passes(client)
    kept = read_all(client, topic, start_of(client, topic))
    assert [r.offset for r in kept] == list(range(start_of(client, topic), 20))
    assert 1500 <= sum(len(r.value or b"") for r in kept) + 70 * len(kept) <= 2600


def test_without_limits_everything_stays(client: RawClient) -> None:
    topic = create_topic(client, configs={"retention.ms": "-1", **SMALL_SEGMENTS})
    fill(client, topic, 10, timestamp=1)

    passes(client)

    assert start_of(client, topic) == 0


@pytest.mark.parametrize(("policy", "goes"), [("compact", False), ("compact,delete", True), ("delete", True)])
def test_the_cleanup_policy_decides_whether_old_records_are_deleted(
    client: RawClient, policy: str, goes: bool
) -> None:
    topic = create_topic(client, configs={"cleanup.policy": policy, "retention.ms": "1000", **SMALL_SEGMENTS})
    fill(client, topic, 6, timestamp=now_ms() - HOUR_MS)

    passes(client)
    passes(client)

    assert (start_of(client, topic) > 0) == goes


def test_a_change_of_retention_takes_effect(client: RawClient) -> None:
    topic = create_topic(client, configs={"retention.ms": "-1", **SMALL_SEGMENTS})
    fill(client, topic, 6, timestamp=now_ms() - HOUR_MS)
    passes(client)
    assert start_of(client, topic) == 0

    set_config(client, TOPIC, topic.name, "retention.ms", "1000")

    until(lambda: start_of(client, topic) == 6)


def test_the_files_of_dropped_and_deleted_records_go(tmp_path: Path) -> None:
    with broker(data=tmp_path, config=BUSY) as running, RawClient(running.bootstrap) as client:
        old = create_topic(client, configs={"retention.ms": "1000", **SMALL_SEGMENTS})
        deleted = create_topic(client, configs={"retention.ms": "-1", **SMALL_SEGMENTS})
        fill(client, old, 10, timestamp=now_ms() - HOUR_MS)
        fill(client, deleted, 10)
        delete_before(client, deleted, 7)

        def segments(topic: Topic) -> list[int]:
            files = (tmp_path / "topics" / topic.name / "partition-0").iterdir()
            return sorted(int(f.name.split(".")[0]) for f in files if ".log" in f.name)

        until(lambda: segments(old) == [10])
        until(lambda: segments(deleted)[0] in (6, 7))
        assert start_of(client, deleted) == 7

    with broker(data=tmp_path) as running, RawClient(running.bootstrap) as client:
        assert (start_of(client, old), start_of(client, deleted)) == (10, 7)
        assert append(client, old, b"x") == 10


def test_a_reader_of_dropped_segments_gets_an_error_and_keeps_its_connection(client: RawClient) -> None:
    topic = create_topic(client, configs={"retention.ms": "-1", **SMALL_SEGMENTS})
    fill(client, topic, 6, timestamp=now_ms() - HOUR_MS)
    position = records_read = len(read_all(client, topic))
    set_config(client, TOPIC, topic.name, "retention.ms", "1000")
    until(lambda: start_of(client, topic) == 6)

    assert fetch(client, topic, position).error_code == ErrorCode.NONE
    assert fetch(client, topic, records_read - 1).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_failed_disk_does_not_keep_others_from_their_retention() -> None:
    good, bad = Disk(), Disk()
    with (
        on_disk(
            Volumes(good=good, bad=bad),
            "/bad,/good",
            penstock_flush="group",
            log_retention_check_interval_ms="5",
        ) as running,
        RawClient(running.bootstrap) as client,
    ):
        topics = [create_topic(client, configs={"retention.ms": "1000000"}) for _ in range(4)]
        bad.sync_error = errno.EIO
        codes = [produce(client, topic, batch_of([b"x"])).error_code for topic in topics]
        sound = [topic for topic, code in zip(topics, codes, strict=True) if not code]
        assert 0 < len(sound) < 4

        for topic in sound:
            fill(client, topic, 1, timestamp=now_ms() - HOUR_MS)
            # Not by a request: the metadata log may be on the failed disk.
            partition = running.broker.stages.storage.partitions.find(topic.name, 0)
            assert isinstance(partition, Partition)
            partition.reconfigure(replace(partition.log.config, retention_ms=1))

        until(lambda: all(start_of(client, topic) == 2 for topic in sound))
